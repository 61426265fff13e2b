//! Parameters of a run: each is named after the field of the spec that it sets, such as `model.uri` or `targets.0.pool`.
//! The schema of the kind says what the text of a parameter is to be there.

use serde_json::{Map, Value};

use super::resource::Param;

/// Sets the fields of `spec`, which has `schema`, that parameters name.
///
/// # Errors
/// What is wrong with the first parameter that names no field, or whose text does not fit.
pub fn set_all(spec: &mut Value, schema: &Value, params: &[Param]) -> Result<(), String> {
    for param in params {
        set(spec, schema, param).map_err(|why| format!("parameter '{}': {why}", param.name))?;
    }
    Ok(())
}

fn set(spec: &mut Value, schema: &Value, param: &Param) -> Result<(), String> {
    let (mut field, mut schema) = (spec, schema);
    for segment in param.name.split('.') {
        (field, schema) = match schema["type"].as_str() {
            Some("array") => (entry(field, segment)?, &schema["items"]),
            _ => (member(field, segment)?, below(schema, segment)?),
        };
    }
    *field = typed(schema, &param.value)?;
    Ok(())
}

/// The schema of the member `name` of a map.
fn below<'a>(schema: &'a Value, name: &str) -> Result<&'a Value, String> {
    let known = schema["properties"].get(name).or(schema.get("additionalProperties"));
    known.filter(|schema| schema.is_object()).ok_or_else(|| {
        let known = schema["properties"].as_object().into_iter().flat_map(Map::keys);
        let known: Vec<&str> = known.map(String::as_str).collect();
        match known.is_empty() {
            true => format!("there is nothing below it that is named '{name}'"),
            false => format!("'{name}' is no field there: known are {}", known.join(", ")),
        }
    })
}

/// The member `name` of a map, which is made where there is none.
fn member<'a>(map: &'a mut Value, name: &str) -> Result<&'a mut Value, String> {
    if map.is_null() {
        *map = Value::Object(Map::new());
    }
    let map = map.as_object_mut().ok_or_else(|| format!("what '{name}' is in is no map"))?;
    Ok(map.entry(name).or_insert(Value::Null))
}

/// The entry of a list at the index `segment`, which is added where it is the next one.
fn entry<'a>(list: &'a mut Value, segment: &str) -> Result<&'a mut Value, String> {
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let index = segment.parse::<usize>();
    let index = index.map_err(|_| format!("'{segment}' is no index of a list, such as 0"))?;
    let list = list.as_array_mut().ok_or_else(|| format!("what '{segment}' is in is no list"))?;
    let length = list.len();
    if index == length {
        list.push(Value::Null);
    }
    list.get_mut(index).ok_or_else(|| format!("the list has {length} entries: {index} is too many"))
}

/// The value of a parameter as `schema` wants it. Tekton's parameters are texts, lists of texts and maps of texts; where
/// a number, a truth value, a list or a map is wanted a text is read as JSON.
fn typed(schema: &Value, value: &Value) -> Result<Value, String> {
    match value {
        Value::String(text) => match schema["type"].as_str() {
            Some("integer" | "number" | "boolean" | "array" | "object") => {
                serde_json::from_str(text)
                    .map_err(|_| format!("'{text}' is no {} in JSON", wanted(schema)))
            }
            _ => Ok(value.clone()),
        },
        Value::Array(items) => {
            items.iter().map(|item| typed(&schema["items"], item)).collect::<Result<_, _>>()
        }
        Value::Object(members) => {
            let one = |(name, value): (&String, &Value)| {
                Ok((name.clone(), typed(below(schema, name)?, value)?))
            };
            members.iter().map(one).collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        _ => Ok(value.clone()),
    }
}

fn wanted(schema: &Value) -> &'static str {
    match schema["type"].as_str() {
        Some("integer") => "whole number",
        Some("number") => "number",
        Some("boolean") => "truth value",
        Some("array") => "list",
        _ => "map",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::custom_run::kinds::Kind;
    use serde_json::json;

    fn given(spec: Value, params: &[(&str, Value)]) -> Result<Value, String> {
        let mut spec = spec;
        let param = |(name, value): &(&str, Value)| Param {
            name: (*name).to_owned(),
            value: value.clone(),
        };
        let params: Vec<Param> = params.iter().map(param).collect();
        set_all(&mut spec, &Kind::ModelCompilation.schema(), &params).map(|()| spec)
    }

    #[test]
    fn fields_are_set_as_their_schema_says() {
        let spec = given(
            json!({"targets": [{"name": "main", "pool": "a"}], "limits": {"retries": 1}}),
            &[
                ("model", json!({"uri": "s3://models/x.onnx"})),
                ("model.credentialsSecretRef.name", json!("read")),
                ("targets.0.pool", json!("b")),
                ("targets.1", json!("{\"name\": \"edge\", \"platform\": {\"arch\": \"arm64\"}}")),
                ("limits.retries", json!("3")),
                ("suspend", json!("true")),
                ("tuning.maxTrials", json!("100")),
                ("inputs", json!("[{\"name\": \"x\", \"shape\": [1, 3]}]")),
                ("precision.allow", json!(["f32", "bf16"])),
                ("worker.resources.requests", json!({"cpu": "2"})),
            ],
        );
        let expected = json!({
            "model": {"uri": "s3://models/x.onnx", "credentialsSecretRef": {"name": "read"}},
            "targets": [{"name": "main", "pool": "b"}, {"name": "edge", "platform": {"arch": "arm64"}}],
            "limits": {"retries": 3}, "suspend": true, "tuning": {"maxTrials": 100},
            "inputs": [{"name": "x", "shape": [1, 3]}], "precision": {"allow": ["f32", "bf16"]},
            "worker": {"resources": {"requests": {"cpu": "2"}}},
        });
        assert_eq!(spec.unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let refused = |name: &str, value: Value| given(json!({}), &[(name, value)]).unwrap_err();
        let unknown = refused("model.url", json!("x"));
        assert!(unknown.contains("parameter 'model.url'") && unknown.contains("uri"), "{unknown}");
        let number = refused("limits.retries", json!("three"));
        assert!(number.contains("'three' is no whole number"), "{number}");
        assert!(refused("targets.1.name", json!("x")).contains("has 0 entries"));
        assert!(refused("targets.first.name", json!("x")).contains("no index"));
        assert!(refused("model.uri.x", json!("x")).contains("nothing below"));
        let mut spec = json!({"model": "text"});
        let param = Param { name: "model.uri".to_owned(), value: json!("x") };
        let refused = set_all(&mut spec, &Kind::ModelCompilation.schema(), &[param]);
        assert!(refused.unwrap_err().contains("is no map"));
    }
}
