//! Attention in the forms of `com.microsoft`, made of that of ONNX.

use super::attention::{Settings, heads, joined, probabilities, repeated, rotary};
use super::microsoft::shown;
use super::microsoft_quantized::{biased, both_scales, products};
use super::sequence::{LONGEST, written};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::BinaryFunction as B;
use hone_types::{DataType, Tensor};

/// What is told by the attributes that all forms share.
struct Form {
    heads: i64,
    settings: Settings,
    causal: bool,
    hidden: f64,
}

fn form(node: &mut Node) -> Result<Form, NodeError> {
    let heads = node.int_or("num_heads", 0)?;
    let scale = node.float("scale")?.filter(|scale| *scale != 0.0);
    let softcap = node.float_or("softcap", 0.0)?;
    Ok(Form {
        heads,
        settings: Settings::plain(scale, softcap),
        causal: node.flag("unidirectional", false)?,
        hidden: node.float_or("mask_filter_value", -10_000.0)?,
    })
}

/// Softmax of the scores of `[batch, heads, length, size]` operands, times the values; `[batch, length, heads * size]`.
fn attended(
    b: &mut Builder,
    settings: &Settings,
    [query, key, value]: [Operand; 3],
    bias: Option<Operand>,
) -> Step {
    let shape = b.shape(query);
    let (key, value) = (repeated(b, key, shape[1])?, repeated(b, value, shape[1])?);
    let [_, softmax] = probabilities(b, settings, query, key, bias, shape[3])?;
    let result = b.matmul(softmax, value)?;
    let own = b.shape(result);
    let turned = b.transpose(result, vec![0, 2, 1, 3])?;
    b.reshape(turned, vec![own[0], own[2], own[1] * own[3]])
}

/// What is added to scores: `hidden` where `shown` does not hold, and an additive mask.
fn bias(
    b: &mut Builder,
    shown: Option<Operand>,
    additive: Option<Operand>,
    hidden: f64,
    dtype: DataType,
) -> Result<Option<Operand>, NodeError> {
    let Some(shown) = shown else { return Ok(additive) };
    let (zero, hidden) = (b.scalar(dtype, 0.0)?, b.scalar(dtype, hidden)?);
    let bias = b.select(shown, zero, hidden)?;
    match additive {
        Some(additive) => Ok(Some(b.add(bias, additive)?)),
        None => Ok(Some(bias)),
    }
}

/// Which keys each query sees when it sees none behind it: `[queries, keys]`.
fn causal(b: &mut Builder, queries: usize, keys: usize) -> Step {
    if queries.saturating_mul(keys) > 1 << 28 {
        return Err(NodeError::invalid(format!("{queries} queries of {keys} keys are too many")));
    }
    let before = keys.saturating_sub(queries);
    let seen = |flat: usize| flat % keys <= flat / keys + before;
    let values: Vec<bool> = (0..queries * keys).map(seen).collect();
    let tensor = Tensor::from_elements([queries, keys], &values)?;
    Ok(b.constant(tensor))
}

/// Both conditions, where they are given.
fn both(
    b: &mut Builder,
    one: Option<Operand>,
    other: Option<Operand>,
) -> Result<Option<Operand>, NodeError> {
    match (one, other) {
        (Some(one), Some(other)) => Ok(Some(b.binary(B::And, one, other)?)),
        (one, other) => Ok(one.or(other)),
    }
}

/// `Attention`: one input and weights for query, key and value side by side; inputs are the input, weights, bias, mask,
/// `past [2, batch, heads, length, size]`, and what is added to the scores.
pub(super) fn attention(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = form(node)?;
    let sizes = node.ints("qkv_hidden_sizes")?;
    if node.flag("do_rotary", false)? {
        return Err(NodeError::unsupported("do_rotary of Attention"));
    }
    node.ignore(&["past_present_share_buffer", "rotary_embedding_dim"]);
    let product = b.matmul(node.input(0)?, node.input(1)?)?;
    let all = biased(b, product, node.optional(2))?;
    let last = b.shape(all).last().copied().unwrap_or(0);
    let sizes = match sizes {
        Some(sizes) => crate::onnx::shorthands::extents(&sizes, "qkv_hidden_sizes")?,
        None => vec![last / 3; 3],
    };
    let read = Read { mask: node.optional(3), past: node.optional(4), added: node.optional(5) };
    of_three_parts(b, node, &form, (all, &sizes), &read)
}

/// `QAttention`: `Attention` of integers; inputs are the input, weights, a bias of `f32`, the scales of the first two, a
/// mask, their zero points, and the past.
pub(super) fn quantized(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = form(node)?;
    if node.flag("do_rotary", false)? {
        return Err(NodeError::unsupported("do_rotary of QAttention"));
    }
    node.ignore(&["past_present_share_buffer"]);
    let zeros = [node.optional(6), node.optional(7)];
    let sums = products(b, [node.input(0)?, node.input(1)?], zeros)?;
    let scale = both_scales(b, node.input(3)?, node.input(4)?)?;
    let product = b.multiply(sums, scale)?;
    let all = biased(b, product, node.optional(2))?;
    let last = b.shape(all).last().copied().unwrap_or(0);
    let read = Read { mask: node.optional(5), past: node.optional(8), added: None };
    of_three_parts(b, node, &form, (all, &[last / 3; 3]), &read)
}

/// What an attention reads beside queries, keys and values, where it is given.
struct Read {
    mask: Option<Operand>,
    /// Earlier keys and values, `[2, batch, heads, length, size]`.
    past: Option<Operand>,
    /// Added to the scores.
    added: Option<Operand>,
}

/// Attention of queries, keys and values that lie side by side in the last axis of `all`, with so many elements each.
fn of_three_parts(
    b: &mut Builder,
    node: &Node,
    form: &Form,
    (all, sizes): (Operand, &[usize]),
    read: &Read,
) -> Outputs {
    let last = b.shape(all).last().copied().unwrap_or(0);
    let [query, key, value] = <[usize; 3]>::try_from(sizes)
        .ok()
        .filter(|[a, b, c]| a.checked_add(*b).and_then(|all| all.checked_add(*c)) == Some(last))
        .ok_or_else(|| {
            NodeError::invalid(format!("weights for {last} are not those of three parts"))
        })?;
    let mut parts = Vec::new();
    for (start, size) in [(0, query), (query, key), (query + key, value)] {
        let part = b.narrow(all, 2, start, size)?;
        parts.push(heads(b, part, Some(form.heads))?);
    }
    let (mut key, mut value) = (parts[1], parts[2]);
    if let Some(past) = read.past {
        let shape = b.shape(past);
        for (place, part) in [(0, &mut key), (1, &mut value)] {
            let old = b.narrow(past, 0, place, 1)?;
            let old = b.reshape(old, shape.get(1..).unwrap_or_default().to_vec())?;
            *part = joined(b, Some(old), *part)?;
        }
    }
    let (shape, keys) = (b.shape(parts[0]), b.shape(key)[2]);
    let mask = read.mask.map(|mask| shown(b, mask, shape[0], keys)).transpose()?;
    let order = form.causal.then(|| causal(b, shape[2], keys)).transpose()?;
    let seen = both(b, mask, order)?;
    let bias = bias(b, seen, read.added, form.hidden, b.dtype(all))?;
    let result = attended(b, &form.settings, [parts[0], key, value], bias)?;
    if !node.wants(1) {
        return Ok(vec![result]);
    }
    let column = [&[1], &b.shape(key)[..]].concat();
    let (key, value) = (b.reshape(key, column.clone())?, b.reshape(value, column)?);
    Ok(vec![result, b.concat(&[key, value], 0)?])
}

/// `MultiHeadAttention`: inputs query, key, value, a bias for all three, a mask of keys, what is added to the scores, past
/// key and past value.
pub(super) fn multi_head(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = form(node)?;
    let (Some(query), Some(key), Some(value)) =
        (node.optional(0), node.optional(1), node.optional(2))
    else {
        return Err(NodeError::unsupported("query, key and value in one operand"));
    };
    let mut operands = [query, key, value];
    if let Some(bias) = node.optional(3) {
        let mut start = 0;
        for own in &mut operands {
            if b.rank(*own) != 3 {
                continue;
            }
            let size = b.shape(*own)[2];
            let part = b.narrow(bias, 0, start, size)?;
            *own = b.add(*own, part)?;
            start += size;
        }
    }
    let [query, key, value] = operands.map(|own| heads(b, own, Some(form.heads)));
    let (query, key, value) = (query?, key?, value?);
    let (key, value) = (joined(b, node.optional(6), key)?, joined(b, node.optional(7), value)?);
    let (shape, keys) = (b.shape(query), b.shape(key)[2]);
    let mask = node.optional(4).map(|mask| shown(b, mask, shape[0], keys)).transpose()?;
    let order = form.causal.then(|| causal(b, shape[2], keys)).transpose()?;
    let seen = both(b, mask, order)?;
    let bias = bias(b, seen, node.optional(5), form.hidden, b.dtype(query))?;
    Ok(vec![attended(b, &form.settings, [query, key, value], bias)?, key, value])
}

/// `GroupQueryAttention`: inputs query, key, value, past key and value, the last place of each sample, the number of all
/// places, and the cosines and sines of positions. What is kept has as many places as there are in all, or as the past
/// has, if that is more: then it is written in place.
pub(super) fn group_query(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = form(node)?;
    let key_heads = node.int_or("kv_num_heads", 0)?;
    let turned = node.flag("do_rotary", false)?;
    let interleaved = node.flag("rotary_interleaved", false)?;
    let window = node.int_or("local_window_size", -1)?;
    node.ignore(&["smooth_softmax", "qk_output"]);
    let total = total_length(b, node)?;
    let (mut query, mut key, mut value) = split_heads(b, node, form.heads, key_heads)?;
    let [batch, _, new, size] = four(b, query)?;
    let last = b.cast(node.input(5)?, DataType::I64)?;
    let last = b.reshape(last, vec![batch])?;
    // The first new place of each sample.
    let start = b.with_scalar(B::Subtract, last, new as f64 - 1.0)?;
    if turned {
        let column = b.reshape(start, vec![batch, 1])?;
        let steps: Vec<i64> = (0..new as i64).collect();
        let steps = b.constant(Tensor::from_elements([1, new], &steps)?);
        let places = b.add(column, steps)?;
        let (cosine, sine) = (node.input(7)?, node.input(8)?);
        for own in [&mut query, &mut key] {
            *own = turned_by(b, node, *own, [cosine, sine, places], interleaved)?;
        }
    }
    let kept = node.optional(3).map_or(0, |past| b.shape(past).get(2).copied().unwrap_or(0));
    let all = total.max(kept);
    for (past, own) in [(3, &mut key), (4, &mut value)] {
        let cache = cache(b, node.optional(past), *own, all)?;
        *own = written(b, cache, *own, Some(start), 2, false)?;
    }
    // A query sees what lies before it, and not further back than the window.
    let row: Vec<i64> = (0..new as i64).collect();
    let row = b.constant(Tensor::from_elements([1, 1, new, 1], &row)?);
    let start = b.reshape(start, vec![batch, 1, 1, 1])?;
    let row = b.add(row, start)?;
    let column: Vec<i64> = (0..all as i64).collect();
    let column = b.constant(Tensor::from_elements([1, 1, 1, all], &column)?);
    let mut seen = b.binary(B::LessEqual, column, row)?;
    if window > 0 {
        let distance = b.subtract(row, column)?;
        let near = b.with_scalar(B::Less, distance, window as f64)?;
        seen = b.binary(B::And, seen, near)?;
    }
    debug_assert_eq!(b.shape(query)[3], size);
    let bias = bias(b, Some(seen), node.optional(10), f64::NEG_INFINITY, b.dtype(query))?;
    Ok(vec![attended(b, &form.settings, [query, key, value], bias)?, key, value])
}

/// The number of all places, which must be known.
fn total_length(b: &Builder, node: &Node) -> Result<usize, NodeError> {
    let total = b.integer_of(node, 6)?;
    usize::try_from(total)
        .ok()
        .filter(|total| *total <= LONGEST)
        .ok_or_else(|| NodeError::invalid(format!("total_sequence_length {total} is no length")))
}

fn four(b: &Builder, own: Operand) -> Result<[usize; 4], NodeError> {
    <[usize; 4]>::try_from(b.shape(own))
        .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not four axes")))
}

/// Query, key and value by heads; where the query holds all three they lie side by side.
fn split_heads(
    b: &mut Builder,
    node: &Node,
    number: i64,
    key_number: i64,
) -> Result<(Operand, Operand, Operand), NodeError> {
    let query = node.input(0)?;
    if let (Some(key), Some(value)) = (node.optional(1), node.optional(2)) {
        let query = heads(b, query, Some(number))?;
        return Ok((query, heads(b, key, Some(key_number))?, heads(b, value, Some(key_number))?));
    }
    let wide = b.shape(query).last().copied().unwrap_or(0);
    let (own, others) =
        (usize::try_from(number).unwrap_or(0), usize::try_from(key_number).unwrap_or(0));
    let all = own.saturating_add(others.saturating_mul(2));
    let size = wide.checked_div(all).filter(|size| size * all == wide);
    let size =
        size.ok_or_else(|| NodeError::invalid(format!("{wide} does not divide into {all} heads")))?;
    let mut part = |start: usize, count: usize, number: i64| -> Step {
        let own = b.narrow(query, 2, start * size, count * size)?;
        heads(b, own, Some(number))
    };
    let query = part(0, own, number)?;
    let key = part(own, others, key_number)?;
    Ok((query, key, part(own + others, others, key_number)?))
}

/// A cache of `all` places that begins as the past, or with zeros.
fn cache(b: &mut Builder, past: Option<Operand>, new: Operand, all: usize) -> Step {
    let mut shape = b.shape(new);
    let Some(past) = past else {
        shape[2] = all;
        let zero = b.scalar(b.dtype(new), 0.0)?;
        return b.expand(zero, shape);
    };
    let kept = b.shape(past).get(2).copied().unwrap_or(0);
    let end = vec![0, 0, all.saturating_sub(kept) as i64, 0];
    b.pad(past, vec![0; 4], end, hone_ops::PadMode::Constant, 0.0)
}

/// `[batch, heads, length, size]` turned by the angles of its positions.
fn turned_by(
    b: &mut Builder,
    node: &Node,
    own: Operand,
    [cosine, sine, places]: [Operand; 3],
    interleaved: bool,
) -> Step {
    let turned = 2 * b.shape(cosine).last().copied().unwrap_or(0);
    let mut inner =
        node.alike("RotaryEmbedding", vec![Some(own), Some(cosine), Some(sine), Some(places)]);
    inner.set_int("interleaved", i64::from(interleaved));
    inner.set_int("rotary_embedding_dim", turned as i64);
    Ok(rotary(b, &mut inner)?[0])
}

/// `RotaryEmbedding`: inputs the operand, positions (or the first of them), cosines, sines.
pub(super) fn rotary_embedding(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (x, positions, cosine, sine) =
        (node.input(0)?, node.input(1)?, node.input(2)?, node.input(3)?);
    if node.flag("is_packed_batching", false)? {
        return Err(NodeError::unsupported("is_packed_batching"));
    }
    node.ignore(&["scale"]);
    let shape = b.shape(x);
    let [batch, length] = match shape.as_slice() {
        [batch, length, _] | [batch, _, length, _] => [*batch, *length],
        other => return Err(NodeError::invalid(format!("shape {other:?} has no heads"))),
    };
    if length > LONGEST {
        return Err(NodeError::invalid(format!("a sequence of {length} is too long")));
    }
    let mut places = b.cast(positions, DataType::I64)?;
    if b.tensor_type(places).elements() == 1 {
        let steps: Vec<i64> = (0..length as i64).collect();
        let steps = b.constant(Tensor::from_elements([1, length], &steps)?);
        let first = b.reshape(places, vec![])?;
        let row = b.add(steps, first)?;
        places = b.expand(row, vec![batch, length])?;
    }
    let half = b.shape(cosine).last().copied().unwrap_or(0);
    let (number, turned) = (node.int_or("num_heads", 0)?, node.int_or("rotary_embedding_dim", 0)?);
    let interleaved = node.int_or("interleaved", 0)?;
    let number = match shape.as_slice() {
        [_, _, wide] if number == 0 => wide.checked_div(2 * half).unwrap_or(0) as i64,
        _ => number,
    };
    let mut inner =
        node.alike("RotaryEmbedding", vec![Some(x), Some(cosine), Some(sine), Some(places)]);
    inner.set_int("num_heads", number);
    inner.set_int("interleaved", interleaved);
    inner.set_int("rotary_embedding_dim", turned);
    rotary(b, &mut inner)
}
