//! Small images for trying models.

use std::io::Cursor;

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};

use crate::Size;

/// Most pixels of a sample.
const MOST_PIXELS: usize = 1 << 26;

/// An encoded image of a size in at most `room` bytes, its content from `next`: a PNM image of as many colours as there is
/// room for, else a PNG image of one shade. `None` where there is no room for that either, or the image is too large to be
/// made for a trial.
pub fn sample(size: Size, room: usize, mut next: impl FnMut() -> u8) -> Option<Vec<u8>> {
    let Size { height, width } = size;
    let pixels = size.pixels().filter(|pixels| (1..=MOST_PIXELS).contains(pixels))?;
    let kinds = [
        (format!("P6\n{width} {height}\n255\n"), pixels * 3),
        (format!("P5\n{width} {height}\n255\n"), pixels),
        (format!("P4\n{width} {height}\n"), width.div_ceil(8) * height),
    ];
    let fitting = kinds.into_iter().find(|(head, bytes)| head.len() + bytes <= room);
    if let Some((head, bytes)) = fitting {
        return Some(head.into_bytes().into_iter().chain((0..bytes).map(|_| next())).collect());
    }
    let shade = vec![next(); pixels];
    let (wide, high) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    let mut bytes = Cursor::new(Vec::new());
    let encoder =
        PngEncoder::new_with_quality(&mut bytes, CompressionType::Best, FilterType::NoFilter);
    encoder.write_image(&shade, wide, high, ExtendedColorType::L8).ok()?;
    Some(bytes.into_inner()).filter(|bytes| bytes.len() <= room)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ImageFormat, PixelFormat, decode};

    #[test]
    fn samples_fill_the_room_that_there_is_and_are_decoded() {
        let size = Size { height: 40, width: 50 };
        let mut state = 1u8;
        for (room, head) in [(9000, &b"P6"[..]), (3000, b"P5"), (300, b"P4"), (150, b"\x89PNG")] {
            let bytes = sample(size, room, || {
                state = state.wrapping_mul(5).wrapping_add(3);
                state
            });
            let bytes = bytes.unwrap();
            assert!(bytes.len() <= room && bytes.starts_with(head), "{room}: {}", bytes.len());
            let mut pixels = vec![0; 40 * 50 * 3];
            decode(&bytes, PixelFormat::Rgb, size, &mut pixels).unwrap();
            assert!(ImageFormat::of(&bytes).is_some());
        }
        assert!(sample(size, 20, || 0).is_none());
        assert!(sample(Size { height: 1 << 20, width: 1 << 20 }, usize::MAX, || 0).is_none());
        assert!(sample(Size { height: 0, width: 4 }, 100, || 0).is_none());
    }
}
