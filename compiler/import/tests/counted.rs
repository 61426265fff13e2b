//! Shapes that are computed of how many elements a run finds, and what is read behind them.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, NodeProto};
use hone_ops::Evaluation;
use hone_types::Tensor;

/// The first output of nodes on the rows of `matrix` that begin above zero: two of four.
fn each(nodes: Vec<NodeProto>) -> (Vec<f64>, Vec<usize>) {
    first(&chosen(nodes), &[matrix()])
}

/// What ends the run of such nodes.
fn ends(nodes: Vec<NodeProto>) -> String {
    let graph = import(&chosen(nodes)).unwrap_or_else(|error| panic!("{}", chain(&error))).graph;
    chain(&hone_ops::evaluate(&graph, &[matrix()]).unwrap_err())
}

fn refused(nodes: Vec<NodeProto>) -> String {
    chain(&import(&chosen(nodes)).unwrap_err())
}

/// The number of rows as a list `n`, then `nodes`.
fn with_number(nodes: Vec<NodeProto>) -> Vec<NodeProto> {
    let mut all = vec![
        node("Shape", &["rows"], &["shape"]),
        node("Slice", &["shape", "least", "most"], &["n"]),
        node("Squeeze", &["n", "least"], &["number"]),
    ];
    all.extend(nodes);
    all
}

#[test]
fn constants_and_places_of_as_many_as_there_are() {
    let ones = with_number(vec![
        node("ConstantOfShape", &["shape"], &["zeros"]),
        node("Add", &["zeros", "rows"], &["y"]),
    ]);
    assert_eq!(each(ones), (vec![1.0, 2.0, 5.0, 6.0], vec![2, 2]));
    let up = with_number(vec![node("Range", &["zero", "number", "one"], &["y"])]);
    assert_eq!(each(up), (vec![0.0, 1.0], vec![2]));
    let down = with_number(vec![node("Range", &["number", "zero", "minus_one"], &["y"])]);
    assert_eq!(each(down), (vec![2.0, 1.0], vec![2]));
    let from_one = with_number(vec![node("Range", &["one", "number", "one"], &["y"])]);
    assert_eq!(each(from_one), (vec![1.0], vec![1]));
    let over = with_number(vec![node("Expand", &["nothing", "shape"], &["y"])]);
    assert_eq!(each(over), (vec![0.0; 4], vec![2, 2]));
    let own = with_number(vec![node("Expand", &["rows", "shape"], &["y"])]);
    assert_eq!(each(own), (vec![1.0, 2.0, 5.0, 6.0], vec![2, 2]));
    let size = vec![node("Size", &["rows"], &["y"])];
    assert_eq!(each(size), (vec![4.0], vec![]));
}

#[test]
fn extents_that_no_run_decides_are_known() {
    // The second extent of the shape is 2 in every run.
    let nodes = with_number(vec![
        node("Gather", &["shape", "one"], &["columns"]),
        node("Range", &["zero", "columns", "one"], &["y"]),
    ]);
    let graph = import(&chosen(nodes)).unwrap().graph;
    assert!(graph.extents().is_empty());
    assert_eq!(graph.tensor_type(graph.outputs()[0].value).shape, [2]);
}

#[test]
fn reshapes_to_as_many_as_there_are() {
    let behind = |list: &str| {
        with_number(vec![
            node("Concat", &["n", list], &["target"]).int("axis", 0),
            node("Reshape", &["rows", "target"], &["y"]),
        ])
    };
    for list in ["last", "whole_row"] {
        assert_eq!(each(behind(list)), (vec![1.0, 2.0, 5.0, 6.0], vec![2, 2]), "{list}");
    }
    let kept = vec![
        node("Unsqueeze", &["rows", "ones"], &["apart"]),
        node("Concat", &["least", "last"], &["target"]).int("axis", 0),
        node("Reshape", &["apart", "target"], &["y"]),
    ];
    assert_eq!(each(kept), (vec![1.0, 2.0, 5.0, 6.0], vec![2, 2]));
    let message = ends(with_number(vec![
        node("Add", &["n", "ones"], &["more"]),
        node("Concat", &["more", "whole_row"], &["target"]).int("axis", 0),
        node("Reshape", &["rows", "target"], &["y"]),
    ]));
    assert!(message.contains("does not fit"), "{message}");
}

#[test]
fn slices_up_to_and_from_a_place_that_a_run_decides() {
    let whole = with_number(vec![node("Slice", &["x", "least", "n"], &["y"])]);
    assert_eq!(each(whole), (vec![1.0, 2.0, -3.0, 4.0], vec![2, 2]));
    let rest = with_number(vec![node("Slice", &["x", "n", "end"], &["y"])]);
    assert_eq!(each(rest), (vec![5.0, 6.0, -7.0, 8.0], vec![2, 2]));
    let less = with_number(vec![
        node("Sub", &["n", "ones"], &["before"]),
        node("Slice", &["rows", "before", "n"], &["y"]),
    ]);
    assert_eq!(each(less), (vec![5.0, 6.0], vec![1, 2]));
    let from_end = with_number(vec![
        node("Neg", &["n"], &["back"]),
        node("Slice", &["x", "back", "last"], &["y"]),
    ]);
    assert_eq!(each(from_end), (vec![5.0, 6.0], vec![1, 2]));
}

#[test]
fn the_largest_of_as_many_as_there_are_at_most() {
    // As detectors choose candidates: the best three, or all where there are fewer.
    let nodes = with_number(vec![
        node("Gather", &["rows", "zero"], &["scores"]).int("axis", 1),
        node("Concat", &["three", "n"], &["both"]).int("axis", 0),
        node("ReduceMin", &["both"], &["k"]).int("keepdims", 1),
        node("TopK", &["scores", "k"], &["best", "of_best"]),
        node("Shape", &["best"], &["extents"]),
        node("ConstantOfShape", &["extents"], &["zeros"]),
        node("Add", &["best", "zeros"], &["y"]),
    ]);
    let model = chosen(nodes);
    assert_eq!(first(&model, &[matrix()]), (vec![5.0, 1.0], vec![2]));
    let graph = import(&model).unwrap().graph;
    assert_eq!(graph.tensor_type(graph.outputs()[0].value).shape, [3]);
}

#[test]
fn what_is_behind_the_part_is_scattered_nowhere() {
    // Rows 0 and 2 are above zero: their places in `x` get their doubles.
    let by_rows = vec![
        node("Add", &["rows", "rows"], &["doubles"]),
        node("ScatterND", &["x", "places", "doubles"], &["y"]),
    ];
    let doubled = vec![2.0, 4.0, -3.0, 4.0, 10.0, 12.0, -7.0, 8.0];
    assert_eq!(each(by_rows), (doubled.clone(), vec![4, 2]));
    let by_elements = vec![
        node("Add", &["rows", "rows"], &["doubles"]),
        node("Concat", &["places", "places"], &["both"]).int("axis", 1),
        node("ScatterElements", &["x", "both", "doubles"], &["y"]).int("axis", 0),
    ];
    assert_eq!(each(by_elements), (doubled, vec![4, 2]));
    let from_end = vec![
        node("Sub", &["places", "three"], &["less"]),
        node("Sub", &["less", "ones"], &["back"]),
        node("ScatterND", &["x", "back", "rows"], &["y"]).string("reduction", "add"),
    ];
    let mut model = chosen(from_end);
    model.opset_import[0].version = Some(16);
    let doubled = vec![2.0, 4.0, -3.0, 4.0, 10.0, 12.0, -7.0, 8.0];
    assert_eq!(first(&model, &[matrix()]), (doubled, vec![4, 2]));
}

#[test]
fn what_is_behind_the_part_changes_no_least_and_no_largest() {
    const U32: i64 = 12;
    const I8: i64 = 3;
    let large = |kind: i64| {
        vec![
            node("Mul", &["rows", "rows"], &["squares"]),
            node("Mul", &["squares", "squares"], &["fourth"]),
            node("Cast", &["fourth"], &["numbers"]).int("to", kind),
        ]
    };
    let mut least = large(U32);
    least.extend([
        node("Gather", &["numbers", "one"], &["second"]).int("axis", 0),
        node("Slice", &["numbers", "ones", "end"], &["rest"]),
        node("ReduceMin", &["rest"], &["y"]).int("keepdims", 0),
    ]);
    // The fourth powers of 5 and 6: the greatest number of eight bits is less.
    assert_eq!(each(least).0, [625.0]);
    let most = vec![
        node("Neg", &["rows"], &["negative"]),
        node("Cast", &["negative"], &["numbers"]).int("to", I8),
        node("ReduceMax", &["numbers"], &["y"]).int("keepdims", 0),
    ];
    assert_eq!(each(most).0, [-1.0]);
    let truth = vec![
        node("Greater", &["rows", "nothing"], &["above"]),
        node("ReduceMin", &["above"], &["y"]).int("keepdims", 0),
    ];
    let mut model = chosen(truth);
    model.opset_import[0].version = Some(20);
    assert_eq!(first(&model, &[matrix()]).0, [1.0]);
    let last = vec![node("ArgMax", &["rows"], &["y"]).int("axis", 0).int("select_last_index", 1)];
    let message = refused(last);
    assert!(message.contains("decided when the model runs"), "{message}");
}

#[test]
fn slices_that_a_list_chooses_keep_the_part_along_the_other_axis() {
    let nodes = vec![
        node("Less", &["least", "ones"], &["is_below"]),
        node("Concat", &["is_below", "is_below"], &["both"]).int("axis", 0),
        node("Compress", &["rows", "both"], &["y"]).int("axis", 1),
    ];
    assert_eq!(each(nodes), (vec![1.0, 2.0, 5.0, 6.0], vec![2, 2]));
}

#[test]
fn what_is_joined_with_a_part_has_its_size() {
    let nodes = vec![node("Concat", &["rows", "x"], &["y"]).int("axis", 1)];
    let message = ends(nodes);
    assert!(message.contains("what is joined differs in size"), "{message}");
}

#[test]
fn nothing_is_behind_the_part_of_an_output() {
    let graph = import(&chosen(vec![node("Exp", &["rows"], &["y"])])).unwrap().graph;
    let given = [matrix()];
    let mut evaluation = Evaluation::new(&graph, &given).unwrap();
    graph.nodes().ids().try_for_each(|node| evaluation.compute(node)).unwrap();
    assert_eq!(evaluation.extents(), [2]);
    assert_eq!(evaluation.outputs()[0].to_f64()[4..], [0.0; 4]);
}

/// The sums of bags of rows of `x`, bounded by two lists, as exporters write an embedding of bags.
fn bags(starts: &[i64], ends: &[i64]) -> ModelProto {
    let body = graph(
        vec![port("i", I64, &[]), port("goes_on", BOOL, &[])],
        vec![integers("first", &[0])],
        vec![
            node("Gather", &["starts", "i"], &["from"]),
            node("Gather", &["ends", "i"], &["until"]),
            node("Unsqueeze", &["from", "first"], &["start"]),
            node("Unsqueeze", &["until", "first"], &["end"]),
            node("Slice", &["x", "start", "end", "first"], &["bag"]),
            node("ReduceSum", &["bag", "first"], &["sum"]).int("keepdims", 0),
            node("Identity", &["goes_on"], &["still"]),
        ],
        &["still", "sum"],
    );
    let stored = vec![
        integers("starts", starts),
        integers("ends", ends),
        integer("count", starts.len() as i64),
        TensorOf::truth("yes"),
    ];
    let nodes = vec![node("Loop", &["count", "yes"], &["y"]).graph("body", body)];
    model(graph(vec![port("x", F32, &["4", "2"])], stored, nodes, &["y"]), 13)
}

#[test]
fn bags_of_an_embedding_are_summed() {
    let alike = bags(&[0, 2], &[2, 4]);
    assert_eq!(first(&alike, &[matrix()]), (vec![-2.0, 6.0, -2.0, 14.0], vec![2, 2]));
    let different = bags(&[0, 1, 1], &[1, 1, 4]);
    let expected = vec![1.0, 2.0, 0.0, 0.0, -5.0, 18.0];
    assert_eq!(first(&different, &[matrix()]), (expected, vec![3, 2]));
}

#[test]
fn numbers_are_shifted_out_of_their_width() {
    let nodes = vec![
        node("Cast", &["x"], &["numbers"]).int("to", 6),
        node("Cast", &["last"], &["by"]).int("to", 6),
        node("BitShift", &["numbers", "by"], &["y"]).string("direction", "LEFT"),
    ];
    assert_eq!(first(&chosen(nodes), &[matrix()]).0, [0.0; 8]);
}

struct TensorOf;

impl TensorOf {
    /// A truth value that holds.
    fn truth(name: &str) -> hone_import::onnx::proto::TensorProto {
        hone_import::onnx::proto::TensorProto {
            name: Some(name.into()),
            data_type: Some(BOOL),
            raw_data: Some(vec![1u8].into()),
            ..Default::default()
        }
    }
}

#[test]
fn an_empty_choice_is_empty() {
    let none = Tensor::from_elements([4, 2], &[-1.0f32; 8]).unwrap();
    let nodes = with_number(vec![
        node("ConstantOfShape", &["shape"], &["zeros"]),
        node("Concat", &["zeros", "rows"], &["y"]).int("axis", 0),
    ]);
    assert_eq!(first(&chosen(nodes), &[none]), (vec![], vec![0, 2]));
}
