//! Changes of a whole schema: what TOML and parameters make different.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Value, json};

/// TOML has no null: what is left out is not there.
pub(super) struct WithoutNull;

impl Transform for WithoutNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let is_null = |value: &Value| *value == json!("null") || *value == json!({ "type": "null" });
        for key in ["type", "anyOf"] {
            let Some(Value::Array(choices)) = schema.get_mut(key) else { continue };
            choices.retain(|choice| !is_null(choice));
            if let [only] = choices.as_slice() {
                let only = only.clone();
                schema.remove(key);
                match only {
                    Value::Object(only) => schema.ensure_object().extend(only),
                    only => drop(schema.insert(key.into(), only)),
                }
            }
        }
        if schema.get("default") == Some(&Value::Null) {
            schema.remove("default");
        }
    }
}

/// Lets `${...}` stand wherever something else than any text does.
pub(super) struct AllowParameters;

impl Transform for AllowParameters {
    fn transform(&mut self, schema: &mut Schema) {
        // From the inside out: what comes of this would be changed again otherwise.
        transform_subschemas(self, schema);
        let Some(parameter) = parameter(schema) else { return };
        let mut inner = schema.clone();
        let description = inner.remove("description");
        let default = inner.remove("default");
        *schema = schemars::json_schema!({ "anyOf": [inner, parameter] });
        for (key, value) in [("description", description), ("default", default)] {
            if let Some(value) = value {
                schema.insert(key.into(), value);
            }
        }
    }
}

/// What may stand instead of what `schema` describes; `None` if nothing has to be said.
fn parameter(schema: &Schema) -> Option<Value> {
    let whole = || Some(json!({ "type": "string", "pattern": r"^\$\{[^}]+\}$" }));
    let within = || Some(json!({ "type": "string", "pattern": r"\$\{" }));
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number" | "boolean") => whole(),
        Some("string") if ["enum", "pattern", "anyOf"].into_iter().any(|key| schema.get(key).is_some()) => {
            within()
        }
        Some(_) => None,
        None => is_choice(schema).then(within).flatten(),
    }
}

/// Whether it lists texts, each with a description of its own.
fn is_choice(schema: &Schema) -> bool {
    let is_text = |choice: &Value| choice["type"] == "string" && !choice["const"].is_null();
    let choices = schema.get("oneOf").and_then(Value::as_array);
    choices.is_some_and(|choices| choices.iter().any(is_text))
}
