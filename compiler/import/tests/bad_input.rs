//! What is wrong with a model is said in one clear error.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{FunctionProto, ModelProto, SparseTensorProto, TensorProto};
use hone_import::{ImportError, ImportOptions, Limits};
use prost::Message;

/// A model of nodes on `x`, `f32[2, 3]`, and stored tensors.
fn with(nodes: Vec<hone_import::onnx::proto::NodeProto>, stored: Vec<TensorProto>) -> ModelProto {
    model(graph(vec![port("x", F32, &["2", "3"])], stored, nodes, &["y"]), 17)
}

#[track_caller]
fn refused(model: &ModelProto, parts: &[&str]) {
    let text = chain(&import(model).unwrap_err());
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn files_that_are_no_models() {
    let options = ImportOptions::default();
    let import = |bytes: &[u8]| hone_import::import(bytes, &options).unwrap_err();
    assert!(matches!(import(b""), ImportError::NotOnnx { .. }));
    assert!(matches!(import(b"<html>not found</html>"), ImportError::NotOnnx { .. }));
    assert!(matches!(import(&[0; 100]), ImportError::NotOnnx { .. }));
    let whole = convolutional().encode_to_vec();
    for cut in (1..whole.len()).step_by(7) {
        let error = import(&whole[..cut]);
        let clear = matches!(error, ImportError::Truncated { .. } | ImportError::NotOnnx { .. });
        assert!(clear, "cut at {cut}: {error}");
    }
    assert!(matches!(import(&whole[..whole.len() / 2]), ImportError::Truncated { .. }));
}

#[test]
fn all_unsupported_operators_at_once() {
    let mut foo = node("Foo", &["x"], &["a"]);
    foo.domain = Some("my.domain".into());
    let nodes = vec![foo, node("Bar", &["a"], &["b"]), node("Call", &["b"], &["y"])];
    let mut model = with(nodes, vec![]);
    model.functions.push(FunctionProto {
        name: Some("Call".into()),
        input: vec!["p".into()],
        output: vec!["q".into()],
        node: vec![node("Baz", &["p"], &["q"])],
        opset_import: model.opset_import.clone(),
        ..FunctionProto::default()
    });
    let error = import(&model).unwrap_err();
    let ImportError::Unsupported(found) = &error else { panic!("{error}") };
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "node 'make_a' (my.domain.Foo, opset 0)",
            "node 'make_b' (Bar, opset 17)",
            "node 'make_y/make_q' (Baz, opset 17)",
        ]
    );
}

#[test]
fn names_that_do_not_hold_together() {
    let relu = |from: &str, to: &str| node("Relu", &[from], &[to]);
    refused(&with(vec![relu("none", "y")], vec![]), &["node 'make_y' reads 'none'"]);
    let cycle = vec![relu("x", "a"), relu("b", "y"), relu("y", "b"), relu("a", "c")];
    refused(&with(cycle, vec![]), &["nodes 'make_b', 'make_y' form a cycle"]);
    refused(&with(vec![relu("y", "y")], vec![]), &["node 'make_y' reads its own result"]);
    refused(&with(vec![relu("x", "y"), relu("x", "y")], vec![]), &["'y' is defined twice"]);
    refused(&with(vec![relu("x", "x")], vec![]), &["'x' is defined twice"]);
    refused(&with(vec![relu("x", "a")], vec![]), &["output", "'y'"]);
    let twice = vec![weights("w", &[2]), weights("w", &[2])];
    refused(&with(vec![relu("x", "y")], twice), &["initializer 'w' is defined twice"]);
}

#[test]
fn stored_tensors_that_are_malformed() {
    let add = || vec![node("Add", &["x", "w"], &["y"])];
    let good = || weights("w", &[3]);
    let bad = [
        (TensorProto { dims: vec![4], ..good() }, "needs 16 bytes, 12 are stored"),
        (TensorProto { dims: vec![-3], ..good() }, "negative extent"),
        (TensorProto { dims: vec![1 << 40, 1 << 40], ..good() }, "bytes that are allowed"),
        (TensorProto { dims: vec![0, 1 << 62, 1 << 62], ..good() }, "bytes that are allowed"),
        (TensorProto { dims: vec![1; 100], ..good() }, "100 axes"),
        (TensorProto { data_type: Some(8), ..good() }, "needs 3 strings, 0 are stored"),
        (TensorProto { data_type: Some(99), ..good() }, "number 99 is unknown"),
        (TensorProto { data_type: None, ..good() }, "left out"),
        (TensorProto { raw_data: None, ..good() }, "needs 3 elements, 0 are stored"),
        (
            TensorProto {
                raw_data: None,
                data_type: Some(3),
                int32_data: vec![1, 300, 2],
                ..good()
            },
            "out of range",
        ),
    ];
    for (tensor, message) in bad {
        refused(&with(add(), vec![tensor]), &["tensor 'w'", message]);
    }
    let mut sparse = with(add(), vec![good()]);
    let values = SparseTensorProto { values: Some(good()), ..Default::default() };
    sparse.graph.as_mut().unwrap().sparse_initializer.push(values);
    refused(&sparse, &["sparse"]);
}

#[test]
fn nodes_that_are_malformed() {
    let bad = [
        (node("Relu", &[], &["y"]), "input number 0 is required"),
        (node("Relu", &["x"], &["y"]).int("foo", 1), "attribute 'foo' is unknown"),
        (node("Softmax", &["x"], &["y"]).float("axis", 1.0), "of kind FLOAT, not INT"),
        (node("Softmax", &["x"], &["y"]).int("axis", 2), "axis 2 does not exist"),
        (node("Softmax", &["x"], &["y"]).int("axis", i64::MIN), "does not exist"),
        (node("Softmax", &["x"], &["y"]).int("axis", 0).int("axis", 1), "given twice"),
        (node("Reshape", &["x", "s"], &["y"]), "has no reshape to"),
        (node("Expand", &["x", "s"], &["y"]), "does not broadcast"),
        (node("Tile", &["x", "huge"], &["y"]), "node 'make_y' (Tile, opset 17)"),
        (node("Expand", &["x", "huge"], &["y"]), "node 'make_y' (Expand, opset 17)"),
        (node("MatMul", &["x", "x"], &["y"]), "no matrix product"),
        (node("Conv", &["x", "x"], &["y"]), "do not match"),
        (node("Cast", &["x"], &["y"]).int("to", 14), "COMPLEX64 is not supported"),
        (node("Split", &["x"], &["y", "z"]).int("num_outputs", 900), "cannot be split"),
    ];
    for (node, message) in bad {
        let stored = vec![integers("s", &[4, 4]), integers("huge", &[1 << 40, 1 << 40])];
        refused(&with(vec![node], stored), &["node 'make_y'", message]);
    }
}

#[test]
fn shapes_that_only_the_input_decides() {
    let nodes =
        vec![node("Cast", &["x"], &["i"]).int("to", 7), node("Reshape", &["i", "i"], &["y"])];
    refused(&with(nodes, vec![]), &["'make_y' (Reshape, opset 17)", "input 'i' (number 1)"]);
}

#[test]
fn versions_and_nesting_are_bounded() {
    let new = model(graph(vec![port("x", F32, &["2"])], vec![], vec![], &["x"]), 99);
    refused(&new, &["opset 99", "1 to"]);
    // A function that calls itself.
    let mut model = with(vec![node("Call", &["x"], &["y"])], vec![]);
    model.functions.push(FunctionProto {
        name: Some("Call".into()),
        input: vec!["p".into()],
        output: vec!["q".into()],
        node: vec![node("Call", &["p"], &["q"])],
        opset_import: model.opset_import.clone(),
        ..FunctionProto::default()
    });
    refused(&model, &["nested deeper"]);
    // Functions that double their calls at each level: 2^30 nodes.
    let mut model = with(vec![node("f0", &["x"], &["y"])], vec![]);
    for level in 0..15 {
        let next = format!("f{}", level + 1);
        let next = if level == 14 { "Relu".to_string() } else { next };
        let calls = ["a", "b", "c", "d"].windows(2).map(|pair| node(&next, &[pair[0]], &[pair[1]]));
        model.functions.push(FunctionProto {
            name: Some(format!("f{level}")),
            input: vec!["a".into()],
            output: vec!["d".into()],
            node: calls.collect(),
            opset_import: model.opset_import.clone(),
            ..FunctionProto::default()
        });
    }
    let limits = Limits { nodes: 10_000, ..Limits::default() };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let error = hone_import::import(&model.encode_to_vec(), &options).unwrap_err();
    assert!(chain(&error).contains("the number of nodes"), "{}", chain(&error));
}

#[test]
fn constants_do_not_swell() {
    // A chain of tiles, each a thousandfold.
    let mut nodes = vec![node("Tile", &["w", "k"], &["t0"])];
    for step in 1..4 {
        let (from, to) = (format!("t{}", step - 1), format!("t{step}"));
        nodes.push(node("Tile", &[&from, "k"], &[&to]));
    }
    nodes.push(node("ReduceSum", &["t3"], &["y"]));
    let stored = vec![weights("w", &[3]), integers("k", &[1000])];
    let limits = Limits { tensor_bytes: 1 << 30, ..Limits::default() };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let error = hone_import::import(&with(nodes, stored).encode_to_vec(), &options).unwrap_err();
    assert!(chain(&error).contains("'make_t2'"), "{}", chain(&error));
}

/// Each of the nodes is in both branches of those before it.
#[test]
fn branches_of_different_ranks_in_a_row_are_bounded() {
    let mut nodes = vec![node("Identity", &["x"], &["r0"])];
    for index in 0..30 {
        let (from, to) = (format!("r{index}"), format!("r{}", index + 1));
        let then = graph(vec![], vec![], vec![node("Relu", &[&from], &["same"])], &["same"]);
        let more = vec![node("Unsqueeze", &[&from, "first"], &["more"])];
        let otherwise = graph(vec![], vec![], more, &["more"]);
        let branch = node("If", &["b"], &[&to]);
        nodes.push(branch.graph("then_branch", then).graph("else_branch", otherwise));
    }
    nodes.push(node("ReduceMax", &["r30"], &["y"]).int("keepdims", 0));
    let inputs = vec![port("x", F32, &["2"]), port("b", BOOL, &[])];
    let model = model(graph(inputs, vec![integers("first", &[0])], nodes, &["y"]), 17);
    let limits = Limits { nodes: 10_000, ..Limits::default() };
    let error = import_with(&model, &ImportOptions { limits, ..ImportOptions::default() });
    let text = chain(&error.unwrap_err());
    assert!(text.contains("the number of nodes"), "{text}");
}
