//! The walk itself: several ways, independence, refusals, long chains.

use crate::case::Case;
use hone_gradient::{GradientError, gradients, substitute};
use hone_graph::ValueId;
use hone_ops::{
    Binary, BinaryFunction as B, Cast, Graph, Op, Reduce, ReduceFunction, Unary,
    UnaryFunction as U, evaluate,
};
use hone_types::{DataType, Tensor, TensorType};
use std::time::Instant;

fn scalar() -> TensorType {
    TensorType::new(DataType::F64, [])
}

fn numbers(mut graph: Graph, values: &[ValueId], inputs: &[f64]) -> Vec<f64> {
    for (place, value) in values.iter().enumerate() {
        graph.add_output(format!("output{place}"), *value);
    }
    graph.verify().unwrap();
    let inputs: Vec<Tensor> = inputs.iter().map(|own| Tensor::scalar(*own)).collect();
    evaluate(&graph, &inputs).unwrap().iter().map(|own| own.to_f64()[0]).collect()
}

#[test]
fn several_ways_add_up() {
    let mut case = Case::new(3);
    let (x, z) = (case.input(&[2, 3], 0.5, 1.0), case.input(&[3], 0.5, 1.0));
    let a = case.binary(B::Multiply, x, z);
    let b = case.unary(U::Exp, a);
    let c = case.binary(B::Add, a, b);
    let d = case.binary(B::Divide, c, x);
    case.check_twice(d);
}

/// Derivatives by values in the middle are partial ones, and held values are constants.
#[test]
fn named_values_are_independent() {
    let mut graph = Graph::new();
    let (x, z) = (graph.add_input("x", scalar()), graph.add_input("z", scalar()));
    let node = |graph: &mut Graph, function, a, b| {
        graph.add_node("node", Op::new(Binary { function }), &[Some(a), Some(b)]).unwrap()[0]
    };
    let h = node(&mut graph, B::Multiply, x, x);
    let y = node(&mut graph, B::Multiply, h, x);
    let y = node(&mut graph, B::Add, y, z);
    let whole = gradients(&mut graph, y, &[x], &[]).unwrap();
    let partial = gradients(&mut graph, y, &[x, h], &[]).unwrap();
    let held = gradients(&mut graph, y, &[x, y], &[h]).unwrap();
    let all = [whole, partial, held].concat();
    // y = h * x + z with h = x * x, at x = 3.
    assert_eq!(numbers(graph, &all, &[3.0, 1.0]), [27.0, 9.0, 3.0, 0.0, 1.0]);
}

#[test]
fn what_nothing_depends_on_is_zero() {
    let mut graph = Graph::new();
    let shape = TensorType::new(DataType::F64, [2, 3]);
    let (x, z) = (graph.add_input("x", scalar()), graph.add_input("z", shape.clone()));
    let found = gradients(&mut graph, x, &[z], &[]).unwrap();
    assert_eq!(graph.tensor_type(found[0]), &shape);
    graph.add_output("found", found[0]);
    let inputs = [Tensor::scalar(1.0f64), Tensor::zeros(shape)];
    assert_eq!(evaluate(&graph, &inputs).unwrap()[0].to_f64(), [0.0; 6]);
}

#[test]
fn a_derivative_elsewhere() {
    let mut graph = Graph::new();
    let (x, z) = (graph.add_input("x", scalar()), graph.add_input("z", scalar()));
    let node = |graph: &mut Graph, function, a, b| {
        graph.add_node("node", Op::new(Binary { function }), &[Some(a), Some(b)]).unwrap()[0]
    };
    let square = node(&mut graph, B::Multiply, x, x);
    let aside = node(&mut graph, B::Multiply, z, z);
    let y = node(&mut graph, B::Multiply, square, aside);
    let nodes = graph.nodes().len();
    let moved = substitute(&mut graph, y, &[(x, z)]).unwrap();
    assert_eq!(graph.nodes().len(), nodes + 2);
    assert_eq!(substitute(&mut graph, aside, &[(x, z)]).unwrap(), aside);
    assert_eq!(numbers(graph, &[y, moved], &[3.0, 2.0]), [36.0, 16.0]);
}

#[test]
fn refusals_name_what_they_refuse() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", TensorType::new(DataType::F64, [2]));
    let whole = graph.add_node("cut", Op::new(Cast { to: DataType::I64 }), &[Some(x)]).unwrap()[0];
    let error = gradients(&mut graph, whole, &[x], &[]).unwrap_err();
    assert!(matches!(error, GradientError::NotFloat { .. }));
    assert!(gradients(&mut graph, x, &[whole], &[]).is_err());
    let product = hone_ops::CumulativeSum {
        axis: 0,
        exclusive: false,
        reverse: false,
        product: true,
        in_rows: false,
    };
    let product = graph.add_node("product", Op::new(product), &[Some(x)]).unwrap()[0];
    let error = gradients(&mut graph, product, &[x], &[]).unwrap_err();
    assert_eq!(error.to_string(), "node 'product' (cumulative_sum) has no derivative");
    // Where nothing passes it, a node without a rule is no matter.
    let sum =
        graph.add_node("sum", Op::new(Binary { function: B::Add }), &[Some(x), Some(product)]);
    let sum = sum.unwrap()[0];
    assert!(gradients(&mut graph, sum, &[x], &[product]).is_ok());
    assert!(substitute(&mut graph, sum, &[(x, whole)]).is_err());
}

/// Nothing recurses over nodes. The bound leaves room for a busy machine and an unoptimized build, and none for
/// a walk over all pairs of nodes, which are ten thousand million.
#[test]
fn a_chain_of_a_hundred_thousand_nodes() {
    let length = 100_000;
    let mut graph = Graph::new();
    let x = graph.add_input("x", scalar());
    let mut y = x;
    for place in 0..length {
        let function = if place % 2 == 0 { U::Sin } else { U::Negate };
        y = graph.add_node("link", Op::new(Unary { function }), &[Some(y)]).unwrap()[0];
    }
    let start = Instant::now();
    let found = gradients(&mut graph, y, &[x], &[]).unwrap();
    assert!(start.elapsed().as_secs() < 60, "{} s", start.elapsed().as_secs_f64());
    // Two nodes for each sine, one for each change of sign.
    assert_eq!(graph.nodes().len(), length + length / 2 * 3);
    assert_eq!(numbers(graph, &found, &[0.0]), [1.0]);
}

/// The page's table has every operator that has a rule.
#[test]
fn the_page_lists_the_rules() {
    let page = include_str!("../../../../docs/gradients.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut listed: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|own| own.split('`').skip(1).step_by(2))
        .collect();
    listed.sort_unstable();
    let mut rules = hone_gradient::DIFFERENTIABLE.to_vec();
    rules.sort_unstable();
    assert_eq!(listed, rules);
}

/// Recurrent networks have no rule, and a product of a line has no second derivative.
#[test]
fn recurrent_networks_and_second_derivatives_of_products_are_refused() {
    let mut case = Case::new(1);
    let x = case.input(&[3], 1.0, 2.0);
    let product = Reduce { function: ReduceFunction::Product, axes: vec![0], keep_axes: false };
    let y = case.node(product, &[x]);
    let first = gradients(&mut case.graph, y, &[x], &[]).unwrap()[0];
    let error = gradients(&mut case.graph, first, &[x], &[]).unwrap_err();
    assert!(error.to_string().contains("(cumulative_sum) has no derivative"), "{error}");
    let mut case = Case::new(1);
    let x = case.input(&[4, 1, 2], -1.0, 1.0);
    let (w, r) = (case.input(&[1, 3, 2], -1.0, 1.0), case.input(&[1, 3, 3], -1.0, 1.0));
    let rnn = hone_ops::Rnn {
        hidden: 3,
        direction: hone_ops::Direction::Forward,
        activations: vec![hone_ops::Activation::Tanh],
        clip: None,
        batch_first: false,
    };
    let y = case.node(rnn, &[x, w, r]);
    let error = gradients(&mut case.graph, y, &[x], &[]).unwrap_err();
    assert!(error.to_string().contains("(rnn) has no derivative"), "{error}");
}
