//! Judges packets by the [`crate::rules`]: those that a driver hands to its device ([`check_handed`]) and those
//! on a link ([`check_wire`]). Pure functions; what to do about a breach is up to the caller.

mod handed;
mod wire;

pub use handed::{Handed, Limits, check_handed, check_handed_with};
pub use wire::check_wire;

use nicvisor_core::{Context, Finding, Rule, Time};

/// One rule that a packet breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: &'static Rule,
    /// What was expected and what was found.
    pub message: String,
}

impl Breach {
    /// Reports the breach from a device; `complete` adds queue, descriptor and packet.
    pub fn report(self, context: &mut Context<'_>, complete: impl FnOnce(&mut Finding)) {
        context.report(self.rule, self.message, complete);
    }

    /// The breach as a finding at `time`.
    pub fn into_finding(self, time: Time) -> Finding {
        Finding::new(self.rule, time, self.message)
    }
}

/// How many bytes of a packet a finding keeps: all headers and a little payload.
pub const EVIDENCE_LEN: usize = 256;

/// The start of `packet`, as evidence for [`Finding::packet`].
pub fn evidence(packet: &[u8]) -> Vec<u8> {
    packet[..packet.len().min(EVIDENCE_LEN)].to_vec()
}

fn breach(breaches: &mut Vec<Breach>, rule: &'static Rule, message: impl Into<String>) {
    breaches.push(Breach { rule, message: message.into() });
}
