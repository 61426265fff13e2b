//! The images of `data`.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::path::Path;

use hone_images::Size;

/// Of every image in `data`.
pub const SIZE: Size = Size { height: 21, width: 35 };

/// An image, and its pixels as red, green and blue.
pub struct Case {
    pub name: String,
    pub bytes: Vec<u8>,
    pub expected: Vec<u8>,
}

pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let index = fs::read_to_string(folder.join("index.txt")).unwrap();
    let case = |line: &str| {
        let (name, expected) = line.split_once(' ').unwrap();
        Case { name: name.to_owned(), bytes: read(name), expected: read(expected) }
    };
    index.lines().map(case).collect()
}
