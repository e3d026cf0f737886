//! JSON Schema of the matrix file, for editors and for the help of faults.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::raw::RawMatrix;

/// JSON Schema (draft 2020-12) of the matrix file; descriptions teach each
/// key by example.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    // Inlined, every description stands at the key that it describes.
    settings.inline_subschemas = true;
    settings
        .with_transform(RecursiveTransform(without_null))
        .into_generator()
        .into_root_schema_for::<RawMatrix>()
        .to_value()
}

/// TOML has no null: what may be absent is not null either.
fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|c| c.get("type") != Some(&Value::from("null")));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
}

/// Description of the key at `path` (array elements add no step), or of the
/// nearest table around it that has one.
pub(super) fn describe(path: &[String]) -> String {
    let root = schema();
    let mut found = "";
    let mut here = &root;
    for key in path {
        let Some(next) = step(here, key) else { break };
        here = next;
        if let Some(text) = here.get("description").and_then(Value::as_str) {
            found = text;
        }
    }
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn step<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let inner = schema.get("items").unwrap_or(schema);
    let named = inner.get("properties").and_then(|p| p.get(key));
    named.or_else(|| inner.get("additionalProperties").filter(|v| v.is_object()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|k| (*k).to_owned()).collect()
    }

    #[test]
    fn every_key_has_a_description() {
        fn walk(schema: &Value, at: &str) {
            let inner = schema.get("items").unwrap_or(schema);
            for (key, value) in inner.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let here = format!("{at}.{key}");
                assert!(value.get("description").is_some(), "{here} has no description");
                walk(value, &here);
                if let Some(more) = value.get("additionalProperties") {
                    walk(more, &here);
                }
            }
        }
        walk(&schema(), "");
    }

    #[test]
    fn shape_is_that_of_the_file() {
        let s = schema();
        assert_eq!(s["additionalProperties"], false);
        assert_eq!(s["properties"]["name"]["type"], "string");
        assert_eq!(s["properties"]["boot"]["type"], "object");
        assert_eq!(s["properties"]["boot"]["properties"]["vcpus"]["type"], "integer");
        assert_eq!(s["properties"]["benchmark"]["type"], "array");
        assert!(s["properties"]["benchmark"]["items"]["properties"]["use"].is_object());
        assert!(s["properties"]["axes"]["additionalProperties"]["anyOf"].is_array());
        assert!(!s.to_string().contains("null"), "TOML has no null");
        assert!(!s.to_string().contains("$ref"), "everything is inlined");
    }

    #[test]
    fn descriptions_are_found_by_path() {
        assert!(describe(&path(&["boot", "memory"])).contains("`memory = \"512M\"`"));
        assert!(describe(&path(&["benchmark", "repeat"])).contains("`repeat = 5`"));
        assert!(describe(&path(&["benchmark", "metrics", "rate", "unit"])).contains("MB/s"));
        assert!(describe(&path(&["axes", "NR_CPUS"])).contains("every combination"));
        assert_eq!(describe(&[]), "");
    }
}
