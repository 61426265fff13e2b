//! Branches and loops through the whole path: what the runtime computes is what the reference computes, and the step
//! map finds every step again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{Part, Reader, Variant};
use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate, map_steps};
use hone_graph::{OutputExtent, ValueId};
use hone_ops::{
    Binary, BinaryFunction, BitCast, Cast, Compress, Concat, Gather, If, Loop, MatMul,
    NonMaxSuppression, NonZero, Op, Reduce, ReduceFunction, Require, TopK, Unary, UnaryFunction,
    Unique,
};
use hone_runtime::{Model, Profile, RunError};
use hone_types::DataType;

fn seeded(seed: usize, shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<f64> =
        (0..count).map(|place| ((place * 37 + seed * 101) % 199) as f64 / 100.0 - 1.0).collect();
    Tensor::from_f64(DataType::F32, shape, &values).unwrap()
}

fn floats(shape: &[usize]) -> TensorType {
    TensorType::new(DataType::F32, shape)
}

fn scalar(dtype: DataType) -> TensorType {
    TensorType::new(dtype, [])
}

fn add(graph: &mut Graph, operation: impl Into<Op>, inputs: &[ValueId]) -> Vec<ValueId> {
    let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
    let name = format!("node{}", graph.nodes().len());
    graph.add_node(name, operation.into(), &inputs).unwrap()
}

fn one(graph: &mut Graph, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
    add(graph, operation, inputs)[0]
}

fn sum(graph: &mut Graph, left: ValueId, right: ValueId) -> ValueId {
    one(graph, Binary::new(BinaryFunction::Add), &[left, right])
}

fn tanh(graph: &mut Graph, input: ValueId) -> ValueId {
    one(graph, Unary::new(UnaryFunction::Tanh), &[input])
}

fn is_host(operation: &Op) -> bool {
    ["non_zero", "compress", "unique", "non_max_suppression", "require", "top_k"]
        .contains(&operation.name())
}

/// The runtime's outputs, or its refusal; the shapes that it gives them; the variant.
type Ran = (Result<Vec<Vec<u8>>, RunError>, Vec<Vec<u64>>, Variant);

fn run(graph: &Graph, inputs: &[Tensor]) -> Ran {
    let options = Options::new(Target::host().unwrap());
    let artifact = compile_graph(graph.clone(), b"control", &options).unwrap().artifact;
    let reader = Reader::new(&artifact).unwrap();
    let variant = reader.manifest().variants[0].clone();
    let map = map_steps(graph, None, &options, &variant.steps).unwrap();
    let apart = |own: &Op| !own.regions().is_empty() || is_host(own);
    let apart = graph.nodes().iter().filter(|(_, node)| apart(&node.operation));
    assert_eq!(map.regions.len(), apart.count());
    let options = hone_runtime::Options { threads: 2, ..Default::default() };
    let mut model = Model::load_memory(artifact, &options).unwrap();
    let sizes = model.outputs().iter().map(|output| output.bytes as usize);
    let mut outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0xFF; bytes]).collect();
    let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    // A second run finds what the first one left.
    let mut done = Ok(());
    for _ in 0..2 {
        let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        done = model.run(&given, &mut slots);
    }
    (done.map(|()| outputs), model.output_shapes().to_vec(), variant)
}

/// Compares the runtime's answers with the reference's.
fn check(graph: &Graph, inputs: &[Tensor]) -> (Vec<Vec<u64>>, Variant) {
    graph.verify().unwrap();
    let want = evaluate(graph, inputs).unwrap();
    let (got, shapes, variant) = run(graph, inputs);
    for (want, got) in want.iter().zip(got.unwrap()) {
        let got = Tensor::from_bytes(want.tensor_type().clone(), got).unwrap();
        for (place, (want, got)) in want.to_f64().iter().zip(got.to_f64()).enumerate() {
            assert!((want - got).abs() <= 1e-5 * want.abs().max(1.0), "{place}: {got} for {want}");
        }
    }
    (shapes, variant)
}

/// A graph that multiplies its input by constant weights, `times` over.
fn products(times: usize, extent: usize) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[4, extent]));
    let mut value = x;
    for seed in 0..times {
        let weights = graph.add_constant("w", seeded(seed, &[extent, extent]));
        value = one(&mut graph, MatMul {}, &[value, weights]);
        value = tanh(&mut graph, value);
    }
    graph.add_output("y", value);
    graph
}

fn choice(then: Graph, otherwise: Graph) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[4, 64]));
    let condition = graph.add_input("c", scalar(DataType::Bool));
    let before = tanh(&mut graph, x);
    let y = one(&mut graph, If { then, otherwise }, &[condition, before, before]);
    let z = sum(&mut graph, y, before);
    graph.add_output("y", y);
    graph.add_output("z", z);
    graph
}

#[test]
fn a_condition_takes_either_branch_and_their_temporaries_share_memory() {
    let both = choice(products(4, 64), products(2, 64));
    let x = seeded(3, &[4, 64]);
    let (_, variant) = check(&both, &[x.clone(), Tensor::scalar(true)]);
    check(&both, &[x, Tensor::scalar(false)]);
    assert!(matches!(&variant.program[..], [Part::Steps { .. }, Part::If(_), Part::Steps { .. }]));
    let alone = choice(products(4, 64), products(4, 64));
    let (_, alone) = check(&alone, &[seeded(3, &[4, 64]), Tensor::scalar(true)]);
    assert!(variant.arena_bytes <= alone.arena_bytes);
}

#[test]
fn a_branch_may_give_what_it_reads_or_a_constant() {
    let mut then = Graph::new();
    let x = then.add_input("x", floats(&[4, 64]));
    then.add_output("y", x);
    let mut otherwise = Graph::new();
    otherwise.add_input("x", floats(&[4, 64]));
    let constant = otherwise.add_constant("constant", seeded(9, &[4, 64]));
    otherwise.add_output("y", constant);
    let graph = choice(then, otherwise);
    for condition in [true, false] {
        check(&graph, &[seeded(3, &[4, 64]), Tensor::scalar(condition)]);
    }
}

/// `h = tanh(h w + x[i])`, `a, b = b, a + h`; collects `h`.
fn recurrence(steps: usize) -> (Graph, usize) {
    let mut body = Graph::new();
    let i = body.add_input("i", scalar(DataType::I64));
    let h = body.add_input("h", floats(&[2, 24]));
    let a = body.add_input("a", floats(&[2, 24]));
    let b = body.add_input("b", floats(&[2, 24]));
    let xs = body.add_input("xs", floats(&[steps, 2, 24]));
    // Small enough that rounding does not grow from step to step.
    let small: Vec<f64> = seeded(5, &[24, 24]).to_f64().iter().map(|value| value * 0.1).collect();
    let w = Tensor::from_f64(DataType::F32, [24, 24], &small).unwrap();
    let w = body.add_constant("w", w);
    let x = one(&mut body, Gather { axis: 0 }, &[xs, i]);
    let product = one(&mut body, MatMul {}, &[h, w]);
    let all = sum(&mut body, product, x);
    let next = tanh(&mut body, all);
    let added = sum(&mut body, a, next);
    [next, b, added, next].into_iter().enumerate().for_each(|(place, value)| {
        body.add_output(format!("o{place}"), value);
    });
    (body, 3)
}

fn looped(body: (Graph, usize), most: usize, reversed: bool, steps: usize) -> Graph {
    let (body, carried) = body;
    let mut graph = Graph::new();
    let first = graph.add_input("h", floats(&[2, 24]));
    let xs = graph.add_input("xs", floats(&[steps, 2, 24]));
    let zero = graph.add_constant("zero", Tensor::zeros(floats(&[2, 24])));
    let most = Some(most as u64);
    let own = Loop { body, carried, tests: false, most, capacity: most, reversed: vec![reversed] };
    let inputs = [None, None, Some(first), Some(zero), Some(first), Some(xs)];
    let outputs = graph.add_node("loop", own.into(), &inputs).unwrap();
    for (place, value) in outputs.into_iter().enumerate() {
        graph.add_output(format!("y{place}"), value);
    }
    graph
}

#[test]
fn a_loop_carries_exchanges_and_collects() {
    for steps in [1, 4, 5] {
        for reversed in [false, true] {
            let graph = looped(recurrence(steps), steps, reversed, steps);
            check(&graph, &[seeded(1, &[2, 24]), seeded(2, &[steps, 2, 24])]);
        }
    }
}

#[test]
fn the_length_of_a_loop_changes_neither_code_nor_steps() {
    let short =
        run(&looped(recurrence(3), 3, false, 3), &[seeded(1, &[2, 24]), seeded(2, &[3, 2, 24])]);
    let long = looped(recurrence(300), 300, false, 300);
    let (_, long) = check(&long, &[seeded(1, &[2, 24]), seeded(2, &[300, 2, 24])]);
    assert_eq!(short.2.steps.len(), long.steps.len());
}

/// Doubles a value while it is below a limit, at most `trips` times; collects the values.
fn doubling(capacity: u64) -> Graph {
    let mut body = Graph::new();
    body.add_input("i", scalar(DataType::I64));
    let x = body.add_input("x", floats(&[3]));
    let limit = body.add_input("limit", floats(&[]));
    let double = sum(&mut body, x, x);
    let largest = Reduce { function: ReduceFunction::Maximum, axes: vec![0], keep_axes: false };
    let largest = one(&mut body, largest, &[double]);
    let below = one(&mut body, Binary::new(BinaryFunction::Less), &[largest, limit]);
    [below, double, double].into_iter().enumerate().for_each(|(place, value)| {
        body.add_output(format!("o{place}"), value);
    });
    let mut graph = Graph::new();
    let trips = graph.add_input("trips", scalar(DataType::I64));
    let condition = graph.add_input("condition", scalar(DataType::Bool));
    let x = graph.add_input("x", floats(&[3]));
    let limit = graph.add_input("limit", floats(&[]));
    let capacity = Some(capacity);
    let own = Loop { body, carried: 1, tests: true, most: None, capacity, reversed: vec![false] };
    let outputs = add(&mut graph, own, &[trips, condition, x, limit]);
    graph.add_output("last", outputs[0]);
    graph.add_output("all", outputs[1]);
    graph.add_extent(OutputExtent { output: 1, axis: 0, value: outputs[2] });
    graph
}

#[test]
fn a_loop_ends_by_its_condition_or_its_number_of_iterations() {
    let graph = doubling(6);
    let inputs = |trips: i64, condition: bool, limit: f32| {
        let x = Tensor::from_elements([3], &[1.0f32, 0.5, -3.0]).unwrap();
        [Tensor::scalar(trips), Tensor::scalar(condition), x, Tensor::scalar(limit)]
    };
    let cases = [
        (100, true, 7.0, 3),
        (2, true, 7.0, 2),
        (100, false, 7.0, 0),
        (-5, true, 7.0, 0),
        (6, true, 1e9, 6),
    ];
    for (trips, condition, limit, count) in cases {
        let (shapes, _) = check(&graph, &inputs(trips, condition, limit));
        assert_eq!(shapes, [vec![3], vec![count, 3]], "{trips} {condition} {limit}");
    }
    let (got, ..) = run(&graph, &inputs(7, true, 1e9));
    assert_eq!(got.unwrap_err(), RunError::Overrun { node: "node0".into(), capacity: 6 });
    assert!(evaluate(&graph, &inputs(7, true, 1e9)).is_err());
}

/// A loop of loops with a condition inside, all of which read what is around them.
#[test]
fn loops_and_conditions_lie_in_one_another() {
    let mut inner = Graph::new();
    inner.add_input("j", scalar(DataType::I64));
    let x = inner.add_input("x", floats(&[8]));
    let outer = inner.add_input("outer", floats(&[8]));
    let number = inner.add_input("i", scalar(DataType::I64));
    let two = inner.add_constant("two", Tensor::scalar(2i64));
    let small = one(&mut inner, Binary::new(BinaryFunction::Less), &[number, two]);
    let branch = |function| {
        let mut graph = Graph::new();
        let x = graph.add_input("x", floats(&[8]));
        let y = graph.add_input("y", floats(&[8]));
        let joined = one(&mut graph, Binary::new(function), &[x, y]);
        let out = tanh(&mut graph, joined);
        graph.add_output("o", out);
        graph
    };
    let own = If { then: branch(BinaryFunction::Add), otherwise: branch(BinaryFunction::Subtract) };
    let next = one(&mut inner, own, &[small, x, outer, x, outer]);
    inner.add_output("x", next);
    inner.add_output("all", next);
    let mut body = Graph::new();
    let i = body.add_input("i", scalar(DataType::I64));
    let x = body.add_input("x", floats(&[8]));
    let y = body.add_input("y", floats(&[8]));
    let most = Some(3);
    let own =
        Loop { body: inner, carried: 1, tests: false, most, capacity: most, reversed: vec![false] };
    let inputs = [None, None, Some(x), Some(y), Some(i)];
    let results = body.add_node("inner", own.into(), &inputs).unwrap();
    let total = Reduce { function: ReduceFunction::Sum, axes: vec![0], keep_axes: false };
    let total = one(&mut body, total, &[results[1]]);
    let mixed = sum(&mut body, total, y);
    body.add_output("x", mixed);
    body.add_output("y", results[0]);
    body.add_output("each", results[1]);
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[8]));
    let y = tanh(&mut graph, x);
    let most = Some(5);
    let own = Loop { body, carried: 2, tests: false, most, capacity: most, reversed: vec![false] };
    let outputs = graph.add_node("outer", own.into(), &[None, None, Some(x), Some(y)]).unwrap();
    outputs[..3]
        .iter()
        .enumerate()
        .for_each(|(place, value)| graph.add_output(format!("y{place}"), *value));
    check(&graph, &[seeded(4, &[8])]);
}

/// Two rows by way of the rows of two products, joined in between and at the end.
fn joined(extent: usize, inputs: &[(&str, TensorType)]) -> Graph {
    let mut graph = Graph::new();
    let given: Vec<ValueId> =
        inputs.iter().map(|(name, own)| graph.add_input(*name, own.clone())).collect();
    let x = *given.last().unwrap();
    let mut parts = Vec::new();
    for seed in 0..2 {
        let weights = graph.add_constant("w", seeded(seed, &[extent, extent]));
        let product = one(&mut graph, MatMul {}, &[x, weights]);
        parts.push(tanh(&mut graph, product));
    }
    let all = one(&mut graph, Concat { axis: 0 }, &parts);
    let mut rows = Vec::new();
    for function in [ReduceFunction::Mean, ReduceFunction::Maximum] {
        let reduce = Reduce { function, axes: vec![0], keep_axes: true };
        rows.push(one(&mut graph, reduce, &[all]));
    }
    let next = one(&mut graph, Concat { axis: 0 }, &rows);
    graph.add_output("next", next);
    graph
}

#[test]
fn parts_are_joined_inside_of_branches_and_loops_and_around_them() {
    // What the loop carries is exchanged by where it begins, so that the parts of it are copied.
    let body = joined(32, &[("i", scalar(DataType::I64)), ("h", floats(&[2, 32]))]);
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[2, 32]));
    let condition = graph.add_input("c", scalar(DataType::Bool));
    let most = Some(3);
    let own = Loop { body, carried: 1, tests: false, most, capacity: most, reversed: vec![] };
    let looped = graph.add_node("loop", own.into(), &[None, None, Some(x)]).unwrap()[0];
    let [then, otherwise] = [(); 2].map(|()| joined(32, &[("x", floats(&[2, 32]))]));
    let chosen = one(&mut graph, If { then, otherwise }, &[condition, looped, looped]);
    let all = one(&mut graph, Concat { axis: 0 }, &[looped, chosen]);
    let weights = graph.add_constant("w", seeded(7, &[32, 32]));
    let y = one(&mut graph, MatMul {}, &[all, weights]);
    graph.add_output("y", y);
    for condition in [true, false] {
        check(&graph, &[seeded(4, &[2, 32]), Tensor::scalar(condition)]);
    }
}

/// Numbers among few, so that many are equal.
fn few(dtype: DataType, seed: usize, shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let least = if dtype.is_float() || dtype.is_signed_integer() { -2.0 } else { 0.0 };
    let value = |place: usize| ((place * 7 + place * place * 3 + seed * 5) % 5) as f64 + least;
    let values: Vec<f64> = (0..count).map(value).collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}

/// A graph of one operator whose last result is the extent of an axis of others.
fn counted(operator: impl Into<Op>, inputs: &[&Tensor], open: &[(usize, usize)]) -> Graph {
    let mut graph = Graph::new();
    let mut given = Vec::new();
    for (place, input) in inputs.iter().enumerate() {
        given.push(graph.add_input(format!("x{place}"), input.tensor_type().clone()));
    }
    let outputs = add(&mut graph, operator, &given);
    let (count, others) = outputs.split_last().unwrap();
    for (place, value) in others.iter().enumerate() {
        graph.add_output(format!("y{place}"), *value);
    }
    for (output, axis) in open {
        graph.add_extent(OutputExtent { output: *output, axis: *axis, value: *count });
    }
    graph
}

#[test]
fn the_runtime_counts_as_the_reference_does() {
    let types =
        [DataType::F32, DataType::F64, DataType::I8, DataType::I64, DataType::U8, DataType::Bool];
    for (seed, dtype) in types.into_iter().enumerate() {
        let x = few(dtype, seed, &[3, 4, 2]);
        let (shapes, variant) =
            check(&counted(NonZero {}, &[&x], &[(0, 1)]), std::slice::from_ref(&x));
        let zeros = x.to_f64().iter().filter(|value| **value == 0.0).count() as u64;
        assert_eq!(shapes, [vec![3, 24 - zeros]], "{dtype}");
        assert!(matches!(variant.program[..], [Part::Host(_)]));
        for axis in [None, Some(0), Some(1), Some(2)] {
            for sorted in [true, false] {
                let open = [(0, axis.unwrap_or(0)), (1, 0), (3, 0)];
                let graph = counted(Unique { axis, sorted }, &[&x], &open);
                check(&graph, std::slice::from_ref(&x));
            }
            let chosen = few(DataType::Bool, seed + 1, &[3]);
            let graph = counted(Compress { axis }, &[&x, &chosen], &[(0, axis.unwrap_or(0))]);
            check(&graph, &[x.clone(), chosen]);
        }
    }
}

#[test]
fn boxes_are_suppressed_as_in_the_reference() {
    let scores = seeded(4, &[2, 3, 12]);
    for centers in [false, true] {
        for (most, overlap, least) in
            [(3, 0.3, -0.5), (12, 0.0, 0.2), (0, 0.5, 0.0), (2, 1.0, -9.0)]
        {
            let boxes: Vec<f64> =
                seeded(2, &[2, 12, 4]).to_f64().iter().map(|own| own.abs()).collect();
            let boxes = Tensor::from_f64(DataType::F32, [2, 12, 4], &boxes).unwrap();
            let limits =
                [overlap, least].map(|own: f32| Tensor::from_elements([1], &[own]).unwrap());
            let number = Tensor::scalar(most as i64);
            let inputs = [&boxes, &scores, &number, &limits[0], &limits[1]];
            let graph = counted(NonMaxSuppression { centers, most: 12 }, &inputs, &[(0, 0)]);
            let (shapes, _) = check(&graph, &inputs.map(Tensor::clone));
            assert!(shapes[0][0] <= 6 * most as u64);
        }
    }
}

/// Long lines are searched or sorted by the runtime, between kernels, along any axis.
#[test]
fn long_lines_are_ordered_as_in_the_reference() {
    let types = [DataType::F32, DataType::F16, DataType::I8, DataType::U64];
    for (dtype, k) in types.into_iter().flat_map(|dtype| [(dtype, 20), (dtype, 300)]) {
        for (largest, axis) in [(true, 0), (false, 1)] {
            let shape = if axis == 0 { [300, 2] } else { [2, 300] };
            let x = seeded(k, &shape);
            let x = Tensor::from_f64(dtype, shape, &scaled_for(dtype, &x)).unwrap();
            let mut graph = Graph::new();
            let input = graph.add_input("x", x.tensor_type().clone());
            let opposite = match dtype.is_float() {
                true => one(&mut graph, Unary::new(UnaryFunction::Negate), &[input]),
                false => input,
            };
            let found = add(&mut graph, TopK::new(k, axis, largest), &[opposite]);
            let after = sum(&mut graph, found[1], found[1]);
            graph.add_output("values", found[0]);
            graph.add_output("indices", after);
            let (_, variant) = check(&graph, &[x]);
            let hosts = variant.program.iter().filter(|part| matches!(part, Part::Host(_)));
            assert_eq!(hosts.count(), 1);
        }
    }
}

/// The numbers as a type can have them, with equal ones among them.
fn scaled_for(dtype: DataType, tensor: &Tensor) -> Vec<f64> {
    let values = tensor.to_f64();
    match dtype {
        DataType::U64 => values.iter().map(|value| ((value + 1.0) * 50.0).floor()).collect(),
        _ if dtype.is_float() => values,
        _ => values.iter().map(|value| (value * 100.0).floor()).collect(),
    }
}

/// In a loop, how many elements are above the number of the iteration; their sum.
#[test]
fn a_loop_may_count() {
    let mut body = Graph::new();
    let i = body.add_input("i", scalar(DataType::I64));
    let total = body.add_input("total", scalar(DataType::I64));
    let x = body.add_input("x", floats(&[9]));
    let number = one(&mut body, Cast { to: DataType::F32 }, &[i]);
    let above = one(&mut body, Binary::new(BinaryFunction::Greater), &[x, number]);
    let count = add(&mut body, NonZero {}, &[above])[1];
    let next = sum(&mut body, total, count);
    body.add_output("total", next);
    body.add_output("each", count);
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[9]));
    let zero = graph.add_constant("zero", Tensor::scalar(0i64));
    let most = Some(4);
    let own = Loop { body, carried: 1, tests: false, most, capacity: most, reversed: vec![false] };
    let outputs = graph.add_node("loop", own.into(), &[None, None, Some(zero), Some(x)]).unwrap();
    graph.add_output("total", outputs[0]);
    graph.add_output("each", outputs[1]);
    let values: Vec<f32> = (0..9).map(|own| own as f32 * 0.5).collect();
    let x = Tensor::from_elements([9], &values).unwrap();
    let counts = evaluate(&graph, std::slice::from_ref(&x)).unwrap()[1].to_i64();
    assert_eq!(counts, [8, 6, 4, 2]);
    let (_, variant) = check(&graph, std::slice::from_ref(&x));
    // What the runtime computes itself has a line in profiles, and counts as often as the loop ran.
    let names: Vec<&str> =
        Part::hosts(&variant.program).iter().map(|own| own.node.as_str()).collect();
    assert_eq!(names, ["node2"]);
    let options = Options::new(Target::host().unwrap());
    let artifact = compile_graph(graph, b"counts", &options).unwrap().artifact;
    let mut model = Model::load_memory(artifact, &hone_runtime::Options::default()).unwrap();
    let mut profile = Profile::new(&model);
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|output| vec![0; output.bytes as usize]).collect();
    for _ in 0..2 {
        let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        model.run_profiled(&[x.bytes()], &mut slots, &mut profile).unwrap();
        assert_eq!(profile.hosts.iter().map(|own| own.runs).collect::<Vec<_>>(), [4]);
        assert!(profile.hosts[0].time > std::time::Duration::ZERO && profile.hosts[0].threads == 1);
    }
}

/// Numbers of 16 bits cross into branches as they are declared; whole numbers are exact in both.
#[test]
fn branches_of_half_precision_compute_in_single() {
    let half = |shape: &[usize]| TensorType::new(DataType::F16, shape);
    let branch = |function| {
        let mut graph = Graph::new();
        let x = graph.add_input("x", half(&[6]));
        let y = one(&mut graph, Binary::new(function), &[x, x]);
        let y = sum(&mut graph, y, x);
        graph.add_output("y", y);
        graph
    };
    let mut graph = Graph::new();
    let x = graph.add_input("x", half(&[6]));
    let condition = graph.add_input("c", scalar(DataType::Bool));
    let before = sum(&mut graph, x, x);
    let own = If { then: branch(BinaryFunction::Add), otherwise: branch(BinaryFunction::Multiply) };
    let y = one(&mut graph, own, &[condition, before, before]);
    let z = sum(&mut graph, y, before);
    graph.add_output("z", z);
    graph.add_output("y", y);
    let x = Tensor::from_f64(DataType::F16, [6], &[1.0, -2.0, 3.0, 0.0, 5.0, -6.0]).unwrap();
    for condition in [true, false] {
        check(&graph, &[x.clone(), Tensor::scalar(condition)]);
    }
}

#[test]
fn a_condition_that_does_not_hold_ends_the_run() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[4]));
    let limit = graph.add_input("limit", floats(&[1]));
    let y = tanh(&mut graph, x);
    let below = one(&mut graph, Binary::new(BinaryFunction::Less), &[y, limit]);
    assert!(add(&mut graph, Require { message: "too large".into() }, &[below]).is_empty());
    graph.add_output("y", y);
    let of = |limit: f32| [seeded(1, &[4]), Tensor::from_elements([1], &[limit]).unwrap()];
    let (_, variant) = check(&graph, &of(2.0));
    assert!(variant.program.iter().any(|part| matches!(part, Part::Host(_))));
    let refused = run(&graph, &of(-2.0)).0.unwrap_err();
    assert!(matches!(&refused, RunError::Host { reason, .. } if reason == "too large"));
    assert!(evaluate(&graph, &of(-2.0)).is_err());
}

#[test]
fn bits_of_an_input_a_result_and_an_output_are_seen_otherwise() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", floats(&[3, 2]));
    let bits = BitCast { to: DataType::I32 };
    let of_input = one(&mut graph, bits.clone(), &[x]);
    graph.add_output("of input", of_input);
    let y = tanh(&mut graph, x);
    let of_result = one(&mut graph, bits, &[y]);
    let mask = graph.add_constant("mask", Tensor::scalar(i32::MAX));
    let magnitude = one(&mut graph, Binary::new(BinaryFunction::BitAnd), &[of_result, mask]);
    let back = one(&mut graph, BitCast { to: DataType::F32 }, &[magnitude]);
    graph.add_output("magnitude", back);
    let (_, variant) = check(&graph, &[seeded(2, &[3, 2])]);
    assert!(variant.program.is_empty());
}
