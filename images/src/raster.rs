//! BMP, PNG, PNM, TIFF and WebP.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageReader, Limits};

use crate::error::check_size;
use crate::limits::memory_limit;
use crate::tiff_entries;
use crate::{DecodeError, ImageFormat, PixelFormat, Size};

/// The share of the memory that a decoder is told: each of several buffers may have as much.
const SHARE: u64 = 4;

pub(crate) fn decode(
    of: ImageFormat,
    bytes: &[u8],
    format: PixelFormat,
    size: Size,
    pixels: &mut [u8],
) -> Result<(), DecodeError> {
    let refused = |error| DecodeError::decoder(of, error);
    if of == ImageFormat::Tiff && tiff_entries::are_sound(bytes, size) != Some(true) {
        return Err(DecodeError::decoder(of, "an entry of its directory is impossible"));
    }
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(memory_limit(size) / SHARE);
    let Some(known) = known(of) else {
        return Err(DecodeError::Kind { of, what: "another decoder".to_owned() });
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), known);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    check_size(of, Size { height: height as usize, width: width as usize }, size)?;
    limits.reserve(decoder.total_bytes()).map_err(refused)?;
    decoder.set_limits(limits).map_err(refused)?;
    let image = DynamicImage::from_decoder(decoder).map_err(refused)?;
    let rgb = image.into_rgb8();
    match format {
        PixelFormat::Rgb => pixels.copy_from_slice(&rgb),
        _ => format.store(rgb.as_chunks::<3>().0.iter().copied(), pixels),
    }
    Ok(())
}

fn known(of: ImageFormat) -> Option<image::ImageFormat> {
    match of {
        ImageFormat::Bmp => Some(image::ImageFormat::Bmp),
        ImageFormat::Png => Some(image::ImageFormat::Png),
        ImageFormat::Pnm => Some(image::ImageFormat::Pnm),
        ImageFormat::Tiff => Some(image::ImageFormat::Tiff),
        ImageFormat::WebP => Some(image::ImageFormat::WebP),
        ImageFormat::Jpeg | ImageFormat::Jpeg2000 => None,
    }
}
