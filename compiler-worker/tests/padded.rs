//! One artifact for every size of a dimension that a model mixes, up to a bound: what is served without being named,
//! answers at sizes for which no code was made, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Place, npz, onnx};
use hone_artifact::{Manifest, Reader};
use hone_model_builder::{BertSizes, bert_of_any_length, decoder, denoiser, speech};
use hone_runtime::{Model, Options};
use prost::Message;

const BERT: BertSizes =
    BertSizes { tokens: 70, words: 50, width: 32, heads: 4, inner: 64, layers: 2 };

/// Compiles a model without measuring; the artifact's manifest and path.
fn compile(place: &Place, arguments: &[&str]) -> (Manifest, std::path::PathBuf) {
    let ended = place.hone(&[&["compile", "--no-measure", "--out", "out"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let path = place.only("out", "hone");
    let manifest = Reader::new(&std::fs::read(&path).unwrap()).unwrap().manifest().clone();
    (manifest, path)
}

fn bounds(manifest: &Manifest) -> Vec<u64> {
    manifest.variants.iter().filter_map(|variant| manifest.bound_of(variant)).collect()
}

#[test]
fn a_transformer_takes_every_length_that_its_positions_reach() {
    let place = Place::new();
    place.write("bert.onnx", bert_of_any_length(&BERT, 3).encode_to_vec());
    let (manifest, path) = compile(&place, &["bert.onnx"]);
    assert_eq!(bounds(&manifest), [70, 48, 32], "{:?}", manifest.padded);
    let artifact = path.to_str().unwrap();
    for length in [1, 2, 31, 32, 33, 69, 70] {
        let shape: &[usize] = &[1, length];
        let names: Vec<&str> =
            manifest.inputs[..manifest.given_inputs()].iter().map(|own| &*own.name).collect();
        let arrays: Vec<(&str, &[usize])> = names.iter().map(|name| (*name, shape)).collect();
        place.write("x.npz", npz::i64s(&arrays));
        same_as_reference(&place, [artifact, "bert.onnx"], &format!("length {length}"));
    }
    let verified = place.hone(&["verify", artifact, "--model", "bert.onnx"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
}

#[test]
fn ranges_of_many_sizes_are_composed_where_the_model_maps_and_padded_elsewhere() {
    let place = Place::new();
    place.write("soft.onnx", onnx::unary("Softmax", &["batch", "length"]));
    let range = &["soft.onnx", "--shape", "batch=1..100", "--shape", "length=10..100"];
    let (manifest, path) = compile(&place, range);
    assert_eq!(manifest.open.as_ref().unwrap().name, "batch");
    assert_eq!(bounds(&manifest), [100, 64, 32]);
    let mut model = Model::load(&path, &Options::default()).unwrap();
    for (batch, length) in [(1usize, 3usize), (5, 64), (200, 65), (2, 100)] {
        model.set_input_shapes(&[&[batch as u64, length as u64]]).unwrap();
        let x: Vec<f32> = (0..batch * length).map(|at| (at % 7) as f32 - 90.0).collect();
        let mut y = vec![0f32; x.len()];
        let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (given, mut taken): (Vec<u8>, Vec<u8>) = (bytes(&x), bytes(&y));
        model.run(&[&given], &mut [&mut taken]).unwrap();
        for (value, bytes) in y.iter_mut().zip(taken.chunks_exact(4)) {
            *value = f32::from_le_bytes(bytes.try_into().unwrap());
        }
        for (x, y) in x.chunks(length).zip(y.chunks(length)) {
            let sum: f32 = x.iter().map(|x| (x + 90.0).exp()).sum();
            let right = x.iter().zip(y).all(|(x, y)| ((x + 90.0).exp() / sum - y).abs() < 1e-6);
            assert!(right, "{batch} x {length}: {y:?}");
        }
    }
    let error = model.set_input_shapes(&[&[1, 101]]).unwrap_err().to_string();
    assert!(error.starts_with("length is 101, the artifact takes 1 to 100 of it"), "{error}");
}

#[test]
fn a_batch_of_any_size_that_is_named_leaves_the_length_open() {
    let place = Place::new();
    place.write("soft.onnx", onnx::unary("Softmax", &["batch", "length"]));
    let compiled = |arguments: &[&str], out: &str| {
        let call = ["compile", "soft.onnx", "--no-measure", "--no-verify", "--out", out];
        let ended = place.hone(&[&call, arguments].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        std::fs::read(place.only(out, "hone")).unwrap()
    };
    let silent = compiled(&[], "silent");
    assert_eq!(compiled(&["--shape", "batch=1.."], "any"), silent);
    assert_eq!(compiled(&["--shape", "batch=1..64"], "range"), silent);
    let arguments = ["compile", "soft.onnx", "--shape", "length=1..", "--out", "refused"];
    let refused = place.hone(&arguments);
    assert_eq!(refused.code, 13, "{}", refused.err);
    let said = "the sizes of 'length' cannot be used: not any size can be served beside";
    assert!(refused.err.contains(said), "{}", refused.err);
}

#[test]
fn what_cannot_be_padded_says_which_node_stands_in_the_way() {
    let place = Place::new();
    let model = onnx::model(
        &[onnx::node("each once", "Unique", &["x"], &["y"])],
        &[],
        &[onnx::port("x", &["length"])],
        &[onnx::port("y", &["found"])],
    );
    place.write("unique.onnx", model);
    let ended = place.hone(&["compile", "unique.onnx", "--shape", "length=1..100", "--out", "out"]);
    assert_eq!(ended.code, 13, "{}", ended.err);
    let said = "cannot be compiled for every size of 'length'; name its sizes instead";
    assert!(ended.err.contains(said), "{}", ended.err);
}

/// Runs an artifact and the reference of its model on the arrays of `x.npz`, and compares them; returns the elements of each output.
fn same_as_reference(place: &Place, [artifact, model]: [&str; 2], what: &str) -> Vec<usize> {
    for (subject, outputs) in [(artifact, "y.npz"), (model, "want.npz")] {
        let mut arguments = vec!["run", subject, "--inputs", "x.npz", "--outputs", outputs];
        if subject == model {
            arguments.push("--reference");
        }
        let ran = place.hone(&arguments);
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
    }
    let read = |name: &str| npz::read_f32s(&place.path(name));
    let (got, want) = (read("y.npz"), read("want.npz"));
    assert_eq!(got.len(), want.len());
    for ((name, shape, got), (_, expected, want)) in got.iter().zip(&want) {
        assert_eq!(shape, expected, "{name} at {what}");
        let most = want.iter().fold(0f32, |most, value| most.max(value.abs()));
        let off = got.iter().zip(want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= 1e-4 * most, "{name} at {what}: {off} of {most}");
    }
    want.iter().map(|output| output.2.len()).collect()
}

/// Compares a decoder with its reference at sizes of the batch, the past and the new tokens.
fn decodes(place: &Place, artifact: &str, [batch, past, new]: [usize; 3]) {
    let cache = [batch, 2, past, 8];
    let (x, mask) = ([batch, new, 16], [batch, past + new]);
    let arrays: [(&str, &[usize]); 4] =
        [("x", &x), ("mask", &mask), ("past_key", &cache), ("past_value", &cache)];
    place.write("x.npz", npz::f32s(&arrays));
    let what = format!("batch {batch}, past {past}, {new} new");
    let elements = same_as_reference(place, [artifact, "decoder.onnx"], &what);
    assert_eq!(elements[1], batch * 2 * (past + new) * 8, "{what}");
}

#[test]
fn a_decoder_takes_any_past_and_none() {
    let place = Place::new();
    // By the name of the sum, and where only the graph says so.
    for total in ["past + sequence", "all"] {
        place.write("decoder.onnx", decoder(total, 5).encode_to_vec());
        let sizes = ["--shape", "sequence=1|3", "--shape", "past=0..70", "--force"];
        let (manifest, path) = compile(&place, &[&["decoder.onnx"], &sizes[..]].concat());
        assert_eq!(bounds(&manifest), [70, 48, 32, 70, 48, 32], "{total}");
        let padded = manifest.padded.as_ref().unwrap();
        assert_eq!(padded.name, "past");
        assert_eq!(padded.inputs, [None, Some(1), Some(2), Some(2)]);
        assert_eq!(padded.outputs, [None, Some(2), Some(2)]);
        let artifact = path.to_str().unwrap();
        for sizes in
            [[1, 0, 1], [2, 0, 3], [1, 1, 1], [3, 31, 1], [1, 47, 3], [1, 70, 1], [1, 70, 3]]
        {
            decodes(&place, artifact, sizes);
        }
        let mut model = Model::load(&path, &Options::default()).unwrap();
        let mut refused = |mask: u64, past: u64| {
            let (x, cache) = ([1, 1, 16], [1, 2, past, 8]);
            let error = model.set_input_shapes(&[&x, &[1, mask], &cache, &cache]).unwrap_err();
            error.to_string()
        };
        let error = refused(9, 7);
        assert!(error.contains("'mask'") && error.contains("[batch, past + 1]"), "{error}");
        let error = refused(72, 71);
        assert!(error.contains("past is 71, the artifact takes 0 to 70 of it"), "{error}");
        std::fs::remove_dir_all(place.path("out")).unwrap();
    }
}

#[test]
fn a_decoders_call_is_proposed_with_the_past_open() {
    let place = Place::new();
    place.write("decoder.onnx", decoder("past + sequence", 5).encode_to_vec());
    let ended = place.hone(&["compile", "--no-measure", "--out", "out", "decoder.onnx"]);
    assert_eq!(ended.code, 13, "{}", ended.err);
    assert!(
        ended.err.contains("'past' may stay open where sizes of 'sequence' are named"),
        "{}",
        ended.err
    );
    assert!(ended.err.trim_end().ends_with("decoder.onnx --shape sequence=1"), "{}", ended.err);
    let (manifest, _) = compile(&place, &["decoder.onnx", "--shape", "sequence=1"]);
    assert_eq!(bounds(&manifest).first(), Some(&512));
    // The sum is not another size, and of no past alone there is nothing to join to.
    let refused = |arguments: &[&str], words: &str| {
        let ended = place.hone(&[&["compile", "--no-measure", "decoder.onnx"], arguments].concat());
        assert_eq!(ended.code, 13, "{}", ended.err);
        assert!(ended.err.contains(words), "{}\nwithout: {words}", ended.err);
    };
    let one = ["--shape", "sequence=1", "--shape", "past=4"];
    refused(
        &[&one[..], &["--shape", "mask=1,7"]].concat(),
        "past + sequence, of which 5 comes up, and 7 is given",
    );
    refused(
        &["--shape", "sequence=1", "--shape", "past=0..70", "--shape", "past + sequence=1..71"],
        "'past + sequence' is past + sequence: leave its sizes out",
    );
    place.write("soft.onnx", onnx::unary("Softmax", &["length"]));
    let ended = place.hone(&["compile", "--no-measure", "soft.onnx", "--shape", "length=0..70"]);
    assert!(ended.err.contains("nothing is joined to it"), "{}", ended.err);
}

#[test]
fn frames_of_a_signal_follow_from_its_length() {
    let place = Place::new();
    place.write("speech.onnx", speech(7).encode_to_vec());
    let (manifest, path) = compile(&place, &["speech.onnx", "--shape", "time=1..200"]);
    assert_eq!(bounds(&manifest), [200, 112, 64]);
    let padded = manifest.padded.as_ref().unwrap();
    assert_eq!((padded.least, padded.multiple), (Some(20), None));
    assert_eq!(padded.length(0).unwrap().at(200), 19);
    assert_eq!((padded.length(1), manifest.schema_version), (None, 6));
    let artifact = path.to_str().unwrap();
    for (batch, time) in [(1, 20), (1, 29), (2, 30), (1, 32), (1, 33), (3, 111), (1, 196), (1, 200)]
    {
        place.write("x.npz", npz::f32s(&[("x", &[batch, 1, time])]));
        let what = format!("{batch} of {time}");
        let elements = same_as_reference(&place, [artifact, "speech.onnx"], &what);
        let frames = ((time - 10) / 5 + 1 - 3) / 2 + 1;
        assert_eq!(elements, [batch * frames * 8, batch * 8], "{what}");
    }
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let error = model.set_input_shapes(&[&[1, 1, 19]]).unwrap_err().to_string();
    assert!(error.contains("time is 19, the artifact takes 20 to 200 of it"), "{error}");
    let verified = place.hone(&["verify", artifact, "--model", "speech.onnx"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    // Of nothing that is said it takes as much as gives some frames.
    let silent = ["compile", "speech.onnx", "--no-measure", "--no-verify", "--out", "silent"];
    let ended = place.hone(&silent);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let path = place.only("silent", "hone");
    let manifest = Reader::new(&std::fs::read(&path).unwrap()).unwrap().manifest().clone();
    assert_eq!(bounds(&manifest).first(), Some(&640));
}

#[test]
fn what_is_joined_with_what_it_was_takes_multiples() {
    let place = Place::new();
    place.write("denoiser.onnx", denoiser(9).encode_to_vec());
    let (manifest, path) = compile(&place, &["denoiser.onnx", "--shape", "time=1..202"]);
    assert_eq!(bounds(&manifest), [200, 112, 64, 32]);
    let padded = manifest.padded.as_ref().unwrap();
    assert_eq!((padded.least, padded.multiple), (Some(4), Some(4)));
    assert!(padded.lengths.is_empty());
    let artifact = path.to_str().unwrap();
    for (batch, time) in [(1, 4), (2, 28), (1, 32), (1, 36), (1, 108), (1, 200)] {
        place.write("x.npz", npz::f32s(&[("x", &[batch, 2, time])]));
        let what = format!("{batch} of {time}");
        same_as_reference(&place, [artifact, "denoiser.onnx"], &what);
    }
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let error = model.set_input_shapes(&[&[1, 2, 30]]).unwrap_err().to_string();
    assert!(error.contains("time is 30, and the model takes multiples of 4 alone"), "{error}");
}
