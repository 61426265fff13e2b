//! The same call again, with shapes for the dimensions that its model leaves open.

use hone_driver::{CompileError, ImportError, UnboundInput};
use std::error::Error;

use crate::dimensions::Unsized;
use crate::failure::Failure;

/// A command line that binds what `failure` says is open; `None` where nothing is.
pub fn with_shapes(call: impl Iterator<Item = String>, failure: &Failure) -> Option<String> {
    let mut words: Vec<String> = call.map(|word| quoted(&word)).collect();
    if let Some(open) = failure.source().and_then(|own| own.downcast_ref::<Unsized>()) {
        for proposal in open.0.proposals() {
            words.extend(["--shape".to_owned(), quoted(&proposal)]);
        }
        return Some(words.join(" "));
    }
    let open = open_inputs(failure)?;
    for input in open {
        let extents: Vec<String> = input.proposed.iter().map(usize::to_string).collect();
        words.push("--shape".to_owned());
        words.push(quoted(&format!("{}={}", input.declared.name, extents.join(","))));
    }
    Some(words.join(" "))
}

fn open_inputs(failure: &Failure) -> Option<&[UnboundInput]> {
    match failure.source()?.downcast_ref()? {
        CompileError::Import(error) => match error.as_ref() {
            ImportError::Unbound(inputs) => Some(inputs),
            _ => None,
        },
        _ => None,
    }
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_./:=,+@%-".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        let words = ["x=1,3", "it's", "a b", "", "$x;", "x:0=2"];
        let expected = ["x=1,3", r"'it'\''s'", "'a b'", "''", "'$x;'", "x:0=2"];
        assert_eq!(words.map(quoted), expected);
    }
}
