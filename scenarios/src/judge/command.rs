//! Commands and streams.

use serde_json::Value;

use crate::json_path;
use crate::model::{JsonExpectation, Step, Stream};
use crate::outcome::Check;
use crate::runner::CommandResult;

/// Checks what a `run` step expects of its command.
pub(crate) fn judge_run(step: &Step, title: &str, result: &CommandResult) -> Vec<Check> {
    let wanted = step.status.clone().unwrap_or_default().0;
    let mut checks = vec![Check::of(title, status_is(&wanted, result))];
    let output = String::from_utf8_lossy(&result.stdout);
    for text in &step.output_contains {
        let found = if output.contains(text.as_str()) { Ok(()) } else { Err(excerpt(&output)) };
        checks.push(Check::of(format!("{title}: output contains {text:?}"), found));
    }
    for text in &step.output_lacks {
        let found = if output.contains(text.as_str()) { Err(excerpt(&output)) } else { Ok(()) };
        checks.push(Check::of(format!("{title}: output lacks {text:?}"), found));
    }
    for expectation in &step.json {
        let expectation = expectation.get_ref();
        let name = format!("{title}: {} {}", expectation.at, describe(expectation));
        checks.push(Check::of(name, judge_json(expectation, &result.stdout)));
    }
    checks
}

/// Checks that both ends of a stream agree. The results are those of the receiver and of the sender.
pub(crate) fn judge_stream(stream: &Stream, title: &str, results: &[&CommandResult]) -> Vec<Check> {
    let [received, sent] = results else { return Vec::new() };
    let mut checks = vec![
        Check::of(format!("{title}: sender"), status_is(&[0], sent)),
        Check::of(format!("{title}: receiver"), status_is(&[0], received)),
    ];
    let hash = |result: &CommandResult| {
        serde_json::from_slice::<Value>(&result.stdout)
            .ok()
            .and_then(|report| {
                Some((report.get("bytes")?.as_u64()?, report.get("hash")?.as_str()?.to_owned()))
            })
            .ok_or_else(|| format!("no report: {}", excerpt(&String::from_utf8_lossy(&result.stdout))))
    };
    let arrived = hash(received).and_then(|received| {
        let sent = hash(sent)?;
        if received == sent && received.0 == stream.bytes.0 {
            return Ok(());
        }
        Err(format!(
            "sent {} bytes with hash {}, received {} with {}",
            sent.0, sent.1, received.0, received.1
        ))
    });
    checks.push(Check::of(format!("{title}: payload arrives unchanged"), arrived));
    checks
}

/// The number at a place in JSON output.
///
/// # Errors
/// Says why there is none.
pub(crate) fn number_at(path: &str, output: &[u8]) -> Result<f64, String> {
    let value = value_at(path, output)?.ok_or_else(|| nothing_at(path, output))?;
    match &value {
        // Some programs write their numbers as text.
        Value::String(text) => text.parse().map_err(|_| format!("{text:?} is not a number")),
        other => other.as_f64().ok_or_else(|| format!("{other} is not a number")),
    }
}

/// What is there instead, as far as the path leads.
fn nothing_at(path: &str, output: &[u8]) -> String {
    let json: Value = serde_json::from_slice(output).unwrap_or_default();
    let pointer = json_path::pointer(path).unwrap_or_default();
    let mut ends = pointer.match_indices('/').map(|(at, _)| at).chain([pointer.len()]);
    let reached = ends.by_ref().map_while(|end| Some((json.pointer(&pointer[..end])?, end))).last();
    let Some((value, end)) = reached else { return "nothing is there".into() };
    let place = if end == 0 { "the output".to_owned() } else { format!("{:?}", &pointer[..end]) };
    match value {
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            format!("nothing is there; {place} has {}", names.join(", "))
        }
        Value::Array(items) => format!("nothing is there; {place} is a list of {}", items.len()),
        other => format!("nothing is there; {place} is {other}"),
    }
}

fn value_at(path: &str, output: &[u8]) -> Result<Option<Value>, String> {
    let pointer = json_path::pointer(path)?;
    let json: Value = serde_json::from_slice(output).map_err(|error| {
        format!("the output is not JSON ({error}): {}", excerpt(&String::from_utf8_lossy(output)))
    })?;
    Ok(json.pointer(&pointer).cloned())
}

fn judge_json(expectation: &JsonExpectation, output: &[u8]) -> Result<(), String> {
    let value = value_at(&expectation.at, output)?;
    if let Some(wanted) = expectation.exists
        && wanted != value.is_some()
    {
        return Err(value.map_or("nothing is there".into(), |value| format!("it is {value}")));
    }
    let demands = expectation.equals.is_some() || !expectation.bound().is_empty();
    let Some(value) = value else {
        return if demands { Err("nothing is there".into()) } else { Ok(()) };
    };
    let equal = expectation.equals.as_ref().is_none_or(|wanted| *wanted == value);
    let bound = expectation.bound();
    if equal && (bound.is_empty() || value.as_f64().is_some_and(|number| bound.holds(number))) {
        return Ok(());
    }
    Err(format!("it is {value}"))
}

fn describe(expectation: &JsonExpectation) -> String {
    let mut parts = Vec::new();
    parts.extend(expectation.equals.as_ref().map(|value| format!("is {value}")));
    let bound = expectation.bound();
    if !bound.is_empty() {
        parts.push(bound.to_string());
    }
    parts
        .extend(expectation.exists.map(|wanted| if wanted { "exists" } else { "does not exist" }.to_owned()));
    parts.join(" and ")
}

fn status_is(wanted: &[i32], result: &CommandResult) -> Result<(), String> {
    if wanted.contains(&result.status) {
        return Ok(());
    }
    let text = [&result.stderr[..], &result.stdout[..]].concat();
    Err(format!("exit status {}: {}", result.status, excerpt(&String::from_utf8_lossy(&text))))
}

/// The beginning of a text, for messages.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 400;
    let text = text.trim();
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None if text.is_empty() => "(no output)".into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_compared_exactly() {
        let judge = |text: &str, output: &str| {
            judge_json(&toml::from_str::<JsonExpectation>(text).unwrap(), output.as_bytes())
        };
        let output = r#"[{"tso_max_size": 262143, "name": "eth0"}]"#;
        assert_eq!(judge("at = '/0/tso_max_size'\nequals = 262143", output), Ok(()));
        assert_eq!(judge("at = '0.name'\nequals = 'eth0'", output), Ok(()));
        assert_eq!(judge("at = '/0/tso_max_size'\nequals = 65536", output), Err("it is 262143".into()));
        assert_eq!(judge("at = '/0/tso_max_size'\nat_most = 65536", output), Err("it is 262143".into()));
        assert_eq!(judge("at = '/0/name'\nat_most = 65536", output), Err("it is \"eth0\"".into()));
        assert_eq!(judge("at = '/1'\nexists = false", output), Ok(()));
        assert_eq!(judge("at = '/1'\nexists = true", output), Err("nothing is there".into()));
        assert_eq!(judge("at = '/0/x'\nequals = 1", "[]"), Err("nothing is there".into()));
        assert!(
            judge("at = '/0'\nequals = 1", "Cannot find device").unwrap_err().contains("Cannot find device")
        );
    }

    #[test]
    fn numbers_are_found_in_output() {
        let output = br#"{"runs": [{"p99": 12.5}], "text": "7", "name": "x"}"#;
        assert_eq!(number_at("runs.0.p99", output), Ok(12.5));
        assert_eq!(number_at("/text", output), Ok(7.0));
        assert_eq!(number_at("/name", output), Err("\"x\" is not a number".into()));
        let none = |path| number_at(path, output).unwrap_err();
        assert_eq!(none("/none"), "nothing is there; the output has name, runs, text");
        assert_eq!(none("runs.1.p99"), "nothing is there; \"/runs\" is a list of 1");
        assert_eq!(none("runs.0.p90"), "nothing is there; \"/runs/0\" has p99");
    }
}
