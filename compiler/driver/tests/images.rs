//! Encoded images through the whole path: what a run decodes is what the reference decodes, and bytes that cannot be decoded
//! end the run with words.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use hone_artifact::{Part, Reader};
use hone_driver::{
    DynamicDimensions, Graph, Options, SizedGraph, Target, Tensor, TensorType, compile_dynamic,
    compile_graph, evaluate, pad_dimension, padded_dimension,
};
use hone_ops::{Cast, ImageDecoder, PixelFormat};
use hone_runtime::{Model, RunError};
use hone_types::DataType;

const PIXELS: usize = 21 * 35;

fn image(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/tests/data");
    std::fs::read(folder.join(name)).unwrap()
}

/// A model that decodes so many bytes and converts the pixels to floats.
fn decoding(bytes: usize, format: PixelFormat) -> Graph {
    let mut graph = Graph::new();
    let data = graph.add_input("data", TensorType::new(DataType::U8, [bytes]));
    let decoder = ImageDecoder { input: "data".into(), format, height: 21, width: 35 };
    let pixels = graph.add_node("decode", decoder.into(), &[Some(data)]).unwrap()[0];
    let floats =
        graph.add_node("cast", Cast { to: DataType::F32 }.into(), &[Some(pixels)]).unwrap();
    graph.add_output("pixels", pixels);
    graph.add_output("floats", floats[0]);
    graph
}

fn run(model: &mut Model, bytes: &[u8]) -> Result<Vec<Vec<u8>>, RunError> {
    let room = |output: &hone_runtime::TensorInfo| vec![0; output.bytes as usize];
    let mut outputs: Vec<Vec<u8>> = model.outputs().iter().map(room).collect();
    let mut targets: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&[bytes], &mut targets)?;
    Ok(outputs)
}

#[test]
fn images_are_decoded_by_the_runtime_and_what_follows_is_compiled() {
    for format in [PixelFormat::Rgb, PixelFormat::Bgr, PixelFormat::Grayscale] {
        for name in
            ["h2v2.jpg", "lossless.jp2", "palette.png", "lossy.webp", "lzw.tif", "plain.bmp"]
        {
            let bytes = image(name);
            let graph = decoding(bytes.len(), format);
            let options = Options::new(Target::host().unwrap());
            let artifact = compile_graph(graph.clone(), b"images", &options).unwrap().artifact;
            let reader = Reader::new(&artifact).unwrap();
            let program = &reader.manifest().variants[0].program;
            assert!(matches!(program[..], [Part::Host(_), Part::Steps { .. }]), "{program:?}");
            let mut model =
                Model::load_memory(artifact, &hone_runtime::Options::default()).unwrap();
            assert_eq!(model.host_nodes(), ["decode"]);
            let outputs = run(&mut model, &bytes).unwrap();
            let data = Tensor::from_elements([bytes.len()], &bytes).unwrap();
            let expected = evaluate(&graph, &[data]).unwrap();
            assert!(outputs[0] == expected[0].bytes(), "{name}");
            assert!(outputs[1] == expected[1].bytes(), "{name}");
        }
    }
}

#[test]
fn bytes_that_are_no_such_image_end_the_run_and_the_next_one_goes_well() {
    let bytes = image("h2v2.jpg");
    let graph = decoding(bytes.len(), PixelFormat::Rgb);
    let options = Options::new(Target::host().unwrap());
    let artifact = compile_graph(graph, b"images", &options).unwrap().artifact;
    let mut model = Model::load_memory(artifact, &hone_runtime::Options::default()).unwrap();
    let mut cut = bytes.clone();
    cut[bytes.len() / 2..].fill(0);
    let mut other = b"P6\n35 20\n255\n".to_vec();
    other.resize(bytes.len(), 0);
    let cases = [
        (vec![0; bytes.len()], "begins like no BMP"),
        (other, "PNM image is 20 high and 35 wide, 21 high and 35 wide is declared"),
        (cut, "JPEG image cannot be decoded"),
    ];
    for (bad, why) in cases {
        let error = run(&mut model, &bad).unwrap_err();
        let RunError::Host { node, reason } = &error else { panic!("{error}") };
        assert_eq!(node, "decode");
        assert!(reason.starts_with("'data' is not decoded: ") && reason.contains(why), "{reason}");
        assert_eq!(run(&mut model, &bytes).unwrap()[0].len(), PIXELS * 3);
    }
}

#[test]
fn images_of_any_length_up_to_a_bound_are_decoded_by_one_artifact() {
    const BOUND: usize = 3000;
    let axes = [Some(0)];
    let graph = |bytes| decoding(bytes, PixelFormat::Rgb);
    let (half, near) = (graph(BOUND / 2), graph(BOUND - 7));
    let witnesses = [(&near, BOUND - 7), (&half, BOUND / 2)];
    let padded = pad_dimension(&graph(BOUND), &axes, 1..=BOUND, "size of n", &witnesses).unwrap();
    let dimension = padded_dimension("n", &axes, &padded, 1);
    let dimensions = DynamicDimensions { padded: Some(dimension), ..DynamicDimensions::default() };
    let sized = SizedGraph { dimensions: vec![("n".to_owned(), BOUND)], graph: padded.graph };
    let options = Options::new(Target::host().unwrap());
    let artifact = compile_dynamic(vec![sized], dimensions, b"any", &options).unwrap().artifact;
    let mut model = Model::load_memory(artifact, &hone_runtime::Options::default()).unwrap();
    for name in ["plain.bmp", "h2v2.jpg", "grey.png", "progressive.jpg", "alpha.webp"] {
        let bytes = image(name);
        model.set_input_shapes(&[&[bytes.len() as u64]]).unwrap();
        let data = Tensor::from_elements([bytes.len()], &bytes).unwrap();
        let expected = evaluate(&graph(bytes.len()), &[data]).unwrap();
        assert!(run(&mut model, &bytes).unwrap()[0] == expected[0].bytes(), "{name}");
        // The rest of the image before lies behind what is cut off, and is not read.
        let cut = &bytes[..bytes.len() / 2];
        model.set_input_shapes(&[&[cut.len() as u64]]).unwrap();
        assert!(matches!(run(&mut model, cut), Err(RunError::Host { .. })), "{name}");
    }
}
