//! The reference of the API as Markdown, from the schemas that the API server applies.

use std::fmt::Write;

use kube::CustomResourceExt;
use serde_json::Value;

use crate::generate::schema_of;
use crate::{DevicePool, ModelCompilation, TuningRun};

/// The page of all kinds.
pub fn page() -> String {
    let mut page = String::from(
        "# API reference: `hone.dev/v1alpha1`\n\n\
        Generated from the types by `cargo xtask generate`: do not edit. `kubectl explain modelcompilation.spec` says the same \
        in a cluster.\n\n\
        A field in **bold** must be set. What stands under *rules* is checked by the API server, and by `hone compile -f` \
        on a file; a refusal repeats the words given here.\n\n",
    );
    kind::<ModelCompilation>(&mut page);
    kind::<TuningRun>(&mut page);
    kind::<DevicePool>(&mut page);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn kind<K: CustomResourceExt>(page: &mut String) {
    let crd = K::crd();
    let names = &crd.spec.names;
    let schema = schema_of::<K>();
    let _ = writeln!(page, "## {}\n\n{}\n", names.kind, text(&schema["description"]));
    let short = names.short_names.iter().flatten().map(|name| format!("`{name}`"));
    let short: Vec<String> = short.collect();
    let scope = if crd.spec.scope == "Cluster" { "cluster-scoped" } else { "in a namespace" };
    let _ = writeln!(page, "{scope} · `{}` · short {}\n", names.plural, short.join(", "));
    for part in ["spec", "status"] {
        let schema = &schema["properties"][part];
        let _ = writeln!(page, "### {} {part}\n\n{}\n", names.kind, text(&schema["description"]));
        let mut rows = Vec::new();
        let mut rules = Vec::new();
        collect("", schema, &mut rows, &mut rules);
        page.push_str("| field | type | default | meaning |\n|---|---|---|---|\n");
        page.extend(rows);
        page.push('\n');
        if !rules.is_empty() {
            page.push_str("Rules between fields:\n\n");
            page.extend(rules);
            page.push('\n');
        }
    }
}

/// The rows of the fields below `schema`, and its rules.
fn collect(path: &str, schema: &Value, rows: &mut Vec<String>, rules: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
        let message = rule["message"].as_str().or(rule["rule"].as_str()).unwrap_or_default();
        rules.push(format!("- {place}{}\n", cell(message)));
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let must = required.contains(&name.as_str()) && field["default"].is_null();
        let shown = if must { format!("**`{at}`**") } else { format!("`{at}`") };
        let default = match &field["default"] {
            Value::Null => String::new(),
            Value::Object(_) => "see below".to_owned(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let meaning = cell(&text(&field["description"]));
        rows.push(format!("| {shown} | {} | {default} | {meaning} |\n", type_of(field)));
        collect(&at, field, rows, rules);
        if !field["items"].is_null() {
            collect(&format!("{at}[]"), &field["items"], rows, rules);
        }
    }
}

/// A field's type with what bounds it.
fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    if let Some(words) = field["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let range = |least: &str, most: &str| match (field[least].as_f64(), field[most].as_f64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    };
    match field["type"].as_str().unwrap_or("any") {
        "array" => {
            let items = match field["items"]["x-kubernetes-int-or-string"] == true {
                true => "integer or string",
                false => field["items"]["type"].as_str().unwrap_or("any"),
            };
            format!("list of {items}{}", range("minItems", "maxItems"))
        }
        "string" => match field["pattern"].as_str() {
            Some(pattern) => form(pattern),
            None => "string".to_owned(),
        },
        "object" if !field["additionalProperties"].is_null() => "map of strings".to_owned(),
        other => format!("{other}{}", range("minimum", "maximum")),
    }
}

/// The name of a form of text that many fields have, else its pattern.
fn form(pattern: &str) -> String {
    let named = [
        (crate::duration::PATTERN, "duration, such as `1h30m`"),
        (crate::decimal::PATTERN, "decimal, such as `1e-3`"),
        (crate::common::URI_PATTERN, "URI"),
        (crate::common::DIGEST_PATTERN, "digest, `sha256:` and 64 hex digits"),
        (crate::common::SUBDOMAIN_PATTERN, "name"),
        (crate::common::LABEL_PATTERN, "name"),
    ];
    match named.iter().find(|(own, _)| *own == pattern) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("string `{}`", cell(pattern)),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().trim().to_owned()
}

/// Text that stays in its cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}
