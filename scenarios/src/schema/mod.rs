//! The JSON Schema of scenario files, for editors.

pub(crate) mod either;
mod file;
pub(crate) mod rules;
mod transform;

use schemars::SchemaGenerator;
use schemars::transform::Transform;
use serde_json::{Map, Value, json};

use crate::model::Scenario;
pub use schemars::Schema;
use transform::{AllowParameters, WithoutNull};

/// What scenarios may name that the program around them knows.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Kinds of NICs, each with its options.
    pub nics: Vec<(String, Vec<String>)>,
    /// Ids of all rules.
    pub rules: Vec<String>,
    /// The most CPUs that a guest can have.
    pub most_cpus: u32,
}

/// The schema of a scenario file.
///
/// Whatever it refuses is refused by [`crate::load()`] as well. A file that is only for including is a scenario file,
/// too, so nothing is demanded that an include, a variant or a default may bring.
///
/// # Panics
/// Never: the tables that are changed here are in the model.
pub fn schema(names: &Names) -> Schema {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<Scenario>();
    schema.insert("title".into(), "nicvisor scenario".into());
    schema.remove("required");
    let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut).expect("it has parts");
    for name in ["Namespace", "Device", "Stream"] {
        definitions[name].as_object_mut().expect("tables are objects").remove("required");
    }
    definitions["Guest"]["properties"]["cpus"] = cpus(names.most_cpus, &definitions["Guest"]);
    definitions.insert("Nic".into(), nic(&names.nics));
    definitions.insert("Rule".into(), json!({ "type": "string", "enum": names.rules }));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).expect("it has fields");
    let file = file::properties(properties);
    properties.extend(file);
    WithoutNull.transform(&mut schema);
    AllowParameters.transform(&mut schema);
    schema
}

fn cpus(most: u32, guest: &Value) -> Value {
    let description = &guest["properties"]["cpus"]["description"];
    json!({ "description": description, "type": "integer", "minimum": 1, "maximum": most })
}

/// A NIC: with its kind, only that one's options; without, as in defaults, those of any.
fn nic(kinds: &[(String, Vec<String>)]) -> Value {
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    let mut properties = Map::new();
    for option in kinds.iter().flat_map(|(_, options)| options) {
        properties.insert(option.clone(), scalar.clone());
    }
    let names: Vec<&str> = kinds.iter().map(|(kind, _)| kind.as_str()).collect();
    properties
        .insert("kind".into(), json!({ "description": "What it is.", "type": "string", "enum": names }));
    properties.insert(
        "guest".into(),
        json!({ "description": "The guest that it is in, where there are two.", "type": "string" }),
    );
    properties.insert("link".into(), json!({ "description": "The link of its ports.", "type": "string" }));
    let of_kind = |(kind, options): &(String, Vec<String>)| {
        let allowed: Vec<&str> =
            options.iter().map(String::as_str).chain(["kind", "guest", "link"]).collect();
        json!({
            "if": { "properties": { "kind": { "const": kind } }, "required": ["kind"] },
            "then": { "propertyNames": { "enum": allowed } }
        })
    };
    json!({
        "type": "object", "properties": properties, "additionalProperties": false,
        "allOf": kinds.iter().map(of_kind).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_described_and_numbers_may_be_parameters() {
        let names = Names { nics: vec![("gve".into(), vec!["mtu".into()])], ..Names::default() };
        let schema = schema(&names).to_value();
        let at = |pointer: &str| schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {schema:#}"));
        for (name, property) in at("/properties").as_object().unwrap() {
            let described = property.get("description").or_else(|| property.get("$ref"));
            assert!(described.is_some(), "{name} is not described");
        }
        assert_eq!(at("/properties/matrix/type"), "object");
        assert_eq!(at("/$defs/Namespace/properties/mtu/anyOf/1/type"), "string");
        assert_eq!(at("/$defs/Step/additionalProperties"), false);
        assert_eq!(at("/$defs/Nic/allOf/0/then/propertyNames/enum/0"), "mtu");
        assert!(!schema.to_string().contains("\"null\""), "TOML has no null");
    }
}
