//! Branches and loops that are decided at run time become graphs inside of nodes.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{GraphProto, ModelProto};
use hone_ops::{If, Loop};
use hone_types::Tensor;

#[track_caller]
fn refused(model: &ModelProto, parts: &[&str]) {
    let text = chain(&import(model).unwrap_err());
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

fn evaluated(trips: i64) -> Vec<Tensor> {
    let graph = import(&controlled()).unwrap().graph;
    let x = Tensor::from_elements([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    hone_ops::evaluate(&graph, &[x, Tensor::scalar(trips)]).unwrap()
}

#[test]
fn what_the_input_decides_is_kept_and_computed() {
    let graph = import(&controlled()).unwrap().graph;
    let nodes: Vec<_> = graph.nodes().iter().map(|(_, node)| node).collect();
    let first = nodes[0].operation.downcast::<Loop>().unwrap();
    // Two iterations, known while compiling: no number, no condition.
    assert_eq!((first.most, first.capacity, first.tests), (Some(2), Some(2), false));
    let inside = first.body.nodes().iter();
    assert_eq!(inside.filter(|(_, node)| node.operation.downcast::<If>().is_some()).count(), 1);
    let second = nodes[1].operation.downcast::<Loop>().unwrap();
    assert_eq!((second.most, second.capacity, second.tests), (None, Some(5), true));
    assert_eq!(graph.extents().len(), 1);
    let outputs = evaluated(100);
    // start is doubled until its largest is 20 or more: 6, 12, 24.
    assert_eq!(outputs[2].to_f64(), [8.0, 16.0, 24.0]);
    assert_eq!(outputs[5].shape(), [5, 3]);
    assert_eq!(outputs[5].to_f64()[6..], [8.0, 16.0, 24.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    // The scan begins at the last row, and its last result comes first.
    assert_eq!(outputs[3].to_f64(), [6.0, 9.0, 12.0]);
    assert_eq!(outputs[4].to_f64(), [-6.0, -5.0, -9.0, -7.0, -12.0, -9.0]);
    assert_eq!(evaluated(1)[2].to_f64(), [2.0, 4.0, 6.0]);
    assert_eq!(evaluated(-1)[2].to_f64(), [1.0, 2.0, 3.0]);
}

/// `Loop` over `x`, `f32[2]`, whose trip count is `trips`.
fn looped(body: GraphProto, outputs: &[&str], trips: i64) -> ModelProto {
    let nodes = vec![
        node("Loop", &["trips", "", "x"], outputs).graph("body", body),
        node("Relu", &[outputs[outputs.len() - 1]], &["y"]),
    ];
    let stored = vec![integer("trips", trips)];
    model(graph(vec![port("x", F32, &["2"])], stored, nodes, &["y"]), 17)
}

fn body(nodes: Vec<hone_import::onnx::proto::NodeProto>, outputs: &[&str]) -> GraphProto {
    graph(
        vec![port("i", I64, &[]), port("c", BOOL, &[]), port("v", F32, &["2"])],
        vec![],
        nodes,
        outputs,
    )
}

#[test]
fn what_grows_or_has_no_bound_is_refused() {
    let grows = body(vec![node("Concat", &["v", "v"], &["w"]).int("axis", 0)], &["c", "w"]);
    refused(&looped(grows, &["z"], 3), &["'make_z' (Loop", "f32[2] at first and f32[4]", "grow"]);
    let collects = || body(vec![node("Relu", &["v"], &["w"])], &["c", "w", "w"]);
    refused(&looped(collects(), &["last", "z"], i64::MAX), &["'make_last'", "nothing bounds"]);
    assert!(import(&looped(collects(), &["last", "z"], 3)).is_ok());
    let few = body(vec![], &["c"]);
    refused(&looped(few, &["z"], 3), &["the body has 3 inputs and 1 outputs"]);
    let stops = body(
        vec![
            node("ReduceSum", &["v"], &["s"]).int("keepdims", 0),
            node("Cast", &["s"], &["on"]).int("to", 9),
        ],
        &["on", "v", "v"],
    );
    let stopped = import(&looped(stops, &["last", "z"], 3)).unwrap().graph;
    assert_eq!(stopped.extents().len(), 1);
}

#[test]
fn branches_of_different_ranks_are_refused() {
    let then = graph(vec![], vec![], vec![node("Relu", &["x"], &["r"])], &["r"]);
    let nodes = vec![node("ReduceMax", &["x"], &["r"]).int("keepdims", 0)];
    let otherwise = graph(vec![], vec![], nodes, &["r"]);
    let branch =
        node("If", &["b"], &["y"]).graph("then_branch", then).graph("else_branch", otherwise);
    let inputs = vec![port("x", F32, &["2"]), port("b", BOOL, &[])];
    let model = model(graph(inputs, vec![], vec![branch], &["y"]), 17);
    refused(&model, &["'make_y' (If", "the results of its branches differ in rank"]);
}

#[test]
fn unsupported_operators_inside_are_named() {
    let then = graph(vec![], vec![], vec![node("Foo", &["x"], &["r"])], &["r"]);
    let otherwise = graph(vec![], vec![], vec![node("Relu", &["x"], &["r"])], &["r"]);
    let branch =
        node("If", &["b"], &["y"]).graph("then_branch", then).graph("else_branch", otherwise);
    let inputs = vec![port("x", F32, &["2"]), port("b", BOOL, &["1"])];
    refused(&model(graph(inputs, vec![], vec![branch], &["y"]), 17), &["Foo"]);
}

#[test]
fn sizes_that_data_decides_are_those_of_outputs() {
    let inputs = || vec![port("x", F32, &["2", "3"])];
    let nodes = vec![
        node("NonZero", &["x"], &["places"]),
        node("NonZero", &["w"], &["known"]),
        node("Unique", &["x"], &["values", "", "inverse", ""]),
        node("Neg", &["inverse"], &["back"]),
    ];
    let stored = vec![floats("w", &[3], &[1.0, 0.0, 2.0])];
    let outputs = ["places", "known", "values", "back"];
    let built = model(graph(inputs(), stored, nodes, &outputs), 17);
    let imported = import(&built).unwrap().graph;
    let extents: Vec<_> = imported.extents().iter().map(|own| (own.output, own.axis)).collect();
    assert_eq!(extents, [(0, 1), (2, 0)]);
    let known = imported.constant(imported.outputs()[1].value).unwrap();
    assert_eq!((known.shape(), known.to_i64()), (&[1, 2][..], vec![0, 2]));
    let x = Tensor::from_elements([2, 3], &[5.0f32, 0.0, 5.0, 0.0, 0.0, 7.0]).unwrap();
    let results = hone_ops::evaluate(&imported, &[x]).unwrap();
    assert_eq!(results[0].to_i64()[..6], [0, 0, 1, 0, 2, 2]);
    assert_eq!(results[2].to_f64()[..3], [0.0, 5.0, 7.0]);
    assert_eq!(results[3].to_f64(), [-1.0, 0.0, -1.0, 0.0, 0.0, -2.0]);
    let nodes = vec![node("NonZero", &["x"], &["places"]), node("Trilu", &["places"], &["y"])];
    let model = model(graph(inputs(), vec![], nodes, &["y"]), 17);
    refused(&model, &["'make_y' (Trilu", "decided when the model runs"]);
}
