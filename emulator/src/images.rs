//! Decoding images, on this machine.

use hone_artifact::{HostTools, ImageRequest, KeyLoops, with_causes};
use hone_images::{PixelFormat, Size};

/// What functions that are computed here use.
pub(crate) const TOOLS: HostTools<'static> =
    HostTools { loops: &KeyLoops::PLAIN, images: Some(&decode) };

fn decode(request: &ImageRequest<'_>, pixels: &mut [u8]) -> Result<(), String> {
    let format = PixelFormat::from_name(request.format.name());
    let format = format.ok_or("it is asked for in an unknown format of pixels")?;
    // No image is as large as what does not fit.
    let side = |pixels: u64| usize::try_from(pixels).unwrap_or(usize::MAX);
    let size = Size { height: side(request.height), width: side(request.width) };
    hone_images::decode(request.bytes, format, size, pixels).map_err(|error| with_causes(&error))
}
