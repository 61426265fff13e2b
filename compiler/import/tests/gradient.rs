//! `Gradient` of ONNX's training operators.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{GraphProto, ModelProto, NodeProto};
use hone_types::Tensor;

/// A node that gives `outputs`, the derivatives of `y` by `xs`, at `inputs`.
fn gradient(inputs: &[&str], outputs: &[&str], xs: &[&str], zs: &[&str], y: &str) -> NodeProto {
    let mut own = node("Gradient", inputs, outputs).strings("xs", xs).string("y", y);
    own.domain = Some("ai.onnx.preview.training".into());
    if zs.is_empty() { own } else { own.strings("zs", zs) }
}

/// A model over scalars.
fn scalars(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> ModelProto {
    let ports = inputs.iter().map(|name| port(name, F32, &[])).collect();
    model(graph(ports, Vec::new(), nodes, outputs), 17)
}

#[track_caller]
fn found(model: &ModelProto, inputs: &[f32]) -> Vec<f64> {
    let graph = import(model).unwrap_or_else(|error| panic!("{}", chain(&error))).graph;
    let inputs: Vec<Tensor> = inputs.iter().map(|own| Tensor::scalar(*own)).collect();
    let outputs = hone_ops::evaluate(&graph, &inputs).unwrap();
    outputs.iter().flat_map(Tensor::to_f64).collect()
}

#[track_caller]
fn refused(model: &ModelProto, part: &str) {
    let text = chain(&import(model).unwrap_err());
    assert!(text.contains(part), "'{part}' is not in: {text}");
}

#[test]
fn of_a_sum_and_a_product() {
    let nodes = || vec![node("Add", &["a", "b"], &["c"]), node("Mul", &["c", "a"], &["d"])];
    let derivative = gradient(&["a", "b"], &["da", "db"], &["a", "b"], &[], "d");
    let mut after = nodes();
    after.push(derivative.clone());
    let outputs = ["d", "da", "db"];
    assert_eq!(found(&scalars(&["a", "b"], after, &outputs), &[1.0, 2.0]), [3.0, 4.0, 1.0]);
    // A name is read, too: the node may stand before the value that it names, and nothing else needs that value.
    let mut before = nodes();
    before.insert(0, derivative);
    assert_eq!(found(&scalars(&["a", "b"], before, &["da", "db"]), &[1.0, 2.0]), [4.0, 1.0]);
}

#[test]
fn by_values_in_the_middle() {
    // y = h * x + z with h = x * x.
    let nodes = |xs: &[&str], zs: &[&str], inputs: &[&str]| {
        vec![
            node("Mul", &["x", "x"], &["h"]),
            node("Mul", &["h", "x"], &["p"]),
            node("Add", &["p", "z"], &["y"]),
            gradient(inputs, &["d"], xs, zs, "y"),
        ]
    };
    let by = |xs: &[&str], zs: &[&str], inputs: &[&str]| {
        found(&scalars(&["x", "z"], nodes(xs, zs, inputs), &["d"]), &[3.0, 1.0])[0]
    };
    assert_eq!(by(&["x"], &["z"], &["x", "z"]), 27.0);
    assert_eq!(by(&["x"], &["h", "z"], &["x", "h", "z"]), 9.0);
    assert_eq!(by(&["h"], &["x", "z"], &["h", "x", "z"]), 3.0);
    // At other values: of `x` one, twice the same one, and one given for another.
    assert_eq!(by(&["x"], &["z"], &["z", "x"]), 3.0);
    assert_eq!(by(&["x"], &["h"], &["z", "z"]), 1.0);
    assert_eq!(by(&["h"], &["x"], &["x", "z"]), 1.0);
}

#[test]
fn a_second_derivative() {
    let nodes = vec![
        node("Mul", &["x", "x"], &["square"]),
        node("Mul", &["square", "x"], &["y"]),
        gradient(&["x"], &["first"], &["x"], &[], "y"),
        gradient(&["x"], &["second"], &["x"], &[], "first"),
        gradient(&["x"], &["third"], &["x"], &[], "second"),
    ];
    let model = scalars(&["x"], nodes, &["y", "first", "second", "third"]);
    assert_eq!(found(&model, &[2.0]), [8.0, 12.0, 12.0, 6.0]);
}

/// Stored weights are not folded where a derivative is taken by them.
#[test]
fn by_stored_weights() {
    let stored = vec![floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]), floats("v", &[], &[2.0])];
    let nodes = vec![
        node("Mul", &["w", "v"], &["scaled"]),
        node("MatMul", &["x", "scaled"], &["y"]),
        gradient(&["w", "v"], &["dw", "dv"], &["w", "v"], &[], "y"),
    ];
    let graph = graph(vec![port("x", F32, &["1", "2"])], stored, nodes, &["dw", "dv"]);
    let graph = import(&model(graph, 17)).unwrap().graph;
    let x = Tensor::from_elements([1, 2], &[1.0f32, 10.0]).unwrap();
    let outputs = hone_ops::evaluate(&graph, &[x]).unwrap();
    assert_eq!(outputs[0].to_f64(), [2.0, 2.0, 20.0, 20.0]);
    assert_eq!(outputs[1].to_f64(), [73.0]);
}

/// What `Identity` hands on is a variable of its own: a change of it is no change of what it is a copy of.
#[test]
fn by_a_copy() {
    for (inputs, zs) in [(&["copy"][..], &[][..]), (&["copy", "x"], &["x"])] {
        let nodes = vec![
            node("Identity", &["x"], &["copy"]),
            node("Mul", &["x", "copy"], &["y"]),
            gradient(inputs, &["d"], &["copy"], zs, "y"),
        ];
        assert_eq!(found(&scalars(&["x"], nodes, &["d"]), &[3.0]), [3.0]);
    }
}

#[test]
fn what_does_not_depend_is_zero() {
    let nodes = vec![
        node("Floor", &["x"], &["y"]),
        gradient(&["x", "z"], &["dx", "dz"], &["x", "z"], &[], "y"),
    ];
    assert_eq!(found(&scalars(&["x", "z"], nodes, &["dx", "dz"]), &[2.5, 1.0]), [0.0, 0.0]);
}

#[test]
fn refusals() {
    let of = |operator: NodeProto, derivative: NodeProto| {
        let port = port("x", F32, &["3"]);
        let stored = vec![integer("axis", 0)];
        let nodes = vec![operator, derivative];
        let graph: GraphProto = graph(vec![port], stored, nodes, &["d"]);
        model(graph, 27)
    };
    let square = || node("Mul", &["x", "x"], &["y"]);
    let whole = || node("Cast", &["x"], &["y"]).int("to", i64::from(I64));
    refused(&of(square(), gradient(&["x"], &["d"], &["x"], &[], "w")), "'w' is no value");
    refused(&of(square(), gradient(&["x"], &["d"], &["x"], &["y"], "y")), "1 inputs are not one");
    refused(&of(square(), gradient(&["x"], &["d"], &[], &[], "y")), "are not one for each");
    refused(&of(whole(), gradient(&["x"], &["d"], &["x"], &[], "y")), "only floats");
    let branch = |operator: &str| {
        graph(Vec::new(), Vec::new(), vec![node(operator, &["x"], &["own"])], &["own"])
    };
    let condition = node("If", &["above"], &["y"])
        .graph("then_branch", branch("Sin"))
        .graph("else_branch", branch("Cos"));
    let mut decided = of(condition, gradient(&["x"], &["d"], &["x"], &[], "y"));
    let nodes = &mut decided.graph.as_mut().unwrap().node;
    nodes.insert(0, node("ReduceMax", &["x"], &["most"]).int("keepdims", 0));
    nodes.insert(1, node("Greater", &["most", "zero"], &["above"]));
    decided.graph.as_mut().unwrap().initializer.push(floats("zero", &[], &[0.0]));
    refused(&decided, "(if) has no derivative");
    let product = node("CumProd", &["x", "axis"], &["y"]);
    let derivative = gradient(&["x"], &["d"], &["x"], &[], "y");
    refused(&of(product, derivative), "node 'make_y' (cumulative_sum) has no derivative");
    refused(&of(square(), gradient(&["axis"], &["d"], &["x"], &[], "y")), "is i64");
}
