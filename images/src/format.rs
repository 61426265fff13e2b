//! Which format bytes are of.

use std::fmt;

/// A format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// Windows bitmaps.
    Bmp,
    /// JPEG, ITU-T T.81, of 8 bits.
    Jpeg,
    /// JPEG 2000, ITU-T T.800: JP2 files and bare codestreams.
    Jpeg2000,
    /// Portable Network Graphics.
    Png,
    /// Portable anymaps: PBM, PGM, PPM and PAM.
    Pnm,
    /// TIFF; the first page.
    Tiff,
    /// WebP, lossy and lossless; the first frame.
    WebP,
}

impl ImageFormat {
    /// The format that the first bytes of an image tell; `None` of another.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            // The signature box of JP2, and the start of a codestream with its size.
            [0, 0, 0, 0x0c, b'j', b'P', b' ', b' ', b'\r', b'\n', 0x87, b'\n', ..] => {
                Some(Self::Jpeg2000)
            }
            [0xff, 0x4f, 0xff, 0x51, ..] => Some(Self::Jpeg2000),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Self::Tiff),
            [b'P', b'1'..=b'7', ..] => Some(Self::Pnm),
            [b'B', b'M', ..] => Some(Self::Bmp),
            _ => None,
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bmp => "BMP",
            Self::Jpeg => "JPEG",
            Self::Jpeg2000 => "JPEG 2000",
            Self::Png => "PNG",
            Self::Pnm => "PNM",
            Self::Tiff => "TIFF",
            Self::WebP => "WebP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ImageFormat as F;

    #[test]
    fn first_bytes_tell_the_format() {
        assert_eq!(F::of(b"BM1234"), Some(F::Bmp));
        assert_eq!(F::of(b"P6\n1 1\n255\n"), Some(F::Pnm));
        assert_eq!(F::of(b"II*\0\x08\0\0\0"), Some(F::Tiff));
        assert_eq!(F::of(b"MM\0*\0\0\0\x08"), Some(F::Tiff));
        assert_eq!(F::of(b"RIFF\0\0\0\0WEBPVP8 "), Some(F::WebP));
        assert_eq!(F::of(b"RIFF\0\0\0\0WAVEfmt "), None);
        assert_eq!(F::of(b"\xff\xd8\xff\xe0"), Some(F::Jpeg));
        assert_eq!(F::of(b"\xff\x4f\xff\x51"), Some(F::Jpeg2000));
        assert_eq!(F::of(b"GIF89a"), None);
        assert_eq!(F::of(b""), None);
    }
}
