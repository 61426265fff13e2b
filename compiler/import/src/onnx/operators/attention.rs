//! `Attention` and `RotaryEmbedding`, made of simpler operators.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, PadMode, ReduceFunction, Slice, UnaryFunction as U};
use hone_types::{DataType, Tensor};

/// Longest sequence for which positions are counted.
const LONGEST: usize = 1 << 24;

/// What `Attention` is told.
pub(super) struct Settings {
    causal: bool,
    /// Keys seen before and after a query; `None` is all.
    window: [Option<i64>; 2],
    softcap: f64,
    scale: Option<f64>,
    precision: Option<DataType>,
    exposed: i64,
}

impl Settings {
    /// Nothing hidden, in the operands' own precision.
    pub(super) fn plain(scale: Option<f64>, softcap: f64) -> Self {
        let (window, precision) = ([None; 2], None);
        Self { causal: false, window, softcap, scale, precision, exposed: 0 }
    }

    fn read(node: &mut Node) -> Result<Self, NodeError> {
        let side = |size: i64| (size >= 0).then_some(size);
        let precision = match node.int("softmax_precision")? {
            Some(number) => {
                let number = i32::try_from(number).unwrap_or(0);
                Some(crate::onnx::tensor::element_type(number).map_err(NodeError::Invalid)?)
            }
            None => None,
        };
        Ok(Self {
            causal: node.flag("is_causal", false)?,
            window: [
                side(node.int_or("left_window_size", -1)?),
                side(node.int_or("right_window_size", -1)?),
            ],
            softcap: node.float_or("softcap", 0.0)?,
            scale: node.float("scale")?,
            precision,
            exposed: node.int_or("qk_matmul_output_mode", 0)?,
        })
    }
}

/// `Attention`: inputs query, key, value, and optionally mask, past key, past value, and the number of
/// keys that count in each sample. Operands are `[batch, heads, length, size]`, or `[batch, length,
/// heads * size]` with the heads as attributes.
pub(super) fn attention(builder: &mut Builder, node: &mut Node) -> Outputs {
    let settings = Settings::read(node)?;
    let flat = builder.rank(node.input(0)?) == 3;
    let (query_heads, key_heads) = (node.int("q_num_heads")?, node.int("kv_num_heads")?);
    let query = heads(builder, node.input(0)?, query_heads)?;
    let key = heads(builder, node.input(1)?, key_heads)?;
    let value = heads(builder, node.input(2)?, key_heads)?;
    let past = node.optional(4).map_or(0, |past| builder.shape(past).get(2).copied().unwrap_or(0));
    let present_key = joined(builder, node.optional(4), key)?;
    let present_value = joined(builder, node.optional(5), value)?;
    let (query_shape, key_shape) = (builder.shape(query), builder.shape(present_key));
    let key = repeated(builder, present_key, query_shape[1])?;
    let value = repeated(builder, present_value, query_shape[1])?;
    let lengths = node.optional(6);
    let bias = bias(builder, &settings, node.optional(3), lengths, past, &query_shape, &key_shape)?;
    let [scores, probabilities] =
        probabilities(builder, &settings, query, key, bias, query_shape[3])?;
    let mut result = builder.matmul(probabilities, value)?;
    if flat {
        let shape = builder.shape(result);
        let turned = builder.transpose(result, vec![0, 2, 1, 3])?;
        result = builder.reshape(turned, vec![shape[0], shape[2], shape[1] * shape[3]])?;
    }
    Ok(vec![result, present_key, present_value, scores])
}

/// An operand as `[batch, heads, length, size]`.
pub(super) fn heads(b: &mut Builder, operand: Operand, heads: Option<i64>) -> Step {
    let shape = b.shape(operand);
    let heads = heads.and_then(|heads| usize::try_from(heads).ok()).filter(|heads| *heads > 0);
    match (shape.as_slice(), heads) {
        ([_, _, _, _], _) => Ok(operand),
        ([batch, length, wide], Some(heads)) if wide.is_multiple_of(heads) => {
            let split = b.reshape(operand, vec![*batch, *length, heads, wide / heads])?;
            b.transpose(split, vec![0, 2, 1, 3])
        }
        _ => Err(NodeError::invalid(format!("shape {shape:?} does not divide into heads"))),
    }
}

/// What is cached and what is new, along the length.
pub(super) fn joined(b: &mut Builder, past: Option<Operand>, new: Operand) -> Step {
    match past {
        Some(past) => b.concat(&[past, new], 2),
        None => Ok(new),
    }
}

/// Each head as often as queries share it.
pub(in crate::onnx) fn repeated(b: &mut Builder, operand: Operand, heads: usize) -> Step {
    let [batch, own, length, size] = <[usize; 4]>::try_from(b.shape(operand))
        .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not four axes")))?;
    if own == heads {
        return Ok(operand);
    }
    let times = heads.checked_div(own).filter(|times| times * own == heads);
    let times = times.ok_or_else(|| {
        NodeError::invalid(format!("{heads} query heads cannot share {own} key heads"))
    })?;
    let column = b.reshape(operand, vec![batch, own, 1, length, size])?;
    let wide = b.expand(column, vec![batch, own, times, length, size])?;
    b.reshape(wide, vec![batch, heads, length, size])
}

/// `0..count` along an axis counted from the end of a shape of two.
fn positions(b: &mut Builder, count: usize, shape: [usize; 2]) -> Step {
    if count > LONGEST {
        return Err(NodeError::invalid(format!("a sequence of {count} is too long")));
    }
    let values: Vec<i64> = (0..count as i64).collect();
    let tensor = Tensor::from_elements(shape, &values)?;
    Ok(b.constant(tensor))
}

/// What is added to the scores: minus infinity where a key is hidden. `None` where none is.
fn bias(
    b: &mut Builder,
    settings: &Settings,
    mask: Option<Operand>,
    lengths: Option<Operand>,
    past: usize,
    query: &[usize],
    key: &[usize],
) -> Result<Option<Operand>, NodeError> {
    let (queries, keys) = (query[2], key[2]);
    let column = positions(b, keys, [1, keys])?;
    let lengths = match lengths {
        Some(lengths) => Some(b.reshape(lengths, vec![query[0], 1, 1, 1])?),
        None => None,
    };
    let mut allowed: Vec<Operand> = Vec::new();
    if settings.causal || settings.window.iter().any(Option::is_some) {
        // How far a key lies before its query; what is cached lies before all of them.
        let row = positions(b, queries, [queries, 1])?;
        let row = match lengths {
            Some(lengths) => {
                let start = b.with_scalar(B::Subtract, lengths, queries as f64)?;
                b.add(row, start)?
            }
            None => b.with_scalar(B::Add, row, past as f64)?,
        };
        let distance = b.subtract(row, column)?;
        if settings.causal {
            allowed.push(b.with_scalar(B::GreaterEqual, distance, 0.0)?);
        }
        if let Some(left) = settings.window[0] {
            allowed.push(b.with_scalar(B::LessEqual, distance, left as f64)?);
        }
        if let Some(right) = settings.window[1] {
            allowed.push(b.with_scalar(B::GreaterEqual, distance, -(right as f64))?);
        }
    }
    if let Some(lengths) = lengths {
        allowed.push(b.binary(B::Less, column, lengths)?);
    }
    let mask = match mask {
        Some(mask) => Some(padded(b, mask, keys)?),
        None => None,
    };
    let additive = match mask {
        Some(mask) if b.dtype(mask) == DataType::Bool => {
            allowed.push(mask);
            None
        }
        other => other,
    };
    let mut hidden = None;
    for condition in allowed {
        hidden = Some(match hidden {
            Some(others) => b.binary(B::And, others, condition)?,
            None => condition,
        });
    }
    let Some(shown) = hidden else { return Ok(additive) };
    // Half precision has an infinity, too: the scores' own type comes when the bias is added.
    let dtype = additive.map_or(DataType::F32, |additive| b.dtype(additive));
    let zero = b.scalar(dtype, 0.0)?;
    let infinite = b.scalar(dtype, f64::NEG_INFINITY)?;
    let bias = b.select(shown, zero, infinite)?;
    match additive {
        Some(additive) => Ok(Some(b.add(additive, bias)?)),
        None => Ok(Some(bias)),
    }
}

/// A mask for fewer keys than there are hides the rest.
fn padded(b: &mut Builder, mask: Operand, keys: usize) -> Step {
    let shape = b.shape(mask);
    let missing = keys.saturating_sub(shape.last().copied().unwrap_or(keys));
    let mut end = vec![0; shape.len()];
    if let Some(last) = end.last_mut() {
        *last = missing as i64;
    }
    let hidden = if b.dtype(mask) == DataType::Bool { 0.0 } else { f64::NEG_INFINITY };
    b.pad(mask, vec![0; shape.len()], end, PadMode::Constant, hidden)
}

/// The scores that the node exposes, and the probabilities.
pub(super) fn probabilities(
    b: &mut Builder,
    settings: &Settings,
    query: Operand,
    key: Operand,
    bias: Option<Operand>,
    size: usize,
) -> Result<[Operand; 2], NodeError> {
    let dtype = b.dtype(query);
    // Each side gets the root of the scale, which keeps both within range.
    let scale = settings.scale.unwrap_or(1.0 / (size as f64).sqrt()).sqrt();
    let query = b.with_scalar(B::Multiply, query, scale)?;
    let turned = b.transpose(key, vec![0, 1, 3, 2])?;
    let turned = b.with_scalar(B::Multiply, turned, scale)?;
    let mut scores = b.matmul(query, turned)?;
    if settings.softcap > 0.0 {
        let small = b.with_scalar(B::Divide, scores, settings.softcap)?;
        let bent = b.unary(U::Tanh, small)?;
        scores = b.with_scalar(B::Multiply, bent, settings.softcap)?;
    }
    let mut biased = scores;
    if let Some(bias) = bias {
        let bias = b.cast(bias, dtype)?;
        biased = b.add(scores, bias)?;
    }
    let precise = b.cast(biased, settings.precision.unwrap_or(dtype))?;
    let axis = b.rank(precise) - 1;
    let softmax = super::normalization::softmax_of(b, precise, axis, false)?;
    let softmax = b.cast(softmax, dtype)?;
    let softmax = match bias {
        Some(bias) => without_hidden_rows(b, softmax, bias)?,
        None => softmax,
    };
    let exposed = match settings.exposed {
        0 | 1 => scores,
        2 => biased,
        3 => softmax,
        other => {
            return Err(NodeError::invalid(format!("qk_matmul_output_mode {other} is unknown")));
        }
    };
    Ok([exposed, softmax])
}

/// A query that sees no key attends to nothing: its row is zero, where a softmax gives NaN.
fn without_hidden_rows(b: &mut Builder, softmax: Operand, bias: Operand) -> Step {
    let axis = b.rank(bias).saturating_sub(1);
    let most = b.reduce(ReduceFunction::Maximum, bias, vec![axis], true)?;
    let hidden = b.with_scalar(B::Equal, most, f64::NEG_INFINITY)?;
    let known = b.tensor(hidden).map(|hidden| hidden.to_i64().contains(&1));
    if known == Some(false) {
        return Ok(softmax);
    }
    let zero = b.scalar(b.dtype(softmax), 0.0)?;
    b.select(hidden, zero, softmax)
}

/// `RotaryEmbedding`: pairs of elements turned by angles that depend on the position.
pub(super) fn rotary(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let flat = builder.rank(input) == 3;
    let interleaved = node.flag("interleaved", false)?;
    let turned = node.int_or("rotary_embedding_dim", 0)?;
    let number = node.int("num_heads")?.filter(|number| *number > 0);
    // [batch, heads, length, size]
    let x = heads(builder, input, number)?;
    let shape = builder.shape(x);
    let size = shape[3];
    let turned = if turned == 0 { size as i64 } else { turned };
    let turned = usize::try_from(turned).ok().filter(|turned| *turned <= size && turned % 2 == 0);
    let turned = turned.ok_or_else(|| {
        NodeError::invalid(format!("rotary_embedding_dim does not fit heads of {size}"))
    })?;
    let positions = node.optional(3);
    let cosine = angles(builder, node.input(1)?, positions, &shape, turned)?;
    let sine = angles(builder, node.input(2)?, positions, &shape, turned)?;
    let part = builder.narrow(x, 3, 0, turned)?;
    let half = turned / 2;
    let (one, other) = if interleaved {
        (every_second(builder, part, 0, half)?, every_second(builder, part, 1, half)?)
    } else {
        (builder.narrow(part, 3, 0, half)?, builder.narrow(part, 3, half, half)?)
    };
    let [a, b] = [builder.multiply(cosine, one)?, builder.multiply(sine, other)?];
    let real = builder.subtract(a, b)?;
    let [a, b] = [builder.multiply(sine, one)?, builder.multiply(cosine, other)?];
    let imaginary = builder.add(a, b)?;
    let mut result = if interleaved {
        let column = [&shape[..3], &[half, 1]].concat();
        let real = builder.reshape(real, column.clone())?;
        let imaginary = builder.reshape(imaginary, column)?;
        let pairs = builder.concat(&[real, imaginary], 4)?;
        builder.reshape(pairs, [&shape[..3], &[turned]].concat())?
    } else {
        builder.concat(&[real, imaginary], 3)?
    };
    if turned < size {
        let rest = builder.narrow(x, 3, turned, size - turned)?;
        result = builder.concat(&[result, rest], 3)?;
    }
    if flat {
        result = builder.transpose(result, vec![0, 2, 1, 3])?;
        let shape = builder.shape(input);
        result = builder.reshape(result, shape)?;
    }
    Ok(vec![result])
}

/// A table of cosines or sines as `[batch, 1, length, turned / 2]`.
fn angles(
    b: &mut Builder,
    table: Operand,
    positions: Option<Operand>,
    shape: &[usize],
    turned: usize,
) -> Step {
    let table = match positions {
        Some(positions) => b.apply(hone_ops::Gather { axis: 0 }, &[table, positions])?,
        None => table,
    };
    b.reshape(table, vec![shape[0], 1, shape[2], turned / 2])
}

/// Every second element of the last of four axes.
fn every_second(b: &mut Builder, input: Operand, start: usize, count: usize) -> Step {
    let mut extents = b.shape(input);
    extents[3] = count;
    let slice = Slice { starts: vec![0, 0, 0, start], steps: vec![1, 1, 1, 2], extents };
    b.apply(slice, &[input])
}
