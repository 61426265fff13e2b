//! Shows a compilation's status as it changes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hone_cluster_tests::Kubectl;
use serde_json::Value;

/// Longest time until an example is finished.
const LIMIT: Duration = Duration::from_secs(600);

/// Prints a line for every change until the object is finished, and returns its status.
pub fn until_finished(kubectl: &Kubectl, name: &str, start: Instant) -> Result<Value> {
    let mut shown = String::new();
    loop {
        let status = kubectl.json(&format!("modelcompilation/{name}"))?["status"].clone();
        let line = line(&status);
        if line != shown {
            println!("  {:6.1} s  {line}", start.elapsed().as_secs_f64());
            shown = line;
        }
        if condition(&status, "Finished").is_some_and(|found| found["status"] == "True") {
            return Ok(status);
        }
        if start.elapsed() > LIMIT {
            bail!("'{name}' is not finished after {} s: {shown}", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Phase, the conditions that hold, and what `Ready` says.
fn line(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let holding = conditions.iter().filter(|condition| condition["status"] == "True");
    let holding: Vec<String> = holding.map(|condition| text(&condition["type"])).collect();
    let message = condition(status, "Ready").map(|ready| text(&ready["message"]));
    let phase = text(&status["phase"]);
    format!("{phase:10} {:40} {}", holding.join(" "), message.unwrap_or_default())
}

/// The results, a target after the other.
pub fn table(status: &Value) {
    for target in status["targets"].as_array().into_iter().flatten() {
        let text = |path: &str| match target.pointer(path) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "-".to_owned(),
            Some(other) => other.to_string(),
        };
        println!("\ntarget     {}", text("/name"));
        let latency = format!(
            "{} (95 % confidence: {} to {})",
            text("/latency/p50"),
            text("/latency/ciLow"),
            text("/latency/ciHigh")
        );
        for (name, value) in [
            ("artifact", text("/artifact/uri")),
            ("digest", text("/artifact/digest")),
            ("bytes", text("/artifact/sizeBytes")),
            ("latency", latency),
            ("untuned", text("/latency/untuned")),
            ("max error", format!("{} relative", text("/correctness/maxRel"))),
            ("measured", format!("pool {}, machine {}", text("/pool"), text("/fingerprint"))),
            ("compiled", format!("in {}", text("/compileTime"))),
        ] {
            println!("{name:10} {value}");
        }
    }
}
