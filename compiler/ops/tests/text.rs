//! The text form of graphs: what is printed parses back to the same graph, and what is no graph is refused with
//! its line.

#![allow(clippy::unwrap_used)]

mod cases;

use cases::{Case, cases};
use hone_graph::{Constants, parse};
use hone_ops::{Binary, BinaryFunction, Graph, If, Loop, Unary, UnaryFunction};
use hone_types::{DataType, Tensor, TensorType};

/// A graph of one operator, every second operand a constant.
fn graph_of(case: &Case) -> Graph {
    let mut graph = Graph::new();
    let operands: Vec<_> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let tensor = input.clone()?;
            Some(match index % 2 {
                0 => graph.add_input(format!("input {index}"), tensor.tensor_type().clone()),
                _ => graph.add_constant(format!("constant \"{index}\""), tensor),
            })
        })
        .collect();
    let outputs = graph.add_node("the node", case.operator.clone(), &operands).unwrap();
    for (index, output) in outputs.into_iter().enumerate() {
        graph.name_value(output, format!("value {index}"));
        graph.add_output(format!("output {index}"), output);
    }
    graph
}

fn parses_back(graph: &Graph) {
    let text = graph.to_string();
    assert_eq!(
        &parse::<hone_ops::Op>(&text).unwrap_or_else(|error| panic!("{error}:\n{text}")),
        graph
    );
}

#[test]
fn every_operator_parses_back() {
    cases().iter().for_each(|case| parses_back(&graph_of(case)));
}

#[test]
fn constants_of_every_type_parse_back() {
    for dtype in DataType::all() {
        let extremes = [f64::NAN, f64::INFINITY, -0.0, 0.1, -1e30, 255.0, 1e-40];
        let mut graph = Graph::new();
        graph.add_constant("list", Tensor::from_f64(dtype, [7], &extremes).unwrap());
        graph.add_constant("splat", Tensor::from_f64(dtype, [40], &[2.0; 40]).unwrap());
        let many: Vec<f64> = (0..40).map(|index| f64::from(index) * 0.37).collect();
        graph.add_constant("bytes", Tensor::from_f64(dtype, [40], &many).unwrap());
        graph.add_constant("none", Tensor::from_f64(dtype, [0, 3], &[]).unwrap());
        parses_back(&graph);
    }
    let mut graph = Graph::new();
    graph.add_constant("large", Tensor::from_elements([2], &[i64::MAX, (1 << 53) + 1]).unwrap());
    graph.add_constant("payload", Tensor::scalar(f32::from_bits(0x7fc0_1234)));
    parses_back(&graph);
}

fn negated(name: &str) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input(name, TensorType::new(DataType::F32, [2]));
    let y = graph.add_node("negate", Unary::new(UnaryFunction::Negate).into(), &[Some(x)]).unwrap();
    graph.add_output("y", y[0]);
    graph
}

#[test]
fn regions_parse_back() {
    let mut graph = Graph::new();
    let condition = graph.add_input("condition", TensorType::new(DataType::Bool, []));
    let x = graph.add_input("x", TensorType::new(DataType::F32, [2]));
    let branches = If { then: negated("a"), otherwise: negated("b") };
    let chosen =
        graph.add_node("if", branches.into(), &[Some(condition), Some(x), Some(x)]).unwrap();
    let mut body = Graph::new();
    let _number = body.add_input("number", TensorType::new(DataType::I64, []));
    let carried = body.add_input("carried", TensorType::new(DataType::F32, [2]));
    let twice = Binary::new(BinaryFunction::Add);
    let next = body.add_node("twice", twice.into(), &[Some(carried), Some(carried)]).unwrap();
    body.add_output("next", next[0]);
    body.add_output("collected", next[0]);
    let repeated = Loop {
        body,
        carried: 1,
        tests: false,
        most: Some(3),
        capacity: Some(3),
        reversed: vec![false],
    };
    let results = graph.add_node("loop", repeated.into(), &[None, None, Some(chosen[0])]).unwrap();
    graph.add_output("last", results[0]);
    graph.add_output("all", results[1]);
    graph.add_extent(hone_graph::OutputExtent { output: 1, axis: 0, value: results[2] });
    graph.verify().unwrap();
    parses_back(&graph);
}

#[test]
fn long_constants_are_told_apart_by_a_digest() {
    let with = |first: f32| {
        let mut elements: Vec<f32> = (0..40u8).map(|index| f32::from(index) * 0.37).collect();
        elements[0] = first;
        let mut graph = Graph::new();
        graph.add_constant("w", Tensor::from_elements([40], &elements).unwrap());
        graph.to_text(Constants::Digest)
    };
    assert!(with(1.0).contains("digest "));
    assert_ne!(with(1.0), with(2.0));
}

#[test]
fn what_is_no_graph_is_refused_with_its_line() {
    let refused = [
        ("%0 = input \"x\" f32[2]\noutput \"y\" %1", "line 2: %1 is not defined above"),
        ("%0 = input \"x\" f31[2]", "line 1: unknown element type 'f31'"),
        ("%0 = input \"x\" f32[-2]", "line 1: expected the extents"),
        ("%0 = input \"x\" f32[2] more", "line 1: 'more' is too much"),
        ("%0 = input x f32[2]", "line 1: no JSON"),
        ("%0 = input \"x\" f32[2]\n%0 = input \"y\" f32[2]", "line 2: %0 is defined twice"),
        ("x = input \"x\" f32[2]", "line 1: expected a value such as %0"),
        ("%0 = constant \"c\" f32[3] [1, 2]", "line 1: 2 elements given for f32[3]"),
        ("%0 = constant \"c\" f32[1] [one]", "line 1: 'one' is not a number"),
        ("%0 = constant \"c\" f32[1] bytes 00zz0000", "line 1: the bytes are not pairs"),
        ("%0 = constant \"c\" f32[1] bytes 00", "line 1: a tensor of type f32[1] needs 4 bytes"),
        ("%0 = constant \"c\" f32[1000000, 1000000] splat 0", "line 1: a constant of"),
        ("%0 = constant \"c\" f32[20] digest 00", "line 1: expected a list of elements"),
        ("%0 = conjure \"c\" () -> f32[2]", "line 1: unknown operator 'conjure'"),
        ("%0 = input \"x\" f32[2]\n%1 = softmax \"s\" (%0) -> f32[2]", "line 2: softmax:"),
        (
            "%0 = input \"x\" f32[2]\n%1 = reshape \"r\" (%0) {\"shape\":[2]} -> f32[1, 2]",
            "line 2: the operation gives f32[2], not f32[1, 2]",
        ),
        (
            "%0 = input \"x\" f32[2]\n%1, %2 = reshape \"r\" (%0) {\"shape\":[2]} -> f32[2]",
            "line 2: the operation has 1 outputs, 2 are named",
        ),
        ("}", "line 1: a '}' that closes nothing"),
        ("%0 = if \"i\" () -> f32[2] {", "line 1: the text ends within a graph"),
        ("%0 = if \"i\" () -> f32[2] {\n}", "line 1: if has two branches, not 1"),
        ("extent of output 0 axis x is %0", "line 1: 'x' is not a number"),
    ];
    for (text, reason) in refused {
        let error = parse::<hone_ops::Op>(text).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{text}\ngave: {error}\nnot:  {reason}");
    }
    let deep = "%0 = if \"i\" () -> f32[2] {\n".repeat(100_000);
    let error = parse::<hone_ops::Op>(&deep).unwrap_err().to_string();
    assert_eq!(error, "line 33: more than 32 graphs inside of each other");
}
