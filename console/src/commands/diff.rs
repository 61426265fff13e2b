//! `kubectl hone diff`: two compilations side by side.

use std::collections::BTreeSet;

use hone_crds::status::Latency;
use hone_crds::{ModelCompilation, TargetStatus};
use serde_json::Value;

use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::text::columns;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation to compare with.
    a: String,
    /// The compilation that is compared.
    b: String,
}

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let a = cluster.compilation(&arguments.a).await?;
    let b = cluster.compilation(&arguments.b).await?;
    print!("{}", table(&a, &b, &arguments.a, &arguments.b));
    Ok(())
}

/// What differs in the specs, then what came out for targets of the same name.
fn table(a: &ModelCompilation, b: &ModelCompilation, name_a: &str, name_b: &str) -> String {
    let mut rows = Vec::new();
    let spec = |object: &ModelCompilation| serde_json::to_value(&object.spec).unwrap_or_default();
    differences("spec", &spec(a), &spec(b), &mut rows);
    if rows.is_empty() {
        rows.push(vec!["spec".into(), "the same".into(), "the same".into(), String::new()]);
    }
    let targets = |object: &ModelCompilation| {
        object.status.as_ref().map(|status| status.targets.clone()).unwrap_or_default()
    };
    let (of_a, of_b) = (targets(a), targets(b));
    let names: BTreeSet<&String> = of_a.iter().chain(&of_b).map(|target| &target.name).collect();
    for name in names {
        let find =
            |list: &'_ [TargetStatus]| list.iter().find(|target| &target.name == name).cloned();
        let (in_a, in_b) = (find(&of_a).unwrap_or_default(), find(&of_b).unwrap_or_default());
        rows.extend(results(name, &in_a, &in_b));
    }
    columns(&["", name_a, name_b, ""], rows)
}

/// The leaves in which two values differ, lists of named things by name.
fn differences(path: &str, a: &Value, b: &Value, rows: &mut Vec<Vec<String>>) {
    if a == b {
        return;
    }
    let (a, b) = (by_name(a), by_name(b));
    if let (Value::Object(a), Value::Object(b)) = (&a, &b) {
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for key in keys {
            let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
            differences(&format!("{path}.{key}"), a, b, rows);
        }
        return;
    }
    let text = |value: &Value| match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    rows.push(vec![path.to_owned(), text(&a), text(&b), String::new()]);
}

/// A list of things with names as an object of them, so that order does not count.
fn by_name(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let named: Option<serde_json::Map<String, Value>> = items
        .iter()
        .map(|item| Some((item.get("name")?.as_str()?.to_owned(), item.clone())))
        .collect();
    named.filter(|map| !map.is_empty()).map_or_else(|| value.clone(), Value::Object)
}

/// What came out for a target on both sides.
fn results(name: &str, a: &TargetStatus, b: &TargetStatus) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |what: &str, of: &dyn Fn(&TargetStatus) -> Option<String>, note: String| {
        let (left, right) = (of(a), of(b));
        if left.is_some() || right.is_some() {
            let known = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            rows.push(vec![format!("{name}: {what}"), known(left), known(right), note]);
        }
    };
    row("phase", &|t| (!t.name.is_empty()).then(|| t.phase.as_str().to_owned()), String::new());
    row("latency", &|t| t.latency.as_ref().map(|latency| latency.p50.to_string()), faster(a, b));
    row("95 % sure within", &|t| sure(t.latency.as_ref()?), String::new());
    row("precision", &|t| t.precision.clone(), String::new());
    row("largest error", &|t| t.correctness.as_ref().map(|c| c.max_abs.to_string()), String::new());
    row(
        "artifact bytes",
        &|t| t.artifact.as_ref().map(|a| a.size_bytes.to_string()),
        String::new(),
    );
    row("artifact", &|t| t.artifact.as_ref().map(|a| a.digest.clone()), same_artifact(a, b));
    row("machine", &|t| t.fingerprint.clone(), String::new());
    row("failure", &|t| t.failure.as_ref().map(|f| f.reason.clone()), String::new());
    rows
}

fn sure(latency: &Latency) -> Option<String> {
    Some(format!("{} – {}", latency.ci_low?, latency.ci_high?))
}

fn same_artifact(a: &TargetStatus, b: &TargetStatus) -> String {
    let digest = |t: &TargetStatus| t.artifact.as_ref().map(|artifact| artifact.digest.clone());
    match digest(a).zip(digest(b)) {
        Some((a, b)) if a == b => "the same bytes".to_owned(),
        _ => String::new(),
    }
}

/// How much faster or slower the second is, where the intervals leave no doubt, and where they do, that.
fn faster(a: &TargetStatus, b: &TargetStatus) -> String {
    let (Some(a_latency), Some(b_latency)) = (&a.latency, &b.latency) else { return String::new() };
    if a.fingerprint != b.fingerprint {
        return "measured on different machines".to_owned();
    }
    let nanoseconds = |latency: &Latency| latency.p50.as_nanos().max(1) as f64;
    let ratio = nanoseconds(a_latency) / nanoseconds(b_latency);
    let disjoint =
        match (a_latency.ci_low.zip(a_latency.ci_high), b_latency.ci_low.zip(b_latency.ci_high)) {
            (Some((a_low, a_high)), Some((b_low, b_high))) => a_high < b_low || b_high < a_low,
            _ => false,
        };
    match disjoint {
        true if ratio >= 1.0 => format!("{ratio:.2}× faster"),
        true => format!("{:.2}× slower", 1.0 / ratio),
        false => "no difference that is sure".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_crds::Duration;
    use serde_json::json;

    fn measured(p50: u64, low: u64, high: u64, machine: &str) -> TargetStatus {
        let of = |n| Some(Duration::from_nanos(n));
        TargetStatus {
            latency: Some(Latency {
                p50: Duration::from_nanos(p50),
                ci_low: of(low),
                ci_high: of(high),
                ..Latency::default()
            }),
            fingerprint: Some(machine.to_owned()),
            ..TargetStatus::default()
        }
    }

    #[test]
    fn a_speed_up_needs_intervals_apart_and_one_machine() {
        let slow = measured(200, 190, 210, "m");
        assert_eq!(faster(&slow, &measured(100, 90, 110, "m")), "2.00× faster");
        assert_eq!(faster(&measured(100, 90, 110, "m"), &slow), "2.00× slower");
        assert_eq!(faster(&slow, &measured(195, 180, 205, "m")), "no difference that is sure");
        assert_eq!(faster(&slow, &measured(100, 90, 110, "n")), "measured on different machines");
    }

    #[test]
    fn specs_differ_by_leaf_whatever_the_order() {
        let (a, b) = (
            json!({"targets": [{"name": "x", "pool": "p"}, {"name": "y"}], "suspend": false}),
            json!({"targets": [{"name": "y"}, {"name": "x", "pool": "q"}], "suspend": false}),
        );
        let mut rows = Vec::new();
        differences("spec", &a, &b, &mut rows);
        assert_eq!(rows, [["spec.targets.x.pool", "p", "q", ""]]);
    }
}
