//! Models of many nodes are imported, verified and evaluated in time in proportion to them.
#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::NodeProto;
use hone_ops::evaluate;
use hone_types::Tensor;

const NODES: usize = 20_000;

/// The value of `y` for `x = [1, 2, 3]`.
fn run(nodes: Vec<NodeProto>) -> Vec<f32> {
    let stored = vec![floats("small", &[1], &[0.5])];
    let model = model(graph(vec![port("x", F32, &["3"])], stored, nodes, &["y"]), 17);
    let graph = import(&model).unwrap().graph;
    let x = Tensor::from_elements([3], &[1.0f32, 2.0, 3.0]).unwrap();
    evaluate(&graph, &[x]).unwrap()[0].elements().unwrap()
}

#[test]
fn a_chain() {
    let name = |link: usize| if link == 0 { "x".to_string() } else { format!("v{link}") };
    let mut nodes: Vec<NodeProto> =
        (0..NODES).map(|link| node("Add", &[&name(link), "small"], &[&name(link + 1)])).collect();
    nodes.push(node("Relu", &[&name(NODES)], &["y"]));
    let added = NODES as f32 / 2.0;
    assert_eq!(run(nodes), [1.0 + added, 2.0 + added, 3.0 + added]);
}

#[test]
fn a_fan_that_one_node_sums() {
    let names: Vec<String> = (0..NODES).map(|branch| format!("v{branch}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut nodes: Vec<NodeProto> =
        names.iter().map(|name| node("Mul", &["x", "small"], &[name])).collect();
    nodes.push(node("Sum", &names, &["y"]));
    let half = NODES as f32 / 2.0;
    assert_eq!(run(nodes), [half, 2.0 * half, 3.0 * half]);
}
