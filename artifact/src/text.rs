//! Strings of a run. Steps and buffers know no strings: an element stands for one by its handle, and the strings
//! themselves lie beside them.
//!
//! A handle is made of nothing but the string, so equal strings have equal handles in every process: code compares
//! and moves them as numbers. Two strings of one handle are noticed where the second comes in, and refused.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// Most bytes of the strings that a run holds, those of constants not counted.
pub const MAX_TEXT_BYTES: usize = 1 << 28;

/// What an element of `u64` is that stands for a string: XXH3-64 of its UTF-8 bytes.
pub fn text_handle(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// The strings that handles stand for. 0, which fills the rest of buffers, stands for the empty one.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    constants: Arc<HashMap<u64, Box<str>>>,
    given: HashMap<u64, Box<str>>,
    bytes: usize,
}

impl Texts {
    /// Those of a model's constants.
    ///
    /// # Errors
    /// Two strings of one handle.
    pub fn new<'a>(constants: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut known: HashMap<u64, Box<str>> = HashMap::new();
        for text in constants {
            let other = known.insert(text_handle(text), text.into());
            if other.is_some_and(|other| *other != *text) {
                return Err(alike());
            }
        }
        Ok(Self { constants: Arc::new(known), ..Self::default() })
    }

    /// The handle of a string, which is kept.
    ///
    /// # Errors
    /// Another string of the same handle, or more than [`MAX_TEXT_BYTES`] bytes altogether.
    pub fn intern(&mut self, text: &str) -> Result<u64, String> {
        self.intern_as(text, text_handle(text))
    }

    fn intern_as(&mut self, text: &str, handle: u64) -> Result<u64, String> {
        match self.get(handle) {
            Some(known) if known == text => return Ok(handle),
            Some(_) => return Err(alike()),
            None => {}
        }
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_TEXT_BYTES {
            return Err(format!("the strings of the run have more than {MAX_TEXT_BYTES} bytes"));
        }
        self.given.insert(handle, text.into());
        Ok(handle)
    }

    /// The string that a handle stands for.
    pub fn get(&self, handle: u64) -> Option<&str> {
        if handle == 0 {
            return Some("");
        }
        self.given.get(&handle).or_else(|| self.constants.get(&handle)).map(|text| &**text)
    }

    /// The same, or what is wrong with the handle.
    pub(crate) fn text(&self, handle: u64) -> Result<&str, String> {
        self.get(handle).ok_or_else(|| format!("no string was given for handle {handle:#x}"))
    }

    /// Forgets all strings but those of constants.
    pub fn clear(&mut self) {
        self.given.clear();
        self.bytes = 0;
    }
}

fn alike() -> String {
    "two strings have one handle; change one of them".to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn handles_are_those_of_the_content() {
        let mut texts = Texts::new(["known"]).unwrap();
        let known = texts.intern("known").unwrap();
        let other = texts.intern("öther\0").unwrap();
        assert_eq!((known, other), (text_handle("known"), text_handle("öther\0")));
        assert_eq!(
            (texts.get(other), texts.get(0), texts.get(7)),
            (Some("öther\0"), Some(""), None)
        );
        texts.clear();
        assert_eq!((texts.get(other), texts.get(known)), (None, Some("known")));
    }

    #[test]
    fn strings_of_one_handle_and_too_many_bytes_are_refused() {
        let mut texts = Texts::new(["a"]).unwrap();
        assert!(texts.intern_as("b", text_handle("a")).unwrap_err().contains("one handle"));
        texts.intern_as("c", 1).unwrap();
        assert!(texts.intern_as("d", 1).unwrap_err().contains("one handle"));
        texts.bytes = MAX_TEXT_BYTES;
        assert!(texts.intern("e").unwrap_err().contains("bytes"));
        // What is known takes no room.
        texts.intern("a").unwrap();
    }
}
