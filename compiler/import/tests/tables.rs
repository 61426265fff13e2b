//! Tables of which a run decides two extents, and branches whose results have no common form.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{GraphProto, ModelProto, NodeProto};
use hone_types::Tensor;

/// What each of the rows (1, 2) and (5, 6), whose first element is above zero, makes with each of the rows (-3, 4), (5, 6)
/// and (-7, 8), whose second one is above three, as `table`; then `rest` to `y`.
fn table(rest: Vec<NodeProto>) -> ModelProto {
    let mut nodes = vec![
        node("Gather", &["x", "one"], &["seconds"]).int("axis", 1),
        node("Greater", &["seconds", "three_and"], &["other_mask"]),
        node("Compress", &["x", "other_mask"], &["others"]).int("axis", 0),
        node("Transpose", &["others"], &["turned"]).ints("perm", &[1, 0]),
        node("MatMul", &["rows", "turned"], &["table"]),
    ];
    nodes.extend(rest);
    let mut model = chosen(nodes);
    let stored = &mut model.graph.as_mut().unwrap().initializer;
    stored.push(floats("three_and", &[], &[3.0]));
    stored.push(integers("flat", &[-1]));
    stored.push(integers("pairs", &[-1, 2]));
    stored.push(integers("kept", &[0, 0, 2]));
    stored.push(integers("fewer", &[0, -1]));
    stored.push(integers("all_rows", &[4]));
    model
}

const TABLE: [f64; 6] = [5.0, 17.0, 9.0, 9.0, 61.0, 13.0];

fn of(rest: Vec<NodeProto>) -> (Vec<f64>, Vec<usize>) {
    first(&table(rest), &[matrix()])
}

#[test]
fn a_table_is_an_output() {
    assert_eq!(of(vec![node("Identity", &["table"], &["y"])]), (TABLE.to_vec(), vec![2, 3]));
    // Behind an axis of its own, and before one.
    let around = vec![
        node("Unsqueeze", &["table", "last"], &["deep"]),
        node("Concat", &["deep", "deep"], &["y"]).int("axis", 2),
    ];
    let twice: Vec<f64> = TABLE.iter().flat_map(|own| [*own; 2]).collect();
    assert_eq!(of(around), (twice, vec![2, 3, 2]));
    let none = Tensor::from_elements([4, 2], &[-1.0f32; 8]).unwrap();
    let nothing = first(&table(vec![node("Neg", &["table"], &["y"])]), &[none]);
    assert_eq!(nothing, (vec![], vec![0, 0]));
    let all = Tensor::from_elements([4, 2], &[4.0f32; 8]).unwrap();
    let full = first(&table(vec![node("Neg", &["table"], &["y"])]), &[all]);
    assert_eq!(full, (vec![-32.0; 16], vec![4, 4]));
}

#[test]
fn shapes_of_tables_are_those_of_the_run() {
    assert_eq!(of(vec![node("Shape", &["table"], &["y"])]), (vec![2.0, 3.0], vec![2]));
    assert_eq!(of(vec![node("Size", &["table"], &["y"])]), (vec![6.0], vec![]));
}

#[test]
fn tables_are_reshaped() {
    let flat = vec![node("Reshape", &["table", "flat"], &["y"])];
    assert_eq!(of(flat), (TABLE.to_vec(), vec![6]));
    let rows = vec![
        node("Unsqueeze", &["table", "last"], &["deep"]),
        node("Concat", &["deep", "deep"], &["both"]).int("axis", 2),
    ];
    let with_rows = |last: Vec<NodeProto>| [rows.clone(), last].concat();
    let twice: Vec<f64> = TABLE.iter().flat_map(|own| [*own; 2]).collect();
    let pairs = with_rows(vec![node("Reshape", &["both", "pairs"], &["y"])]);
    assert_eq!(of(pairs), (twice.clone(), vec![6, 2]));
    let joined = with_rows(vec![node("Flatten", &["both"], &["y"]).int("axis", 1)]);
    assert_eq!(of(joined), (twice.clone(), vec![2, 6]));
    let fewer = with_rows(vec![node("Reshape", &["both", "fewer"], &["y"])]);
    assert_eq!(of(fewer), (twice, vec![2, 6]));
    // To a list of pairs and back, by the extents that a run has.
    let back = vec![
        node("Reshape", &["table", "flat"], &["list"]),
        node("Neg", &["list"], &["less"]),
        node("Shape", &["table"], &["extents"]),
        node("Reshape", &["less", "extents"], &["y"]),
    ];
    assert_eq!(of(back), (TABLE.iter().map(|own| -own).collect(), vec![2, 3]));
    // The same where a zero would be one.
    let strict = vec![
        node("Shape", &["table"], &["extents"]),
        node("Reshape", &["table", "flat"], &["list"]).int("allowzero", 1),
        node("Reshape", &["list", "extents"], &["y"]).int("allowzero", 1),
    ];
    let mut strict = table(strict);
    strict.opset_import[0].version = Some(14);
    assert_eq!(first(&strict, &[matrix()]), (TABLE.to_vec(), vec![2, 3]));
    // As the table of the others and the rows, which is no transposition.
    let turned = vec![
        node("Shape", &["table"], &["extents"]),
        node("Gather", &["extents", "turns"], &["others_and_rows"]),
        node("Reshape", &["table", "others_and_rows"], &["y"]),
    ];
    let mut turned = table(turned);
    turned.graph.as_mut().unwrap().initializer.push(integers("turns", &[1, 0]));
    let error = hone_ops::evaluate(&import(&turned).unwrap().graph, &[matrix()]);
    // There is as much room for rows as for others, so that which is meant is not known; the run is held to what was taken.
    assert!(
        chain(&error.unwrap_err()).contains("a shape does not fit the elements that are there")
    );
}

#[test]
fn tables_are_cut_and_gathered_from() {
    let cut = |start: &str, end: &str, axis: &str| {
        of(vec![node("Slice", &["table", start, end, axis], &["y"])])
    };
    assert_eq!(cut("least", "most", "least"), (vec![5.0, 17.0, 9.0], vec![1, 3]));
    assert_eq!(cut("last", "end", "least"), (vec![9.0, 61.0, 13.0], vec![1, 3]));
    assert_eq!(cut("least", "last", "most"), (vec![5.0, 17.0, 9.0, 61.0], vec![2, 2]));
    let row = vec![node("Gather", &["table", "one"], &["y"]).int("axis", 0)];
    assert_eq!(of(row), (vec![9.0, 61.0, 13.0], vec![3]));
    // The columns by places that a run finds.
    let chosen = vec![
        node("Squeeze", &["found", "least"], &["list"]),
        node("Gather", &["table", "list"], &["y"]).int("axis", 1),
    ];
    assert_eq!(of(chosen), (vec![5.0, 9.0, 9.0, 13.0], vec![2, 2]));
    // A column of each of the chosen rows, whole tables of a known one.
    let crossed = vec![
        node("Squeeze", &["found", "least"], &["list"]),
        node("Gather", &["turned", "list"], &["y"]).int("axis", 1),
    ];
    assert_eq!(of(crossed), (vec![-3.0, -7.0, 4.0, 8.0], vec![2, 2]));
}

#[test]
fn tables_are_joined() {
    let below = vec![node("Concat", &["table", "table"], &["y"]).int("axis", 0)];
    assert_eq!(of(below), ([TABLE, TABLE].concat(), vec![4, 3]));
    let beside = vec![
        node("Neg", &["table"], &["less"]),
        node("Concat", &["table", "less"], &["y"]).int("axis", 1),
    ];
    let rows = vec![5.0, 17.0, 9.0, -5.0, -17.0, -9.0, 9.0, 61.0, 13.0, -9.0, -61.0, -13.0];
    assert_eq!(of(beside), (rows, vec![2, 6]));
    // Rows of two beside rows of three, as many of both.
    let columns = vec![node("Concat", &["rows", "table"], &["y"]).int("axis", 1)];
    let rows = vec![1.0, 2.0, 5.0, 17.0, 9.0, 5.0, 6.0, 9.0, 61.0, 13.0];
    assert_eq!(of(columns), (rows, vec![2, 5]));
    // All four rows of `x` are not as many as there are of the table.
    let all = table(vec![node("Concat", &["x", "table"], &["y"]).int("axis", 1)]);
    let error = hone_ops::evaluate(&import(&all).unwrap().graph, &[matrix()]);
    assert!(chain(&error.unwrap_err()).contains("what is joined differs in size"));
}

#[test]
fn constants_and_rows_are_expanded_to_tables() {
    let shape = node("Shape", &["table"], &["extents"]);
    let zeros = vec![
        shape.clone(),
        node("ConstantOfShape", &["extents"], &["zeros"]),
        node("Sub", &["table", "zeros"], &["y"]),
    ];
    assert_eq!(of(zeros), (TABLE.to_vec(), vec![2, 3]));
    let rows = vec![
        shape.clone(),
        node("Slice", &["rows", "least", "most", "most"], &["heads"]),
        node("Expand", &["heads", "extents"], &["y"]),
    ];
    assert_eq!(of(rows), (vec![1.0, 1.0, 1.0, 5.0, 5.0, 5.0], vec![2, 3]));
    // One that is there as a whole has to have the extent of the run.
    let whole = table(vec![
        shape,
        node("Slice", &["x", "least", "most", "most"], &["heads"]),
        node("Expand", &["heads", "extents"], &["y"]),
    ]);
    let error = hone_ops::evaluate(&import(&whole).unwrap().graph, &[matrix()]);
    assert!(chain(&error.unwrap_err()).contains("a shape to expand to does not fit the operand"));
}

#[test]
fn an_axis_of_one_row_is_taken_away() {
    let squeezed = vec![
        node("Slice", &["table", "least", "most", "least"], &["single"]),
        node("Squeeze", &["single", "least"], &["y"]),
    ];
    assert_eq!(of(squeezed), (vec![5.0, 17.0, 9.0], vec![3]));
    let both = table(vec![node("Squeeze", &["table", "least"], &["y"])]);
    // An axis with room for more than one is none that `Squeeze` takes away.
    assert!(import(&both).is_err());
}

/// `x` of two elements, or of the one that is the largest, as `r`; then `rest` to `y`, of as many axes as `dims` where that is
/// given.
fn apart(then: Vec<NodeProto>, rest: Vec<NodeProto>, dims: Option<&[&str]>) -> ModelProto {
    let branch = |nodes: Vec<NodeProto>| -> GraphProto { graph(vec![], vec![], nodes, &["r"]) };
    let largest = vec![node("ReduceMax", &["x"], &["r"]).int("keepdims", 0)];
    let mut nodes = vec![
        node("If", &["b"], &["chosen"])
            .graph("then_branch", branch(then))
            .graph("else_branch", branch(largest)),
    ];
    nodes.extend(rest);
    let inputs = vec![port("x", F32, &["2"]), port("b", BOOL, &[])];
    let stored = vec![floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0])];
    let mut graph = graph(inputs, stored, nodes, &["y"]);
    if let Some(dims) = dims {
        graph.output = vec![port("y", F32, dims)];
    }
    model(graph, 17)
}

fn run(model: &ModelProto, holds: bool) -> Result<(Vec<f64>, Vec<usize>), String> {
    let x = Tensor::from_elements([2], &[1.0f32, 7.0]).unwrap();
    let graph = import(model).unwrap_or_else(|error| panic!("{}", chain(&error))).graph;
    let found = hone_ops::evaluate(&graph, &[x, Tensor::scalar(holds)]);
    let found = found.map_err(|error| chain(&error))?;
    Ok((found[0].to_f64(), found[0].shape().to_vec()))
}

#[test]
fn what_reads_results_of_different_ranks_is_computed_in_each_branch() {
    let relu = || vec![node("Relu", &["x"], &["r"])];
    let product = apart(relu(), vec![node("Mul", &["chosen", "w"], &["y"])], None);
    assert_eq!(run(&product, true), Ok((vec![1.0, 14.0, 3.0, 28.0], vec![2, 2])));
    assert_eq!(run(&product, false), Ok((vec![7.0, 14.0, 21.0, 28.0], vec![2, 2])));
    // What a sum makes of both has the same rank, though not of the same elements.
    let sum = node("ReduceSum", &["chosen"], &["y"]).int("keepdims", 0);
    let sum = apart(relu(), vec![node("Neg", &["w"], &["unused"]), sum], None);
    assert_eq!(run(&sum, true), Ok((vec![8.0], vec![])));
    assert_eq!(run(&sum, false), Ok((vec![7.0], vec![])));
}

#[test]
fn a_branch_that_what_follows_does_not_fit_is_held_not_to_be_taken() {
    let relu = || vec![node("Relu", &["x"], &["r"])];
    let rest = || vec![node("Transpose", &["chosen"], &["y"]).ints("perm", &[0])];
    let product = apart(relu(), rest(), None);
    assert_eq!(run(&product, true), Ok((vec![1.0, 7.0], vec![2])));
    let error = run(&product, false).unwrap_err();
    assert!(error.contains("a branch that these shapes do not fit would be taken"), "{error}");
    // What the model declares says which rank is meant.
    let declared = apart(relu(), vec![node("Neg", &["chosen"], &["y"])], Some(&[]));
    assert_eq!(run(&declared, false), Ok((vec![-7.0], vec![])));
    let error = run(&declared, true).unwrap_err();
    assert!(error.contains("other ranks than the model declares"), "{error}");
}

#[test]
fn branches_may_differ_in_size_along_two_axes() {
    let branch = |nodes: Vec<NodeProto>| -> GraphProto { graph(vec![], vec![], nodes, &["r"]) };
    let square = branch(vec![node("Slice", &["x", "least", "whole_row"], &["r"])]);
    let column = branch(vec![node("Gather", &["x", "ones"], &["r"]).int("axis", 1)]);
    let nodes = vec![
        node("Gather", &["x", "zero"], &["row"]),
        node("Gather", &["row", "zero"], &["element"]),
        node("Greater", &["element", "nothing"], &["above"]),
        node("If", &["above"], &["either"])
            .graph("then_branch", square)
            .graph("else_branch", column),
        node("Neg", &["either"], &["y"]),
    ];
    let model = chosen(nodes);
    assert_eq!(first(&model, &[matrix()]), (vec![-1.0, -2.0, 3.0, -4.0], vec![2, 2]));
    let less: Vec<f32> = matrix().to_f64().iter().map(|own| -*own as f32).collect();
    let less = Tensor::from_elements([4, 2], &less).unwrap();
    assert_eq!(first(&model, &[less]), (vec![2.0, 4.0, 6.0, 8.0], vec![4, 1]));
}
