//! Attention as exporters write it becomes one kernel, which computes what the nodes did.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_driver::{
    Graph, Options, SchedulePolicy, Target, Tensor, TensorType, ValueId, compile_graph, evaluate,
    prepare,
};
use hone_graph::Operation;
use hone_machine::Machine;
use hone_ops::{
    Attention, Binary, BinaryFunction, Expand, MatMul, Op, Reshape, Select, Softmax, Transpose,
    Unary, UnaryFunction,
};
use hone_tune::{Preferred, Source, WholeSoftmax};
use hone_types::DataType;

/// Numbers from -1 to 1; truth values of which two in three hold, the first of each row always.
fn seeded(seed: usize, own: &TensorType) -> Tensor {
    let mut state = seed as u64 * 977 + 13;
    let row = own.shape.last().copied().unwrap_or(1);
    let values: Vec<f64> = (0..own.elements())
        .map(|place| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            let number = (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0;
            match own.dtype {
                DataType::Bool => f64::from(u8::from(place % row == 0 || number < 0.3)),
                _ => number,
            }
        })
        .collect();
    Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap()
}

struct Net {
    graph: Graph,
}

impl Net {
    fn new() -> Self {
        Self { graph: Graph::new() }
    }

    fn input(&mut self, dtype: DataType, shape: &[usize]) -> ValueId {
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(dtype, shape))
    }

    fn floats(&mut self, shape: &[usize]) -> ValueId {
        self.input(DataType::F32, shape)
    }

    fn number(&mut self, value: f64) -> ValueId {
        let number = Tensor::from_f64(DataType::F32, [1], &[value]).unwrap();
        self.graph.add_constant("number", number)
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn binary(&mut self, function: BinaryFunction, left: ValueId, right: ValueId) -> ValueId {
        self.node(Binary::new(function), &[left, right])
    }

    fn scaled(&mut self, value: ValueId, by: f64) -> ValueId {
        let by = self.number(by);
        self.binary(BinaryFunction::Multiply, value, by)
    }

    fn turned(&mut self, value: ValueId, permutation: &[usize]) -> ValueId {
        self.node(Transpose { permutation: permutation.to_vec() }, &[value])
    }

    fn reshaped(&mut self, value: ValueId, shape: &[usize]) -> ValueId {
        self.node(Reshape { shape: shape.to_vec() }, &[value])
    }

    fn softmax(&mut self, scores: ValueId) -> ValueId {
        let axis = self.graph.tensor_type(scores).rank() - 1;
        self.node(Softmax { axis, log: false }, &[scores])
    }

    /// Weights of the scores that `mask` shows, zero in rows that `hidden` says to see nothing.
    fn masked_weights(&mut self, scores: ValueId, mask: ValueId, hidden: ValueId) -> ValueId {
        let infinite = self.number(f64::NEG_INFINITY);
        let scores = self.node(Select {}, &[mask, scores, infinite]);
        let scores = self.node(Select {}, &[hidden, infinite, scores]);
        let weights = self.softmax(scores);
        let nan = self.node(Unary::new(UnaryFunction::IsNan), &[weights]);
        let zero = self.number(0.0);
        self.node(Select {}, &[nan, zero, weights])
    }

    /// `[batch, rows, heads * size]` as `[batch, heads, rows, size]`.
    fn heads(&mut self, value: ValueId, heads: usize) -> ValueId {
        let [batch, rows, wide] = self.graph.tensor_type(value).shape[..] else { panic!() };
        let cut = self.reshaped(value, &[batch, rows, heads, wide / heads]);
        self.turned(cut, &[0, 2, 1, 3])
    }

    fn output(mut self, value: ValueId) -> Graph {
        self.graph.add_output("y", value);
        self.graph
    }
}

fn options(precision: DataType) -> Options {
    Options { precision, ..Options::new(Target::host().unwrap()) }
}

fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|(_, node)| node.operation.name() == name).count()
}

/// One attention and no softmax is left, and the kernel computes the same.
fn check(graph: &Graph) {
    for precision in [DataType::F32, DataType::BF16] {
        let prepared = prepare(graph, &options(precision)).unwrap();
        assert_eq!((count(&prepared, "attention"), count(&prepared, "softmax")), (1, 0));
        check_schedule(&prepared);
        check_code(graph, &prepared, precision);
    }
}

/// The program of the graph's attention.
fn program(graph: &Graph) -> hone_tensor::Program {
    let groups = hone_passes::fuse(graph);
    let holds = |node: &hone_graph::NodeId| graph.nodes()[*node].operation.name() == "attention";
    let group = groups.iter().find(|group| group.nodes.iter().any(holds)).unwrap();
    let last = &graph.nodes()[*group.nodes.last().unwrap()];
    hone_lower::lower(graph, &group.nodes, &last.outputs).unwrap().program
}

/// Keys that the softmax takes at a time by the decisions of a source; `None` where that was no question.
fn part_of_keys(graph: &Graph, source: &mut dyn Source) -> Option<i64> {
    let program = program(&prepare(graph, &options(DataType::F32)).unwrap());
    let machine = Machine::with_vectors(64, 32);
    let scheduled = hone_tune::schedule_with(program, &machine, source).unwrap();
    assert_eq!(scheduled.template, "attention");
    let mut decisions = scheduled.decisions.iter();
    decisions.find(|own| own.name == "keys of a part").map(|own| own.value())
}

/// The scheduled program keeps nothing that has both axes of the scores in memory of all threads.
fn check_schedule(graph: &Graph) {
    let program = program(graph);
    // Machines with 4, 8 and 16 lanes.
    for (bytes, registers) in [(16, 32), (32, 16), (64, 32)] {
        let machine = Machine::with_vectors(bytes, registers);
        let scheduled = hone_tune::schedule(program.clone(), &machine).unwrap();
        assert_eq!(scheduled.template, "attention");
        scheduled.schedule.verify().unwrap();
        let after = scheduled.schedule.program();
        let shared = after.buffers.iter().filter(|(id, buffer)| {
            buffer.role == hone_tensor::Role::Temporary
                && buffer.scope == hone_tensor::Scope::Global
                && !after.writers(*id).is_empty()
        });
        assert_eq!(shared.count(), 0, "{after}");
        let inputs: Vec<Tensor> = program
            .parameters()
            .into_iter()
            .map(|id| &program.buffers[id])
            .filter(|buffer| matches!(buffer.role, hone_tensor::Role::Input(_)))
            .enumerate()
            .map(|(n, own)| seeded(n, &TensorType::new(own.dtype, own.shape.clone())))
            .collect();
        let expected = hone_tensor::interpret(&program, &inputs).unwrap();
        let actual = hone_tensor::interpret(after, &inputs).unwrap();
        compare(&expected[0], &actual[0], 1e-5);
    }
}

fn check_code(graph: &Graph, prepared: &Graph, precision: DataType) {
    let types = graph.inputs().iter().map(|port| graph.tensor_type(port.value));
    let inputs: Vec<Tensor> = types.enumerate().map(|(n, own)| seeded(100 + n, own)).collect();
    let (reference, tolerance) = match precision {
        DataType::F32 => (graph, 2e-5),
        _ => (prepared, 1e-2),
    };
    let expected = evaluate(reference, &inputs).unwrap();
    let compiled = compile_graph(graph.clone(), b"case", &options(precision)).unwrap();
    for threads in [1, 2] {
        let options = hone_runtime::Options { threads, ..Default::default() };
        let artifact = compiled.artifact.clone();
        let mut model = hone_runtime::Model::load_memory(artifact, &options).unwrap();
        let mut output = vec![0u8; model.outputs()[0].bytes as usize];
        let bytes: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        model.run(&bytes, &mut [&mut output]).unwrap();
        let actual = Tensor::from_bytes(expected[0].tensor_type().clone(), output).unwrap();
        compare(&expected[0], &actual, tolerance);
    }
}

fn compare(expected: &Tensor, actual: &Tensor, tolerance: f64) {
    assert_eq!(expected.tensor_type(), actual.tensor_type());
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let finite = expected.iter().filter(|value| value.is_finite());
    let largest = finite.fold(1e-6f64, |most, value| most.max(value.abs()));
    for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let same = (expected - actual).abs() <= tolerance * largest
            || expected.is_nan() && actual.is_nan();
        assert!(same, "element {place} is {actual}, not {expected}");
    }
}

#[test]
fn an_encoders_layer_with_a_mask_of_keys() {
    let mut net = Net::new();
    let operands = [(); 3].map(|()| net.floats(&[1, 37, 3 * 20]));
    let [q, k, v] = operands.map(|own| net.heads(own, 3));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let scores = net.node(MatMul {}, &[q, k]);
    let root = net.number(20f64.sqrt());
    let scores = net.binary(BinaryFunction::Divide, scores, root);
    let mask = net.floats(&[1, 1, 1, 37]);
    let scores = net.binary(BinaryFunction::Add, scores, mask);
    let weights = net.softmax(scores);
    let mean = net.node(MatMul {}, &[weights, v]);
    let mean = net.turned(mean, &[0, 2, 1, 3]);
    let y = net.reshaped(mean, &[1, 37, 60]);
    check(&net.output(y));
}

#[test]
fn a_decoders_constant_mask_and_two_samples() {
    let mut net = Net::new();
    let [q, k, v] = [(); 3].map(|()| net.floats(&[2, 2, 70, 16]));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let k = net.scaled(k, 0.5);
    let q = net.scaled(q, 0.5);
    let scores = net.node(MatMul {}, &[q, k]);
    let hidden = |place: usize| if place % 70 > place / 70 { f64::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f64> = (0..70 * 70).map(hidden).collect();
    let mask = Tensor::from_f64(DataType::F32, [1, 1, 70, 70], &mask).unwrap();
    let mask = net.graph.add_constant("mask", mask);
    let scores = net.binary(BinaryFunction::Add, mask, scores);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    check(&net.output(y));
}

/// Long enough that a causal mask divides the queries: every part has a kernel, which looks at fewer keys.
#[test]
fn keys_that_a_causal_mask_hides_are_left_out() {
    const LENGTH: usize = 1024;
    let mut net = Net::new();
    let [q, k, v] = [(); 3].map(|()| net.floats(&[2, LENGTH, 8]));
    let k = net.turned(k, &[0, 2, 1]);
    let scores = net.node(MatMul {}, &[q, k]);
    let visible = |place: usize| f64::from(u8::from(place % LENGTH <= place / LENGTH));
    let mask: Vec<f64> = (0..LENGTH * LENGTH).map(visible).collect();
    let mask = Tensor::from_f64(DataType::Bool, [1, LENGTH, LENGTH], &mask).unwrap();
    let mask = net.graph.add_constant("mask", mask);
    let least = net.number(f64::from(f32::MIN));
    let scores = net.node(Select {}, &[mask, scores, least]);
    let weights = net.softmax(scores);
    let mean = net.node(MatMul {}, &[weights, v]);
    let y = net.scaled(mean, 0.5);
    let graph = net.output(y);
    let prepared = prepare(&graph, &options(DataType::F32)).unwrap();
    assert_eq!((count(&prepared, "attention"), count(&prepared, "softmax")), (4, 0));
    let part = |node: &Op| node.downcast::<Attention>().and_then(|own| own.part);
    let parts = prepared.nodes().iter().filter_map(|(_, node)| part(&node.operation));
    let pairs: usize = parts.map(|part| part.queries * part.keys).sum();
    assert_eq!(pairs, LENGTH * LENGTH * 5 / 8);
    check_code(&graph, &prepared, DataType::F32);
}

/// Each part begins at another key, and none ends where all do. The first rows of one sample see nothing: they look at
/// every key.
#[test]
fn keys_outside_of_a_window_are_left_out() {
    let (queries, keys, window) = (512, 771, 90);
    let mut net = Net::new();
    let [q, k, v] = [queries, keys, keys].map(|rows| net.floats(&[2, 3, rows, 8]));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let scores = net.node(MatMul {}, &[q, k]);
    let shown = |sample: usize, query: usize, key: usize| {
        (sample == 0 || query > 5) && (query + 60..query + 60 + window).contains(&key)
    };
    let mask: Vec<f64> = (0..2 * queries * keys)
        .map(|index| (index / keys / queries, index / keys % queries, index % keys))
        .map(|(sample, query, key)| if shown(sample, query, key) { 0.5 } else { -1e9 })
        .collect();
    let mask = Tensor::from_f64(DataType::F32, [2, 1, queries, keys], &mask).unwrap();
    let mask = net.graph.add_constant("mask", mask);
    let scores = net.binary(BinaryFunction::Add, scores, mask);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    let graph = net.output(y);
    let prepared = prepare(&graph, &options(DataType::F32)).unwrap();
    let part = |node: &Op| node.downcast::<Attention>().and_then(|attention| attention.part);
    let parts = prepared.nodes().iter().filter_map(|(_, node)| part(&node.operation));
    let parts: Vec<_> = parts.collect();
    assert!(parts.len() > 1 && parts[0].keys == keys && parts.iter().any(|part| part.key > 100));
    check_code(&graph, &prepared, DataType::F32);
}

#[test]
fn a_mask_of_truth_values_and_rows_that_see_nothing() {
    let mut net = Net::new();
    let [q, k, v] = [(); 3].map(|()| net.floats(&[2, 3, 33, 8]));
    let mask = net.input(DataType::Bool, &[2, 1, 33, 33]);
    // No key of the row is left where the first one is hidden.
    let first = net.input(DataType::Bool, &[1, 1, 33, 1]);
    let k = net.turned(k, &[0, 1, 3, 2]);
    let scores = net.node(MatMul {}, &[q, k]);
    let weights = net.masked_weights(scores, mask, first);
    let y = net.node(MatMul {}, &[weights, v]);
    check(&net.output(y));
}

#[test]
fn heads_that_share_keys_and_bent_scores() {
    let mut net = Net::new();
    let q = net.floats(&[1, 6, 40, 12]);
    let spread = |net: &mut Net| {
        let x = net.floats(&[1, 2, 40, 12]);
        let column = net.reshaped(x, &[1, 2, 1, 40, 12]);
        let wide = net.node(Expand { shape: vec![1, 2, 3, 40, 12] }, &[column]);
        net.reshaped(wide, &[1, 6, 40, 12])
    };
    let (k, v) = (spread(&mut net), spread(&mut net));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let scores = net.node(MatMul {}, &[q, k]);
    let scores = net.scaled(scores, 0.1);
    let scores = net.node(Unary::new(UnaryFunction::Tanh), &[scores]);
    let scores = net.scaled(scores, 5.0);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    let graph = net.output(y);
    check(&graph);
    // The heads are not copied.
    let prepared = prepare(&graph, &options(DataType::F32)).unwrap();
    assert_eq!(count(&prepared, "expand"), 0);
}

#[test]
fn windows_with_biases_of_each_head_and_of_each_window() {
    let mut net = Net::new();
    let [q, k, v] = [(); 3].map(|()| net.floats(&[4, 2, 49, 8]));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let scores = net.node(MatMul {}, &[q, k]);
    let heads = net.floats(&[1, 2, 49, 49]);
    let scores = net.binary(BinaryFunction::Add, scores, heads);
    let scores = net.reshaped(scores, &[1, 4, 2, 49, 49]);
    let windows = net.floats(&[1, 4, 1, 49, 49]);
    let scores = net.binary(BinaryFunction::Add, scores, windows);
    let scores = net.reshaped(scores, &[4, 2, 49, 49]);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    check(&net.output(y));
}

#[test]
fn long_rows_take_fewer_queries_at_a_time() {
    let mut net = Net::new();
    let q = net.floats(&[2, 80, 16]);
    let [k, v] = [(); 2].map(|()| net.floats(&[2, 1500, 16]));
    let k = net.turned(k, &[0, 2, 1]);
    let scores = net.node(MatMul {}, &[q, k]);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    check(&net.output(y));
}

/// The scores of a part, its exponentials and its values fit the first-level cache; those of all keys do not. Rows and
/// columns fill no whole vectors, and one row sees nothing.
#[test]
fn keys_are_taken_in_parts() {
    let mut net = Net::new();
    let q = net.floats(&[1, 2, 23, 40]);
    let [k, v] = [(); 2].map(|()| net.floats(&[1, 2, 640, 40]));
    let k = net.turned(k, &[0, 1, 3, 2]);
    let (mask, first) = ([1, 1, 23, 640], [1, 1, 23, 1]);
    let [mask, first] = [&mask[..], &first[..]].map(|own| net.input(DataType::Bool, own));
    let scores = net.node(MatMul {}, &[q, k]);
    let weights = net.masked_weights(scores, mask, first);
    let y = net.node(MatMul {}, &[weights, v]);
    let graph = net.output(y);
    check(&graph);
    assert_eq!(part_of_keys(&graph, &mut Preferred), Some(128));
    // Where a sum has to end with a size it stays whole.
    assert_eq!(part_of_keys(&graph, &mut WholeSoftmax), Some(640));
}

/// What others read, and what is too small, stays as it is.
#[test]
fn scores_that_are_an_output_stay() {
    for (rows, kept) in [(64, true), (3, false)] {
        let mut net = Net::new();
        let [q, k, v] = [(); 3].map(|()| net.floats(&[2, rows, 16]));
        let k = net.turned(k, &[0, 2, 1]);
        let scores = net.node(MatMul {}, &[q, k]);
        let weights = net.softmax(scores);
        if kept {
            net.graph.add_output("weights", weights);
        }
        let y = net.node(MatMul {}, &[weights, v]);
        let prepared = prepare(&net.output(y), &options(DataType::F32)).unwrap();
        assert_eq!((count(&prepared, "attention"), count(&prepared, "softmax")), (0, 1));
    }
}

#[test]
fn plain_schedules_keep_plain_nodes() {
    let mut net = Net::new();
    let [q, k, v] = [(); 3].map(|()| net.floats(&[2, 64, 16]));
    let k = net.turned(k, &[0, 2, 1]);
    let scores = net.node(MatMul {}, &[q, k]);
    let weights = net.softmax(scores);
    let y = net.node(MatMul {}, &[weights, v]);
    let plain = Options { schedules: SchedulePolicy::Naive, ..options(DataType::F32) };
    assert_eq!(count(&prepare(&net.output(y), &plain).unwrap(), "attention"), 0);
}
