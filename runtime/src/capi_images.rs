//! The C interface to decoders of images; `include/hone.h` says what each function does.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use hone_artifact::{ImageRequest, PixelFormat};

use crate::images::{has_image_decoder, set_image_decoder};

/// `hone_image_decoder`.
pub type HoneImageDecoder = unsafe extern "C" fn(
    user: *mut c_void,
    bytes: *const u8,
    length: usize,
    format: u32,
    height: u64,
    width: u64,
    pixels: *mut u8,
) -> c_int;

/// A function of C, and what it is given.
struct Given {
    decoder: HoneImageDecoder,
    user: *mut c_void,
}

// SAFETY: the user promises that the function may be called from any thread.
unsafe impl Send for Given {}
// SAFETY: the same, from several at once.
unsafe impl Sync for Given {}

impl Given {
    fn decode(&self, request: &ImageRequest<'_>, pixels: &mut [u8]) -> Result<(), String> {
        let format = match request.format {
            PixelFormat::Rgb => 0,
            PixelFormat::Bgr => 1,
            PixelFormat::Grayscale => 2,
        };
        let (bytes, to) = (request.bytes, pixels.as_mut_ptr());
        let (height, width) = (request.height, request.width);
        // SAFETY: the user promises to read so many bytes and to write height * width * channels, which `pixels` has.
        let done = unsafe {
            (self.decoder)(self.user, bytes.as_ptr(), bytes.len(), format, height, width, to)
        };
        match done {
            0 => Ok(()),
            code => Err(format!("the decoder that was set gave {code}")),
        }
    }
}

/// `hone_set_image_decoder`.
///
/// # Safety
/// `decoder` is null or a function that keeps to `hone.h` with `user`, from any thread, until another one is set and no
/// run is under way any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hone_set_image_decoder(
    decoder: Option<HoneImageDecoder>,
    user: *mut c_void,
) {
    let Some(decoder) = decoder else { return set_image_decoder(None) };
    let given = Given { decoder, user };
    set_image_decoder(Some(Arc::new(move |request: &ImageRequest<'_>, pixels: &mut [u8]| {
        given.decode(request, pixels)
    })));
}

/// `hone_has_image_decoder`.
#[unsafe(no_mangle)]
pub extern "C" fn hone_has_image_decoder() -> c_int {
    c_int::from(has_image_decoder())
}
