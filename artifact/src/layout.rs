//! The bytes of an artifact: a header, a section table, then the sections.
//!
//! All numbers are little endian. The layout is canonical: a section starts at the next multiple of its
//! kind's alignment after the one before it, bytes between are zero, and the file ends with the last
//! section. A reader that recomputes it therefore needs no check for overlap, and no byte goes unseen.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8..12 | format version |
//! | 12..16 | number of sections |
//! | 16..24 | length of the file |
//! | 24..32 | checksum of bytes 0..24 and of the section table |
//!
//! | bytes | entry of the section table |
//! |---|---|
//! | 0..4 | kind |
//! | 4..8 | zero |
//! | 8..16 | offset |
//! | 16..24 | length |
//! | 24..32 | checksum |
//!
//! Checksums are XXH3 with 64 bits: they find damage, at memory speed. Identity is the SHA-256 of the file.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The first eight bytes of an artifact. A transfer as text breaks the last two.
pub const MAGIC: [u8; 8] = *b"\x89HONE\x1a\r\n";

/// Version of the byte layout.
pub const FORMAT_VERSION: u32 = 1;

/// Alignment in bytes of the sections that are mapped.
pub const PAGE: u64 = 4096;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Bytes of an entry of the section table.
pub(crate) const ENTRY_BYTES: usize = 32;

/// More sections than this are not an artifact of ours.
pub(crate) const MAX_SECTIONS: usize = 256;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// The manifest; the first section, once.
    Manifest,
    /// A shared object; one or more.
    Code,
    /// Packed weights; one or more, page-aligned.
    Weights,
    /// The C header as text; once at most.
    Header,
    /// The JSON form of [`crate::Inspect`]; once at most.
    Inspect,
}

impl SectionKind {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Manifest => 1,
            Self::Code => 2,
            Self::Weights => 3,
            Self::Header => 4,
            Self::Inspect => 5,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Manifest, Self::Code, Self::Weights, Self::Header, Self::Inspect]
            .into_iter()
            .find(|kind| kind.number() == number)
    }

    fn alignment(self) -> u64 {
        match self {
            Self::Code | Self::Weights => PAGE,
            Self::Manifest | Self::Header | Self::Inspect => 8,
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Code => "code",
            Self::Weights => "weights",
            Self::Header => "C header",
            Self::Inspect => "inspect",
        }
    }
}

/// Where a section lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it holds.
    pub kind: SectionKind,
    /// Distance of its first byte from the file's, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// XXH3-64 of its bytes.
    pub checksum: u64,
}

/// The checksum of a section's bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The same of bytes that lie in pieces.
pub(crate) fn checksum_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut state = Xxh3::new();
    pieces.for_each(|piece| state.update(piece));
    state.digest()
}

/// The checksum over the header's first 24 bytes and the table.
pub(crate) fn table_checksum(header: &[u8], table: &[u8]) -> u64 {
    let mut state = Xxh3::new();
    state.update(header);
    state.update(table);
    state.digest()
}

/// Where a section of this kind starts when `end` bytes come before it; `None` past 64 bits.
pub(crate) fn place(kind: SectionKind, end: u64) -> Option<u64> {
    end.checked_next_multiple_of(kind.alignment())
}
