//! Dimensions that are sums of others: bound with them, and compared with what is given.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::ModelProto;
use hone_import::{ImportOptions, Imported, InputBinding, SizedBinding, combinations, signature};
use prost::Message;

/// A mask beside a past and new tokens; rows of a table from the end of the past on.
fn decoder() -> ModelProto {
    let nodes = vec![
        node("Shape", &["past"], &["length"]),
        node("Add", &["length", "one"], &["end"]),
        node("Slice", &["table", "length", "end", "first"], &["rows"]),
        node("Concat", &["past", "x"], &["all"]).int("axis", 0),
        node("Add", &["all", "mask"], &["y"]),
    ];
    let inputs =
        vec![port("mask", F32, &["p + s"]), port("x", F32, &["s"]), port("past", F32, &["p"])];
    let constants =
        vec![integers("one", &[1]), integers("first", &[0]), weights("table", &[20, 3])];
    model(graph(inputs, constants, nodes, &["y", "rows"]), 17)
}

fn imported(shapes: &[(&str, usize)]) -> Result<Imported, String> {
    let bindings = shapes.iter().map(|(name, extent)| InputBinding {
        name: (*name).to_owned(),
        shape: vec![*extent],
        dtype: None,
    });
    let options = ImportOptions { bindings: bindings.collect(), ..ImportOptions::default() };
    hone_import::import(&decoder().encode_to_vec(), &options).map_err(|error| chain(&error))
}

#[test]
fn a_sum_is_bound_by_its_parts() {
    let model = imported(&[("x", 2), ("past", 7)]).unwrap().graph;
    assert_eq!(model.tensor_type(model.inputs()[0].value).shape, [9]);
    // What is taken out of a table by a length stays a node.
    let names: Vec<&str> = model.nodes().iter().map(|(_, node)| node.operation.name()).collect();
    assert_eq!(names, ["slice", "concat", "binary"]);
    let error = imported(&[("x", 2), ("past", 7), ("mask", 8)]).unwrap_err();
    let said = "'mask' does not fit: 'p + s' is given as 8; it is p + s, which is 9 where p=7, s=2";
    assert!(error.contains(said), "{error}");
}

#[test]
fn sums_follow_in_every_combination() {
    let signature = signature(&decoder().encode_to_vec()).unwrap();
    let given = |name: &str, sizes: &[usize]| SizedBinding {
        name: name.to_owned(),
        shape: vec![sizes.to_vec()],
        dtype: None,
    };
    let sizes = [given("s", &[1, 2]), given("p", &[5])];
    let found = combinations(&signature, &sizes, 8).unwrap();
    let masks: Vec<usize> = found.iter().map(|own| own.bindings[0].shape[0]).collect();
    assert_eq!(masks, [7, 6]);
    assert_eq!(found[0].dimensions, [("s".to_owned(), 2)]);
    let with_mask = [&sizes[..], &[given("mask", &[6, 7])]].concat();
    assert_eq!(combinations(&signature, &with_mask, 8).unwrap(), found);
    let wrong = [&sizes[..], &[given("mask", &[6])]].concat();
    let error = combinations(&signature, &wrong, 8).unwrap_err().to_string();
    assert!(error.contains("is p + s, of which 7 comes up, and 6 is given"), "{error}");
}
