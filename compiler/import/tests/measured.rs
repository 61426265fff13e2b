//! Sizes that a network measures out by floats, as durations are, and that nothing bounds.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::ImportOptions;
use hone_import::onnx::proto::{ModelProto, NodeProto};
use hone_types::Tensor;

/// Rounded exponentials of `x`, `f32[1, terms]`, as `durations`, and their sum as `total` and as a list `n`; then `nodes` to `y`.
fn measured(terms: usize, nodes: Vec<NodeProto>) -> ModelProto {
    let mut all = vec![
        node("Exp", &["x"], &["powers"]),
        node("Ceil", &["powers"], &["durations"]),
        node("ReduceSum", &["durations", "axes"], &["sum"]).int("keepdims", 0),
        node("Cast", &["sum"], &["total"]).int("to", i64::from(I64)),
        node("Unsqueeze", &["total", "first"], &["n"]),
    ];
    all.extend(nodes);
    let stored = vec![
        integers("axes", &[0, 1]),
        integers("first", &[0]),
        integers("two", &[2]),
        integers("last", &[-1]),
        integers("column", &[-1, 1]),
        integer("zero", 0),
        integer("one", 1),
        integer("minus_one", -1),
        floats("none", &[], &[0.0]),
        floats("half", &[], &[0.5]),
        floats("each", &[], &[1.0]),
        floats("list", &[5], &[9.0, 8.0, 7.0, 6.0, 5.0]),
    ];
    let extent = terms.to_string();
    model(graph(vec![port("x", F32, &["1", &extent])], stored, all, &["y"]), 13)
}

/// Inputs that give these durations.
fn of(durations: &[f32]) -> Tensor {
    let logarithms: Vec<f32> = durations.iter().map(|own| (own - 0.5).ln()).collect();
    Tensor::from_elements([1, durations.len()], &logarithms).unwrap()
}

/// The largest shape of the first output.
fn room(model: &ModelProto) -> Vec<usize> {
    let graph = import(model).unwrap_or_else(|error| panic!("{}", chain(&error))).graph;
    graph.tensor_type(graph.outputs()[0].value).shape.clone()
}

fn counted(most: usize) -> (Vec<f64>, Vec<usize>) {
    ((0..most).map(|own| own as f64).collect(), vec![most])
}

#[test]
fn a_range_has_as_many_elements_as_are_measured() {
    let model = measured(3, vec![node("Range", &["zero", "total", "one"], &["y"])]);
    assert_eq!(first(&model, &[of(&[2.0, 1.0, 4.0])]), counted(7));
    assert_eq!(first(&model, &[of(&[200.0, 50.0, 6.0])]), counted(256));
    assert_eq!(room(&model), [256]);
    let longest = vec![
        node("ReduceMax", &["durations"], &["longest"]).int("keepdims", 0),
        node("Range", &["none", "longest", "each"], &["y"]),
    ];
    let longest = measured(3, longest);
    assert_eq!(first(&longest, &[of(&[2.0, 1000.0, 4.0])]), counted(1000));
    assert_eq!(room(&longest), [1024]);
    let down = measured(3, vec![node("Range", &["total", "one", "minus_one"], &["y"])]);
    assert_eq!(first(&down, &[of(&[2.0, 1.0, 1.0])]), (vec![4.0, 3.0, 2.0], vec![3]));
    // Bounds that are floats end behind the last whole step.
    let floats = vec![
        node("Sub", &["sum", "half"], &["limit"]),
        node("Range", &["none", "limit", "each"], &["y"]),
    ];
    assert_eq!(first(&measured(3, floats), &[of(&[2.0, 1.0, 4.0])]), counted(7));
}

#[test]
fn a_run_that_needs_more_room_is_ended() {
    let model = measured(3, vec![node("Range", &["zero", "total", "one"], &["y"])]);
    let graph = import(&model).unwrap().graph;
    for durations in [[200.0, 50.0, 7.0], [1e30, 1.0, 1.0]] {
        let error = chain(&hone_ops::evaluate(&graph, &[of(&durations)]).unwrap_err());
        assert!(error.contains("a size that the model computes is above 256"), "{error}");
    }
}

#[test]
fn sums_of_many_terms_have_more_room() {
    let range = || node("Range", &["zero", "total", "one"], &["y"]);
    let model = measured(100, vec![range()]);
    assert_eq!(room(&model), [1600]);
    assert_eq!(first(&model, &[of(&[15.0; 100])]), counted(1500));
    // The terms are counted through what lies between the sum and the range.
    let behind = vec![
        node("Cast", &["durations"], &["whole"]).int("to", i64::from(I64)),
        node("CumSum", &["whole", "one"], &["ends"]),
        node("ReduceMax", &["ends"], &["last_end"]).int("keepdims", 0),
        node("Max", &["last_end", "one"], &["longest"]),
        node("Range", &["zero", "longest", "one"], &["y"]),
    ];
    let model = measured(100, behind);
    assert_eq!(room(&model), [1600]);
    assert_eq!(first(&model, &[of(&[15.0; 100])]), counted(1500));
}

#[test]
fn shapes_are_made_of_what_is_measured() {
    let shape = || node("Concat", &["two", "n"], &["shape"]).int("axis", 0);
    let three = [of(&[1.0, 1.0, 1.0])];
    let zeros = measured(3, vec![shape(), node("ConstantOfShape", &["shape"], &["y"])]);
    assert_eq!(first(&zeros, &three), (vec![0.0; 6], vec![2, 3]));
    assert_eq!(room(&zeros), [2, 256]);
    let expanded = measured(3, vec![shape(), node("Expand", &["half", "shape"], &["y"])]);
    assert_eq!(first(&expanded, &three), (vec![0.5; 6], vec![2, 3]));
    // A slice has no more room than what it is of.
    let cut = measured(2, vec![node("Slice", &["list", "first", "n"], &["y"])]);
    assert_eq!(room(&cut), [5]);
    assert_eq!(first(&cut, &[of(&[1.0, 2.0])]), (vec![9.0, 8.0, 7.0], vec![3]));
    assert_eq!(first(&cut, &[of(&[4.0, 2.0])]), (vec![9.0, 8.0, 7.0, 6.0, 5.0], vec![5]));
}

#[test]
fn what_is_expanded_to_the_first_row_of_a_size_keeps_its_own() {
    // As `index_add` is written: to the shape of a row of what it adds to.
    let nodes = vec![
        node("Concat", &["n", "four"], &["shape"]).int("axis", 0),
        node("ConstantOfShape", &["shape"], &["none"]),
        node("Slice", &["none", "first", "one_more", "axes"], &["row"]),
        node("Shape", &["row"], &["target"]),
        node("Expand", &["x", "target"], &["y"]),
    ];
    let mut made = decided(&["1"], nodes);
    made.graph.as_mut().unwrap().initializer.push(integers("four", &[4]));
    let number = |own: i64| Tensor::from_elements([1], &[own]).unwrap();
    let (elements, shape) = first_with(&made, &with_room(), &[number(2), rows()]);
    assert_eq!((elements, shape), (rows().to_f64(), vec![3, 4]));
    // Of no row it would be none.
    let graph = import_with(&made, &with_room()).unwrap().graph;
    let error = hone_ops::evaluate(&graph, &[number(0), rows()]).unwrap_err();
    assert!(chain(&error).contains("does not fit the operand"), "{error}");
}

#[test]
fn rows_are_repeated_as_often_as_is_measured() {
    // As models of speech lay out frames: a frame is of the first token whose end lies behind it.
    let nodes = vec![
        node("Range", &["zero", "total", "one"], &["frames"]),
        node("Shape", &["frames"], &["extents"]),
        node("Squeeze", &["extents", "first"], &["number"]),
        node("Cast", &["number"], &["limit"]).int("to", i64::from(F32)),
        node("Range", &["none", "limit", "each"], &["places"]),
        node("CumSum", &["durations", "one"], &["ends"]),
        node("Reshape", &["ends", "column"], &["rows"]),
        node("Less", &["places", "rows"], &["before"]),
        node("Not", &["before"], &["behind"]),
        node("Cast", &["behind"], &["counted"]).int("to", i64::from(I64)),
        node("ReduceSum", &["counted", "first"], &["tokens"]).int("keepdims", 0),
        node("Gather", &["x", "tokens"], &["values"]).int("axis", 1),
        node("RandomNormalLike", &["values"], &["noise"]),
        node("Mul", &["noise", "none"], &["silent"]),
        node("Add", &["values", "silent"], &["y"]),
    ];
    let x = of(&[2.0, 1.0, 3.0]);
    let each = x.to_f64();
    let expected = vec![each[0], each[0], each[1], each[2], each[2], each[2]];
    assert_eq!(first(&measured(3, nodes), &[x]), (expected, vec![1, 6]));
}

#[test]
fn parts_along_one_axis_are_joined_along_another() {
    let nodes = vec![
        node("Range", &["none", "sum", "each"], &["places"]),
        node("Unsqueeze", &["places", "first"], &["line"]),
        node("Neg", &["line"], &["less"]),
        node("Concat", &["line", "less", "line"], &["y"]).int("axis", 0),
    ];
    let expected = vec![0.0, 1.0, 0.0, -1.0, 0.0, 1.0];
    assert_eq!(first(&measured(2, nodes), &[of(&[1.0, 1.0])]), (expected, vec![3, 2]));
}

#[test]
fn the_place_of_the_largest_is_bounded() {
    let nodes = vec![
        node("ArgMax", &["durations"], &["place"]).int("axis", 1).int("keepdims", 0),
        node("Squeeze", &["place", "first"], &["limit"]),
        node("Range", &["zero", "limit", "one"], &["y"]),
    ];
    let model = measured(5, nodes);
    assert_eq!(room(&model), [4]);
    assert_eq!(first(&model, &[of(&[1.0, 1.0, 3.0, 1.0, 2.0])]), counted(2));
}

#[test]
fn a_number_that_is_an_input_has_no_room_of_its_own() {
    let stored = vec![integer("zero", 0), integer("one", 1)];
    let range = vec![node("Range", &["zero", "n", "one"], &["y"])];
    let model = model(graph(vec![port("n", I64, &[])], stored, range, &["y"]), 13);
    let message = chain(&import(&model).unwrap_err());
    assert!(message.contains("input 'n'"), "{message}");
}

/// A model that reads the integers `n`, of this shape, and the floats `x`, `f32[3, 4]`.
fn decided(extent: &[&str], nodes: Vec<NodeProto>) -> ModelProto {
    let stored = vec![
        integers("axes", &[0]),
        integers("first", &[0]),
        integers("one_more", &[1]),
        integers("last", &[-1]),
        integers("flat", &[-1, 4]),
        integer("zero", 0),
        integer("one", 1),
        floats("value", &[1], &[0.0]),
    ];
    let inputs = vec![port("n", I64, extent), port("x", F32, &["3", "4"])];
    model(graph(inputs, stored, nodes, &["y"]), 13)
}

fn with_room() -> ImportOptions {
    ImportOptions { inputs_have_room: true, ..ImportOptions::default() }
}

fn rows() -> Tensor {
    Tensor::from_elements([3, 4], &(0..12).map(|own| own as f32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn integers_that_are_inputs_have_room_where_that_is_asked_for() {
    let range = decided(
        &["3"],
        vec![
            node("ReduceSum", &["n", "axes"], &["sum"]).int("keepdims", 0),
            node("Range", &["zero", "sum", "one"], &["y"]),
        ],
    );
    let error = import(&range).unwrap_err();
    assert_eq!(error.decided_by(), Some(&["n".to_owned()][..]), "{}", chain(&error));
    let durations = Tensor::from_elements([3], &[2i64, 0, 5]).unwrap();
    assert_eq!(first_with(&range, &with_room(), &[durations, rows()]), counted(7));
    let many = Tensor::from_elements([3], &[200i64, 0, 57]).unwrap();
    let graph = import_with(&range, &with_room()).unwrap().graph;
    let error = hone_ops::evaluate(&graph, &[many, rows()]).unwrap_err();
    assert!(chain(&error).contains("is above 256, the most that there is room for"), "{error}");
}

#[test]
fn sums_by_group_have_as_many_rows_as_the_largest_number_says() {
    // As networks on graphs average over the nodes of each graph of a batch.
    let nodes = vec![
        node("ReduceMax", &["n"], &["largest"]).ints("axes", &[0]).int("keepdims", 0),
        node("Add", &["largest", "one"], &["groups"]),
        node("Unsqueeze", &["groups", "first"], &["list"]),
        node("Concat", &["list", "four"], &["shape"]).int("axis", 0),
        node("ConstantOfShape", &["shape"], &["none"]),
        node("Unsqueeze", &["n", "last"], &["column"]),
        node("Expand", &["column", "wide"], &["places"]),
        node("ScatterElements", &["none", "places", "x"], &["y"]).string("reduction", "add"),
    ];
    let mut made = decided(&["3"], nodes);
    let graph = made.graph.as_mut().unwrap();
    graph.initializer.push(integers("four", &[4]));
    graph.initializer.push(integers("wide", &[3, 4]));
    made.opset_import[0].version = Some(16);
    let groups = Tensor::from_elements([3], &[1i64, 0, 1]).unwrap();
    let (elements, shape) = first_with(&made, &with_room(), &[groups, rows()]);
    assert_eq!(shape, [2, 4]);
    assert_eq!(elements, [4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0]);
}

#[test]
fn rows_are_repeated_as_often_as_an_input_says() {
    // As `repeat_interleave` by a number is written.
    let nodes = vec![
        node("Concat", &["one_more", "n"], &["values"]).int("axis", 0),
        node("OneHot", &["one_more", "three", "values"], &["hot"]),
        node("Reshape", &["hot", "last"], &["repeats"]),
        node("Unsqueeze", &["x", "one_more"], &["apart"]),
        node("Tile", &["apart", "repeats"], &["all"]),
        node("Flatten", &["all"], &["y"]).int("axis", 2),
    ];
    let mut made = decided(&["1"], nodes.clone());
    made.graph.as_mut().unwrap().initializer.push(integer("three", 3));
    let twice = Tensor::from_elements([1], &[2i64]).unwrap();
    let (elements, shape) = first_with(&made, &with_room(), &[twice.clone(), rows()]);
    assert_eq!(shape, [6, 4]);
    let expected: Vec<f64> = (0..3)
        .flat_map(|row| (0..2).flat_map(move |_| (0..4).map(move |own| f64::from(row * 4 + own))))
        .collect();
    assert_eq!(elements, expected);
    let mut reshaped = nodes;
    reshaped[5] = node("Reshape", &["all", "flat"], &["y"]);
    let mut made = decided(&["1"], reshaped);
    made.graph.as_mut().unwrap().initializer.push(integer("three", 3));
    assert_eq!(first_with(&made, &with_room(), &[twice, rows()]), (expected, vec![6, 4]));
}

/// Each row of `x` as often as `n` says, in turn, as a sequence that is joined; so often over.
fn joined(times: usize) -> ModelProto {
    let mut nodes = Vec::new();
    let mut items = Vec::new();
    for item in 0..3 * times {
        let named = |what: &str| format!("{what}_{item}");
        let row = ["zero", "one", "two"][item % 3];
        let (name, number, list, shape) =
            (named("row"), named("number"), named("list"), named("shape"));
        nodes.push(node("Gather", &["x", row], &[&name]));
        nodes.push(node("Gather", &["n", row], &[&number]));
        nodes.push(node("Unsqueeze", &[&number, "axes"], &[&list]));
        nodes.push(node("Concat", &[&list, "four"], &[&shape]).int("axis", 0));
        nodes.push(node("Expand", &[&name, &shape], &[&named("rows")]));
        items.push(named("rows"));
    }
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    nodes.push(node("SequenceConstruct", &items, &["list"]));
    nodes.push(node("ConcatFromSequence", &["list"], &["y"]).int("axis", 0));
    let mut made = decided(&["3"], nodes);
    let stored = &mut made.graph.as_mut().unwrap().initializer;
    stored.push(integer("two", 2));
    stored.push(integers("four", &[4]));
    made
}

#[test]
fn rows_that_are_repeated_one_by_one_are_joined_without_their_room() {
    let row = |row: usize| (0..4).map(move |column| (row * 4 + column) as f64);
    // Few pieces, and more than are compared with in turn.
    for times in [1, 4] {
        let model = joined(times);
        for numbers in [[2, 0, 3], [0, 0, 0], [1, 1, 1], [0, 250, 4]] {
            let n = Tensor::from_elements([3], &numbers.map(|number| number as i64)).unwrap();
            let once: Vec<f64> = (0..3)
                .flat_map(|place| (0..numbers[place]).flat_map(move |_| row(place)))
                .collect();
            let count = numbers.iter().sum::<usize>() * times;
            let want = (once.repeat(times), vec![count, 4]);
            assert_eq!(first_with(&model, &with_room(), &[n, rows()]), want, "{numbers:?}");
        }
        // There is room for as many together as for each of them.
        let graph = import_with(&model, &with_room()).unwrap().graph;
        assert_eq!(graph.tensor_type(graph.outputs()[0].value).shape, [1024, 4]);
        let many = Tensor::from_elements([3], &[0i64, 1025 / times as i64, 1]).unwrap();
        let error = hone_ops::evaluate(&graph, &[many, rows()]).unwrap_err();
        assert!(
            chain(&error).contains("is above 1024, the most that there is room for"),
            "{error}"
        );
    }
}
