//! What a run decides the size of is read by other operators; branches that differ in size, or do not fit.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, NodeProto};
use hone_types::Tensor;

#[test]
fn rows_that_a_mask_chooses_go_on() {
    let each = |nodes| first(&chosen(nodes), &[matrix()]);
    let doubled = vec![node("Add", &["rows", "rows"], &["y"])];
    assert_eq!(each(doubled), (vec![2.0, 4.0, 10.0, 12.0], vec![2, 2]));
    let turned = vec![node("Transpose", &["rows"], &["y"])];
    assert_eq!(each(turned), (vec![1.0, 5.0, 2.0, 6.0], vec![2, 2]));
    let least = vec![node("ReduceMin", &["rows"], &["y"]).ints("axes", &[0]).int("keepdims", 0)];
    assert_eq!(each(least), (vec![1.0, 2.0], vec![2]));
    let sum = vec![node("ReduceSum", &["rows", "least"], &["y"]).int("keepdims", 0)];
    assert_eq!(each(sum), (vec![6.0, 8.0], vec![2]));
    let cut = vec![node("Slice", &["rows", "least", "most"], &["y"])];
    assert_eq!(each(cut), (vec![1.0, 2.0], vec![1, 2]));
    let last = vec![
        node("Slice", &["rows", "last", "end"], &["single"]),
        node("Squeeze", &["single", "least"], &["y"]),
    ];
    assert_eq!(each(last), (vec![5.0, 6.0], vec![2]));
    let shape = vec![node("Shape", &["rows"], &["y"])];
    assert_eq!(each(shape), (vec![2.0, 2.0], vec![2]));
    let twice = vec![
        node("Neg", &["rows"], &["less"]),
        node("Concat", &["rows", "less", "x"], &["y"]).int("axis", 0),
    ];
    let (elements, shape) = each(twice);
    assert_eq!(shape, [8, 2]);
    assert_eq!(elements[..8], [1.0, 2.0, 5.0, 6.0, -1.0, -2.0, -5.0, -6.0]);
    assert_eq!(elements[8..], matrix().to_f64());
}

#[test]
fn rows_keep_their_number_where_other_axes_are_enlarged() {
    let pads = node("Concat", &["least", "ones", "least", "ones"], &["pads"]).int("axis", 0);
    let pad = vec![pads, node("Pad", &["rows", "pads"], &["y"])];
    let padded = vec![0.0, 1.0, 2.0, 0.0, 0.0, 5.0, 6.0, 0.0];
    assert_eq!(first(&chosen(pad), &[matrix()]), (padded, vec![2, 4]));
    let list = || node("Concat", &["ones", "whole_row"], &["list"]).int("axis", 0);
    let tile = vec![list(), node("Tile", &["rows", "list"], &["y"])];
    let (elements, shape) = first(&chosen(tile), &[matrix()]);
    assert_eq!((elements, shape), (vec![1.0, 2.0, 1.0, 2.0, 5.0, 6.0, 5.0, 6.0], vec![2, 4]));
    let scales = node("Cast", &["list"], &["scales"]).int("to", i64::from(F32));
    let resize = vec![list(), scales, node("Resize", &["rows", "", "scales"], &["y"])];
    let (elements, shape) = first(&chosen(resize), &[matrix()]);
    assert_eq!((elements, shape), (vec![1.0, 1.0, 2.0, 2.0, 5.0, 5.0, 6.0, 6.0], vec![2, 4]));
    let hot = vec![
        node("Cast", &["rows"], &["classes"]).int("to", i64::from(I64)),
        node("Concat", &["least", "ones"], &["values"]).int("axis", 0),
        node("OneHot", &["classes", "three", "values"], &["y"]).int("axis", 1),
    ];
    let (elements, shape) = first(&chosen(hot), &[matrix()]);
    assert_eq!(shape, [2, 3, 2]);
    assert_eq!(elements[..6], [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn the_mean_is_of_what_is_there() {
    let mean = vec![node("ReduceMean", &["rows"], &["y"]).ints("axes", &[0])];
    assert_eq!(first(&chosen(mean), &[matrix()]), (vec![3.0, 4.0], vec![1, 2]));
    let both = vec![node("ReduceMean", &["rows"], &["y"]).ints("axes", &[0, 1]).int("keepdims", 0)];
    assert_eq!(first(&chosen(both), &[matrix()]), (vec![3.5], vec![]));
}

/// `y` is one branch of two, by whether the first element of `x` is above zero.
fn branched(then: &str, otherwise: &str) -> ModelProto {
    let branch = |operator: &str| {
        let inside = match operator {
            "MatMul" => node("MatMul", &["x", "x"], &["r"]),
            "Slice" => node("Slice", &["x", "least", "most"], &["r"]),
            other => node(other, &["x"], &["r"]),
        };
        graph(vec![], vec![], vec![inside], &["r"])
    };
    let nodes = vec![
        node("Gather", &["x", "zero"], &["row"]),
        node("Gather", &["row", "zero"], &["element"]),
        node("Greater", &["element", "nothing"], &["above"]),
        node("If", &["above"], &["y"])
            .graph("then_branch", branch(then))
            .graph("else_branch", branch(otherwise)),
    ];
    let stored = vec![
        integer("zero", 0),
        integers("least", &[0]),
        integers("most", &[3]),
        floats("nothing", &[], &[0.0]),
    ];
    model(graph(vec![port("x", F32, &["4", "2"])], stored, nodes, &["y"]), 13)
}

#[test]
fn branches_may_differ_in_size() {
    let less = Tensor::from_elements([4, 2], &matrix().to_f64().map_negated()).unwrap();
    let model = branched("Slice", "Neg");
    let (elements, shape) = first(&model, &[matrix()]);
    assert_eq!((elements, shape), (vec![1.0, 2.0, -3.0, 4.0, 5.0, 6.0], vec![3, 2]));
    let (elements, shape) = first(&model, &[less]);
    assert_eq!((elements, shape), (matrix().to_f64(), vec![4, 2]));
}

#[test]
fn a_branch_that_does_not_fit_is_held_not_to_be_taken() {
    let model = branched("Neg", "MatMul");
    assert_eq!(first(&model, &[matrix()]).1, [4, 2]);
    let graph = import(&model).unwrap().graph;
    let less = Tensor::from_elements([4, 2], &matrix().to_f64().map_negated()).unwrap();
    let error = chain(&hone_ops::evaluate(&graph, &[less]).unwrap_err());
    assert!(error.contains("a branch that these shapes do not fit"), "{error}");
}

trait Negated {
    fn map_negated(&self) -> Vec<f32>;
}

impl Negated for Vec<f64> {
    fn map_negated(&self) -> Vec<f32> {
        self.iter().map(|own| -*own as f32).collect()
    }
}

#[test]
fn a_split_into_sizes_holds_the_run_to_their_sum() {
    let split = |sizes: &[&str]| {
        vec![
            node("Concat", sizes, &["sizes"]).int("axis", 0),
            node("Split", &["rows", "sizes"], &["head", "y"]),
        ]
    };
    assert_eq!(first(&chosen(split(&["ones", "ones"])), &[matrix()]), (vec![5.0, 6.0], vec![1, 2]));
    let graph = import(&chosen(split(&["ones", "whole_row"]))).unwrap().graph;
    let error = chain(&hone_ops::evaluate(&graph, &[matrix()]).unwrap_err());
    assert!(error.contains("what is split has not the extent 3"), "{error}");
}

#[test]
fn rows_of_indices_choose_among_what_is_there() {
    let by = |nodes: Vec<NodeProto>| first(&chosen(nodes), &[matrix()]);
    // The rows from the largest first element on, as an `argsort` of as many as there are gives them.
    let sorted = vec![
        node("Shape", &["rows"], &["shape"]),
        node("Slice", &["shape", "least", "most"], &["number"]),
        node("Gather", &["rows", "zero"], &["heads"]).int("axis", 1),
        node("TopK", &["heads", "number"], &["values", "order"]),
        node("Unsqueeze", &["order", "last"], &["list"]),
        node("GatherND", &["rows", "list"], &["y"]),
    ];
    assert_eq!(by(sorted), (vec![5.0, 6.0, 1.0, 2.0], vec![2, 2]));
    // One column, which leaves the rows as many as they are.
    let turned = vec![
        node("Transpose", &["rows"], &["columns"]),
        node("Unsqueeze", &["most", "least"], &["list"]),
        node("GatherND", &["columns", "list"], &["y"]),
    ];
    assert_eq!(by(turned), (vec![2.0, 6.0], vec![1, 2]));
}

#[test]
fn sequences_hold_what_is_there_in_part() {
    let twice = vec![
        node("SequenceConstruct", &["x"], &["all"]),
        node("SequenceInsert", &["all", "rows"], &["more"]),
        node("SequenceInsert", &["more", "rows", "least"], &["list"]),
        node("ConcatFromSequence", &["list"], &["y"]).int("axis", 0),
    ];
    let (elements, shape) = first(&chosen(twice), &[matrix()]);
    assert_eq!(shape, [8, 2]);
    let rows = [1.0, 2.0, 5.0, 6.0];
    assert_eq!(elements, [&rows[..], &matrix().to_f64(), &rows].concat());
    let across = vec![
        node("SequenceConstruct", &["rows", "rows"], &["list"]),
        node("ConcatFromSequence", &["list"], &["y"]).int("axis", 1),
    ];
    assert!(chain(&import(&chosen(across)).unwrap_err()).contains("an element of its sequence"));
}

#[test]
fn operators_that_onnxruntime_joined_take_a_part_as_those_of_onnx() {
    let run = |nodes: Vec<NodeProto>| first(&with_microsoft(chosen(nodes)), &[matrix()]);
    let gemm = |activation: &str| {
        let square = node("Slice", &["x", "least", "whole_row"], &["square"]);
        let gemm = of_microsoft(node("FusedGemm", &["rows", "square"], &["y"]));
        run(vec![square, gemm.string("activation", activation)])
    };
    let plain = run(vec![
        node("Slice", &["x", "least", "whole_row"], &["square"]),
        node("Gemm", &["rows", "square"], &["y"]),
    ]);
    type Function = fn(f64) -> f64;
    let functions: [(&str, Function); 6] = [
        ("Relu", |x| x.max(0.0)),
        ("Elu", |x| if x > 0.0 { x } else { x.exp() - 1.0 }),
        ("Softplus", |x| x.exp().ln_1p()),
        ("Softsign", |x| x / (1.0 + x.abs())),
        ("Selu", |x| 1.050_700_987 * if x > 0.0 { x } else { 1.673_263_242 * (x.exp() - 1.0) }),
        ("ThresholdedRelu", |x| if x > 1.0 { x } else { 0.0 }),
    ];
    for (name, function) in functions {
        let (elements, shape) = gemm(name);
        assert_eq!(shape, plain.1, "{name}");
        for (got, from) in elements.iter().zip(&plain.0) {
            assert!((got - function(*from)).abs() < 1e-5, "{name} of {from}: {got}");
        }
    }
    let gelu = of_microsoft(node("QuickGelu", &["rows"], &["y"]).float("alpha", 1.0));
    let (elements, shape) = run(vec![gelu]);
    assert_eq!(shape, [2, 2]);
    for (got, x) in elements.iter().zip([1.0f64, 2.0, 5.0, 6.0]) {
        assert!((got - x / (1.0 + (-x).exp())).abs() < 1e-5, "{got} of {x}");
    }
}

#[test]
fn rows_attend_to_one_another() {
    let scores = |rest: Vec<NodeProto>| {
        let mut nodes = vec![
            node("Transpose", &["rows"], &["turned"]).ints("perm", &[1, 0]),
            node("MatMul", &["rows", "turned"], &["pairs"]),
        ];
        nodes.extend(rest);
        nodes
    };
    // Of the rows (1, 2) and (5, 6): the products are 5, 17, 17, 61.
    let softmax = |own: [f64; 2]| {
        let most = own[0].max(own[1]);
        let powers = own.map(|own| (own - most).exp());
        powers.map(|own| own / (powers[0] + powers[1]))
    };
    let attend = scores(vec![
        node("Mul", &["pairs", "tenth"], &["scaled"]),
        node("Softmax", &["scaled"], &["weights"]).int("axis", -1),
        node("MatMul", &["weights", "rows"], &["y"]),
    ]);
    let mut attend = chosen(attend);
    attend.graph.as_mut().unwrap().initializer.push(floats("tenth", &[], &[0.1]));
    let (elements, shape) = first(&attend, &[matrix()]);
    assert_eq!(shape, [2, 2]);
    for (row, own) in [[0.5, 1.7], [1.7, 6.1]].into_iter().enumerate() {
        let [one, other] = softmax(own);
        for (column, (a, b)) in [(1.0, 5.0), (2.0, 6.0)].into_iter().enumerate() {
            let (got, want) = (elements[row * 2 + column], one * a + other * b);
            assert!((got - want).abs() < 1e-5, "{got} is not {want}");
        }
    }
    // What is summed along either axis, and what a mask of one axis is laid beside.
    let sums = |axis: i64| {
        let sum = node("ReduceMean", &["pairs"], &["y"]).ints("axes", &[axis]).int("keepdims", 0);
        first(&chosen(scores(vec![sum])), &[matrix()])
    };
    assert_eq!(sums(0), (vec![11.0, 39.0], vec![2]));
    assert_eq!(sums(1), (vec![11.0, 39.0], vec![2]));
    let beside = scores(vec![
        node("Gather", &["rows", "zero"], &["bias"]).int("axis", 1),
        node("Add", &["pairs", "bias"], &["sum"]),
        node("ReduceMax", &["sum"], &["y"]).ints("axes", &[0]).int("keepdims", 0),
    ]);
    assert_eq!(first(&chosen(beside), &[matrix()]), (vec![18.0, 66.0], vec![2]));
}

#[test]
fn tables_of_pairs_are_refused_where_nothing_takes_them() {
    let pairs = |last: NodeProto| {
        let nodes = vec![
            node("Transpose", &["rows"], &["turned"]).ints("perm", &[1, 0]),
            node("MatMul", &["rows", "turned"], &["pairs"]),
            last,
        ];
        chain(&import(&chosen(nodes)).unwrap_err())
    };
    let triangle = pairs(node("Det", &["pairs"], &["y"]));
    assert!(triangle.contains("one of its inputs, along two axes"), "{triangle}");
    // A table of all rows, whatever a run finds.
    let nodes = vec![
        node("Transpose", &["rows"], &["turned"]).ints("perm", &[1, 0]),
        node("MatMul", &["rows", "turned"], &["pairs"]),
        node("Transpose", &["x"], &["columns"]).ints("perm", &[1, 0]),
        node("MatMul", &["x", "columns"], &["all"]),
        node("Add", &["pairs", "all"], &["y"]),
    ];
    let beside = chain(&import(&chosen(nodes)).unwrap_err());
    assert!(beside.contains("what another of its inputs is laid beside"), "{beside}");
}

#[test]
fn pictures_are_sampled_at_as_many_places_as_a_run_finds() {
    let nodes = vec![
        node("Mul", &["rows", "eighth"], &["spots"]),
        node("Unsqueeze", &["spots", "ahead"], &["grid"]),
        node("GridSample", &["picture", "grid"], &["y"]).int("align_corners", 1),
    ];
    let mut sampled = chosen(nodes);
    sampled.opset_import[0].version = Some(16);
    let stored = &mut sampled.graph.as_mut().unwrap().initializer;
    stored.push(floats("eighth", &[], &[0.125]));
    stored.push(integers("ahead", &[0, 1]));
    let picture: Vec<f32> = (0..9).map(|own| own as f32).collect();
    stored.push(floats("picture", &[1, 1, 3, 3], &picture));
    // The picture is 3 y + x, at (1.125, 1.25) and (1.625, 1.75).
    let (elements, shape) = first(&sampled, &[matrix()]);
    assert_eq!(shape, [1, 1, 1, 2]);
    for (got, want) in elements.iter().zip([4.875, 6.875]) {
        assert!((got - want).abs() < 1e-5, "{got} is not {want}");
    }
}
