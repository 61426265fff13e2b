//! Makes an artifact from its parts.

use std::borrow::Cow;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::layout::{
    self, ENTRY_BYTES, FORMAT_VERSION, HEADER_BYTES, MAGIC, MAX_SECTIONS, Section, SectionKind,
};
use crate::manifest::Manifest;
use crate::{Inspect, WriteError, write_atomically};

/// Collects the parts of an artifact and writes the file. Equal parts give equal bytes.
///
/// ```no_run
/// # fn parts() -> (hone_artifact::Manifest, Vec<u8>, Vec<u8>) { unimplemented!() }
/// # fn main() -> Result<(), hone_artifact::WriteError> {
/// let (manifest, shared_object, weights) = parts();
/// let mut writer = hone_artifact::Writer::new();
/// assert_eq!(writer.code(&shared_object), manifest.variants[0].code);
/// assert_eq!(writer.weights(&weights), manifest.variants[0].weights);
/// writer.header(hone_artifact::c_header(&manifest, "digits"));
/// let written = writer.write_file(&manifest, std::path::Path::new("digits.hone"))?;
/// println!("{} ({} bytes)", written.digest, written.bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Writer<'a> {
    code: Vec<Cow<'a, [u8]>>,
    /// Of each section the pieces that it is made of.
    weights: Vec<Vec<Cow<'a, [u8]>>>,
    header: Option<String>,
    inspect: Option<Inspect>,
}

/// A section's kind, and the pieces that it is made of.
type Part<'a> = (SectionKind, Vec<Cow<'a, [u8]>>);

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `sha256:…` of the whole file, by which the artifact is known.
    pub digest: String,
    /// Size of the file in bytes.
    pub bytes: u64,
}

impl<'a> Writer<'a> {
    /// A writer without sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a shared object and gives its number, for [`crate::Variant::code`].
    pub fn code(&mut self, shared_object: impl Into<Cow<'a, [u8]>>) -> u32 {
        self.code.push(shared_object.into());
        self.code.len() as u32 - 1
    }

    /// Adds packed weights and gives their number, for [`crate::Variant::weights`].
    pub fn weights(&mut self, packed: impl Into<Cow<'a, [u8]>>) -> u32 {
        self.weights_of(vec![packed.into()])
    }

    /// As [`Writer::weights`], of pieces that lie one behind the other, so that they need not be copied together first.
    pub fn weights_of(&mut self, pieces: Vec<Cow<'a, [u8]>>) -> u32 {
        self.weights.push(pieces);
        self.weights.len() as u32 - 1
    }

    /// Sets the C header; see [`crate::c_header`].
    pub fn header(&mut self, text: String) {
        self.header = Some(text);
    }

    /// Sets what `hone inspect` shows.
    pub fn inspect(&mut self, inspect: Inspect) {
        self.inspect = Some(inspect);
    }

    /// The whole artifact in memory.
    ///
    /// # Errors
    /// A manifest that is not valid or does not fit the sections.
    pub fn to_bytes(&self, manifest: &Manifest) -> Result<Vec<u8>, WriteError> {
        Ok(self.chunks(manifest)?.concat())
    }

    /// Writes the file: all of it or, on any error, nothing.
    ///
    /// # Errors
    /// A manifest that is not valid or does not fit the sections, or what the file system says.
    pub fn write_file(&self, manifest: &Manifest, path: &Path) -> Result<Written, WriteError> {
        let chunks = self.chunks(manifest)?;
        let hash = || {
            let mut hash = Sha256::new();
            chunks.iter().for_each(|chunk| hash.update(chunk));
            format!("sha256:{:x}", hash.finalize())
        };
        // The digest of weights takes as long as writing them.
        let (digest, bytes) = std::thread::scope(|scope| {
            let digest = scope.spawn(hash);
            let bytes = write_atomically(path, chunks.iter().map(|chunk| &chunk[..]));
            (digest.join(), bytes)
        });
        let digest = digest.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Written { digest, bytes: bytes? })
    }

    /// The file's bytes in order, weights and code not copied.
    fn chunks(&self, manifest: &Manifest) -> Result<Vec<Cow<'_, [u8]>>, WriteError> {
        manifest.validate().map_err(WriteError::Manifest)?;
        self.check_sections(manifest)?;
        let parts = self.parts(manifest)?;
        let mut end = (HEADER_BYTES + parts.len() * ENTRY_BYTES) as u64;
        let mut sections = Vec::with_capacity(parts.len());
        let mut body: Vec<Cow<'_, [u8]>> = Vec::with_capacity(2 * parts.len());
        for (kind, pieces) in parts {
            let length = length(&pieces);
            let offset = layout::place(kind, end).ok_or(WriteError::TooLarge)?;
            body.push(Cow::Owned(vec![0; (offset - end) as usize]));
            let checksum = layout::checksum_of(pieces.iter().map(|piece| &piece[..]));
            sections.push(Section { kind, offset, length, checksum });
            body.extend(pieces);
            end = offset.checked_add(length).ok_or(WriteError::TooLarge)?;
        }
        body.insert(0, Cow::Owned(head(&sections, end)));
        Ok(body)
    }

    fn parts(&self, manifest: &Manifest) -> Result<Vec<Part<'_>>, WriteError> {
        let json = serde_json::to_vec(manifest).map_err(WriteError::Json)?;
        let mut parts = vec![(SectionKind::Manifest, vec![Cow::Owned(json)])];
        if let Some(text) = &self.header {
            parts.push((SectionKind::Header, vec![Cow::Borrowed(text.as_bytes())]));
        }
        if let Some(inspect) = &self.inspect {
            let json = serde_json::to_vec(inspect).map_err(WriteError::Json)?;
            parts.push((SectionKind::Inspect, vec![Cow::Owned(json)]));
        }
        parts.extend(
            self.code.iter().map(|code| (SectionKind::Code, vec![Cow::Borrowed(&code[..])])),
        );
        let weights = self.weights.iter();
        parts.extend(weights.map(|pieces| {
            let pieces = pieces.iter().map(|piece| Cow::Borrowed(&piece[..]));
            (SectionKind::Weights, pieces.collect())
        }));
        if parts.len() > MAX_SECTIONS {
            return Err(WriteError::TooLarge);
        }
        Ok(parts)
    }

    fn check_sections(&self, manifest: &Manifest) -> Result<(), WriteError> {
        for (variant, v) in manifest.variants.iter().enumerate() {
            if self.code.len() <= v.code as usize {
                return Err(WriteError::NoSection { variant, kind: "code", index: v.code });
            }
            match self.weights.get(v.weights as usize) {
                None => {
                    let (kind, index) = ("weights", v.weights);
                    return Err(WriteError::NoSection { variant, kind, index });
                }
                Some(w) if length(w) != v.weights_bytes => {
                    let (said, found) = (v.weights_bytes, length(w));
                    return Err(WriteError::WeightsSize { variant, said, found });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Bytes of some pieces together.
fn length(pieces: &[Cow<'_, [u8]>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// The header and the section table of a file of `length` bytes.
fn head(sections: &[Section], length: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + sections.len() * ENTRY_BYTES);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    let mut table = Vec::with_capacity(sections.len() * ENTRY_BYTES);
    for section in sections {
        table.extend_from_slice(&section.kind.number().to_le_bytes());
        table.extend_from_slice(&[0; 4]);
        table.extend_from_slice(&section.offset.to_le_bytes());
        table.extend_from_slice(&section.length.to_le_bytes());
        table.extend_from_slice(&section.checksum.to_le_bytes());
    }
    let sum = layout::table_checksum(&header, &table);
    header.extend_from_slice(&sum.to_le_bytes());
    header.extend_from_slice(&table);
    header
}
