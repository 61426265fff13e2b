//! Operators over time: causal convolutions, caches written in place, sequences of their own lengths.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{BinaryFunction as B, Convolution, GatherElements, UnaryFunction as U, Window};
use hone_types::{DataType, Tensor};

/// `CausalConvWithState`: a depthwise convolution of what was kept and what is new; inputs `[N, C, L]`, weights
/// `[C, 1, k]`, and optionally a bias and the last `k - 1` places before.
pub(super) fn causal_convolution(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let activation = node.string_or("activation", "none")?;
    let [batch, channels, length] = <[usize; 3]>::try_from(builder.shape(x))
        .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not three axes")))?;
    let kernel = builder.shape(w).last().copied().unwrap_or(0);
    let kept = kernel.checked_sub(1).ok_or_else(|| NodeError::invalid("the kernel is empty"))?;
    let past = match node.optional(3) {
        Some(past) => past,
        None => {
            let zero = builder.scalar(builder.dtype(x), 0.0)?;
            builder.expand(zero, vec![batch, channels, kept])?
        }
    };
    let all = builder.concat(&[past, x], 2)?;
    let operator = Convolution { window: Window::plain(1), groups: channels };
    let mut y = builder.apply_optional(operator, &[Some(all), Some(w), node.optional(2)])?;
    match activation.as_str() {
        "none" => {}
        "silu" | "swish" => {
            let gate = builder.unary(U::Sigmoid, y)?;
            y = builder.multiply(y, gate)?;
        }
        other => return Err(NodeError::invalid(format!("activation '{other}' is unknown"))),
    }
    let present = builder.narrow(all, 2, length, kept)?;
    Ok(vec![y, present])
}

/// Longest axis whose places are counted.
pub(super) const LONGEST: usize = 1 << 24;

/// `0..extent` along `axis` of a shape of `rank` axes.
fn count_along(b: &mut Builder, extent: usize, axis: usize, rank: usize) -> Step {
    if extent > LONGEST {
        return Err(NodeError::invalid(format!("an axis of {extent} is too long")));
    }
    let values: Vec<i64> = (0..extent as i64).collect();
    let mut shape = vec![1; rank];
    shape[axis] = extent;
    let tensor = Tensor::from_elements(shape, &values)?;
    Ok(b.constant(tensor))
}

/// `data` at `places`, which broadcast to `shape`, along `axis`.
fn taken(b: &mut Builder, data: Operand, places: Operand, axis: usize, shape: &[usize]) -> Step {
    let places = b.expand(places, shape.to_vec())?;
    b.apply(GatherElements { axis }, &[data, places])
}

/// `TensorScatter`: new places of a cache written from an index on, one for each sample.
pub(super) fn tensor_scatter(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (past, update) = (node.input(0)?, node.input(1)?);
    let rank = builder.rank(past);
    let along = axis(node.int_or("axis", -2)?, rank)?;
    let circular = match node.string_or("mode", "linear")?.as_str() {
        "linear" => false,
        "circular" => true,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    Ok(vec![written(builder, past, update, node.optional(2), along, circular)?])
}

/// `past` with `update` written from `start` (one for each sample; 0 if left out) on along an axis.
pub(super) fn written(
    b: &mut Builder,
    past: Operand,
    update: Operand,
    start: Option<Operand>,
    along: usize,
    circular: bool,
) -> Step {
    let (shape, new) = (b.shape(past), b.shape(update).get(along).copied().unwrap_or(0));
    if new == 0 || shape.contains(&0) || along == 0 {
        return Ok(past);
    }
    let place = count_along(b, shape[along], along, shape.len())?;
    let mut distance = place;
    if let Some(start) = start {
        let start = b.cast(start, DataType::I64)?;
        let mut column = vec![1; shape.len()];
        column[0] = b.tensor_type(start).elements();
        let start = b.reshape(start, column)?;
        distance = b.subtract(place, start)?;
    }
    if circular {
        distance = b.with_scalar(B::Modulo, distance, shape[along] as f64)?;
    }
    let after = b.with_scalar(B::GreaterEqual, distance, 0.0)?;
    let before = b.with_scalar(B::Less, distance, new as f64)?;
    let within = b.binary(B::And, after, before)?;
    let above = b.with_scalar(B::Maximum, distance, 0.0)?;
    let from = b.with_scalar(B::Minimum, above, (new - 1) as f64)?;
    let value = taken(b, update, from, along, &shape)?;
    b.select(within, value, past)
}

/// `ReverseSequence`: the first elements of each sample in reverse, as many as its length.
pub(super) fn reverse(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, lengths) = (node.input(0)?, node.input(1)?);
    let shape = builder.shape(x);
    let batch = axis(node.int_or("batch_axis", 1)?, shape.len())?;
    let time = axis(node.int_or("time_axis", 0)?, shape.len())?;
    let mut column = vec![1; shape.len()];
    column[batch] = shape[batch];
    let lengths = builder.cast(lengths, DataType::I64)?;
    let lengths = builder.reshape(lengths, column)?;
    let place = count_along(builder, shape[time], time, shape.len())?;
    let within = builder.binary(B::Less, place, lengths)?;
    let last = builder.with_scalar(B::Subtract, lengths, 1.0)?;
    let turned = builder.subtract(last, place)?;
    let from = builder.select(within, turned, place)?;
    Ok(vec![taken(builder, x, from, time, &shape)?])
}

/// Most steps that a recurrence is taken apart into.
const MOST_STEPS: usize = 1024;

/// `LinearAttention`: a state of `[batch, heads, keys, values]` that every step decays and adds to; queries read it. Inputs
/// query, key, value, and optionally the state before, decays (of logarithms) and rates; the state is kept in `f32`.
pub(super) fn linear_attention(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let dtype = b.dtype(node.input(0)?);
    let (query_heads, heads) = (node.int("q_num_heads")?, node.int("kv_num_heads")?);
    let rule = node.string_or("update_rule", "gated_delta")?;
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(NodeError::invalid(format!("update_rule '{other}' is unknown"))),
    };
    let scale = node.float_or("scale", 0.0)?;
    node.ignore(&["chunk_size"]);
    let [query, key, value] = [(0, query_heads), (1, heads), (2, heads)].map(|(place, heads)| {
        let wide = b.cast(node.input(place)?, DataType::F32)?;
        super::attention::heads(b, wide, heads)
    });
    let (query, key, value) = (query?, key?, value?);
    let ([batch, own, steps, keys], values) = (four(b, key)?, four(b, value)?[3]);
    let shared = four(b, query)?[1];
    if steps > MOST_STEPS || own == 0 || !shared.is_multiple_of(own) {
        return Err(NodeError::unsupported(format!("{steps} steps of {shared} heads over {own}")));
    }
    let scale = if scale == 0.0 { 1.0 / (keys as f64).sqrt() } else { scale };
    let query = b.with_scalar(B::Multiply, query, scale)?;
    let (state_type, mut state) = match node.optional(3) {
        Some(past) => (b.dtype(past), b.cast(past, DataType::F32)?),
        None => {
            let zero = b.scalar(DataType::F32, 0.0)?;
            (dtype, b.expand(zero, vec![batch, own, keys, values])?)
        }
    };
    let decay = match gated {
        true => {
            let decay = b.cast(node.input(4)?, DataType::F32)?;
            Some(by_step(b, decay, own)?)
        }
        false => None,
    };
    let rate = match delta {
        true => {
            let rate = b.cast(node.input(5)?, DataType::F32)?;
            let count = b.shape(rate).last().copied().unwrap_or(1);
            Some(by_step(b, rate, count)?)
        }
        false => None,
    };
    let group = shared / own;
    let mut results = Vec::with_capacity(steps);
    for step in 0..steps {
        let [query, key, value] = [query, key, value].map(|all| b.narrow(all, 2, step, 1));
        let (query, key, value) = (query?, key?, value?);
        if let Some(decay) = decay {
            let decay = b.narrow(decay, 2, step, 1)?;
            let factor = b.unary(U::Exp, decay)?;
            let factor = b.transpose(factor, vec![0, 1, 3, 2])?;
            state = b.multiply(state, factor)?;
        }
        let mut new = value;
        if let Some(rate) = rate {
            let known = b.matmul(key, state)?;
            let missing = b.subtract(value, known)?;
            let rate = b.narrow(rate, 2, step, 1)?;
            new = b.multiply(missing, rate)?;
        }
        let column = b.transpose(key, vec![0, 1, 3, 2])?;
        let added = b.multiply(column, new)?;
        state = b.add(state, added)?;
        let query = b.reshape(query, vec![batch, own, group, keys])?;
        let read = b.matmul(query, state)?;
        results.push(b.reshape(read, vec![batch, 1, shared * values])?);
    }
    if results.is_empty() {
        return Err(NodeError::unsupported("a sequence without steps"));
    }
    let all = b.concat(&results, 1)?;
    Ok(vec![b.cast(all, dtype)?, b.cast(state, state_type)?])
}

/// `[batch, steps, heads * size]` as `[batch, heads, steps, size]`.
fn by_step(b: &mut Builder, own: Operand, heads: usize) -> Step {
    super::attention::heads(b, own, Some(heads as i64))
}

fn four(b: &Builder, own: Operand) -> Result<[usize; 4], NodeError> {
    <[usize; 4]>::try_from(b.shape(own))
        .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not four axes")))
}
