//! Why an image could not be decoded.

use std::any::Any;
use std::error::Error;

use crate::{ImageFormat, MAX_SIDE, PixelFormat, Size};

/// Why an image could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are of no format that is taken.
    #[error("it begins like no BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP image")]
    UnknownFormat,
    /// Another size than the caller's.
    #[error("the {of} image is {found}, {declared} is declared")]
    Size {
        /// The format.
        of: ImageFormat,
        /// What the image's head says.
        found: Size,
        /// What the caller says.
        declared: Size,
    },
    /// The caller asks for an image that is too large.
    #[error("an image {size} is too large: a side has at most {MAX_SIDE} pixels")]
    Side {
        /// What the caller says.
        size: Size,
    },
    /// The caller's memory is not as large as the pixels.
    #[error("there is room for {room} bytes, not for {size} of {} channels", format.channels())]
    Room {
        /// Bytes that were given.
        room: usize,
        /// What the caller says.
        size: Size,
        /// What the caller wants.
        format: PixelFormat,
    },
    /// A sound image of a kind that is not taken.
    #[error("the {of} image has {what}, which is not taken")]
    Kind {
        /// The format.
        of: ImageFormat,
        /// What it has.
        what: String,
    },
    /// The decoder of the format refuses the bytes.
    #[error("the {of} image cannot be decoded")]
    Decoder {
        /// The format.
        of: ImageFormat,
        /// What the decoder says.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The decoder of the format panicked.
    #[error("the {of} image cannot be decoded: its decoder panicked ({what})")]
    Panic {
        /// The format.
        of: ImageFormat,
        /// What the panic says.
        what: String,
    },
}

impl DecodeError {
    /// What a decoder says.
    pub(crate) fn decoder(
        of: ImageFormat,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Decoder { of, source: source.into() }
    }

    pub(crate) fn panic(of: ImageFormat, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panic { of, what: text.unwrap_or_else(|| "without a message".to_owned()) }
    }
}

/// An error where two sizes differ.
pub(crate) fn check_size(of: ImageFormat, found: Size, declared: Size) -> Result<(), DecodeError> {
    if found == declared { Ok(()) } else { Err(DecodeError::Size { of, found, declared }) }
}
