//! Values of inputs that decide a shape: compiled for the declared shape, to which an evaluation is held.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, NodeProto, ValueInfoProto};
use hone_ops::{EvaluateError, Graph, If, evaluate};
use hone_types::Tensor;

/// A model of `nodes` from `x`, `f32[2, 3, 1]`, and lists of integers to `y` as it is declared.
fn deciding(nodes: Vec<NodeProto>, lists: &[(&str, usize)], y: &[&str]) -> ModelProto {
    let lists = lists.iter().map(|(name, count)| port(name, I64, &[&count.to_string()]));
    let inputs: Vec<ValueInfoProto> =
        [port("x", F32, &["2", "3", "1"])].into_iter().chain(lists).collect();
    let mut graph = graph(inputs, vec![], nodes, &["y"]);
    graph.output = vec![port("y", F32, y)];
    model(graph, 18)
}

fn x() -> Tensor {
    Tensor::from_elements([2, 3, 1], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()
}

fn run(graph: &Graph, lists: &[&[i64]]) -> Result<Tensor, EvaluateError> {
    let lists = lists.iter().map(|list| Tensor::from_elements([list.len()], list).unwrap());
    let inputs: Vec<Tensor> = [x()].into_iter().chain(lists).collect();
    evaluate(graph, &inputs).map(|mut outputs| outputs.remove(0))
}

/// Imports the model and evaluates it: lists that give an answer with the answer, and others with a part of what is
/// said of them.
#[track_caller]
fn check(model: &ModelProto, good: &[(&[&[i64]], &[f64])], bad: &[(&[&[i64]], &str)]) {
    let graph = import(model).map_err(|error| chain(&error)).unwrap().graph;
    let declared = graph.tensor_type(graph.outputs()[0].value).shape.clone();
    for (lists, expected) in good {
        let result = run(&graph, lists).map_err(|error| chain(&error)).unwrap();
        assert_eq!((result.shape(), &result.to_f64()[..]), (&declared[..], *expected), "{lists:?}");
    }
    for (lists, told) in bad {
        let error = chain(&run(&graph, lists).unwrap_err());
        assert!(error.contains(told), "'{told}' is not in '{error}' of {lists:?}");
    }
}

const SAME: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

#[test]
fn a_reshape_takes_each_way_to_say_its_shape() {
    let shaped = |y: &[&str]| deciding(vec![node("Reshape", &["x", "s"], &["y"])], &[("s", 2)], y);
    let good: [(&[&[i64]], &[f64]); 3] =
        [(&[&[2, 3]], SAME), (&[&[-1, 3]], SAME), (&[&[0, 0]], SAME)];
    let bad: [(&[&[i64]], &str); 3] = [
        (&[&[3, 2]], "input 's' must be [2 or -1 or 0, 3 or -1 or 0]"),
        (&[&[-1, -1]], "-1 more than once"),
        (&[&[i64::MIN, 3]], "must be"),
    ];
    check(&shaped(&["2", "3"]), &good, &bad);
    // Nothing says what the shape is, or what is said is another number of axes.
    for y in [&["a", "3"][..], &["2", "3", "1"], &[]] {
        let text = chain(&import(&shaped(y)).unwrap_err());
        assert!(text.contains("input 's' (number 1) must be a constant"), "{text}");
    }
    assert!(chain(&import(&shaped(&["2", "4"])).unwrap_err()).contains("no reshape"));
}

#[test]
fn a_reduction_is_compiled_for_the_axes_that_give_the_shape() {
    let reduced = |y: &[&str]| {
        let sum = node("ReduceSum", &["x", "axes"], &["s"]).int("keepdims", 0);
        deciding(vec![sum, node("Neg", &["s"], &["y"])], &[("axes", 2)], y)
    };
    // The shape of the sum follows from that of its negative.
    let good: [(&[&[i64]], &[f64]); 3] = [
        (&[&[0, 2]], &[-5.0, -7.0, -9.0]),
        (&[&[-1, 0]], &[-5.0, -7.0, -9.0]),
        (&[&[2, -3]], &[-5.0, -7.0, -9.0]),
    ];
    let told = "the axes in input 'axes' do not give the declared shape [3]";
    let bad: [(&[&[i64]], &str); 4] = [
        (&[&[0, 1]], told),
        (&[&[0, 0]], told),
        (&[&[1, 3]], told),
        (&[&[i64::MAX, i64::MIN]], told),
    ];
    check(&reduced(&["3"]), &good, &bad);
    let none = chain(&import(&reduced(&["7"])).unwrap_err());
    assert!(none.contains("a choice of 0 settings"), "{none}");
}

#[test]
fn settings_of_one_shape_become_branches() {
    let square = |nodes| deciding(nodes, &[("axis", 1)], &["2", "2"]);
    let part = || node("Slice", &["x", "zero", "two", "one"], &["p"]);
    let mut model = square(vec![
        part(),
        node("Reshape", &["p", "flat"], &["q"]),
        node("ReduceSum", &["q", "axis"], &["y"]).int("keepdims", 0),
    ]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer = vec![
        integers("zero", &[0]),
        integers("two", &[2]),
        integers("one", &[1]),
        integers("flat", &[2, 2]),
    ];
    graph.output = vec![port("y", F32, &["2"])];
    let imported = import(&model).unwrap().graph;
    let branches =
        imported.nodes().iter().filter(|(_, own)| own.operation.downcast::<If>().is_some());
    assert_eq!(branches.count(), 1);
    let good: [(&[&[i64]], &[f64]); 3] =
        [(&[&[0]], &[5.0, 7.0]), (&[&[1]], &[3.0, 9.0]), (&[&[-2]], &[5.0, 7.0])];
    check(&model, &good, &[(&[&[2]], "do not give"), (&[&[-3]], "do not give")]);
}

#[test]
fn places_are_computed_from_bounds_of_every_kind() {
    let sliced = |count: usize, y: &[&str]| {
        let lists = ["starts", "ends", "axes", "steps"].map(|name| (name, count));
        let slice = node("Slice", &["x", "starts", "ends", "axes", "steps"], &["y"]);
        deciding(vec![slice], &lists, y)
    };
    let (least, most) = (i64::MIN, i64::MAX);
    let good: [(&[&[i64]], &[f64]); 4] = [
        (&[&[1], &[3], &[1], &[1]], &[2.0, 3.0, 5.0, 6.0]),
        (&[&[-1], &[-3], &[-2], &[-1]], &[3.0, 2.0, 6.0, 5.0]),
        (&[&[least], &[most], &[1], &[2]], &[1.0, 3.0, 4.0, 6.0]),
        (&[&[most], &[least], &[1], &[-2]], &[3.0, 1.0, 6.0, 4.0]),
    ];
    let bad: [(&[&[i64]], &str); 5] = [
        (&[&[0], &[3], &[1], &[1]], "the slice has not the declared shape [2, 2, 1]"),
        (&[&[0], &[2], &[0], &[1]], "the slice has not"),
        (&[&[0], &[2], &[3], &[1]], "the axes are not all there"),
        (&[&[0], &[2], &[1], &[0]], "a step is 0"),
        (&[&[0], &[most], &[1], &[least]], "the slice has not"),
    ];
    check(&sliced(1, &["2", "2", "1"]), &good, &bad);
    let twice: [(&[&[i64]], &str); 1] =
        [(&[&[0, 0], &[2, 2], &[1, -2], &[1, 1]], "an axis is named twice")];
    check(&sliced(2, &["2", "2", "1"]), &[], &twice);
}

#[test]
fn a_padding_comes_from_its_amounts() {
    for (mode, expected) in [
        ("constant", [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0]),
        ("edge", [1.0, 1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0]),
        ("reflect", [2.0, 1.0, 2.0, 3.0, 2.0, 5.0, 4.0, 5.0, 6.0, 5.0]),
        ("wrap", [3.0, 1.0, 2.0, 3.0, 1.0, 6.0, 4.0, 5.0, 6.0, 4.0]),
    ] {
        let padded = node("Pad", &["x", "pads"], &["y"]).string("mode", mode);
        let mut model = deciding(vec![padded], &[("pads", 6)], &["2", "5", "1"]);
        model.opset_import[0].version = Some(19);
        let good: [(&[&[i64]], &[f64]); 1] = [(&[&[0, 1, 0, 0, 1, 0]], &expected)];
        let bad: [(&[&[i64]], &str); 2] = [
            (&[&[0, 1, 0, 0, 0, 0]], "what is padded has not the declared shape [2, 5, 1]"),
            (&[&[1, 1, 0, 0, 1, 0]], "what is padded has not"),
        ];
        check(&model, &good, &bad);
    }
}

#[test]
fn a_range_has_the_declared_number_of_elements() {
    let scalar = |name: &str| port(name, I64, &[]);
    let nodes = vec![node("Range", &["from", "to", "by"], &["y"])];
    let mut own = graph(vec![scalar("from"), scalar("to"), scalar("by")], vec![], nodes, &["y"]);
    own.output = vec![port("y", I64, &["3"])];
    let graph = import(&model(own, 18)).unwrap().graph;
    let run = |bounds: [i64; 3]| evaluate(&graph, &bounds.map(Tensor::scalar));
    assert_eq!(run([1, 7, 2]).unwrap()[0].to_i64(), [1, 3, 5]);
    assert_eq!(run([0, -5, -2]).unwrap()[0].to_i64(), [0, -2, -4]);
    for bounds in [[0, 8, 2], [0, 5, 0], [3, 0, 1], [0, i64::MAX, 1]] {
        let text = chain(&run(bounds).unwrap_err());
        assert!(text.contains("the range has not 3 elements"), "{text}");
    }
}

#[test]
fn what_a_branch_needs_is_looked_at_in_that_branch() {
    let then = graph(vec![], vec![], vec![node("Reshape", &["x", "s"], &["a"])], &["a"]);
    let otherwise = graph(vec![], vec![], vec![node("Flatten", &["x"], &["b"])], &["b"]);
    let mut then = then;
    then.output = vec![port("a", F32, &["2", "3"])];
    let choice =
        node("If", &["c"], &["y"]).graph("then_branch", then).graph("else_branch", otherwise);
    let mut model = deciding(vec![choice], &[("s", 2)], &["2", "3"]);
    model.graph.as_mut().unwrap().input.push(port("c", BOOL, &[]));
    let graph = import(&model).unwrap().graph;
    let run = |s: [i64; 2], holds: bool| {
        let s = Tensor::from_elements([2], &s).unwrap();
        evaluate(&graph, &[x(), s, Tensor::scalar(holds)])
    };
    assert_eq!(run([2, 3], true).unwrap()[0].to_f64(), SAME);
    assert_eq!(run([3, 2], false).unwrap()[0].to_f64(), SAME);
    assert!(chain(&run([3, 2], true).unwrap_err()).contains("input 's' must be"));
}

#[test]
fn decided_shapes_feed_one_another() {
    let imported = import(&decided()).map_err(|error| chain(&error)).unwrap().graph;
    let shapes: Vec<_> = imported
        .outputs()
        .iter()
        .map(|port| imported.tensor_type(port.value).shape.clone())
        .collect();
    assert_eq!(shapes, [vec![5, 2], vec![0]]);
    let list = |values: &[i64]| Tensor::from_elements([values.len()], values).unwrap();
    let elements: Vec<f32> = (0..12).map(|place| place as f32).collect();
    let inputs = |shape: &[i64], scale: f32| {
        let scales = [1.7, scale];
        vec![
            Tensor::from_elements([2, 6], &elements).unwrap(),
            list(shape),
            list(&[1]),
            list(&[3]),
            list(&[1]),
            list(&[1]),
            list(&[1, 1]),
            Tensor::from_elements([2], &scales).unwrap(),
            Tensor::scalar(0i64),
            list(&[2]),
        ]
    };
    // The same, with all of it known.
    let mut known = decided();
    let stored = known.graph.as_mut().unwrap();
    stored.input.truncate(1);
    stored.initializer = vec![
        integers("shape", &[3, 4]),
        integers("starts", &[1]),
        integers("ends", &[3]),
        integers("axes", &[1]),
        integers("steps", &[1]),
        integers("pads", &[1, 1]),
        floats("scales", &[2], &[1.7, 1.5]),
        integer("k", 0),
        integers("k1", &[2]),
    ];
    stored.output.truncate(1);
    let known = import(&known).map_err(|error| chain(&error)).unwrap().graph;
    let expected = evaluate(&known, &inputs(&[3, 4], 1.5)[..1]).unwrap();
    // A range of step 0 has no elements that could be declared.
    let text = chain(&evaluate(&imported, &inputs(&[3, 4], 1.5)).unwrap_err());
    assert!(text.contains("the range has not 0 elements"), "{text}");
    let mut own = decided();
    own.graph.as_mut().unwrap().output.truncate(1);
    let own = import(&own).unwrap().graph;
    let result = evaluate(&own, &inputs(&[3, 4], 1.5)).unwrap();
    let apart = result[0].to_f64().into_iter().zip(expected[0].to_f64());
    assert!(apart.map(|(a, b)| (a - b).abs()).all(|apart| apart < 1e-5), "{result:?} {expected:?}");
    let text = chain(&evaluate(&own, &inputs(&[3, 4], 1.1)).unwrap_err());
    assert!(text.contains("what is resized has not the declared shape [5, 6]"), "{text}");
}
