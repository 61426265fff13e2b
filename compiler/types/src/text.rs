//! Strings as elements. Graphs and loop programs know no strings: an element of `u64` stands for one by its handle,
//! and the strings themselves are kept beside, in one table of the process, so that reference results can be computed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Most bytes of the strings that are kept.
const MOST_BYTES: usize = 1 << 30;

/// A string that is not kept.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TextError {
    /// Another string has the same handle.
    #[error("two strings have one handle; change one of them")]
    Alike,
    /// There are too many.
    #[error("the strings have more than {MOST_BYTES} bytes altogether")]
    TooMany,
}

#[derive(Default)]
struct Kept {
    texts: HashMap<u64, Arc<str>>,
    bytes: usize,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a string, which is kept: XXH3-64 of its UTF-8 bytes, the same in every process.
///
/// # Errors
/// See [`TextError`].
pub fn intern_text(text: &str) -> Result<u64, TextError> {
    let handle = xxh3_64(text.as_bytes());
    let mut kept = kept();
    match kept.texts.get(&handle) {
        Some(known) if **known == *text => return Ok(handle),
        Some(_) => return Err(TextError::Alike),
        None => {}
    }
    if kept.bytes.saturating_add(text.len()) > MOST_BYTES {
        return Err(TextError::TooMany);
    }
    kept.bytes += text.len();
    kept.texts.insert(handle, text.into());
    Ok(handle)
}

/// The string that a handle stands for; 0, which fills the rest of buffers, stands for the empty one.
pub fn text_of(handle: u64) -> Option<Arc<str>> {
    if handle == 0 { Some("".into()) } else { kept().texts.get(&handle).cloned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_handle_leads_back_to_its_string() {
        let one = intern_text("one of these tests").unwrap();
        assert_eq!(intern_text("one of these tests"), Ok(one));
        assert_eq!(text_of(one).as_deref(), Some("one of these tests"));
        assert_eq!((text_of(0).as_deref(), text_of(1)), (Some(""), None));
    }
}
