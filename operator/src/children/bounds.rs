//! The API server's bounds on what is written, in bytes. What exceeds one is refused as a whole, so everything that
//! comes from outside is cut here.

pub use hone_crds::conditions::bounded;

/// The note of an event (`NoteLengthLimit` of `events.k8s.io`).
pub const EVENT_NOTE: usize = 1024;
/// The reason of an event or a condition, one word.
pub const REASON: usize = 128;
/// The value of a label, and a name that is used as one.
pub const LABEL: usize = 63;
/// The name of an object.
pub const NAME: usize = 253;
/// The message of a failure in a status, as our schema says.
pub const FAILURE_MESSAGE: usize = 2000;
/// The reason of a failure in a status, as our schema says.
pub const FAILURE_REASON: usize = 64;

/// Whether `text` may be the value of a label.
pub fn is_label(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LABEL
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// `text`, or where it is no value of a label, a readable part of it and a digest.
pub fn label(text: &str) -> String {
    use sha2::{Digest, Sha256};
    if is_label(text) {
        return text.to_owned();
    }
    const DIGITS: usize = 16;
    let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let readable: String = text.chars().map(plain).take(LABEL - DIGITS - 1).collect();
    let trimmed = readable.trim_matches(['-', '.']);
    match trimmed.is_empty() {
        true => hash[..DIGITS].to_owned(),
        false => format!("{trimmed}-{}", &hash[..DIGITS]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_becomes_a_label() {
        assert_eq!(label("cpus"), "cpus");
        assert_eq!(label(""), "");
        let long = "a".repeat(200);
        for text in [long.as_str(), "-a", "a/b", "ü", &"a-".repeat(40), "....."] {
            let label = label(text);
            assert!(is_label(&label) && !label.is_empty(), "{text} gives {label}");
        }
        assert_ne!(label(&long), label(&"a".repeat(201)));
    }
}
