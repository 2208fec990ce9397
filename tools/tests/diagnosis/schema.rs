//! Schema: a document against the part of JSON Schema that the schemas in `docs` use.

use serde_json::Value;

/// The schema of a command must hold for its document, and list every key in it.
pub fn holds(command: &str, document: &Value) {
    let path = super::here().join(format!("../docs/{command}.schema.json"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    agree(&schema, &schema, document, command);
}

fn agree(root: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        return agree(root, &root["$defs"][name], value, place);
    }
    let types = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => panic!("{place}: the schema has no type"),
    };
    let is = |name: &&str| match *name {
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("{place}: type {other} is not known here"),
    };
    assert!(types.iter().any(is), "{place}: {value} is no {types:?}");
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value} is none of {allowed:?}");
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            agree(root, &schema["items"], item, &format!("{place}[{index}]"));
        }
    }
    let Some(object) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(required.as_str().unwrap()), "{place}: no {required}");
    }
    for (key, value) in object {
        let place = format!("{place}.{key}");
        let listed = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        agree(root, listed.unwrap_or_else(|| panic!("{place} is in no schema")), value, &place);
    }
}
