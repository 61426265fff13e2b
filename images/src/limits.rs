//! What decoding may take.

use crate::Size;

/// Most pixels of a side.
pub const MAX_SIDE: usize = 65_535;

/// Most passes over a JPEG image; a progressive one has about ten. Each costs time by the image's size however few bytes
/// it has.
pub(crate) const MAX_SCANS: usize = 500;

/// Most components of a JPEG 2000 image, alpha among them.
pub(crate) const MAX_COMPONENTS: u16 = 5;

/// Bytes that decoders may reserve whatever the image's size, for tables, lines, and what is told beside the pixels.
const FIXED: u64 = 64 << 20;

/// Bytes for a pixel: the most that is held of one, several times four floats.
const PER_PIXEL: u64 = 128;

/// About how many bytes decoding an image of a size may reserve, those of the result not counted. Some fifteen for a pixel
/// are usual.
pub fn memory_limit(size: Size) -> u64 {
    let pixels = (size.height as u64).saturating_mul(size.width as u64);
    pixels.saturating_mul(PER_PIXEL).saturating_add(FIXED)
}
