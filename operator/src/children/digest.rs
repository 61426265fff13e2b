//! Digests of specs, and the names of children that are made from them: equal work has equal names, so that making it
//! twice collides harmlessly.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// `sha256:` of the value's JSON, whose keys are sorted.
pub fn digest(value: &Value) -> String {
    format!("sha256:{}", hex(&Sha256::digest(value.to_string())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as JSON. Our own types always have a form in JSON.
pub fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or(Value::Null)
}

/// Readable parts and a digest, at most 63 characters, so that it fits a label as well.
pub fn child_name(parts: &[&str], decided_by: &Value) -> String {
    const DIGITS: usize = 10;
    let hash = hex(&Sha256::digest(decided_by.to_string()));
    let readable = parts.join("-").replace('.', "-");
    let room = 63 - DIGITS - 1;
    let cut = &readable[..readable.len().min(room)];
    format!("{}-{}", cut.trim_end_matches('-'), &hash[..DIGITS])
}
