//! Checks a value against a CRD's structural schema, as the API server does: types, required
//! and unknown fields, patterns, bounds, and unique keys of list-maps.
//!
//! Only what our own CRDs use is known here. Every fault is reported, each with its path.

use regex::Regex;
use serde_json::{Map, Value};

/// One thing that is wrong: where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path from the object's root, such as `spec.targets[1].name`.
    pub path: String,
    /// What is wrong there and what to do.
    pub message: String,
}

/// All faults of `value` under `schema`; `path` names `value`.
pub fn check(schema: &Value, value: &Value, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    walk(schema, value, path, &mut faults);
    faults
}

fn fault(faults: &mut Vec<Fault>, path: &str, message: impl Into<String>) {
    faults.push(Fault { path: path.to_owned(), message: message.into() });
}

fn walk(schema: &Value, value: &Value, path: &str, faults: &mut Vec<Fault>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_string() && !value.is_i64() && !value.is_u64() {
            return fault(
                faults,
                path,
                format!("must be a text or a whole number, not {}", kind(value)),
            );
        }
    } else if let Some(expected) = schema["type"].as_str()
        && !has_type(value, expected)
    {
        return fault(faults, path, type_message(expected, value));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let named = allowed.iter().filter(|value| !value.is_null());
        let names: Vec<String> = named.map(plain).collect();
        let message = format!("'{}' is none of {}", plain(value), names.join(", "));
        return fault(faults, path, message);
    }
    match value {
        Value::Object(fields) => object(schema, fields, path, faults),
        Value::Array(items) => list(schema, items, path, faults),
        Value::String(text) => string(schema, text, path, faults),
        Value::Number(number) => bounds(schema, number.as_f64().unwrap_or(f64::NAN), path, faults),
        Value::Null | Value::Bool(_) => {}
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn type_message(expected: &str, value: &Value) -> String {
    let wanted = match expected {
        "object" => "a map",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    };
    let hint = match value {
        Value::Number(_) | Value::Bool(_) if expected == "string" => ": write it in quotes",
        _ => "",
    };
    format!("must be {wanted}, not {}{hint}", kind(value))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `path` and the next field.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, faults: &mut Vec<Fault>) {
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if !fields.contains_key(name) {
            fault(faults, &below(path, name), "is missing: it must be set");
        }
    }
    if let Some(most) = schema["maxProperties"].as_u64()
        && fields.len() as u64 > most
    {
        fault(faults, path, format!("has more than {most} entries"));
    }
    let known = schema["properties"].as_object();
    for (name, value) in fields {
        let inner = below(path, name);
        if let Some(schema) = known.and_then(|known| known.get(name)) {
            walk(schema, value, &inner, faults);
        } else if schema["additionalProperties"].is_object() {
            walk(&schema["additionalProperties"], value, &inner, faults);
        } else if let Some(known) = known {
            fault(faults, &inner, unknown(name, known));
        }
    }
}

/// The message for an unknown field, with the nearest known one where there is one.
fn unknown(name: &str, known: &Map<String, Value>) -> String {
    let nearest = known
        .keys()
        .map(|key| (distance(name, key), key))
        .min()
        .filter(|(distance, _)| *distance <= 2 + name.len() / 4);
    match nearest {
        Some((_, key)) => format!("is an unknown field: did you mean '{key}'?"),
        None => {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("is an unknown field: known are {}", names.join(", "))
        }
    }
}

/// Edit distance, in insertions, deletions and replacements, ignoring case.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.to_lowercase().chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[right.len()]
}

fn list(schema: &Value, items: &[Value], path: &str, faults: &mut Vec<Fault>) {
    if let Some(least) = schema["minItems"].as_u64()
        && (items.len() as u64) < least
    {
        fault(faults, path, format!("needs {least} or more entries"));
    }
    if let Some(most) = schema["maxItems"].as_u64()
        && items.len() as u64 > most
    {
        return fault(faults, path, format!("has more than {most} entries"));
    }
    for (index, item) in items.iter().enumerate() {
        walk(&schema["items"], item, &format!("{path}[{index}]"), faults);
    }
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
        Some("set") => Vec::new(),
        _ => return,
    };
    unique(items, &keys, path, faults);
}

/// Refuses entries with equal `keys` (the entries themselves where there are none).
fn unique(items: &[Value], keys: &[&str], path: &str, faults: &mut Vec<Fault>) {
    let key_of = |item: &Value| -> String {
        if keys.is_empty() {
            return plain(item);
        }
        let parts: Vec<String> = keys.iter().map(|key| plain(&item[*key])).collect();
        parts.join("/")
    };
    let mut seen = std::collections::HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let key = key_of(item);
        if !seen.insert(key.clone()) {
            let message = format!("'{key}' is there twice: each entry must be unique");
            fault(faults, &format!("{path}[{index}]"), message);
        }
    }
}

fn string(schema: &Value, text: &str, path: &str, faults: &mut Vec<Fault>) {
    let length = text.chars().count() as u64;
    if let Some(least) = schema["minLength"].as_u64()
        && length < least
    {
        return fault(faults, path, "must not be empty");
    }
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        return fault(faults, path, format!("is longer than {most} characters"));
    }
    let Some(pattern) = schema["pattern"].as_str() else {
        return;
    };
    // A duration or a decimal says more than its pattern does.
    if pattern == crate::duration::PATTERN {
        if let Err(error) = text.parse::<crate::Duration>() {
            fault(faults, path, error.to_string());
        }
    } else if pattern == crate::decimal::PATTERN {
        if let Err(error) = text.parse::<crate::Decimal>() {
            fault(faults, path, error.to_string());
        }
    } else if Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text)) {
        fault(faults, path, format!("'{text}' {}", advice(pattern)));
    }
}

/// What a text that does not match `pattern` must be.
fn advice(pattern: &str) -> String {
    use crate::common::{
        ARCH_PATTERN, DIGEST_PATTERN, LABEL_PATTERN, SUBDOMAIN_PATTERN, URI_PATTERN,
    };
    let words = match pattern {
        URI_PATTERN => "must begin with s3://, gs://, az://, https:// or file://",
        DIGEST_PATTERN => "must be sha256: and 64 lower-case hexadecimal digits",
        LABEL_PATTERN => "must be lower-case letters, digits and '-'",
        SUBDOMAIN_PATTERN => "must be a name of lower-case letters, digits, '-' and '.'",
        ARCH_PATTERN => "must be amd64, arm64 or riscv64, as Kubernetes names them",
        crate::inputs::EXTENT_PATTERN => {
            "must be a size (16), at most 32 sizes (16|32|64) or a range (1..8)"
        }
        crate::model_compilation::QUANTITY_PATTERN => "must be a quantity such as 500m, 2 or 4Gi",
        _ => return format!("does not match {pattern}"),
    };
    words.to_owned()
}

fn bounds(schema: &Value, number: f64, path: &str, faults: &mut Vec<Fault>) {
    if let Some(least) = schema["minimum"].as_f64()
        && number < least
    {
        fault(faults, path, format!("{number} is less than {least}"));
    }
    if let Some(most) = schema["maximum"].as_f64()
        && number > most
    {
        fault(faults, path, format!("{number} is more than {most}"));
    }
}
