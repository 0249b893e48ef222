//! Rules that a driver must keep, and what is recorded when one is broken.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{FrameId, Time};

/// One thing that a driver (or the stack above it) must keep, with where that is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Stable identifier that scenarios and reports use, such as `net-ipv6-jumbo-header`.
    pub id: &'static str,
    /// One line for a table of rules.
    pub title: &'static str,
    /// What goes wrong on real hardware when the rule is broken.
    pub meaning: &'static str,
    /// The document, header or RFC that states it.
    pub source: &'static str,
    /// How bad a breach is.
    pub severity: Severity,
}

/// How bad the breach of a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the run still passes.
    Note,
    /// The run fails.
    Error,
}

/// A breach of a rule, as evidence. Data first; text is made from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// [`Rule::id`] of the broken rule.
    pub rule: Cow<'static, str>,
    /// Copied from the rule.
    pub severity: Severity,
    /// When it was seen.
    pub time: Time,
    /// Which device saw it, such as `gve0`; filled in by the machine.
    pub device: String,
    /// Which queue it was seen on, such as `tx 3`; empty where no queue is concerned.
    pub queue: String,
    /// What was expected and what was found, in one sentence.
    pub message: String,
    /// The descriptors or the message concerned, raw.
    pub descriptor: Vec<u8>,
    /// The same field by field, a line for each descriptor, where the device can tell what it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decoded: Vec<String>,
    /// The packet as the driver handed it over (or its first part), if one is concerned.
    pub packet: Vec<u8>,
    /// The frame on the wire, if one is concerned: its place in the capture.
    pub frame: Option<FrameId>,
}

impl Finding {
    /// A finding about `rule`; the caller fills in what else it knows.
    pub fn new(rule: &Rule, time: Time, message: impl Into<String>) -> Finding {
        Finding {
            rule: Cow::Borrowed(rule.id),
            severity: rule.severity,
            time,
            device: String::new(),
            queue: String::new(),
            message: message.into(),
            descriptor: Vec::new(),
            decoded: Vec::new(),
            packet: Vec::new(),
            frame: None,
        }
    }
}
