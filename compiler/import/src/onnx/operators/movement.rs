//! Operators that move elements: transposes, slices, joins, pads, repetitions, blocks.

use super::{counted, decided};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axes, axis, extents};
use hone_ops::{CumulativeSum, PadMode, Slice, Tile, Trilu};

/// `Transpose`; without `perm` the axes are reversed.
pub(super) fn transpose(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let rank = builder.rank(input);
    let permutation = match node.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(permutation) => {
            permutation.iter().map(|place| axis(*place, rank)).collect::<Result<_, _>>()?
        }
    };
    Ok(vec![builder.transpose(input, permutation)?])
}

/// `Concat`.
pub(super) fn concat(builder: &mut Builder, node: &mut Node) -> Outputs {
    let inputs = node.variadic()?;
    let place = match (node.int("axis")?, node.opset) {
        (Some(place), _) => place,
        (None, ..4) => 1,
        (None, _) => return Err(NodeError::invalid("attribute 'axis' is missing")),
    };
    let place = axis(place, builder.rank(inputs[0]))?;
    Ok(vec![builder.concat(&inputs, place)?])
}

/// `Expand`.
pub(super) fn expand(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    if node.declared(0).is_none()
        && let Some(expanded) = counted::expand(builder, node, input)?
    {
        return Ok(vec![expanded]);
    }
    let shape = match decided::expand(builder, node, input)? {
        Some(shape) => shape,
        None => extents(&builder.integers_of(node, 1)?, "shape")?,
    };
    Ok(vec![builder.expand(input, shape)?])
}

/// `Tile`.
pub(super) fn tile(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    if node.declared(0).is_none()
        && let Some(tiled) = counted::tile(builder, node, input)?
    {
        return Ok(vec![tiled]);
    }
    let implied = decided::repeats(&builder.shape(input), node);
    let repeats = extents(&builder.integers_held(node, 1, implied)?, "repeats")?;
    Ok(vec![builder.apply(Tile { repeats }, &[input])?])
}

/// `Slice`: bounds are attributes before opset 10, inputs since.
pub(super) fn slice(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let (starts, ends, named, steps) = if node.opset < 10 {
        let missing = || NodeError::invalid("starts or ends are missing");
        let starts = node.ints("starts")?.ok_or_else(missing)?;
        (starts, node.ints("ends")?.ok_or_else(missing)?, node.ints("axes")?, None)
    } else {
        let known = |place: usize| builder.optional_integers(node, place);
        // What is not known now is looked at as what a run decides.
        let (Ok(named), Ok(steps)) = (known(3), known(4)) else {
            let slice = decided::slice(builder, node, input)?;
            return slice.map(|slice| vec![slice]).ok_or_else(|| builder.not_constant(node, 3));
        };
        if steps.as_ref().is_none_or(|steps| steps[..] == [1]) {
            let along = named.as_ref().map_or(Some(0), |named| named.first().copied());
            let (start, end) = (node.input(1)?, node.input(2)?);
            let along = axis(along.unwrap_or(0), builder.rank(input))?;
            if let Some(slice) = builder.moving_slice(input, along, start, end)? {
                return Ok(vec![slice]);
            }
        }
        if let Some(slice) = decided::slice(builder, node, input)? {
            return Ok(vec![slice]);
        }
        if steps.as_ref().is_none_or(|steps| steps[..] == [1])
            && let Some(slice) = counted::slice(builder, node, input, named.as_deref())?
        {
            return Ok(vec![slice]);
        }
        let starts = builder.integers_of(node, 1)?;
        let ends = builder.integers_of(node, 2)?;
        (starts, ends, named, steps)
    };
    let shape = builder.shape(input);
    let count = starts.len();
    let named = named.unwrap_or_else(|| (0..count as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; count]);
    if ends.len() != count || named.len() != count || steps.len() != count {
        return Err(NodeError::invalid("starts, ends, axes and steps differ in length"));
    }
    axes(&named, shape.len())?;
    let mut whole =
        Slice { starts: vec![0; shape.len()], steps: vec![1; shape.len()], extents: shape.clone() };
    for place in 0..count {
        let axis = axis(named[place], shape.len())?;
        let (start, extent) = range(starts[place], ends[place], steps[place], shape[axis])?;
        (whole.starts[axis], whole.steps[axis]) = (start, steps[place]);
        whole.extents[axis] = extent;
    }
    if whole.extents == shape && whole.steps.iter().all(|step| *step == 1) {
        return Ok(vec![input]);
    }
    Ok(vec![builder.apply(whole, &[input])?])
}

/// First index and number of indices of `start..end` by `step` in an axis of `extent`.
fn range(start: i64, end: i64, step: i64, extent: usize) -> Result<(usize, usize), NodeError> {
    let extent = extent as i64;
    let from_end = |place: i64| if place < 0 { place.saturating_add(extent) } else { place };
    let (start, end) = (from_end(start), from_end(end));
    let (start, distance) = if step > 0 {
        let start = start.clamp(0, extent);
        (start, end.clamp(0, extent) - start)
    } else {
        let start = start.clamp(-1, extent - 1);
        (start, start - end.clamp(-1, extent - 1))
    };
    if step == 0 {
        return Err(NodeError::invalid("a step is 0"));
    }
    let count = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
    Ok((start.max(0) as usize, count as usize))
}

/// `Split`: parts are an attribute before opset 13, an input since; `num_outputs` since 18.
pub(super) fn split(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let place = node.int_or("axis", 0)?;
    let place = axis(place, builder.rank(input))?;
    let extent = builder.shape(input)[place];
    let given = match node.optional(1).filter(|_| node.opset >= 13) {
        None => node.ints("split")?,
        Some(_) => {
            let parts =
                (0..node.output_names.len()).map(|output| node.declared_extent(output, place));
            let parts = parts.map(|part| part.map(|part| Some(part as i64))).collect();
            Some(builder.integers_held(node, 1, parts)?)
        }
    };
    let number = node.int("num_outputs")?;
    let parts = match given {
        Some(parts) => extents(&parts, "split")?,
        None => {
            let number = number.unwrap_or(node.wanted.len() as i64);
            let number =
                usize::try_from(number).ok().filter(|number| (1..=extent.max(1)).contains(number));
            let number = number.ok_or_else(|| {
                NodeError::invalid(format!("extent {extent} cannot be split as asked"))
            })?;
            // All parts are equal but the last, which may be smaller.
            let part = extent.div_ceil(number);
            (0..number).map(|index| part.min(extent.saturating_sub(index * part))).collect()
        }
    };
    let sum = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
    if sum != Some(extent) || parts.len() < node.wanted.len() {
        return Err(NodeError::invalid(format!(
            "parts {parts:?} do not make extent {extent} and {} outputs",
            node.wanted.len()
        )));
    }
    let mut start = 0;
    let mut outputs = Vec::with_capacity(parts.len());
    for part in parts {
        outputs.push(builder.narrow(input, place, start, part)?);
        start += part;
    }
    Ok(outputs)
}

/// `Pad`: amounts are attributes before opset 11, inputs since.
pub(super) fn pad(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let mode = match node.string_or("mode", "constant")?.as_str() {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let rank = builder.rank(input);
    if node.opset >= 11
        && let Some(padded) = decided::pad(builder, node, input, mode)?
    {
        return Ok(vec![padded]);
    }
    let (pads, value, named) = if node.opset < 11 {
        let pads = match node.opset {
            ..2 => node.ints("paddings")?,
            _ => node.ints("pads")?,
        };
        let pads = pads.ok_or_else(|| NodeError::invalid("pads are missing"))?;
        (pads, node.float_or("value", 0.0)?, None)
    } else {
        let value = match node.optional(2) {
            Some(_) => builder.floats_of(node, 2)?.first().copied().unwrap_or(0.0),
            None => 0.0,
        };
        (builder.integers_of(node, 1)?, value, builder.optional_integers(node, 3)?)
    };
    let named: Vec<usize> = match named {
        Some(named) => {
            axes(&named, rank)?;
            named.iter().map(|place| axis(*place, rank)).collect::<Result<_, _>>()?
        }
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * named.len() {
        return Err(NodeError::invalid(format!(
            "there are {} pads for {} axes",
            pads.len(),
            named.len()
        )));
    }
    let (mut begin, mut end) = (vec![0; rank], vec![0; rank]);
    for (place, axis) in named.iter().enumerate() {
        (begin[*axis], end[*axis]) = (pads[place], pads[named.len() + place]);
    }
    Ok(vec![builder.pad(input, begin, end, mode, value)?])
}

/// `Trilu`.
pub(super) fn trilu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let upper = node.flag("upper", true)?;
    let diagonal = match node.optional(1) {
        Some(own) if builder.tensor(own).is_none() => {
            return Ok(vec![decided::triangle(builder, node.input(0)?, own, upper)?]);
        }
        Some(_) => builder.integer_of(node, 1)?,
        None => 0,
    };
    Ok(vec![builder.apply(Trilu { upper, diagonal }, &[node.input(0)?])?])
}

/// `CumSum` and `CumProd`.
pub(super) fn cumulative(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let product = node.operator == "CumProd";
    let (place, rank) = (node.input(1)?, builder.rank(input));
    let exclusive = node.flag("exclusive", false)?;
    let reverse = node.flag("reverse", false)?;
    let sums = |builder: &mut Builder, axis: usize| {
        builder.apply(CumulativeSum { axis, exclusive, reverse, product, in_rows: false }, &[input])
    };
    if builder.tensor(place).is_some() {
        let axis = axis(builder.integer_of(node, 1)?, rank)?;
        return Ok(vec![sums(builder, axis)?]);
    }
    Ok(vec![decided::by_axis(builder, place, rank, &mut |builder, axis| sums(builder, axis))?])
}

/// The block size and `[batch, channels, height, width]`.
fn blocks(builder: &Builder, node: &mut Node) -> Result<(Operand, usize, [usize; 4]), NodeError> {
    let input = node.input(0)?;
    let size = node.int_or("blocksize", 0)?;
    let shape = builder.shape(input);
    match (usize::try_from(size), <[usize; 4]>::try_from(shape.as_slice())) {
        (Ok(size), Ok(shape)) if size > 0 && size <= 1 << 20 => Ok((input, size, shape)),
        _ => Err(NodeError::invalid(format!("block size {size} does not fit shape {shape:?}"))),
    }
}

/// Seen under one shape, transposed, seen under another.
fn shuffle(
    builder: &mut Builder,
    input: Operand,
    seen: Vec<usize>,
    permutation: Vec<usize>,
    result: Vec<usize>,
) -> Step {
    let split = builder.reshape(input, seen)?;
    let moved = builder.transpose(split, permutation)?;
    builder.reshape(moved, result)
}

/// `DepthToSpace`: channels become blocks of space.
pub(super) fn depth_to_space(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (input, size, [n, c, h, w]) = blocks(builder, node)?;
    let depth = c / (size * size);
    if !c.is_multiple_of(size * size) {
        return Err(NodeError::invalid(format!("{c} channels do not make blocks of {size}")));
    }
    let result = vec![n, depth, h * size, w * size];
    let (seen, permutation) = match node.string_or("mode", "DCR")?.as_str() {
        "DCR" => (vec![n, size, size, depth, h, w], vec![0, 3, 4, 1, 5, 2]),
        "CRD" => (vec![n, depth, size, size, h, w], vec![0, 1, 4, 2, 5, 3]),
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    Ok(vec![shuffle(builder, input, seen, permutation, result)?])
}

/// `SpaceToDepth`: blocks of space become channels.
pub(super) fn space_to_depth(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (input, size, [n, c, h, w]) = blocks(builder, node)?;
    if !h.is_multiple_of(size) || !w.is_multiple_of(size) {
        return Err(NodeError::invalid(format!(
            "{h} by {w} elements do not make blocks of {size}"
        )));
    }
    // Which comes first in the new channels: the place within the block, or the old channel.
    let permutation = match node.string_or("mode", "DCR")?.as_str() {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let seen = vec![n, c, h / size, size, w / size, size];
    let result = c.checked_mul(size * size).map(|depth| vec![n, depth, h / size, w / size]);
    let result = result.ok_or_else(|| NodeError::invalid("the block is too large"))?;
    Ok(vec![shuffle(builder, input, seen, permutation, result)?])
}
