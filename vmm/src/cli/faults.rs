//! `nicvisor faults`, and the option `--fault`.

use std::str::FromStr;

use nicvisor_core::fault::{Fault, FaultPoints, Field};

use super::args::FaultsArguments;
use super::failure::Failure;
use super::report::say;

/// A fault for one device of the run, such as `gve0=event = { name = "link", arguments = { up = false } }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultArgument {
    /// The device, by the name that reports call it.
    pub(super) device: String,
    /// What is done to it.
    pub(super) fault: Fault,
}

impl FromStr for FaultArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultArgument, String> {
        let (device, fault) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not NIC=FAULT, such as gve0='lift = {{}}'"))?;
        let fault = toml::from_str(fault).map_err(|error| error.to_string())?;
        Ok(FaultArgument { device: device.trim().to_owned(), fault })
    }
}

pub(super) fn faults(arguments: &FaultsArguments) -> Result<u8, Failure> {
    let points = arguments.nic.build()?.fault_points();
    if arguments.json {
        say(&(serde_json::to_string_pretty(&points).expect("fault points are plain data") + "\n"))?;
    } else {
        say(&describe(&points))?;
    }
    Ok(0)
}

fn describe(points: &FaultPoints) -> String {
    let mut text = String::new();
    for channel in &points.channels {
        text += &format!("Commands of the channel {}\n", channel.name);
        text += &format!("  fail: {}\n", list(std::slice::from_ref(&channel.status)));
        for command in &channel.commands {
            text += &format!("  {}\n", command.name);
            text +=
                &format!("    where: {}\n    rewrite: {}\n", list(&command.request), list(&command.answer));
        }
    }
    for queue in &points.queues {
        let last = queue.count.saturating_sub(1);
        text += &format!("Completions of the queues {0} 0 to {0} {last}\n", queue.kind);
        text += &format!("    where, rewrite, insert: {}\n", list(&queue.fields));
    }
    if !points.overrides.is_empty() {
        text += "Values that can be overridden\n";
    }
    for point in &points.overrides {
        let queues = point.queues.map_or_else(String::new, |count| {
            let (kind, index) = point.value.name.split_once('.').unwrap_or((&point.value.name, ""));
            format!(", or of one of {count} queues: {kind} 0.{index}")
        });
        text += &format!("  {}{queues}\n", list(std::slice::from_ref(&point.value)));
    }
    if !points.events.is_empty() {
        text += "Events\n";
    }
    for event in &points.events {
        let arguments: Vec<_> = event.arguments.iter().map(|argument| argument.value.clone()).collect();
        text += &format!("  {}: {}\n    arguments: {}\n", event.name, event.meaning, list(&arguments));
    }
    if text.is_empty() {
        text += "This NIC has no fault points.\n";
    }
    text
}

fn list(fields: &[Field]) -> String {
    let field = |field: &Field| {
        let values: Vec<_> = field.values.iter().map(|(name, _)| &**name).collect();
        let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(" | ")) };
        format!("{} ({} bits{values})", field.name, field.bits)
    };
    match fields {
        [] => "-".to_owned(),
        _ => fields.iter().map(field).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_device_first() {
        let argument: FaultArgument = "gve0=lift = {}".parse().unwrap();
        assert_eq!(argument.device, "gve0");
        for (text, complaint) in [("lift", "is not NIC=FAULT"), ("gve0=lift = { name = 1 }", "unknown field")]
        {
            let message = text.parse::<FaultArgument>().unwrap_err();
            assert!(message.contains(complaint), "{message}");
        }
    }

    #[test]
    fn what_can_be_done_to_a_nic_is_listed() {
        let points = "gve".parse::<crate::nic::NicSpec>().unwrap().build().unwrap().fault_points();
        let text = describe(&points);
        for name in [
            "GVE_ADMINQ_CREATE_TX_QUEUE",
            "completion_tag",
            "register.device_status",
            "reset-request",
            "tx 0.tail",
        ] {
            assert!(text.contains(name), "{text}");
        }
        assert_eq!(describe(&FaultPoints::default()), "This NIC has no fault points.\n");
    }
}
