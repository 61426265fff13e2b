//! JPEG, by a port of libjpeg-turbo whose samples are that library's: accurate integer IDCT, smooth upsampling of chroma.

use libjpeg_turbo_rs::{DecodeLimits, Decoder, PixelFormat as Order};

use crate::error::check_size;
use crate::limits::{MAX_SCANS, memory_limit};
use crate::{DecodeError, ImageFormat, PixelFormat, Size};

pub(crate) fn decode(
    bytes: &[u8],
    format: PixelFormat,
    size: Size,
    pixels: &mut [u8],
) -> Result<(), DecodeError> {
    let of = ImageFormat::Jpeg;
    let refused = |error| DecodeError::decoder(of, error);
    // A side of another length is told by comparing, in words of ours.
    let limits = DecodeLimits {
        max_scans: MAX_SCANS,
        max_memory: Some(memory_limit(size)),
        ..DecodeLimits::default()
    };
    let mut decoder = Decoder::new_with_limits(bytes, limits).map_err(refused)?;
    let header = decoder.header();
    let found = Size { height: header.height.into(), width: header.width.into() };
    check_size(of, found, size)?;
    if header.precision != 8 {
        return Err(DecodeError::Kind {
            of,
            what: format!("samples of {} bits", header.precision),
        });
    }
    match format {
        PixelFormat::Rgb | PixelFormat::Bgr => {
            let order = if format == PixelFormat::Rgb { Order::Rgb } else { Order::Bgr };
            decoder.set_output_format(order);
            decoder.decode_image_into(pixels).map_err(refused)?;
        }
        PixelFormat::Grayscale => {
            // The luma of the pixels, which is what is wanted of every format; it differs by rounding from that stored.
            decoder.set_output_format(Order::Rgb);
            let image = decoder.decode_image().map_err(refused)?;
            format.store(image.data.as_chunks::<3>().0.iter().copied(), pixels);
        }
    }
    Ok(())
}
