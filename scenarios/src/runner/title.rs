//! What steps are called.

use crate::model::{Step, Wait};

/// A step's own name, or one made from what it does.
pub(super) fn title(step: &Step) -> String {
    if let Some(name) = &step.name {
        return name.clone();
    }
    if let Some(script) = &step.run {
        return first_line(script.get_ref());
    }
    if let Some(stream) = &step.stream {
        let stream = stream.get_ref();
        let (from, to) = (&stream.from, &stream.to);
        return format!("stream of {} bytes from {from} to {to} ({})", stream.bytes.0, stream.address);
    }
    if let Some(wait) = &step.wait {
        return format!("wait for {}", waited_for(wait.get_ref()));
    }
    if let Some(stop) = &step.stop {
        return format!("stop {}", stop.get_ref().job.get_ref());
    }
    if let Some(link) = &step.link {
        let link = link.get_ref();
        let name = link.name.as_ref().or(link.port.as_ref()).map_or("", |name| name.get_ref());
        return match link.up {
            Some(true) => format!("{name} up"),
            Some(false) => format!("{name} down"),
            None => format!("change {name}"),
        };
    }
    if let Some(fault) = &step.fault {
        return format!("fault in {}", fault.get_ref().device.get_ref());
    }
    if let Some(unplug) = &step.unplug {
        return format!("unplug {}", unplug.get_ref().device.get_ref());
    }
    if let Some(plug) = step.plug.as_ref().map(|plug| plug.get_ref()) {
        let slot = plug.slot.map_or("in".into(), |slot| format!("into {}", slot.0));
        return format!("plug {} {slot}", plug.device.get_ref());
    }
    if let Some(capture) = step.capture {
        return format!("capture {capture:?}").to_lowercase();
    }
    let parts = |steps: &[toml::Spanned<Step>]| -> Vec<String> {
        steps.iter().map(|step| title(step.get_ref())).collect()
    };
    if !step.parallel.is_empty() {
        return parts(&step.parallel).join(" | ");
    }
    if !step.sequence.is_empty() {
        return parts(&step.sequence).join("; ");
    }
    let measured: Vec<&str> = step.measure.keys().map(String::as_str).collect();
    format!("measure {}", measured.join(", "))
}

/// What a wait waits for, as it is told.
pub(super) fn waited_for(wait: &Wait) -> String {
    let name = |name: &Option<toml::Spanned<String>>| name.as_ref().map(|name| name.get_ref().clone());
    if let Some(output) = &wait.output {
        return match name(&wait.job) {
            Some(job) => format!("{output:?} in the output of {job}"),
            None => format!("{output:?} in the output of a command"),
        };
    }
    if let Some(job) = name(&wait.job) {
        return format!("the end of {job}");
    }
    if let Some(log) = &wait.log {
        return format!("{log:?} in the kernel's log");
    }
    if let Some(event) = &wait.event {
        let times = if event.count == 1 { String::new() } else { format!(", {} times", event.count) };
        let what = event.name.as_deref().unwrap_or_default();
        let kind = serde_json::to_value(event.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default();
        return format!("{kind} {what} of {}{times}", event.device.get_ref()).replace("  ", " ");
    }
    if let Some(frames) = &wait.frames {
        let port = name(&frames.from).unwrap_or_else(|| "any port".into());
        return format!("{} more frames from {port}", frames.count);
    }
    if let Some(counter) = &wait.counter {
        let name = counter.name.get_ref();
        return match (counter.at_least, counter.more) {
            (Some(bound), _) => format!("{name} to be at least {bound}"),
            (None, more) => format!("{name} to grow by {}", more.unwrap_or(0)),
        };
    }
    wait.time.map_or_else(String::new, |time| format!("{time} to pass"))
}

fn first_line(script: &str) -> String {
    script.trim().lines().next().unwrap_or_default().to_owned()
}
