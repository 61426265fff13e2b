//! What decodes images: a function that the user gives, else the decoders of the feature `images`, else nothing.

use std::sync::{Arc, PoisonError, RwLock};

use hone_artifact::{HostFunction, HostTools, ImageDecoder, Part, Variant};

use crate::LoadError;
use crate::key_loops::KEY_LOOPS;

/// The user's, for all models of the process.
static GIVEN: RwLock<Option<Arc<ImageDecoder>>> = RwLock::new(None);

/// Lets a function decode the images of all models of this process, loaded before or after. It gets encoded bytes
/// that are not trusted and memory of `[height, width, channels]` bytes; an image of another size is an error. It
/// must not panic. `None` goes back to what this library has itself: with the feature `images` decoders of all of ONNX's
/// formats, else none, and then artifacts that decode images are not loaded.
pub fn set_image_decoder(decoder: Option<Arc<ImageDecoder>>) {
    let before = {
        let mut given = GIVEN.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *given, decoder)
    };
    // What it holds may take its time to go: nobody waits for that.
    drop(before);
}

/// Whether images can be decoded now.
pub fn has_image_decoder() -> bool {
    Decoder::current().tools().images.is_some()
}

/// The decoder of a run.
pub(crate) struct Decoder(Option<Arc<ImageDecoder>>);

impl Decoder {
    /// The one that is set now.
    pub(crate) fn current() -> Self {
        Self(GIVEN.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// What functions of the runtime use.
    pub(crate) fn tools(&self) -> HostTools<'_> {
        HostTools { loops: &KEY_LOOPS, images: self.0.as_deref().or(OWN) }
    }
}

#[cfg(not(feature = "images"))]
const OWN: Option<&ImageDecoder> = None;
#[cfg(feature = "images")]
const OWN: Option<&ImageDecoder> = Some(&own::decode);

#[cfg(feature = "images")]
mod own {
    use hone_artifact::{ImageRequest, with_causes};
    use hone_images::{PixelFormat, Size};

    #[cfg(panic = "abort")]
    compile_error!(
        "the feature 'images' needs panics that unwind: bytes that are not trusted may make a decoder panic, and that must not end the process"
    );

    pub(super) fn decode(request: &ImageRequest<'_>, pixels: &mut [u8]) -> Result<(), String> {
        let format = PixelFormat::from_name(request.format.name());
        let format = format.ok_or("it is asked for in an unknown format of pixels")?;
        // No image is as large as what does not fit.
        let side = |pixels: u64| usize::try_from(pixels).unwrap_or(usize::MAX);
        let size = Size { height: side(request.height), width: side(request.width) };
        hone_images::decode(request.bytes, format, size, pixels)
            .map_err(|error| with_causes(&error))
    }
}

/// Refuses variants that decode images where nothing does.
pub(crate) fn check<'a>(mut variants: impl Iterator<Item = &'a Variant>) -> Result<(), LoadError> {
    let node = variants.find_map(|variant| decoding(&variant.program));
    match node {
        Some(node) if !has_image_decoder() => Err(LoadError::NoImages { node: node.to_owned() }),
        _ => Ok(()),
    }
}

/// The first node that decodes images.
fn decoding(parts: &[Part]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        Part::Steps { .. } => None,
        Part::If(own) => decoding(&own.then).or_else(|| decoding(&own.otherwise)),
        Part::Loop(own) => decoding(&own.body),
        Part::Host(own) => {
            matches!(own.function, HostFunction::Image(_)).then_some(own.node.as_str())
        }
    })
}
