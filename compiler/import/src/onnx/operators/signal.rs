//! Operators on signals: Fourier transforms and what frames are transformed, windows, and the filters of mel spectrograms.

use super::decided::{counted, is_open};
use super::fourier::{LARGEST, transform};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{BinaryFunction as B, Gather};
use hone_types::{DataType, Tensor};
use std::f64::consts::TAU;

/// `DFT`: of an axis of a tensor whose last axis holds real, or real and imaginary parts. The axis is an attribute
/// before opset 20, an input since.
pub(super) fn dft(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let rank = builder.rank(input);
    let length = match node.optional(1) {
        Some(_) => Some(builder.integer_of(node, 1)?),
        None => None,
    };
    let (inverse, onesided) = (node.flag("inverse", false)?, node.flag("onesided", false)?);
    let along = |builder: &mut Builder, place: usize| {
        transform_along(builder, input, place, length, inverse, onesided)
    };
    let place = match node.opset {
        ..20 => node.int_or("axis", 1)?,
        _ if is_open(builder, node, 2) => {
            let target = node.declared(0).filter(|_| length.is_none());
            let target = target.ok_or_else(|| builder.not_constant(node, 2))?;
            let keys = transformed_axes(&builder.shape(input), &target, inverse, onesided);
            let key = builder.axes_key(node.input(2)?, rank)?;
            let message = format!("no transform along that axis has the declared shape {target:?}");
            let result = builder.choose(key, &keys, &message, &mut |builder, set| {
                along(builder, set.trailing_zeros() as usize)
            })?;
            return Ok(vec![result]);
        }
        _ if node.optional(2).is_some() => builder.integer_of(node, 2)?,
        _ => -2,
    };
    let place = axis(place, rank)?;
    if place + 1 == rank {
        return Err(NodeError::invalid("the last axis holds the parts of numbers, not a signal"));
    }
    Ok(vec![along(builder, place)?])
}

/// The axes, as powers of two, along which a transform of a tensor gives another's shape. The last is none.
fn transformed_axes(from: &[usize], to: &[usize], inverse: bool, onesided: bool) -> Vec<i64> {
    let made = |extent: usize| match (inverse, onesided) {
        (_, false) => extent,
        (false, true) => extent / 2 + 1,
        (true, true) => 2 * extent.saturating_sub(1),
    };
    let signal = from.len().saturating_sub(1);
    let fits = |place: &usize| {
        let extents = from[..signal].iter().enumerate();
        let extents = extents.map(|(axis, own)| if axis == *place { made(*own) } else { *own });
        to.len() == from.len() && extents.eq(to[..signal].iter().copied())
    };
    (0..signal.min(62)).filter(fits).map(|place| 1i64 << place).collect()
}

/// The transform along an axis that is not the last.
fn transform_along(
    builder: &mut Builder,
    input: Operand,
    place: usize,
    length: Option<i64>,
    inverse: bool,
    onesided: bool,
) -> Step {
    let rank = builder.rank(input);
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
    builder.transpose(parts, turn)
}

/// `STFT`: transforms of frames of a signal `[batch, length, parts]`.
pub(super) fn stft(builder: &mut Builder, node: &mut Node) -> Outputs {
    let signal = node.input(0)?;
    let step = match is_open(builder, node, 1) {
        true => None,
        false => Some(builder.integer_of(node, 1)?),
    };
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
    let frame = usize::try_from(frame).ok().filter(|frame| *frame <= length);
    let frame = frame.ok_or_else(|| NodeError::invalid("no frame fits the signal"))?;
    let (count, starts) = match step {
        Some(step) => starts(builder, length - frame, step)?,
        None => declared_starts(builder, node, length - frame)?,
    };
    if count.checked_mul(frame).is_none_or(|all| all > LARGEST) {
        return Err(NodeError::invalid(format!("{count} frames of {frame} elements")));
    }
    let starts = builder.reshape(starts, vec![count, 1])?;
    let inside = counted(builder, frame)?;
    let places = builder.add(starts, inside)?;
    let mut frames = builder.apply(Gather { axis: 1 }, &[signal, places])?;
    if let Some(window) = window {
        let window = builder.reshape(window, vec![frame, 1])?;
        frames = builder.multiply(frames, window)?;
    }
    debug_assert_eq!(builder.shape(frames), [batch, count, frame, parts]);
    Ok(vec![transform(builder, frames, frame, false, onesided && parts == 1)?])
}

/// The first elements of frames every `step`, of which the last begins at `last` at the latest, and how many there are.
fn starts(builder: &mut Builder, last: usize, step: i64) -> Result<(usize, Operand), NodeError> {
    let step = usize::try_from(step).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| NodeError::invalid("frame_step is not positive"))?;
    let starts: Vec<i64> = (0..=last).step_by(step).map(|start| start as i64).collect();
    Ok((starts.len(), builder.integers(&starts)?))
}

/// The same of a step that a run decides, as many as the model declares.
fn declared_starts(
    builder: &mut Builder,
    node: &Node,
    last: usize,
) -> Result<(usize, Operand), NodeError> {
    let count = node.declared_extent(0, 1).filter(|count| *count > 0);
    let count = count.ok_or_else(|| builder.not_constant(node, 1))?;
    let step = builder.cast(node.input(1)?, DataType::I64)?;
    let step = builder.reshape(step, Vec::new())?;
    let positive = builder.with_scalar(B::Greater, step, 0.0)?;
    builder.require(positive, "frame_step is not positive")?;
    let last = builder.constant(Tensor::scalar(last as i64));
    let frames = builder.divide(last, step)?;
    let same = builder.with_scalar(B::Equal, frames, count as f64 - 1.0)?;
    builder.require(same, format!("there are not {count} frames, as the model declares"))?;
    let places = counted(builder, count)?;
    Ok((count, builder.multiply(places, step)?))
}

/// `HannWindow`, `HammingWindow`, `BlackmanWindow`, of a size known when compiling, or declared.
pub(super) fn window(builder: &mut Builder, node: &mut Node) -> Outputs {
    let size = builder.integer_held(node, 0, node.declared_extent(0, 0))?;
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
