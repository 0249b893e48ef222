//! What [`crate::check`] demands of one table by itself, said in JSON Schema, so that an editor shows it.
//!
//! Each function is the `transform` of a type of the model. What depends on other tables, on the machine or on a
//! grammar of its own is for the checks alone.

use schemars::Schema;
use serde_json::{Value, json};

/// A step does exactly one thing; what goes with some kinds of steps only is nowhere else.
pub(crate) fn step(schema: &mut Schema) {
    let mut kinds = one_of(&STEP_KINDS);
    kinds.push(json!({ "required": ["measure"], "not": { "anyOf": one_of(&STEP_KINDS) } }));
    schema.insert("oneOf".into(), kinds.into());
    let with_run: serde_json::Map<String, Value> =
        WITH_RUN.iter().map(|name| ((*name).to_owned(), json!(["run"]))).collect();
    schema.insert("dependentRequired".into(), with_run.into());
    schema.insert("not".into(), json!({ "required": ["namespace", "guest"] }));
    let output = json!({ "anyOf": one_of(&["run", "stream"]) });
    let repeated = json!({ "anyOf": output["anyOf"], "not": { "required": ["background"] } });
    schema.insert("dependentSchemas".into(), json!({ "repeat": repeated }));
    // Without output there is no place in it to be measured.
    let sources = json!({ "properties": { "measure": { "additionalProperties": { "type": "object" } } } });
    schema.insert("if".into(), output);
    schema.insert("else".into(), sources);
}

/// One thing is waited for at a time; `job` with `output` is one.
pub(crate) fn wait(schema: &mut Schema) {
    let mut things = one_of(&["output", "log", "event", "frames", "counter", "time"]);
    things.push(json!({ "required": ["job"], "not": { "required": ["output"] } }));
    schema.insert("oneOf".into(), things.into());
    schema.insert("dependentRequired".into(), json!({ "guest": ["log"] }));
}

pub(crate) fn counter_wait(schema: &mut Schema) {
    schema.insert("oneOf".into(), one_of(&["at_least", "more"]).into());
}

pub(crate) fn fault(schema: &mut Schema) {
    schema.insert("oneOf".into(), one_of(&["command", "completion", "override", "event", "lift"]).into());
}

/// A link has settings, a port is only up or down.
pub(crate) fn link_change(schema: &mut Schema) {
    schema.insert("oneOf".into(), one_of(&["name", "port"]).into());
    schema.insert("anyOf".into(), one_of(&["up", "set"]).into());
    schema.insert("dependentSchemas".into(), json!({ "port": { "not": { "required": ["set"] } } }));
}

/// A counter, or a port with what of its frames' sizes is meant.
pub(crate) fn measure_source(schema: &mut Schema) {
    let sources = json!([
        { "required": ["counter"], "not": { "anyOf": one_of(&["port", "sizes"]) } },
        { "required": ["port", "sizes"], "not": { "required": ["counter"] } },
    ]);
    schema.insert("oneOf".into(), sources);
}

pub(crate) fn json_expectation(schema: &mut Schema) {
    schema.insert("anyOf".into(), one_of(&["equals", "at_least", "at_most", "exists"]).into());
}

pub(crate) fn counter_expectation(schema: &mut Schema) {
    schema.insert("anyOf".into(), one_of(&["equals", "at_least", "at_most"]).into());
}

pub(crate) fn frames_expectation(schema: &mut Schema) {
    schema.insert("anyOf".into(), one_of(&["count", "largest", "smallest", "above"]).into());
}

pub(crate) fn log_expectation(schema: &mut Schema) {
    schema.insert("anyOf".into(), one_of(&["matches", "lacks"]).into());
}

/// A VLAN has no ends and 12 bits of id, a tunnel 24. That a tunnel needs its other end is not said: defaults may
/// bring it.
pub(crate) fn device(schema: &mut Schema) {
    let ends = json!({ "anyOf": one_of(&["remote", "local"]) });
    let id = |most: u32| json!({ "if": { "type": "integer" }, "then": { "maximum": most } });
    schema
        .insert("if".into(), json!({ "properties": { "kind": { "const": "vlan" } }, "required": ["kind"] }));
    schema.insert("then".into(), json!({ "properties": { "id": id(4094) }, "not": ends }));
    schema.insert("else".into(), json!({ "properties": { "id": id((1 << 24) - 1) } }));
}

/// Demands of a table that exactly one of `names` is there, or at least one, as a list of alternatives.
fn one_of(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "required": [name] })).collect()
}

/// A kernel: one of Debian's, or a path.
pub(crate) fn kernel() -> Value {
    json!({ "type": "string", "anyOf": [
        { "pattern": r"^debian:[0-9]+\.[0-9]+(\.[0-9]+)?$" },
        { "not": { "pattern": "^(debian:|$)" } },
    ] })
}

/// A name that goes into the guest's shell.
pub(crate) const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$";
/// The same for an interface: Linux's IFNAMSIZ without the final zero.
pub(crate) const INTERFACE: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$";
/// The name of a measurement or a parameter.
pub(crate) const WORD: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// What looks like an IPv4 or IPv6 address.
pub(crate) const ADDRESS: &str = "^[0-9A-Fa-f.:]+$";
/// The same with its prefix length.
pub(crate) const PREFIX: &str = "^[0-9A-Fa-f.:]+/[0-9]{1,3}$";
/// A JSON pointer, or names and numbers between dots.
pub(crate) const PLACE: &str = r"^(/([^~]|~[01])*|[^\]\[. $/][^\]\[. $]*(\.[^\]\[. $]+)*)?$";

/// What a step can be.
const STEP_KINDS: [&str; 11] =
    ["run", "stream", "parallel", "sequence", "wait", "stop", "link", "fault", "unplug", "plug", "capture"];
/// What only goes with `run`.
const WITH_RUN: [&str; 7] =
    ["namespace", "guest", "background", "status", "output_contains", "output_lacks", "json"];
