//! Reads an artifact from bytes, usually a mapped file, without copying its sections.

use sha2::{Digest, Sha256};

use crate::layout::{
    self, ENTRY_BYTES, FORMAT_VERSION, HEADER_BYTES, MAGIC, MAX_SECTIONS, Section, SectionKind,
};
use crate::{Inspect, Manifest, ManifestError};

/// Why bytes are not a usable artifact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file does not begin as an artifact does.
    #[error(
        "not a hone artifact: the first bytes are not its mark; was another file given, or was it transferred as text?"
    )]
    Magic,
    /// Written in another version of the format.
    #[error(
        "artifact has format version {found}, this program reads version {FORMAT_VERSION}; compile the model again or use the matching version of hone"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The file ends before, or goes on after, where it should end.
    #[error(
        "artifact is {found} bytes long where it should be {expected}: it was cut short or added to; copy or compile it again"
    )]
    Length {
        /// Bytes that the header promises, or at least needs.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The header or the section table is damaged.
    #[error("artifact is damaged: {what}; copy or compile it again")]
    Table {
        /// What is wrong with it.
        what: String,
    },
    /// A section's bytes are not those that were written.
    #[error(
        "artifact is damaged: section {index} ({kind}) does not match its checksum; copy or compile it again"
    )]
    Checksum {
        /// Position in the section table.
        index: usize,
        /// What it holds.
        kind: &'static str,
    },
    /// A byte between sections is not zero.
    #[error(
        "artifact is damaged: byte {offset} between sections is not zero; copy or compile it again"
    )]
    Padding {
        /// Where.
        offset: u64,
    },
    /// The manifest or the inspect section is not the JSON it should be.
    #[error(
        "artifact's {section} section cannot be read; it was written by another version of hone, compile the model again"
    )]
    Json {
        /// Which section.
        section: &'static str,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// The manifest contradicts itself.
    #[error("artifact's manifest is not valid; compile the model again")]
    Manifest(#[source] ManifestError),
    /// The manifest names sections that are not there or of another size.
    #[error(
        "artifact's manifest does not fit its sections: variant {variant}: {what}; compile the model again"
    )]
    Sections {
        /// Position of the variant.
        variant: usize,
        /// What does not fit.
        what: String,
    },
}

/// An artifact over borrowed bytes. Opening it checks the header, the section table, the manifest and
/// the bytes between sections; [`Reader::verify`] checks the content of all sections.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    sections: Vec<Section>,
    manifest: Manifest,
}

impl<'a> Reader<'a> {
    /// Opens an artifact.
    ///
    /// # Errors
    /// See [`ReadError`]; every kind but a wrong checksum of a section other than the manifest.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let sections = read_table(bytes)?;
        check_padding(bytes, &sections)?;
        let json = &bytes[range(&sections[0])];
        if layout::checksum(json) != sections[0].checksum {
            return Err(ReadError::Checksum { index: 0, kind: sections[0].kind.name() });
        }
        let manifest: Manifest = serde_json::from_slice(json)
            .map_err(|source| ReadError::Json { section: "manifest", source })?;
        manifest.validate().map_err(ReadError::Manifest)?;
        let reader = Self { bytes, sections, manifest };
        reader.check_variants()?;
        Ok(reader)
    }

    /// Checks every section's content against its checksum, at about the speed of memory.
    ///
    /// # Errors
    /// [`ReadError::Checksum`] with the first section that differs.
    pub fn verify(&self) -> Result<(), ReadError> {
        for (index, section) in self.sections.iter().enumerate() {
            self.verify_section(index, section)?;
        }
        Ok(())
    }

    fn verify_section(&self, index: usize, section: &Section) -> Result<(), ReadError> {
        if layout::checksum(&self.bytes[range(section)]) == section.checksum {
            return Ok(());
        }
        Err(ReadError::Checksum { index, kind: section.kind.name() })
    }

    /// The manifest, valid and fitting the sections.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Gives up the reader for its manifest.
    pub fn into_manifest(self) -> Manifest {
        self.manifest
    }

    /// The section table in file order.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The `index`-th shared object ([`crate::Variant::code`]).
    pub fn code(&self, index: u32) -> Option<&'a [u8]> {
        self.nth(SectionKind::Code, index)
    }

    /// The `index`-th weights ([`crate::Variant::weights`]).
    pub fn weights(&self, index: u32) -> Option<&'a [u8]> {
        self.nth(SectionKind::Weights, index)
    }

    /// The C header, where there is one.
    pub fn header(&self) -> Option<&'a str> {
        self.nth(SectionKind::Header, 0).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// What `hone inspect` shows, where it was kept.
    ///
    /// # Errors
    /// Where the section is not the JSON it should be.
    pub fn inspect(&self) -> Result<Option<Inspect>, ReadError> {
        self.nth(SectionKind::Inspect, 0)
            .map(serde_json::from_slice)
            .transpose()
            .map_err(|source| ReadError::Json { section: "inspect", source })
    }

    /// `sha256:…` of the whole file, by which the artifact is known. Reads all of it.
    pub fn digest(&self) -> String {
        format!("sha256:{:x}", Sha256::digest(self.bytes))
    }

    fn nth(&self, kind: SectionKind, index: u32) -> Option<&'a [u8]> {
        let mut matching = self.sections.iter().filter(|section| section.kind == kind);
        matching.nth(index as usize).map(|section| &self.bytes[range(section)])
    }

    fn check_variants(&self) -> Result<(), ReadError> {
        for (variant, v) in self.manifest.variants.iter().enumerate() {
            let fault = |what| Err(ReadError::Sections { variant, what });
            if self.code(v.code).is_none() {
                return fault(format!("there is no code section {}", v.code));
            }
            match self.weights(v.weights) {
                None => return fault(format!("there is no weights section {}", v.weights)),
                Some(w) if w.len() as u64 != v.weights_bytes => {
                    return fault(format!(
                        "says {} bytes of weights, the section has {}",
                        v.weights_bytes,
                        w.len()
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// A section's place as a range of the file; its bounds were checked by `read_table`.
fn range(section: &Section) -> std::ops::Range<usize> {
    section.offset as usize..(section.offset + section.length) as usize
}

fn read_table(bytes: &[u8]) -> Result<Vec<Section>, ReadError> {
    let found = bytes.len() as u64;
    if !bytes.starts_with(&MAGIC) {
        return Err(match MAGIC.starts_with(bytes) {
            true => ReadError::Length { expected: HEADER_BYTES as u64, found },
            false => ReadError::Magic,
        });
    }
    if bytes.len() < HEADER_BYTES {
        return Err(ReadError::Length { expected: HEADER_BYTES as u64, found });
    }
    let version = u32_at(bytes, 8);
    if version != FORMAT_VERSION {
        return Err(ReadError::Version { found: version });
    }
    let count = u32_at(bytes, 12) as usize;
    let expected = u64_at(bytes, 16);
    if found != expected {
        return Err(ReadError::Length { expected, found });
    }
    let end = HEADER_BYTES + count.min(MAX_SECTIONS + 1) * ENTRY_BYTES;
    if count == 0 || count > MAX_SECTIONS || end > bytes.len() {
        return Err(ReadError::Table { what: format!("it cannot have {count} sections") });
    }
    let table = &bytes[HEADER_BYTES..end];
    if layout::table_checksum(&bytes[..24], table) != u64_at(bytes, 24) {
        return Err(ReadError::Table {
            what: "the section table does not match its checksum".into(),
        });
    }
    let sections = table.chunks_exact(ENTRY_BYTES).enumerate();
    let sections = sections.map(|(i, e)| read_entry(i, e)).collect::<Result<Vec<_>, _>>()?;
    check_places(&sections, end as u64, found)?;
    Ok(sections)
}

fn read_entry(index: usize, entry: &[u8]) -> Result<Section, ReadError> {
    let number = u32_at(entry, 0);
    let kind = SectionKind::from_number(number).ok_or_else(|| ReadError::Table {
        what: format!("section {index} is of unknown kind {number}"),
    })?;
    if (kind == SectionKind::Manifest) != (index == 0) || u32_at(entry, 4) != 0 {
        let name = kind.name();
        return Err(ReadError::Table { what: format!("section {index} ({name}) is out of place") });
    }
    let (offset, length) = (u64_at(entry, 8), u64_at(entry, 16));
    Ok(Section { kind, offset, length, checksum: u64_at(entry, 24) })
}

/// The layout is canonical, so overlap, gaps and ends outside of the file all show as a wrong place.
fn check_places(sections: &[Section], mut end: u64, file: u64) -> Result<(), ReadError> {
    for (index, section) in sections.iter().enumerate() {
        let due = layout::place(section.kind, end);
        let stop = section.offset.checked_add(section.length);
        match (due, stop) {
            (Some(due), Some(stop)) if due == section.offset && stop <= file => end = stop,
            _ => {
                let (kind, at, length) = (section.kind.name(), section.offset, section.length);
                let what = format!(
                    "section {index} ({kind}) of {length} bytes cannot lie at offset {at} of a file of {file} bytes"
                );
                return Err(ReadError::Table { what });
            }
        }
    }
    match end == file {
        true => Ok(()),
        false => Err(ReadError::Length { expected: end, found: file }),
    }
}

fn check_padding(bytes: &[u8], sections: &[Section]) -> Result<(), ReadError> {
    let mut end = HEADER_BYTES + sections.len() * ENTRY_BYTES;
    for section in sections {
        let place = range(section);
        if let Some(at) = bytes[end..place.start].iter().position(|&byte| byte != 0) {
            return Err(ReadError::Padding { offset: (end + at) as u64 });
        }
        end = place.end;
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
