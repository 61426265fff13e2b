//! Channels of a pixel in the order that is asked for.

use serde::{Deserialize, Serialize};

/// What a decoded pixel holds, in the words of ONNX's attribute `pixel_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PixelFormat {
    /// Red, green, blue.
    #[serde(rename = "RGB")]
    Rgb,
    /// Blue, green, red.
    #[serde(rename = "BGR")]
    Bgr,
    /// One channel: luma by the weights of ITU-R BT.601 on the gamma-encoded values.
    Grayscale,
}

impl PixelFormat {
    /// The format of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Rgb, Self::Bgr, Self::Grayscale].into_iter().find(|own| own.name() == name)
    }

    /// `RGB`, `BGR` or `Grayscale`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rgb => "RGB",
            Self::Bgr => "BGR",
            Self::Grayscale => "Grayscale",
        }
    }

    /// Bytes of a pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Grayscale => 1,
        }
    }

    /// Stores pixels given as red, green and blue.
    pub(crate) fn store(self, rgb: impl Iterator<Item = [u8; 3]>, pixels: &mut [u8]) {
        for (pixel, [r, g, b]) in pixels.chunks_exact_mut(self.channels()).zip(rgb) {
            match self {
                Self::Rgb => pixel.copy_from_slice(&[r, g, b]),
                Self::Bgr => pixel.copy_from_slice(&[b, g, r]),
                Self::Grayscale => pixel[0] = luma([r, g, b]),
            }
        }
    }
}

/// Weights of red, green and blue in 65536ths, 0.299, 0.587 and 0.114; their sum is 1, so that grey stays as it is.
const WEIGHTS: [u32; 3] = [19_595, 38_470, 7_471];

/// Luma of a pixel, rounded to nearest.
fn luma(rgb: [u8; 3]) -> u8 {
    let sum: u32 = rgb.into_iter().zip(WEIGHTS).map(|(own, weight)| u32::from(own) * weight).sum();
    ((sum + (1 << 15)) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_keeps_its_value_and_weights_are_of_full_scale() {
        assert_eq!(WEIGHTS.iter().sum::<u32>(), 1 << 16);
        assert!((0..=255).all(|own| luma([own; 3]) == own));
        assert_eq!([luma([255, 0, 0]), luma([0, 255, 0]), luma([0, 0, 255])], [76, 150, 29]);
    }

    #[test]
    fn channels_go_where_they_are_asked_for() {
        let rgb = [[1, 2, 3], [4, 5, 6]];
        let stored = |format: PixelFormat| {
            let mut pixels = vec![0; 2 * format.channels()];
            format.store(rgb.into_iter(), &mut pixels);
            pixels
        };
        assert_eq!(stored(PixelFormat::Rgb), [1, 2, 3, 4, 5, 6]);
        assert_eq!(stored(PixelFormat::Bgr), [3, 2, 1, 6, 5, 4]);
        assert_eq!(stored(PixelFormat::Grayscale), [2, 5]);
    }

    #[test]
    fn names_lead_back() {
        for own in [PixelFormat::Rgb, PixelFormat::Bgr, PixelFormat::Grayscale] {
            assert_eq!(PixelFormat::from_name(own.name()), Some(own));
        }
        assert_eq!(PixelFormat::from_name("rgb"), None);
    }
}
