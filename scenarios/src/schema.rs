//! The JSON Schema of scenario files, for editors.

use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::model::Scenario;

/// The schema of a scenario file.
///
/// # Panics
/// Never: that of a struct has properties.
pub fn schema() -> Schema {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<Scenario>();
    schema.insert("title".into(), "nicvisor scenario".into());
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.expect("a scenario has fields").extend(file_properties());
    // Includes and variants may bring what is required.
    schema.remove("required");
    // So may they, and defaults, inside of what they are laid over.
    for name in ["Namespace", "Device", "Stream"] {
        let definition = schema.pointer_mut(&format!("/$defs/{name}")).and_then(Value::as_object_mut);
        definition.expect("namespaces have devices, steps streams").remove("required");
    }
    AllowParameters.transform(&mut schema);
    schema
}

/// What makes a file into its cases, and is gone before a case is understood.
fn file_properties() -> Map<String, Value> {
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    let table = json!({ "type": "object" });
    let properties = json!({
        "include": {
            "description": "Files whose contents come before this one's: tables are merged, lists of tables joined.",
            "type": "array", "items": { "type": "string" }
        },
        "parameters": {
            "description": "Values for ${name} and ${calculation} in texts.",
            "type": "object", "additionalProperties": scalar
        },
        "matrix": {
            "description": "Axes of parameters: the file stands for a case for each combination. `kernel` is \
                what --kernel replaces.",
            "type": "object",
            "additionalProperties": {
                "type": "array", "minItems": 1, "items": { "anyOf": [scalar, {
                    "type": "object", "required": ["name"], "additionalProperties": scalar
                }] }
            }
        },
        "exclude": {
            "description": "Cases to leave out, by the values of parameters; a list stands for any of its values.",
            "type": "array", "items": table
        },
        "variant": {
            "description": "What is laid over the file in the cases that `when` describes.",
            "type": "array",
            "items": { "type": "object", "required": ["when"], "properties": { "when": table } }
        },
        "defaults": {
            "description": "What every guest, NIC, link, namespace, device and stream has that does not say \
                otherwise.",
            "type": "object",
            "properties": {
                "guest": table, "nic": table, "link": table, "namespace": table, "device": table, "stream": table
            },
            "additionalProperties": false
        }
    });
    match properties {
        Value::Object(properties) => properties,
        _ => Map::new(),
    }
}

/// Lets a parameter stand wherever a number or a boolean does.
struct AllowParameters;

impl Transform for AllowParameters {
    fn transform(&mut self, schema: &mut Schema) {
        // From the inside out: what comes of this would be changed again otherwise.
        transform_subschemas(self, schema);
        allow_parameters(schema);
    }
}

fn allow_parameters(schema: &mut Schema) {
    let plain = match schema.get("type") {
        Some(Value::String(kind)) => ["integer", "number", "boolean"].contains(&kind.as_str()),
        Some(Value::Array(kinds)) => {
            kinds.contains(&json!("null"))
                && !kinds.contains(&json!("string"))
                && kinds.len() == 2
                && !kinds.contains(&json!("object"))
                && !kinds.contains(&json!("array"))
        }
        _ => false,
    };
    if !plain {
        return;
    }
    let mut inner = schema.clone();
    let description = inner.remove("description");
    let default = inner.remove("default");
    *schema = schemars::json_schema!({
        "anyOf": [inner, { "type": "string", "pattern": "^\\$\\{[^}]+\\}$" }]
    });
    for (key, value) in [("description", description), ("default", default)] {
        if let Some(value) = value {
            schema.insert(key.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_described_and_numbers_may_be_parameters() {
        let schema = schema().to_value();
        let at = |pointer: &str| schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {schema:#}"));
        for (name, property) in at("/properties").as_object().unwrap() {
            let described = property.get("description").or_else(|| property.get("$ref"));
            assert!(described.is_some(), "{name} is not described");
        }
        assert_eq!(at("/properties/matrix/type"), "object");
        assert_eq!(at("/$defs/Namespace/properties/mtu/anyOf/1/type"), "string");
        assert_eq!(at("/$defs/Step/additionalProperties"), false);
    }
}
