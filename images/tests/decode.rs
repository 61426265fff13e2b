//! Images of every format against the pixels that Pillow decodes from them; `data/generate.py` wrote both.
#![allow(clippy::unwrap_used)]

mod common;

use common::{SIZE, cases};
use hone_images::{DecodeError, PixelFormat, Size, decode};

fn decoded(bytes: &[u8], format: PixelFormat) -> Vec<u8> {
    let mut pixels = vec![0xaa; SIZE.height * SIZE.width * format.channels()];
    decode(bytes, format, SIZE, &mut pixels).unwrap();
    pixels
}

#[test]
fn every_image_has_the_pixels_of_pillow() {
    let cases = cases();
    assert!(cases.len() > 25);
    for case in cases {
        let pixels = decoded(&case.bytes, PixelFormat::Rgb);
        let differing = pixels.iter().zip(&case.expected).filter(|(a, b)| a != b).count();
        assert_eq!((pixels.len(), differing), (case.expected.len(), 0), "{}", case.name);
    }
}

#[test]
fn other_formats_are_made_of_the_same_pixels() {
    for case in cases() {
        let bgr = decoded(&case.bytes, PixelFormat::Bgr);
        let turned: Vec<u8> =
            case.expected.chunks_exact(3).flat_map(|own| [own[2], own[1], own[0]]).collect();
        assert!(bgr == turned, "{}", case.name);
        let grey = decoded(&case.bytes, PixelFormat::Grayscale);
        for (own, rgb) in grey.iter().zip(case.expected.chunks_exact(3)) {
            let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(f64::from);
            let exact = 0.299 * r + 0.587 * g + 0.114 * b;
            assert!((f64::from(*own) - exact).abs() <= 0.51, "{}: {own} of {rgb:?}", case.name);
        }
    }
}

#[test]
fn bytes_behind_an_image_are_not_read() {
    for case in cases() {
        for behind in [0, 0xff] {
            let mut bytes = case.bytes.clone();
            bytes.resize(bytes.len() + 1000, behind);
            let mut pixels = vec![0; case.expected.len()];
            let done = decode(&bytes, PixelFormat::Rgb, SIZE, &mut pixels);
            done.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
            assert!(pixels == case.expected, "{}", case.name);
        }
    }
}

#[test]
fn another_size_is_refused_with_both_in_the_message() {
    for case in cases() {
        for (height, width) in [(SIZE.height + 1, SIZE.width), (SIZE.width, SIZE.height)] {
            let size = Size { height, width };
            let mut pixels = vec![0; height * width * 3];
            let error = decode(&case.bytes, PixelFormat::Rgb, size, &mut pixels).unwrap_err();
            let text = error.to_string();
            let says = format!("21 high and 35 wide, {height} high and {width} wide is declared");
            assert!(text.contains(&says), "{}: {text}", case.name);
            assert!(matches!(error, DecodeError::Size { .. }));
        }
    }
}

#[test]
fn room_must_be_that_of_the_pixels() {
    let case = &cases()[0];
    for room in [0, 1, case.expected.len() - 1, case.expected.len() + 1] {
        let error = decode(&case.bytes, PixelFormat::Rgb, SIZE, &mut vec![0; room]).unwrap_err();
        assert!(matches!(error, DecodeError::Room { .. }), "{error}");
    }
    let overflowing = Size { height: usize::MAX, width: 2 };
    assert!(decode(&case.bytes, PixelFormat::Rgb, overflowing, &mut []).is_err());
    let long = Size { height: 1, width: 70_000 };
    let error = decode(&case.bytes, PixelFormat::Grayscale, long, &mut vec![0; 70_000]);
    assert!(matches!(error.unwrap_err(), DecodeError::Side { .. }));
}

#[test]
fn cut_off_images_are_errors() {
    for case in cases() {
        // Half of an image; all that is wanted may be in the first bytes of none.
        let cut = &case.bytes[..case.bytes.len() / 2];
        let mut pixels = vec![0; case.expected.len()];
        let done = decode(cut, PixelFormat::Rgb, SIZE, &mut pixels);
        assert!(done.is_err(), "{}", case.name);
    }
    for bytes in [&b""[..], b"GIF89a", b"\xff\xd8\xff", b"BM", b"P6", b"II*\0"] {
        let mut pixels = vec![0; SIZE.height * SIZE.width * 3];
        assert!(decode(bytes, PixelFormat::Rgb, SIZE, &mut pixels).is_err());
    }
}
