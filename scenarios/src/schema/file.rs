//! What makes a file into its cases, and is gone before a case is understood.

use serde_json::{Map, Value, json};

use super::rules::{WORD, kernel};

/// The properties of a file besides those of a scenario, which are `body`.
pub(super) fn properties(body: &Map<String, Value>) -> Map<String, Value> {
    let properties = json!({
        "include": {
            "description": "Files whose contents come before this one's: tables are merged, lists of tables joined.",
            "type": "array", "items": { "type": "string" }
        },
        "parameters": parameters(),
        "matrix": matrix(),
        "exclude": {
            "description": "Cases to leave out, by the values of parameters; a list stands for any of its values.",
            "type": "array", "items": condition()
        },
        "variant": {
            "description": "What is laid over the file in the cases that `when` describes.",
            "type": "array", "items": variant(body)
        },
        "defaults": defaults()
    });
    match properties {
        Value::Object(properties) => properties,
        _ => Map::new(),
    }
}

fn parameters() -> Value {
    json!({
        "description": "Values for ${name} and ${calculation} in texts.",
        "type": "object", "propertyNames": { "pattern": WORD }, "additionalProperties": scalar()
    })
}

fn matrix() -> Value {
    let point = json!({
        "type": "object", "required": ["name"], "propertyNames": { "pattern": WORD },
        "properties": { "name": { "type": "string" } }, "additionalProperties": scalar()
    });
    json!({
        "description": "Axes of parameters: the file stands for a case for each combination.",
        "type": "object",
        "propertyNames": { "pattern": WORD },
        "properties": {
            "kernel": {
                "description": "Kernels, such as \"debian:6.12\"; --kernel replaces them.",
                "type": "array", "minItems": 1, "items": kernel()
            }
        },
        "additionalProperties": {
            "type": "array", "minItems": 1, "items": { "anyOf": [scalar(), point] }
        }
    })
}

/// Values of parameters, or lists of them.
fn condition() -> Value {
    let value = json!({ "anyOf": [scalar(), { "type": "array", "items": scalar() }] });
    json!({ "type": "object", "additionalProperties": value })
}

fn variant(body: &Map<String, Value>) -> Value {
    let mut properties = body.clone();
    properties.insert("when".into(), condition());
    properties.insert("parameters".into(), parameters());
    json!({
        "type": "object", "required": ["when"], "properties": properties, "additionalProperties": false
    })
}

fn defaults() -> Value {
    let table = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    json!({
        "description": "What every guest, NIC, link, namespace, device and stream has that does not say otherwise.",
        "type": "object",
        "properties": {
            "guest": table("Guest"), "nic": table("Nic"), "link": table("LinkSpec"),
            "namespace": table("Namespace"), "device": table("Device"), "stream": table("Stream")
        },
        "additionalProperties": false
    })
}

fn scalar() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}
