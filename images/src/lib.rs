//! Decodes images in memory: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP.
//!
//! The bytes are not trusted. Always true of [`decode`]:
//!
//! - The caller says how large the image is. What the file's head says is compared with that before memory for pixels is
//!   reserved, so that a small file asks for no more than [`memory_limit`] says.
//! - Whatever the bytes are, it ends with pixels or with an error; a decoder that panics is an error, too, where
//!   panics unwind.
//! - Equal bytes give equal pixels on every machine.
//!
//! Pixels are those of Pillow for images of 8 bits in grey, RGB and palettes: a JPEG's chroma is interpolated as by
//! libjpeg-turbo. Alpha is dropped, 16 bits become 8, neither orientation nor colour profiles are applied.

mod error;
mod format;
mod jpeg;
mod jpeg2000;
mod limits;
mod pixels;
mod raster;
mod sample;
mod tiff_entries;

pub use error::DecodeError;
pub use format::ImageFormat;
pub use limits::{MAX_SIDE, memory_limit};
pub use pixels::PixelFormat;
pub use sample::sample;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Height and width in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Size {
    /// Pixels, where they fit.
    fn pixels(self) -> Option<usize> {
        self.height.checked_mul(self.width)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} high and {} wide", self.height, self.width)
    }
}

/// Decodes an image into `pixels`, `[height, width, channels]` of `u8` in this order. What follows the image in `bytes`
/// is not read.
///
/// # Errors
/// Bytes that are no image of a known format, that are damaged or of a kind that is not taken, another size than `size`,
/// more than the limits allow, `pixels` of another length. `pixels` holds anything then.
pub fn decode(
    bytes: &[u8],
    format: PixelFormat,
    size: Size,
    pixels: &mut [u8],
) -> Result<(), DecodeError> {
    let needed = size.pixels().and_then(|own| own.checked_mul(format.channels()));
    if needed != Some(pixels.len()) {
        return Err(DecodeError::Room { room: pixels.len(), size, format });
    }
    if size.height.max(size.width) > MAX_SIDE {
        return Err(DecodeError::Side { size });
    }
    let of = ImageFormat::of(bytes).ok_or(DecodeError::UnknownFormat)?;
    let decoded = catch_unwind(AssertUnwindSafe(|| match of {
        ImageFormat::Jpeg => jpeg::decode(bytes, format, size, pixels),
        ImageFormat::Jpeg2000 => jpeg2000::decode(bytes, format, size, pixels),
        _ => raster::decode(of, bytes, format, size, pixels),
    }));
    decoded.unwrap_or_else(|panic| Err(DecodeError::panic(of, panic.as_ref())))
}
