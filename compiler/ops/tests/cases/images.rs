//! Encoded images, which the runtime decodes.

use super::{Case, case};
use hone_ops::*;
use hone_types::Tensor;

pub fn cases() -> Vec<Case> {
    let image = b"P6\n2 1\n255\n\x01\x02\x03\x04\x05\x06 behind";
    let bytes = Tensor::from_elements([image.len()], &image[..]).unwrap();
    let decoder = |format| ImageDecoder { input: "x".into(), format, height: 1, width: 2 };
    let cases = [
        case(decoder(PixelFormat::Bgr), std::slice::from_ref(&bytes)),
        case(decoder(PixelFormat::Grayscale), &[bytes, Tensor::scalar(17i64)]),
    ];
    cases.map(|own| Case { is_folded: true, ..own }).into()
}
