//! Models come in as they should: shapes bound and folded, branches taken, functions inlined.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::TensorProto;
use hone_import::{Dimension, ImportError, ImportOptions, InputBinding};
use hone_types::{DataType, Tensor};
use prost::Message;

/// Names and shapes of inputs.
type Shapes<'a> = &'a [(&'a str, &'a [usize])];

fn bound(shapes: Shapes<'_>) -> ImportOptions {
    let bindings = shapes.iter().map(|(name, shape)| InputBinding {
        name: name.to_string(),
        shape: shape.to_vec(),
        dtype: None,
    });
    ImportOptions { bindings: bindings.collect(), ..ImportOptions::default() }
}

fn names(imported: &hone_import::Imported) -> Vec<&'static str> {
    imported
        .graph
        .nodes()
        .iter()
        .map(|(_, node)| hone_graph::Operation::name(&node.operation))
        .collect()
}

#[test]
fn a_convolutional_network() {
    let imported = import(&convolutional()).unwrap();
    let output = imported.graph.outputs()[0].value;
    assert_eq!(imported.graph.tensor_type(output).shape, [1, 5]);
    assert_eq!(
        names(&imported),
        [
            "convolution",
            "batch_normalization",
            "unary",
            "pool",
            "convolution",
            "binary",
            "binary",
            "binary",
            "convolution_transpose",
            "reduce",
            "reshape",
            "matmul",
            "binary"
        ]
    );
    let x = Tensor::zeros(imported.graph.tensor_type(imported.graph.inputs()[0].value).clone());
    let y = hone_ops::evaluate(&imported.graph, &[x]).unwrap();
    assert!(y[0].to_f64().iter().all(|value| value.is_finite()));
}

#[test]
fn computed_shapes_are_folded() {
    let model = attention();
    let options = bound(&[("tokens", &[2, 3])]);
    let imported = hone_import::import(&model.encode_to_vec(), &options).unwrap();
    // The mask's symbol is bound by the tokens' shape.
    let mask = imported.graph.inputs()[1].value;
    assert_eq!(imported.graph.tensor_type(mask).shape, [3]);
    let shapes: Vec<Vec<usize>> = imported
        .graph
        .outputs()
        .iter()
        .map(|port| imported.graph.tensor_type(port.value).shape.clone())
        .collect();
    assert_eq!(shapes, [vec![2, 3], vec![2, 2, 3]]);
    assert!(!names(&imported).contains(&"concat"), "the target shape is computed while importing");
}

#[test]
fn branches_and_functions_dissolve() {
    let imported = import(&assorted()).unwrap();
    let all = names(&imported);
    assert!(all.contains(&"lstm") && all.contains(&"resize"), "{all:?}");
    // Range and Tile are constants.
    let tiled = imported.graph.constant(imported.graph.outputs()[1].value).unwrap();
    assert_eq!(tiled.to_i64(), [0, 2, 4, 0, 2, 4]);
    // The branch not taken holds an unknown operator, which nobody needs.
    let branch = imported.graph.outputs()[3].value;
    let node = imported.graph.producer(branch).unwrap();
    assert_eq!(imported.graph.nodes()[node].name, "make_t");
}

#[test]
fn the_signature_keeps_symbols() {
    let signature = hone_import::signature(&attention().encode_to_vec()).unwrap();
    let tokens = &signature.inputs[0];
    assert_eq!(tokens.dtype, Some(DataType::I64));
    let symbols = ["batch", "length"].map(|name| Dimension::Symbol(name.into()));
    assert_eq!(tokens.shape.as_deref(), Some(&symbols[..]));
    assert_eq!(tokens.to_string(), "i64[batch, length]");
}

#[test]
fn open_dimensions_are_all_named_with_the_line_that_binds_them() {
    let error = import(&attention()).unwrap_err();
    let text = chain(&error);
    assert!(matches!(error, ImportError::Unbound(ref inputs) if inputs.len() == 2), "{text}");
    assert!(text.contains("'batch'") && text.contains("'length'"), "{text}");
    let proposed = r#"inputs: [{name: "tokens", shape: [1, 128]}, {name: "mask", shape: [128]}]"#;
    assert!(text.contains(proposed), "{text}");
}

#[test]
fn what_is_proposed_for_open_dimensions_works() {
    let Err(ImportError::Unbound(unbound)) = import(&attention()) else { panic!("it is bound") };
    let bindings = unbound.into_iter().map(|input| InputBinding {
        name: input.declared.name,
        shape: input.proposed,
        dtype: None,
    });
    let options = ImportOptions { bindings: bindings.collect(), ..ImportOptions::default() };
    hone_import::import(&attention().encode_to_vec(), &options).unwrap();
}

#[test]
fn dimensions_without_a_name_differ_from_each_other() {
    for name in ["?", "", "None", "-1", "unk__7"] {
        let inputs = vec![port("x", F32, &[name, name]), port("y", F32, &[name])];
        let model =
            model(graph(inputs, vec![], vec![node("Add", &["x", "y"], &["z"])], &["z"]), 17);
        let options = bound(&[("x", &[2, 3]), ("y", &[1])]);
        let imported = hone_import::import(&model.encode_to_vec(), &options).unwrap();
        let z = imported.graph.outputs()[0].value;
        assert_eq!(imported.graph.tensor_type(z).shape, [2, 3], "'{name}'");
    }
}

#[test]
fn nodes_out_of_order_are_sorted() {
    for built in [convolutional(), assorted()] {
        let straight = import(&built).unwrap();
        let mut shuffled = built.clone();
        let nodes = &mut shuffled.graph.as_mut().unwrap().node;
        // Every order is reached sooner or later; these are far from the file's.
        nodes.reverse();
        let middle = nodes.len() / 3;
        nodes.rotate_left(middle);
        let sorted = import(&shuffled).unwrap();
        assert_eq!(sorted.graph.nodes().len(), straight.graph.nodes().len());
        let inputs: Vec<Tensor> = straight
            .graph
            .inputs()
            .iter()
            .map(|port| Tensor::zeros(straight.graph.tensor_type(port.value).clone()))
            .collect();
        let outputs = |imported: &hone_import::Imported| {
            hone_ops::evaluate(&imported.graph, &inputs).unwrap()
        };
        assert_eq!(outputs(&sorted), outputs(&straight));
    }
}

#[test]
fn what_a_branch_reads_comes_before_it() {
    let then = graph(vec![], vec![], vec![node("Neg", &["later"], &["t"])], &["t"]);
    let otherwise = graph(vec![], vec![], vec![node("Abs", &["later"], &["e"])], &["e"]);
    let branch =
        node("If", &["yes"], &["y"]).graph("then_branch", then).graph("else_branch", otherwise);
    let nodes = vec![branch, node("Relu", &["x"], &["later"])];
    let yes = TensorProto { data_type: Some(BOOL), int64_data: vec![], ..integers("yes", &[1]) };
    let yes = TensorProto { dims: vec![], raw_data: Some(vec![1].into()), ..yes };
    let imported =
        import(&model(graph(vec![port("x", F32, &["2"])], vec![yes], nodes, &["y"]), 17)).unwrap();
    assert_eq!(imported.graph.nodes().len(), 2);
}

#[test]
fn bindings_are_checked() {
    let attention = attention();
    let refused: [(Shapes<'_>, &str); 5] = [
        (&[("none", &[1])], "no such input"),
        (&[("tokens", &[1])], "1 extents are given"),
        (
            &[("tokens", &[1, 4]), ("mask", &[5])],
            "'mask' does not fit: axis 0 ('length') is given as 5, and as 4 for input 'tokens'",
        ),
        (&[("tokens", &[1, 4]), ("tokens", &[1, 4])], "twice"),
        (&[("tokens", &[1 << 40, 1 << 40])], "too large"),
    ];
    for (shapes, message) in refused {
        let options = bound(shapes);
        let error = hone_import::import(&attention.encode_to_vec(), &options).unwrap_err();
        assert!(chain(&error).contains(message), "{}", chain(&error));
    }
}

#[test]
fn unused_weights_and_nodes_are_left_out() {
    let nodes = vec![
        node("Relu", &["x"], &["y"]),
        node("Unknown", &["x"], &["unused"]),
        node("Add", &["y", "w"], &["unread"]),
    ];
    let inputs = vec![port("x", F32, &["2"])];
    let imported =
        import(&model(graph(inputs, vec![weights("w", &[2])], nodes, &["y"]), 17)).unwrap();
    assert_eq!((imported.graph.nodes().len(), imported.graph.values().len()), (1, 2));
}
