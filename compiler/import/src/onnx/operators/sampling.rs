//! Values of images at places between their elements: `GridSample`, `AffineGrid`, `RoiAlign`, `DeformConv`.

use super::window::window;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{
    BinaryFunction as B, Gather, GatherElements, ReduceFunction as R, UnaryFunction as U,
};
use hone_types::{DataType, Tensor};

/// What is read outside of an image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zero,
    Nearest,
    /// Mirrored at the given ends, which differ by whether corners are aligned.
    Mirrored {
        aligned: bool,
    },
}

/// How a value is made of its neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Nearest,
    Linear,
    Cubic,
}

/// `GridSample`: inputs an image `[N, C, d...]` and the places `[N, o..., axes]`, from -1 to 1 along each axis,
/// the last axis first.
pub(super) fn grid_sample(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, grid) = (node.input(0)?, node.input(1)?);
    let between = match node.string_or("mode", "linear")?.as_str() {
        "linear" | "bilinear" => Between::Linear,
        "nearest" => Between::Nearest,
        "cubic" | "bicubic" => Between::Cubic,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let aligned = node.flag("align_corners", false)?;
    let outside = match node.string_or("padding_mode", "zeros")?.as_str() {
        "zeros" => Outside::Zero,
        "border" => Outside::Nearest,
        "reflection" => Outside::Mirrored { aligned },
        other => return Err(NodeError::invalid(format!("padding_mode '{other}' is unknown"))),
    };
    let (shape, places) = (builder.shape(x), builder.shape(grid));
    let axes = shape.len().saturating_sub(2);
    if axes == 0
        || places.len() != shape.len()
        || places.last() != Some(&axes)
        || places[0] != shape[0]
    {
        return Err(NodeError::invalid(format!("places {places:?} do not fit an image {shape:?}")));
    }
    let count: usize = places[1..=axes].iter().product();
    let dtype = builder.dtype(x);
    let grid = builder.cast(grid, dtype)?;
    let flat = builder.reshape(grid, vec![places[0], count, axes])?;
    let mut along = Vec::with_capacity(axes);
    for axis in 0..axes {
        let own = builder.narrow(flat, 2, axes - 1 - axis, 1)?;
        let own = builder.reshape(own, vec![places[0], count])?;
        let extent = shape[2 + axis] as f64;
        // From -1..1 to 0..extent - 1, or to the outer ends of the elements.
        let (factor, offset) = match aligned {
            true => ((extent - 1.0) / 2.0, (extent - 1.0) / 2.0),
            false => (extent / 2.0, (extent - 1.0) / 2.0),
        };
        let scaled = builder.with_scalar(B::Multiply, own, factor)?;
        along.push(builder.with_scalar(B::Add, scaled, offset)?);
    }
    let sampled = sample(builder, x, &along, between, outside)?;
    Ok(vec![builder.reshape(sampled, [&shape[..2], &places[1..=axes]].concat())?])
}

/// Where one axis is read, and how much each counts; `[N, P]` each.
type Taps = Vec<(Operand, Option<Operand>)>;

/// `x` of `[N, C, d...]` at places `along` each axis, `[N, P]` each; `[N, C, P]`.
fn sample(
    b: &mut Builder,
    x: Operand,
    along: &[Operand],
    between: Between,
    outside: Outside,
) -> Step {
    let shape = b.shape(x);
    let mut axes: Vec<Taps> = Vec::new();
    for (own, extent) in along.iter().zip(&shape[2..]) {
        axes.push(taps(b, *own, *extent, between, outside)?);
    }
    let elements: usize = shape[2..].iter().product();
    let flat = b.reshape(x, vec![shape[0], shape[1], elements])?;
    // Every choice of one tap per axis.
    let choices = axes.iter().map(Vec::len).product::<usize>();
    let mut sum: Option<Operand> = None;
    for choice in 0..choices {
        let (mut rest, mut place, mut weight) = (choice, None, None);
        for (taps, extent) in axes.iter().zip(&shape[2..]) {
            let (own, own_weight) = taps[rest % taps.len()];
            rest /= taps.len();
            place = Some(match place {
                None => own,
                Some(before) => {
                    let row = b.with_scalar(B::Multiply, before, *extent as f64)?;
                    b.add(row, own)?
                }
            });
            weight = match (weight, own_weight) {
                (Some(before), Some(own)) => Some(b.multiply(before, own)?),
                (before, own) => own.or(before),
            };
        }
        let Some(place) = place else { continue };
        let mut value = gathered(b, flat, place)?;
        if let Some(weight) = weight {
            let [batch, count] = [b.shape(weight)[0], b.shape(weight)[1]];
            let weight = b.reshape(weight, vec![batch, 1, count])?;
            value = b.multiply(value, weight)?;
        }
        sum = Some(match sum {
            None => value,
            Some(before) => b.add(before, value)?,
        });
    }
    sum.ok_or_else(|| NodeError::invalid("there is nothing to read"))
}

/// Elements of `[N, C, E]` at `[N, P]`.
fn gathered(b: &mut Builder, flat: Operand, place: Operand) -> Step {
    let (shape, places) = (b.shape(flat), b.shape(place));
    let place = b.reshape(place, vec![places[0], 1, places[1]])?;
    let place = b.expand(place, vec![places[0], shape[1], places[1]])?;
    // More places than elements is a wider axis, which is the one indexed.
    b.apply(GatherElements { axis: 2 }, &[flat, place])
}

/// The elements along one axis that a value at `x` is made of.
fn taps(
    b: &mut Builder,
    x: Operand,
    extent: usize,
    between: Between,
    outside: Outside,
) -> Result<Taps, NodeError> {
    let dtype = b.dtype(x);
    if between == Between::Nearest {
        let whole = b.unary(U::Round, x)?;
        return Ok(vec![inside(b, whole, extent, outside, None)?]);
    }
    let x = match outside {
        Outside::Zero => x,
        _ if between == Between::Cubic => x,
        Outside::Nearest => {
            let above = b.with_scalar(B::Maximum, x, 0.0)?;
            b.with_scalar(B::Minimum, above, extent as f64 - 1.0)?
        }
        Outside::Mirrored { aligned } => mirrored(b, x, extent, aligned)?,
    };
    let first = b.unary(U::Floor, x)?;
    let part = b.subtract(x, first)?;
    let weights = match between {
        Between::Cubic => cubic(b, part)?,
        _ => {
            let rest = b.scalar_with(B::Subtract, 1.0, part)?;
            vec![rest, part]
        }
    };
    let start = if between == Between::Cubic { -1.0 } else { 0.0 };
    let mut taps = Vec::with_capacity(weights.len());
    for (step, weight) in weights.into_iter().enumerate() {
        let place = b.with_scalar(B::Add, first, start + step as f64)?;
        debug_assert_eq!(b.dtype(place), dtype);
        taps.push(inside(b, place, extent, outside, Some(weight))?);
    }
    Ok(taps)
}

/// A whole place moved inside of the axis, as an index, and its weight; nothing where it reads zero.
fn inside(
    b: &mut Builder,
    place: Operand,
    extent: usize,
    outside: Outside,
    weight: Option<Operand>,
) -> Result<(Operand, Option<Operand>), NodeError> {
    let last = extent as f64 - 1.0;
    let (place, weight) = match outside {
        Outside::Zero => {
            let after = b.with_scalar(B::GreaterEqual, place, 0.0)?;
            let before = b.with_scalar(B::LessEqual, place, last)?;
            let within = b.binary(B::And, after, before)?;
            let (zero, one) = (b.scalar(b.dtype(place), 0.0)?, b.scalar(b.dtype(place), 1.0)?);
            (place, Some(b.select(within, weight.unwrap_or(one), zero)?))
        }
        Outside::Nearest => (place, weight),
        Outside::Mirrored { aligned } => {
            let moved = mirrored(b, place, extent, aligned)?;
            (b.unary(U::Round, moved)?, weight)
        }
    };
    let above = b.with_scalar(B::Maximum, place, 0.0)?;
    let within = b.with_scalar(B::Minimum, above, last)?;
    Ok((b.cast(within, DataType::I32)?, weight))
}

/// `x` mirrored at both ends of an axis until it is inside.
fn mirrored(b: &mut Builder, x: Operand, extent: usize, aligned: bool) -> Step {
    let (least, span) = match aligned {
        true => (0.0, extent as f64 - 1.0),
        false => (-0.5, extent as f64),
    };
    if span == 0.0 {
        return b.with_scalar(B::Multiply, x, 0.0);
    }
    let moved = b.with_scalar(B::Subtract, x, least)?;
    let distance = b.unary(U::Abs, moved)?;
    // 0 to span, then back: the distance from the nearest multiple of twice the span.
    let turns = b.with_scalar(B::Divide, distance, 2.0 * span)?;
    let whole = b.unary(U::Round, turns)?;
    let near = b.with_scalar(B::Multiply, whole, 2.0 * span)?;
    let rest = b.subtract(distance, near)?;
    let rest = b.unary(U::Abs, rest)?;
    b.with_scalar(B::Add, rest, least)
}

/// Weights of four neighbours at -1, 0, 1, 2 for a place `t` behind the second (Keys, 1981, with -0.75).
fn cubic(b: &mut Builder, t: Operand) -> Result<Vec<Operand>, NodeError> {
    const A: f64 = -0.75;
    // Each is a polynomial of the third degree, highest power first.
    let polynomials = [
        [A, -2.0 * A, A, 0.0],
        [A + 2.0, -(A + 3.0), 0.0, 1.0],
        [-(A + 2.0), 2.0 * A + 3.0, -A, 0.0],
        [-A, A, 0.0, 0.0],
    ];
    let mut weights = Vec::new();
    for [cube, square, line, constant] in polynomials {
        let mut value = b.with_scalar(B::Multiply, t, cube)?;
        for coefficient in [square, line] {
            value = b.with_scalar(B::Add, value, coefficient)?;
            value = b.multiply(value, t)?;
        }
        weights.push(b.with_scalar(B::Add, value, constant)?);
    }
    Ok(weights)
}

/// `AffineGrid`: places `[N, d..., axes]` for `GridSample`, by a matrix for each image.
pub(super) fn affine_grid(builder: &mut Builder, node: &mut Node) -> Outputs {
    let theta = node.input(0)?;
    // The number of channels decides nothing.
    let implied = node.implied(0).and_then(|own| {
        let (batch, rest) = own.split_first()?;
        let (_, spatial) = rest.split_last()?;
        Some([&[*batch, None], spatial].concat())
    });
    let size = builder.integers_held(node, 1, implied)?;
    let size = crate::onnx::shorthands::extents(&size, "size")?;
    let aligned = node.flag("align_corners", false)?;
    let Some((batch, spatial)) =
        size.split_first().map(|(n, rest)| (*n, rest.get(1..).unwrap_or_default()))
    else {
        return Err(NodeError::invalid("size is empty"));
    };
    let axes = spatial.len();
    let count = spatial.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
    let count =
        count.filter(|count| *count <= 1 << 24 && (1..=3).contains(&axes)).ok_or_else(|| {
            NodeError::invalid(format!("a grid of {size:?} is too large or has no axes"))
        })?;
    let dtype = builder.dtype(theta);
    let mut base = Vec::with_capacity(count * (axes + 1));
    for flat in 0..count {
        let mut rest = flat;
        // The last axis comes first.
        for extent in spatial.iter().rev() {
            let (index, extent_f) = ((rest % extent) as f64, *extent as f64);
            rest /= extent;
            base.push(match aligned {
                true if *extent > 1 => 2.0 * index / (extent_f - 1.0) - 1.0,
                true => -1.0,
                false => (2.0 * index + 1.0) / extent_f - 1.0,
            });
        }
        base.push(1.0);
    }
    let base = builder.constant(Tensor::from_f64(dtype, [count, axes + 1], &base)?);
    let turned = builder.transpose(theta, vec![0, 2, 1])?;
    let places = builder.matmul(base, turned)?;
    Ok(vec![builder.reshape(places, [&[batch], spatial, &[axes]].concat())?])
}

/// `RoiAlign`: bins of regions, each the mean or the largest of a few values between elements. Inputs an image
/// `[N, C, H, W]`, regions `[R, 4]` as two corners, and the image of each.
pub(super) fn roi_align(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (x, rois, image) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let largest = match node.string_or("mode", "avg")?.as_str() {
        "avg" => false,
        "max" => true,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let default = if node.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = node.string_or("coordinate_transformation_mode", default)? == "half_pixel";
    let scale = node.float_or("spatial_scale", 1.0)?;
    let bins = [node.int_or("output_height", 1)?, node.int_or("output_width", 1)?];
    let ratio = node.int_or("sampling_ratio", 0)?;
    if ratio <= 0 {
        return Err(NodeError::unsupported(
            "a number of samples that depends on the region (sampling_ratio 0)",
        ));
    }
    let limit =
        |number: i64| usize::try_from(number).ok().filter(|own| (1..=1 << 10).contains(own));
    let (Some(height), Some(width), Some(ratio)) = (limit(bins[0]), limit(bins[1]), limit(ratio))
    else {
        return Err(NodeError::invalid(format!(
            "bins {bins:?} or sampling_ratio {ratio} do not fit"
        )));
    };
    let shape = b.shape(x);
    let regions = b.shape(rois).first().copied().unwrap_or(0);
    let [_, channels, rows, columns] = <[usize; 4]>::try_from(shape.clone())
        .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not four axes")))?;
    let mut sides = Vec::new();
    for (axis, bins) in [(1, height), (0, width)] {
        let [start, end] = [axis, axis + 2].map(|place| b.narrow(rois, 1, place, 1));
        let (start, end) =
            (b.with_scalar(B::Multiply, start?, scale)?, b.with_scalar(B::Multiply, end?, scale)?);
        let offset = if half { 0.5 } else { 0.0 };
        let start = b.with_scalar(B::Subtract, start, offset)?;
        let end = b.with_scalar(B::Subtract, end, offset)?;
        let mut size = b.subtract(end, start)?;
        if !half {
            size = b.with_scalar(B::Maximum, size, 1.0)?;
        }
        let step = b.with_scalar(B::Divide, size, (bins * ratio) as f64)?;
        let middle: Vec<f64> = (0..bins * ratio).map(|place| place as f64 + 0.5).collect();
        let middle = b.constant(Tensor::from_f64(b.dtype(rois), [1, bins * ratio], &middle)?);
        let moved = b.multiply(step, middle)?;
        sides.push(b.add(start, moved)?);
    }
    let (down, across) = (height * ratio, width * ratio);
    let mut corners = Vec::new();
    for (place, (side, extent)) in sides.into_iter().zip([rows, columns]).enumerate() {
        let wide = if place == 0 { vec![regions, down, 1] } else { vec![regions, 1, across] };
        let own = b.reshape(side, wide)?;
        let near = b.with_scalar(B::GreaterEqual, own, -1.0)?;
        let within = b.with_scalar(B::LessEqual, own, extent as f64)?;
        let counts = b.binary(B::And, near, within)?;
        let above = b.with_scalar(B::Maximum, own, 0.0)?;
        let own = b.with_scalar(B::Minimum, above, extent as f64 - 1.0)?;
        let low = b.unary(U::Floor, own)?;
        let part = b.subtract(own, low)?;
        let high = b.with_scalar(B::Add, low, 1.0)?;
        let high = b.with_scalar(B::Minimum, high, extent as f64 - 1.0)?;
        let rest = b.scalar_with(B::Subtract, 1.0, part)?;
        let (zero, mut taps) = (b.scalar(b.dtype(part), 0.0)?, Vec::new());
        for (index, weight) in [(low, rest), (high, part)] {
            let index = b.cast(index, DataType::I64)?;
            taps.push((index, b.select(counts, weight, zero)?));
        }
        corners.push(taps);
    }
    let turned = b.transpose(x, vec![0, 2, 3, 1])?;
    let flat = b.reshape(turned, vec![shape[0] * rows * columns, channels])?;
    let image = b.cast(image, DataType::I64)?;
    let image = b.reshape(image, vec![regions, 1, 1])?;
    let first = b.with_scalar(B::Multiply, image, (rows * columns) as f64)?;
    let mut result: Option<Operand> = None;
    for (row, row_weight) in &corners[0] {
        for (column, column_weight) in &corners[1] {
            let start = b.with_scalar(B::Multiply, *row, columns as f64)?;
            let start = b.add(start, first)?;
            let place = b.add(start, *column)?;
            let value = b.apply(Gather { axis: 0 }, &[flat, place])?;
            let weight = b.multiply(*row_weight, *column_weight)?;
            let weight = b.reshape(weight, vec![regions, down, across, 1])?;
            let value = b.multiply(value, weight)?;
            result = Some(match result {
                None => value,
                // The largest of the weighted neighbours, as the operator is defined.
                Some(before) if largest => b.binary(B::Maximum, before, value)?,
                Some(before) => b.add(before, value)?,
            });
        }
    }
    let result = result.ok_or_else(|| NodeError::invalid("there is nothing to read"))?;
    let split = b.reshape(result, vec![regions, height, ratio, width, ratio, channels])?;
    let function = if largest { R::Maximum } else { R::Mean };
    let reduced = b.reduce(function, split, vec![2, 4], false)?;
    Ok(vec![b.transpose(reduced, vec![0, 3, 1, 2])?])
}

/// `DeformConv`: a convolution whose taps are moved by offsets. Inputs `x [N, C, H, W]`, weights `[M, C / groups, kh,
/// kw]`, offsets `[N, offset groups * kh * kw * 2, oh, ow]`, and optionally a bias and a mask.
pub(super) fn deformable(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (x, w, offset) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (shape, weights) = (b.shape(x), b.shape(w));
    let ([batch, channels, rows, columns], [made, within, kh, kw]) = (
        <[usize; 4]>::try_from(shape)
            .map_err(|_| NodeError::unsupported("other than two spatial axes"))?,
        <[usize; 4]>::try_from(weights)
            .map_err(|_| NodeError::unsupported("other than two spatial axes"))?,
    );
    node.ignore(&["kernel_shape"]);
    let groups = usize::try_from(node.int_or("group", 1)?).unwrap_or(0);
    let moved = usize::try_from(node.int_or("offset_group", 1)?).unwrap_or(0);
    let window = window(node, &[rows, columns], &[kh, kw])?;
    let fits = groups > 0
        && (1..=channels).contains(&moved)
        && within.checked_mul(groups) == Some(channels)
        && channels.is_multiple_of(moved)
        && made.is_multiple_of(groups);
    let offsets = moved.saturating_mul(kh).saturating_mul(kw).saturating_mul(2);
    let [_, _, oh, ow] = <[usize; 4]>::try_from(b.shape(offset))
        .map_err(|_| NodeError::invalid("offsets have not four axes"))?;
    if !fits || b.shape(offset) != [batch, offsets, oh, ow] {
        return Err(NodeError::invalid("weights, groups or offsets do not fit"));
    }
    let (taps, places, dtype) = (kh * kw, oh * ow, b.dtype(x));
    // [N * offset groups, taps, 2, places]
    let offset = b.reshape(offset, vec![batch * moved, taps, 2, places])?;
    let mut along = Vec::new();
    for axis in 0..2 {
        let own = b.narrow(offset, 2, axis, 1)?;
        let own = b.reshape(own, vec![batch * moved, taps * places])?;
        let mut base = Vec::with_capacity(taps * places);
        for tap in 0..taps {
            for place in 0..places {
                let (tap, place) =
                    if axis == 0 { (tap / kw, place / ow) } else { (tap % kw, place % ow) };
                let at = place * window.strides[axis] + tap * window.dilations[axis];
                base.push(at as f64 - window.pads_begin[axis] as f64);
            }
        }
        let base = b.constant(Tensor::from_f64(dtype, [1, taps * places], &base)?);
        along.push(b.add(own, base)?);
    }
    let image = b.reshape(x, vec![batch * moved, channels / moved, rows, columns])?;
    let mut read = sample(b, image, &along, Between::Linear, Outside::Zero)?;
    if let Some(mask) = node.optional(4) {
        let mask = b.reshape(mask, vec![batch * moved, 1, taps * places])?;
        read = b.multiply(read, mask)?;
    }
    // [N, groups, C / groups * taps, places]
    let read = b.reshape(read, vec![batch, groups, within * taps, places])?;
    let w = b.reshape(w, vec![groups, made / groups, within * taps])?;
    let sums = b.matmul(w, read)?;
    let mut result = b.reshape(sums, vec![batch, made, oh, ow])?;
    if let Some(bias) = node.optional(3) {
        let bias = b.reshape(bias, vec![made, 1, 1])?;
        result = b.add(result, bias)?;
    }
    Ok(vec![result])
}
