//! `ImageDecoder`: the size of an image is the one that the model declares.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::ModelProto;
use hone_ops::{ImageDecoder, PixelFormat, evaluate};
use hone_types::Tensor;

const U8: i32 = 2;

/// Two rows of one pixel, as a PPM image.
const IMAGE: &[u8] = b"P6\n1 2\n255\n\x01\x02\x03\x04\x05\x06";

fn decoding(format: Option<&str>, declared: Option<&[&str]>) -> ModelProto {
    let mut decode = node("ImageDecoder", &["data"], &["pixels"]);
    if let Some(format) = format {
        decode = decode.string("pixel_format", format);
    }
    let length = IMAGE.len().to_string();
    let mut graph = graph(vec![port("data", U8, &[&length])], vec![], vec![decode], &["pixels"]);
    if let Some(shape) = declared {
        graph.output = vec![port("pixels", U8, shape)];
    }
    model(graph, 20)
}

#[test]
fn pixels_have_the_declared_size() {
    let data = Tensor::from_elements([IMAGE.len()], IMAGE).unwrap();
    for (name, format, expected) in [
        (None, PixelFormat::Rgb, &[1, 2, 3, 4, 5, 6][..]),
        (Some("RGB"), PixelFormat::Rgb, &[1, 2, 3, 4, 5, 6]),
        (Some("BGR"), PixelFormat::Bgr, &[3, 2, 1, 6, 5, 4]),
        (Some("Grayscale"), PixelFormat::Grayscale, &[2, 5]),
    ] {
        let channels = format.channels().to_string();
        let graph = import(&decoding(name, Some(&["2", "1", &channels]))).unwrap().graph;
        let (_, node) = graph.nodes().iter().next().unwrap();
        let own = node.operation.downcast::<ImageDecoder>().unwrap();
        let input = "data".to_owned();
        assert_eq!(*own, ImageDecoder { input, format, height: 2, width: 1 });
        assert_eq!(evaluate(&graph, std::slice::from_ref(&data)).unwrap()[0].bytes(), expected);
        let text = graph.to_text(hone_graph::Constants::Exact);
        let parsed: hone_ops::Graph = hone_graph::parse(&text).unwrap();
        assert_eq!(parsed.to_text(hone_graph::Constants::Exact), text);
    }
}

#[test]
fn a_run_is_held_to_the_declared_size() {
    let data = Tensor::from_elements([IMAGE.len()], IMAGE).unwrap();
    let graph = import(&decoding(None, Some(&["1", "2", "3"]))).unwrap().graph;
    let error = chain(&evaluate(&graph, &[data]).unwrap_err());
    assert!(error.contains("'data' is not decoded: the PNM image is 2 high and 1 wide"), "{error}");
}

#[test]
fn what_is_not_declared_or_does_not_fit_is_refused() {
    for (format, declared, why) in [
        (None, None, "whose size the model does not declare (give its output 'pixels' the shape"),
        (None, Some(&["h", "w", "3"][..]), "whose size the model does not declare"),
        (None, Some(&["2", "1"]), "an image has height, width and channels"),
        (Some("Grayscale"), Some(&["2", "1", "3"]), "declared with 3 channels, Grayscale has 1"),
        (Some("rgb"), Some(&["2", "1", "3"]), "none of 'RGB', 'BGR' and 'Grayscale'"),
    ] {
        let error = chain(&import(&decoding(format, declared)).map(|_| ()).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
}
