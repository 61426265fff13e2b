//! Small networks of the kinds that have such dimensions.

use crate::case::{BOUND, Build, Case, IDS, check, compare, compare_within, padded};
use hone_graph::ValueId;
use hone_machine::Rates;
use hone_ops::*;
use hone_passes::{LayoutOptions, PaddedGraph};
use hone_types::DataType;

const BATCH: usize = 2;
const HEADS: usize = 2;
const SIZE: usize = 4;
const WIDTH: usize = HEADS * SIZE;

/// `[batch, n, width]` to `[batch, heads, n, size]`.
fn heads(c: &mut Case, x: ValueId) -> ValueId {
    let x = c.linear(x, WIDTH, WIDTH);
    let x = c.reshape(x, &[BATCH, c.n, HEADS, SIZE]);
    c.transpose(x, &[0, 2, 1, 3])
}

/// A layer of a transformer, as torch exports it; `mask` changes the scores.
fn layer(c: &mut Case, x: ValueId, mask: impl Fn(&mut Case, ValueId) -> ValueId) -> ValueId {
    let (query, key, value) = (heads(c, x), heads(c, x), heads(c, x));
    let key = c.transpose(key, &[0, 1, 3, 2]);
    let scores = c.matmul(query, key);
    let scale = c.number((SIZE as f32).sqrt());
    let scores = c.binary(BinaryFunction::Divide, scores, scale);
    let scores = mask(c, scores);
    let weights = c.softmax(scores, 3);
    let seen = c.matmul(weights, value);
    let seen = c.transpose(seen, &[0, 2, 1, 3]);
    let seen = c.reshape(seen, &[BATCH, c.n, WIDTH]);
    let seen = c.linear(seen, WIDTH, WIDTH);
    let x = c.sum(x, seen);
    let x = c.normalized(x, 2, WIDTH);
    let inner = c.linear(x, WIDTH, 2 * WIDTH);
    let half = c.number(0.5);
    let root = c.number(std::f32::consts::FRAC_1_SQRT_2);
    let error = c.product(inner, root);
    let error = c.unary(UnaryFunction::Erf, error);
    let one = c.number(1.0);
    let error = c.sum(error, one);
    let inner = c.product(inner, error);
    let inner = c.product(inner, half);
    let inner = c.linear(inner, 2 * WIDTH, WIDTH);
    let x = c.sum(x, inner);
    c.normalized(x, 2, WIDTH)
}

/// Words with their positions, whose constants are cut off at the size.
fn embedded(c: &mut Case, ids: ValueId) -> ValueId {
    let (table, positions) = (c.weights(&[IDS, WIDTH]), c.weights(&[64, WIDTH]));
    let words = c.gather(0, table, ids);
    let ids: Vec<i64> = (0..c.n as i64).collect();
    let ids = c.tensor(&[1, c.n], &ids);
    let positions = c.gather(0, positions, ids);
    let x = c.sum(words, positions);
    c.normalized(x, 2, WIDTH)
}

/// `(1 - mask) · -1e9` added to the scores.
fn encoder(c: &mut Case) -> Vec<ValueId> {
    let ids = c.input(DataType::I64, &[BATCH, c.n], Some(1));
    let mask = c.input(DataType::I64, &[BATCH, c.n], Some(1));
    let visible = c.cast(mask, DataType::Bool);
    let visible = c.cast(visible, DataType::F32);
    let x = embedded(c, ids);
    let bias = c.reshape(visible, &[BATCH, 1, 1, c.n]);
    let (one, hidden) = (c.number(1.0), c.number(-1e9));
    let bias = c.binary(BinaryFunction::Subtract, one, bias);
    let bias = c.product(bias, hidden);
    let x = layer(c, x, |c, scores| c.sum(scores, bias));
    let x = layer(c, x, |c, scores| c.sum(scores, bias));
    // The class token, and the mean of what is not hidden.
    let first = c.tensor(&[], &[0i64]);
    let class = c.gather(1, x, first);
    let class = c.linear(class, WIDTH, WIDTH);
    let class = c.unary(UnaryFunction::Tanh, class);
    let shown = c.reshape(visible, &[BATCH, c.n, 1]);
    let shown = c.expand(shown, &[BATCH, c.n, WIDTH]);
    let sum = c.product(x, shown);
    let sum = c.reduce(ReduceFunction::Sum, sum, &[1]);
    let count = c.reduce(ReduceFunction::Sum, shown, &[1]);
    let least = c.number(1e-9);
    let count = c.binary(BinaryFunction::Maximum, count, least);
    let mean = c.binary(BinaryFunction::Divide, sum, count);
    let plain = c.reduce(ReduceFunction::Mean, x, &[1]);
    vec![x, class, mean, plain]
}

#[test]
fn an_encoder_with_position_ids_and_a_mask() {
    let graph = check("encoder", encoder);
    assert_eq!(graph.axes(), [Some(1), None, None, None]);
    let last = graph.graph.inputs().last().unwrap();
    assert_eq!(
        (last.name.as_str(), graph.graph.tensor_type(last.value).to_string()),
        ("size", "i64[]".into())
    );
}

/// A causal mask that is a constant `[1, 1, n, n]`, and the logits of the last position.
fn decoder(c: &mut Case) -> Vec<ValueId> {
    let ids = c.input(DataType::I64, &[BATCH, c.n], Some(1));
    let x = embedded(c, ids);
    let seen: Vec<bool> = (0..c.n * c.n).map(|i| i % c.n <= i / c.n).collect();
    let seen = c.tensor(&[1, 1, c.n, c.n], &seen);
    let hidden = c.number(f32::MIN);
    let x = layer(c, x, |c, scores| c.add(Select {}, &[seen, scores, hidden]));
    let logits = c.linear(x, WIDTH, IDS);
    let last = c.slice(logits, &[(0, BATCH), (c.n - 1, 1), (0, IDS)]);
    let last = c.reshape(last, &[BATCH, IDS]);
    let i = c.tensor(&[], &[c.n as i64 - 1]);
    let by_index = c.gather(1, logits, i);
    let from_end = c.tensor(&[], &[-1i64]);
    let from_end = c.gather(1, logits, from_end);
    vec![logits, last, by_index, from_end]
}

#[test]
fn a_causal_decoder() {
    let graph = check("decoder", decoder);
    assert_eq!(graph.axes(), [Some(1), None, None, None]);
}

/// A mask of truth values `[batch, n]` that is expanded to queries, and rows without a key as zeros.
fn masked(c: &mut Case) -> Vec<ValueId> {
    let x = c.floats(&[BATCH, c.n, WIDTH], 1);
    let mask = c.input(DataType::Bool, &[BATCH, c.n], Some(1));
    let mask = c.reshape(mask, &[BATCH, 1, 1, c.n]);
    let mask = c.expand(mask, &[BATCH, 1, c.n, c.n]);
    let (query, key, value) = (heads(c, x), heads(c, x), heads(c, x));
    let key = c.transpose(key, &[0, 1, 3, 2]);
    let scores = c.matmul(query, key);
    let hidden = c.number(f32::NEG_INFINITY);
    let scores = c.add(Select {}, &[mask, scores, hidden]);
    let weights = c.softmax(scores, 3);
    let empty = c.unary(UnaryFunction::IsNan, weights);
    let zero = c.number(0.0);
    let weights = c.add(Select {}, &[empty, zero, weights]);
    let seen = c.matmul(weights, value);
    let seen = c.transpose(seen, &[0, 2, 1, 3]);
    vec![c.reshape(seen, &[BATCH, c.n, WIDTH])]
}

#[test]
fn attention_with_an_expanded_mask() {
    check("masked", masked);
}

/// Rows of all samples flattened for each product, as GPT-2 is exported, and of all positions for the last one.
fn flattened(c: &mut Case) -> Vec<ValueId> {
    let ids = c.input(DataType::I64, &[BATCH, c.n], Some(1));
    let table = c.weights(&[IDS, WIDTH]);
    let flat = c.reshape(ids, &[BATCH * c.n]);
    let x = c.gather(0, table, flat);
    let x = c.normalized(x, 1, WIDTH);
    let all = c.linear(x, WIDTH, 3 * WIDTH);
    let parts = [0, 1, 2].map(|part| {
        let part = c.slice(all, &[(0, BATCH * c.n), (part * WIDTH, WIDTH)]);
        let part = c.reshape(part, &[BATCH, c.n, HEADS, SIZE]);
        c.transpose(part, &[0, 2, 1, 3])
    });
    let key = c.transpose(parts[1], &[0, 1, 3, 2]);
    let scores = c.matmul(parts[0], key);
    let weights = c.softmax(scores, 3);
    let seen = c.matmul(weights, parts[2]);
    let seen = c.transpose(seen, &[0, 2, 1, 3]);
    let seen = c.reshape(seen, &[BATCH * c.n, WIDTH]);
    let seen = c.linear(seen, WIDTH, WIDTH);
    let x = c.sum(x, seen);
    let batched = c.reshape(x, &[BATCH, c.n, WIDTH]);
    let mean = c.reduce(ReduceFunction::Mean, batched, &[1]);
    // Positions first, as recurrent networks have them.
    let first = c.transpose(batched, &[1, 0, 2]);
    let rows = c.reshape(first, &[c.n * BATCH, WIDTH]);
    let rows = c.linear(rows, WIDTH, 2);
    let rows = c.softmax(rows, 1);
    vec![c.reshape(rows, &[c.n, BATCH, 2]), mean]
}

#[test]
fn rows_of_all_samples_in_one_axis() {
    let graph = check("flattened", flattened);
    assert_eq!(graph.axes(), [Some(0), None]);
}

fn window(kernel: usize, begin: usize, end: usize, dilation: usize) -> (Window, Vec<usize>) {
    let window = Window {
        strides: vec![1],
        dilations: vec![dilation],
        pads_begin: vec![begin],
        pads_end: vec![end],
    };
    (window, vec![kernel])
}

fn convolution(c: &mut Case, x: ValueId, groups: usize, shape: (Window, Vec<usize>)) -> ValueId {
    let (window, kernel) = shape;
    let weights = c.weights(&[4, 4 / groups, kernel[0]]);
    let bias = c.weights(&[4]);
    c.add(Convolution { window, groups }, &[x, weights, bias])
}

fn audio(c: &mut Case) -> Vec<ValueId> {
    let x = c.floats(&[BATCH, c.n, 4], 1);
    let x = c.transpose(x, &[0, 2, 1]);
    let y = convolution(c, x, 1, window(3, 1, 1, 1));
    let y = c.unary(UnaryFunction::Relu, y);
    let (window_shape, kernel) = window(3, 1, 1, 1);
    let pool = Pool {
        kind: PoolKind::Maximum,
        kernel: kernel.clone(),
        window: window_shape.clone(),
        count_padding: false,
    };
    let largest = c.add(pool, &[y]);
    let kind = PoolKind::Average;
    let average = c.add(Pool { kind, kernel, window: window_shape, count_padding: true }, &[y]);
    let y = c.sum(largest, average);
    // A positional convolution of an even window, whose last result is left out.
    let positions = convolution(c, y, 2, window(4, 2, 2, 1));
    let positions = c.slice(positions, &[(0, BATCH), (0, 4), (0, c.n)]);
    let y = c.sum(y, positions);
    // A causal, dilated one.
    let before =
        Pad { begin: vec![0, 0, 4], end: vec![0, 0, 0], mode: PadMode::Constant, value: 0.0 };
    let padded = c.add(before, &[y]);
    let causal = convolution(c, padded, 1, window(3, 0, 0, 2));
    let y = c.sum(y, causal);
    let sum = c.reduce(ReduceFunction::Mean, y, &[2]);
    let y = c.transpose(y, &[0, 2, 1]);
    vec![y, sum]
}

#[test]
fn convolutions_over_time_with_mean_pooling() {
    let graph = check("audio", audio);
    assert_eq!(graph.axes(), [Some(1), None]);
}

/// A square attention in which keys and values meet first: both are summed over positions.
fn linear_attention(c: &mut Case) -> Vec<ValueId> {
    let x = c.floats(&[BATCH, c.n, WIDTH], 1);
    let (query, key, value) = (heads(c, x), heads(c, x), heads(c, x));
    let key = c.unary(UnaryFunction::Sigmoid, key);
    let key = c.transpose(key, &[0, 1, 3, 2]);
    let state = c.matmul(key, value);
    let seen = c.matmul(query, state);
    let seen = c.transpose(seen, &[0, 2, 1, 3]);
    let size = c.number(c.n as f32);
    let seen = c.binary(BinaryFunction::Divide, seen, size);
    vec![c.reshape(seen, &[BATCH, c.n, WIDTH])]
}

#[test]
fn keys_and_values_that_meet_first_are_masked_both() {
    check("linear attention", linear_attention);
}

/// Lanes of a vector of the machine that graphs are prepared for.
const LANES: usize = 4;

/// Rates at which Winograd's filtering is worth its while.
const RATES: Rates =
    Rates { flops_per_ns: 4.0, memory_bytes_per_ns: 100.0, cache_bytes_per_ns: 1000.0 };

type Pass<'a> = dyn Fn(&Graph) -> Result<Graph, hone_passes::PassError> + 'a;

/// After the passes of the pipeline for processors, in their order.
fn prepared(graph: &PaddedGraph) -> Graph {
    let mut graph = graph.graph.clone();
    let working = DataType::F32;
    let layout = LayoutOptions {
        block: LANES,
        products: 1,
        integers: false,
        tile_row: None,
        rates: Some(RATES),
        working,
        decisions: None,
    };
    let passes: &[&Pass<'_>] = &[
        &hone_passes::extend_precision,
        &hone_passes::delay_broadcasts,
        &hone_passes::assign_to_runtime,
        &hone_passes::decompose,
        &hone_passes::fold_constants,
        &hone_passes::fold_batch_norm,
        &hone_passes::simplify,
        &hone_passes::recognize_group_normalization,
        &hone_passes::separate_taps,
        &hone_passes::separate_pools,
        &hone_passes::divide_by_multiplying,
        &|graph| hone_passes::fuse_attention(graph, LANES, working),
        &|graph| hone_passes::choose_layouts(graph, layout),
        &|graph| hone_passes::pack_matmul_operands(graph, LANES, working),
        &hone_passes::fold_constants,
        &hone_passes::simplify,
        &hone_passes::pad_pools,
        &hone_passes::split_reductions,
        &hone_passes::separate_outputs,
    ];
    for pass in passes {
        graph = pass(&graph).unwrap();
        graph.verify().unwrap();
    }
    graph
}

fn names(graph: &Graph) -> Vec<&'static str> {
    graph.nodes().iter().map(|(_, node)| node.operation.name()).collect()
}

/// Frames with bins, filtered by 3x3 windows, and a sequence in both directions.
fn frames(c: &mut Case) -> Vec<ValueId> {
    let x = c.floats(&[1, 16, c.n, 8], 2);
    let window = Window {
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads_begin: vec![1, 1],
        pads_end: vec![1, 1],
    };
    let weights = c.weights(&[16, 16, 3, 3]);
    let bias = c.weights(&[16]);
    let y = c.add(Convolution { window, groups: 1 }, &[x, weights, bias]);
    // Without padding behind: a window before the size reads nothing behind it.
    let window = Window {
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads_begin: vec![2, 1],
        pads_end: vec![0, 1],
    };
    let y = c.add(Convolution { window, groups: 1 }, &[y, weights]);
    let y = c.reduce(ReduceFunction::Mean, y, &[3]);
    let y = c.transpose(y, &[2, 0, 1]);
    let (w, r) = (c.weights(&[2, 9, 16]), c.weights(&[2, 9, 3]));
    let gru = Gru {
        hidden: 3,
        direction: Direction::Bidirectional,
        activations: [Activation::Sigmoid, Activation::Tanh].repeat(2),
        clip: None,
        linear_before_reset: false,
        batch_first: false,
    };
    c.all(gru, &[Some(y), Some(w), Some(r)])
}

/// The kernels' operators read more than windows and rows: what is behind the size stays there all the same.
#[test]
fn what_passes_make_of_it_computes_the_same() {
    let cases: [(&str, Build, &[&str]); 4] = [
        ("audio", audio, &["packed_convolution"]),
        ("frames", frames, &["winograd_multiply", "recurrence"]),
        ("masked", masked, &["attention"]),
        ("linear attention", linear_attention, &["matmul"]),
    ];
    for (name, build, operations) in cases {
        let padded = padded(build, BOUND).unwrap();
        let graph = prepared(&padded);
        let found = names(&graph);
        for operation in operations {
            assert!(found.contains(operation), "{name}: no {operation} in {found:?}");
        }
        // Winograd's filtering rounds otherwise.
        compare_within(1e-3, name, build, &PaddedGraph { graph, ..padded.clone() }, BOUND);
    }
}

#[test]
fn attention_is_one_operator_with_the_mask_among_its_steps() {
    let cases: [(&str, Build, usize); 2] = [("encoder", encoder, 2), ("decoder", decoder, 1)];
    for (name, build, layers) in cases {
        let padded = padded(build, BOUND).unwrap();
        let graph = prepared(&padded);
        let mut found = 0;
        for (_, node) in graph.nodes().iter() {
            let Some(attention) = node.operation.downcast::<Attention>() else { continue };
            found += 1;
            let last = attention.steps.last();
            let masked = ScoreStep::KeepWhere { otherwise: f64::NEG_INFINITY };
            assert_eq!(last, Some(&masked), "{name}");
            // Values are masked where they are made, and read as the projection leaves them.
            let value = graph.producer(node.inputs[2].unwrap()).unwrap();
            let value = &graph.nodes()[value];
            let value = match value.operation.name() {
                "reshape" => &graph.nodes()[graph.producer(value.inputs[0].unwrap()).unwrap()],
                _ => value,
            };
            assert_eq!(value.operation.name(), "select", "{name}");
        }
        assert_eq!(found, layers, "{name}");
        compare(name, build, &PaddedGraph { graph, ..padded.clone() }, BOUND);
    }
}
