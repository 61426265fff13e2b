//! Who decodes images: a function that is set, else the library where it has decoders, else nobody.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use common::*;
use hone_artifact::{
    DataType, Host, HostFunction, HostTensor, HostType, If, ImageFunction, Manifest, Part, Slot,
    TensorInfo,
};
use hone_runtime::capi_images::*;
use hone_runtime::{
    ImageRequest, LoadError, Model, Options, PixelFormat, RunError, has_image_decoder,
    set_image_decoder,
};

/// One row of two pixels as a PPM image.
const IMAGE: &[u8] = b"P6\n2 1\n255\n\x01\x02\x03\x04\x05\x06";

fn tensor(slot: Slot, shape: &[u64]) -> HostTensor {
    HostTensor { slot, of: HostType { dtype: DataType::U8, shape: shape.to_vec() } }
}

/// `y` is the image `x`; in a branch that is not taken, if so asked.
fn decoding(inside: bool) -> Manifest {
    let mut manifest = affine(1);
    let length = IMAGE.len() as u64;
    let info = |name: &str, shape| TensorInfo::new(name, DataType::U8, shape).unwrap();
    manifest.inputs = vec![info("x", vec![length])];
    manifest.outputs = vec![info("y", vec![1, 2, 3])];
    manifest.interface = Default::default();
    let image = ImageFunction { input: "x".into(), format: PixelFormat::Bgr, height: 1, width: 2 };
    let host = Part::Host(Host {
        node: "decode".into(),
        function: HostFunction::Image(image),
        inputs: vec![Some(tensor(Slot::Input { index: 0, offset: 0 }, &[length]))],
        outputs: vec![tensor(Slot::Output { index: 0, offset: 0 }, &[1, 2, 3])],
    });
    let variant = &mut manifest.variants[0];
    variant.steps.clear();
    variant.program = vec![match inside {
        false => host,
        true => Part::If(If {
            node: "maybe".into(),
            condition: Slot::Input { index: 0, offset: 0 },
            then: vec![host],
            otherwise: Vec::new(),
        }),
    }];
    manifest
}

fn run(model: &mut Model) -> Result<Vec<u8>, RunError> {
    let mut y = vec![0; 6];
    model.run(&[IMAGE], &mut [&mut y]).map(|()| y)
}

fn load(inside: bool) -> Result<Model, LoadError> {
    Model::load_memory(pack(&decoding(inside)), &Options::default())
}

/// The last pixel of an image whose pixels are not compressed, everywhere.
unsafe extern "C" fn last_pixel(
    user: *mut c_void,
    bytes: *const u8,
    length: usize,
    format: u32,
    height: u64,
    width: u64,
    pixels: *mut u8,
) -> c_int {
    if user.is_null() {
        return 7;
    }
    assert_eq!((format, height, width), (1, 1, 2));
    for place in 0..6 {
        // SAFETY: the image ends with a pixel, and there is room for two.
        unsafe { *pixels.add(place) = *bytes.add(length - 1 - place % 3) };
    }
    0
}

// The decoder is that of the process: one test after the other.
#[test]
fn images_are_decoded_by_whoever_is_set() {
    match cfg!(feature = "images") {
        true => {
            assert!(has_image_decoder() && hone_has_image_decoder() == 1);
            let y = run(&mut load(false).unwrap()).unwrap();
            assert_eq!(y, [3, 2, 1, 6, 5, 4]);
        }
        false => {
            assert!(!has_image_decoder() && hone_has_image_decoder() == 0);
            for inside in [false, true] {
                let error = load(inside).map(|_| ()).unwrap_err();
                let text = error.to_string();
                assert!(matches!(&error, LoadError::NoImages { node } if node == "decode"));
                assert!(text.contains("feature 'images'"), "{text}");
                assert!(text.contains("hone_set_image_decoder"), "{text}");
            }
        }
    }
    set_image_decoder(Some(Arc::new(|request: &ImageRequest<'_>, pixels: &mut [u8]| {
        assert_eq!(request.bytes, IMAGE);
        pixels.fill(9);
        Ok(())
    })));
    let mut model = load(true).unwrap();
    assert_eq!(run(&mut model).unwrap(), [9; 6]);
    // Another one serves models that were loaded before.
    let mut user = 0u8;
    // SAFETY: the function keeps to what is asked of it, and `user` lives until the end.
    unsafe { hone_set_image_decoder(Some(last_pixel), (&raw mut user).cast()) };
    assert_eq!(run(&mut model).unwrap(), [6, 5, 4, 6, 5, 4]);
    // SAFETY: as above.
    unsafe { hone_set_image_decoder(Some(last_pixel), ptr::null_mut()) };
    let error = run(&mut model).unwrap_err();
    assert!(error.to_string().contains("'x' is not decoded: the decoder that was set gave 7"));
    // SAFETY: as above.
    unsafe { hone_set_image_decoder(None, ptr::null_mut()) };
    assert_eq!(has_image_decoder(), cfg!(feature = "images"));
    // A model that was loaded before is refused when it runs.
    match cfg!(feature = "images") {
        true => assert_eq!(run(&mut model).unwrap(), [3, 2, 1, 6, 5, 4]),
        false => {
            let error = run(&mut model).unwrap_err().to_string();
            assert!(error.contains("nothing here decodes images"), "{error}");
        }
    }
}
