//! Fourier transforms, windows, and the filters of mel spectrograms.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{BinaryFunction as B, Gather, PadMode};
use hone_types::{DataType, Tensor};
use std::f64::consts::TAU;

/// Most entries of a matrix of a transform, and elements of a window.
const LARGEST: usize = 1 << 24;

/// `DFT`: of an axis of a tensor whose last axis holds real, or real and imaginary parts. The axis is an attribute
/// before opset 20, an input since.
pub(super) fn dft(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let rank = builder.rank(input);
    let place = match node.opset {
        ..20 => node.int_or("axis", 1)?,
        _ if node.optional(2).is_some() => builder.integer_of(node, 2)?,
        _ => -2,
    };
    let place = axis(place, rank)?;
    if place + 1 == rank {
        return Err(NodeError::invalid("the last axis holds the parts of numbers, not a signal"));
    }
    let length = match node.optional(1) {
        Some(_) => Some(builder.integer_of(node, 1)?),
        None => None,
    };
    let (inverse, onesided) = (node.flag("inverse", false)?, node.flag("onesided", false)?);
    let mut turn: Vec<usize> = (0..rank).collect();
    turn.swap(place, rank - 2);
    let turned = builder.transpose(input, turn.clone())?;
    let extent = builder.shape(turned)[rank - 2];
    let whole = if inverse && onesided { 2 * extent.saturating_sub(1) } else { extent };
    let length = match length {
        None => whole,
        Some(length) => usize::try_from(length)
            .map_err(|_| NodeError::invalid(format!("length {length} is negative")))?,
    };
    let parts = transform(builder, turned, length, inverse, onesided)?;
    Ok(vec![builder.transpose(parts, turn)?])
}

/// The transform of the axis before the last, of `length`.
fn transform(b: &mut Builder, x: Operand, length: usize, inverse: bool, onesided: bool) -> Step {
    let shape = b.shape(x);
    let rank = shape.len();
    let real_result = inverse && onesided;
    let used = if real_result { length / 2 + 1 } else { length };
    let made = if onesided && !inverse { length / 2 + 1 } else { length };
    if length == 0 || used.checked_mul(made).is_none_or(|entries| entries > LARGEST) {
        return Err(NodeError::unsupported(format!("a transform of length {length}")));
    }
    if ![1, 2].contains(&shape[rank - 1]) {
        return Err(NodeError::invalid(format!("{} parts of a number", shape[rank - 1])));
    }
    let fitted = match shape[rank - 2] {
        extent if extent >= used => b.narrow(x, rank - 2, 0, used)?,
        extent => {
            let mut end = vec![0; rank];
            end[rank - 2] = (used - extent) as i64;
            b.pad(x, vec![0; rank], end, PadMode::Constant, 0.0)?
        }
    };
    let dtype = b.dtype(x);
    let factor = |k: usize| match real_result {
        // What is left out is conjugate to what is there.
        true if k > 0 && 2 * k != length => 2.0 / length as f64,
        _ if inverse => 1.0 / length as f64,
        _ => 1.0,
    };
    let mut matrix = |function: fn(f64) -> f64| -> Step {
        let entry = |flat: usize| {
            let (from, to) = (flat / made, flat % made);
            factor(from) * function(TAU * (from * to % length) as f64 / length as f64)
        };
        let values: Vec<f64> = (0..used * made).map(entry).collect();
        Ok(b.constant(Tensor::from_f64(dtype, [used, made], &values)?))
    };
    let (cosine, sine) = (matrix(f64::cos)?, matrix(f64::sin)?);
    let lead = shape[..rank - 2].to_vec();
    let mut part = |place: usize| -> Step {
        let own = b.narrow(fitted, rank - 1, place, 1)?;
        b.reshape(own, [&lead[..], &[used]].concat())
    };
    let real = part(0)?;
    let imaginary = if shape[rank - 1] == 2 { Some(part(1)?) } else { None };
    let mut results = Vec::new();
    // The sine counts against the imaginary part in a forward transform, for it in an inverse one.
    let (plus, minus) = if inverse { (B::Subtract, B::Add) } else { (B::Add, B::Subtract) };
    let own = b.matmul(real, cosine)?;
    results.push(match imaginary {
        Some(imaginary) => {
            let other = b.matmul(imaginary, sine)?;
            b.binary(plus, own, other)?
        }
        None => own,
    });
    if !real_result {
        let turned = b.matmul(real, sine)?;
        results.push(match imaginary {
            Some(imaginary) => {
                let other = b.matmul(imaginary, cosine)?;
                b.binary(minus, other, turned)?
            }
            None if inverse => turned,
            None => b.scalar_with(B::Subtract, 0.0, turned)?,
        });
    }
    let column = [&lead[..], &[made, 1]].concat();
    let columns: Result<Vec<Operand>, NodeError> =
        results.into_iter().map(|own| b.reshape(own, column.clone())).collect();
    b.concat(&columns?, rank - 1)
}

/// `STFT`: transforms of frames of a signal `[batch, length, parts]`.
pub(super) fn stft(builder: &mut Builder, node: &mut Node) -> Outputs {
    let signal = node.input(0)?;
    let step = builder.integer_of(node, 1)?;
    let window = node.optional(2);
    let onesided = node.flag("onesided", true)?;
    let mut shape = builder.shape(signal);
    let mut signal = signal;
    if shape.len() == 2 {
        shape.push(1);
        signal = builder.reshape(signal, shape.clone())?;
    }
    let [batch, length, parts] = <[usize; 3]>::try_from(shape)
        .map_err(|shape| NodeError::invalid(format!("a signal of shape {shape:?}")))?;
    let frame = match (node.optional(3), window) {
        (Some(_), _) => builder.integer_of(node, 3)?,
        (None, Some(window)) => builder.shape(window).first().copied().unwrap_or(0) as i64,
        (None, None) => return Err(NodeError::invalid("frame_length and window are left out")),
    };
    let (Ok(frame), Ok(step)) = (usize::try_from(frame), usize::try_from(step)) else {
        return Err(NodeError::invalid("frame_length or frame_step is negative"));
    };
    let count =
        length.checked_sub(frame).and_then(|rest| rest.checked_div(step)).map(|count| count + 1);
    let count = count.filter(|count| count.checked_mul(frame).is_some_and(|all| all <= LARGEST));
    let count = count.ok_or_else(|| {
        NodeError::invalid(format!("a signal of {length} has no frames of {frame} every {step}"))
    })?;
    let places: Vec<i64> =
        (0..count * frame).map(|flat| (flat / frame * step + flat % frame) as i64).collect();
    let places = builder.constant(Tensor::from_elements([count, frame], &places)?);
    let mut frames = builder.apply(Gather { axis: 1 }, &[signal, places])?;
    if let Some(window) = window {
        let window = builder.reshape(window, vec![frame, 1])?;
        frames = builder.multiply(frames, window)?;
    }
    debug_assert_eq!(builder.shape(frames), [batch, count, frame, parts]);
    Ok(vec![transform(builder, frames, frame, false, onesided && parts == 1)?])
}

/// `HannWindow`, `HammingWindow`, `BlackmanWindow`, of a size known when compiling.
pub(super) fn window(builder: &mut Builder, node: &mut Node) -> Outputs {
    let size = builder.integer_of(node, 0)?;
    let dtype = output_type(node)?;
    let periodic = node.flag("periodic", true)?;
    let size = usize::try_from(size).ok().filter(|size| *size <= LARGEST);
    let size = size.ok_or_else(|| NodeError::invalid("the size is no extent"))?;
    let span = if periodic { size } else { size.saturating_sub(1) }.max(1) as f64;
    let value = |place: usize| {
        let angle = TAU * place as f64 / span;
        match node.operator.as_str() {
            "HannWindow" => 0.5 - 0.5 * angle.cos(),
            "HammingWindow" => 25.0 / 46.0 - 21.0 / 46.0 * angle.cos(),
            _ => 0.42 - 0.5 * angle.cos() + 0.08 * (2.0 * angle).cos(),
        }
    };
    let values: Vec<f64> = (0..size).map(value).collect();
    Ok(vec![builder.constant(Tensor::from_f64(dtype, [size], &values)?)])
}

fn output_type(node: &mut Node) -> Result<DataType, NodeError> {
    let number = i32::try_from(node.int_or("output_datatype", 1)?).unwrap_or(0);
    crate::onnx::tensor::element_type(number).map_err(NodeError::Invalid)
}

/// `MelWeightMatrix`: triangular filters, equally wide on the mel scale (`2595 log10(1 + f / 700)`).
pub(super) fn mel_weights(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (filters, length) = (builder.integer_of(node, 0)?, builder.integer_of(node, 1)?);
    let mut numbers = [0.0; 3];
    for (place, number) in numbers.iter_mut().enumerate() {
        *number = builder.floats_of(node, place + 2)?.first().copied().unwrap_or(0.0);
    }
    let [rate, low, high] = numbers;
    let dtype = output_type(node)?;
    let (Ok(filters), Ok(length)) = (usize::try_from(filters), usize::try_from(length)) else {
        return Err(NodeError::invalid("a number of filters or a length is negative"));
    };
    let bins = length / 2 + 1;
    if bins.checked_mul(filters + 1).is_none_or(|entries| entries > LARGEST) || rate <= 0.0 {
        return Err(NodeError::invalid(format!("{filters} filters of {bins} bins at {rate} Hz")));
    }
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (filters as f64 + 2.0);
    let corner = |place: usize| {
        let hertz = 700.0 * (10f64.powf((place as f64 * step + mel(low)) / 2595.0) - 1.0);
        ((length as f64 + 1.0) * hertz / rate).floor().max(0.0) as usize
    };
    let mut values = vec![0.0; bins * filters];
    for filter in 0..filters {
        let [from, middle, to] = [corner(filter), corner(filter + 1), corner(filter + 2)];
        for bin in from..=to.min(bins.saturating_sub(1)) {
            let [from, middle, to, at] = [from, middle, to, bin].map(|own| own as f64);
            let rise = if middle <= from { 1.0 } else { (at - from) / (middle - from) };
            let fall = (to - at) / (to - middle).max(1.0);
            if at <= middle {
                values[bin * filters + filter] = rise;
            } else if at < to {
                values[bin * filters + filter] = fall;
            }
        }
    }
    Ok(vec![builder.constant(Tensor::from_f64(dtype, [bins, filters], &values)?)])
}
