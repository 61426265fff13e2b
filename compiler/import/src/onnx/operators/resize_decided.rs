//! `Resize` whose scales, sizes or region a run decides, to extents that the model declares.
//!
//! The places in the input that outputs stand for are computed when the model runs, as `hone_ops::Resize` does when
//! compiling. The nearest elements are gathered; else a matrix of weights is made for each axis, and each output
//! element is a sum over its axis. Elements of weight zero are left out of it, so that none which is not finite spoils
//! another's result.

use super::decided::{counted, is_open};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::Node;
use crate::onnx::shorthands::Step;
use hone_ops::{
    BinaryFunction as B, CoordinateMode, Gather, NearestRounding, ReduceFunction, ResizeMode,
    UnaryFunction as U,
};
use hone_types::{DataType, Tensor};

/// Most elements of a matrix of weights.
const LARGEST: usize = 1 << 22;

/// How elements are sampled; see [`hone_ops::Resize`].
pub(super) struct Sampling<'a> {
    pub mode: ResizeMode,
    pub coordinates: CoordinateMode,
    pub antialias: bool,
    pub extrapolation: f64,
    /// `stretch`, `not_larger` or `not_smaller`.
    pub policy: &'a str,
    /// The axes that scales, sizes and region are for.
    pub named: &'a [usize],
}

/// The places of the inputs of a node.
pub(super) struct Places {
    pub region: Option<usize>,
    pub scales: usize,
    pub sizes: Option<usize>,
}

/// One axis that is resized.
struct Axis {
    place: usize,
    input: usize,
    output: usize,
    /// `f64`, of one element.
    scale: Operand,
    /// Start and end of the region, as fractions.
    region: Option<[Operand; 2]>,
}

/// The resized input; `None` where all that decides it is known, or nothing is declared.
pub(super) fn resample(
    b: &mut Builder,
    node: &Node,
    x: Operand,
    places: &Places,
    sampling: &Sampling<'_>,
) -> Result<Option<Operand>, NodeError> {
    let inputs = [places.region, Some(places.scales), places.sizes];
    if !inputs.into_iter().flatten().any(|place| is_open(b, node, place)) {
        return Ok(None);
    }
    let sizes = node.optional(places.scales).is_none_or(|own| b.tensor_type(own).elements() == 0);
    let fixed_region = places.region.is_none_or(|place| !is_open(b, node, place));
    if sizes && fixed_region && sampling.policy == "stretch" {
        // Extents and scales are what the model declares.
        return Ok(None);
    }
    let shape = b.shape(x);
    let target = node.declared(0).filter(|own| own.len() == shape.len() && !shape.contains(&0));
    let Some(target) = target else { return Ok(None) };
    let gathers = matches!(sampling.mode, ResizeMode::Nearest { .. });
    let fits = |axis: &usize| {
        let most = shape[*axis].max(target[*axis]);
        gathers || most.checked_mul(shape[*axis]).is_some_and(|entries| entries <= LARGEST / 2)
    };
    if !sampling.named.iter().all(fits) {
        return Ok(None);
    }
    let kept =
        (0..shape.len()).all(|axis| sampling.named.contains(&axis) || shape[axis] == target[axis]);
    if !kept {
        return Err(NodeError::invalid(format!("{shape:?} is not resized to {target:?}")));
    }
    let mut result = match (sampling.mode, b.dtype(x)) {
        (ResizeMode::Nearest { .. }, _) if sampling.antialias => {
            return Err(NodeError::invalid("nearest elements cannot be antialiased"));
        }
        (ResizeMode::Nearest { .. }, _) | (_, DataType::F32 | DataType::F64) => x,
        (_, dtype) if dtype.is_float() => b.cast(x, DataType::F32)?,
        (_, dtype) => return Err(NodeError::unsupported(format!("interpolation of {dtype}"))),
    };
    let mut outside = Vec::new();
    for axis in axes(b, node, &shape, &target, places, sampling)? {
        let coordinates = coordinates(b, &axis, sampling.coordinates)?;
        result = match sampling.mode {
            ResizeMode::Nearest { rounding } => nearest(b, &axis, result, coordinates, rounding)?,
            _ => {
                let weights = weights(b, &axis, coordinates, sampling)?;
                weighted(b, &axis, result, weights)?
            }
        };
        if sampling.coordinates == CoordinateMode::TfCropAndResize {
            let before = b.with_scalar(B::Less, coordinates, 0.0)?;
            let behind = b.with_scalar(B::Greater, coordinates, axis.input as f64 - 1.0)?;
            let own = b.binary(B::Or, before, behind)?;
            let mut across = vec![1; shape.len()];
            across[axis.place] = axis.output;
            outside.push(b.reshape(own, across)?);
        }
    }
    let value = b.scalar(b.dtype(result), sampling.extrapolation)?;
    for own in outside {
        result = b.select(own, value, result)?;
    }
    Ok(Some(b.cast(result, b.dtype(x))?))
}

/// The axes with their scales; a run is held to the declared extents.
fn axes(
    b: &mut Builder,
    node: &Node,
    shape: &[usize],
    target: &[usize],
    places: &Places,
    sampling: &Sampling<'_>,
) -> Result<Vec<Axis>, NodeError> {
    let named = sampling.named;
    let list = |b: &mut Builder, values: Vec<f64>| -> Step {
        let tensor = Tensor::from_f64(DataType::F64, [values.len()], &values)?;
        Ok(b.constant(tensor))
    };
    let from = list(b, named.iter().map(|axis| shape[*axis] as f64).collect())?;
    let to = list(b, named.iter().map(|axis| target[*axis] as f64).collect())?;
    let given = |b: &mut Builder, place: usize, count: usize| -> Step {
        let own = node.input(place)?;
        if b.tensor_type(own).elements() != count {
            return Err(NodeError::invalid(format!("input number {place} does not fit the axes")));
        }
        let own = b.cast(own, DataType::F64)?;
        b.reshape(own, vec![count])
    };
    let count = named.len();
    let region = match places.region {
        Some(place) => {
            let region = given(b, place, 2 * count)?;
            Some([b.narrow(region, 0, 0, count)?, b.narrow(region, 0, count, count)?])
        }
        None => None,
    };
    let there = node.optional(places.scales).filter(|own| b.tensor_type(*own).elements() > 0);
    let (scales, extents) = match (there, places.sizes) {
        (Some(_), _) => {
            let scales = given(b, places.scales, count)?;
            let mut part = from;
            if let Some([start, end]) = region {
                let own = b.subtract(end, start)?;
                part = b.multiply(from, own)?;
            }
            (scales, b.multiply(part, scales)?)
        }
        (None, Some(place)) => sized(b, given, (place, count), from, sampling.policy)?,
        (None, None) => return Err(NodeError::invalid("the scales are left out")),
    };
    let extents = b.unary(U::Floor, extents)?;
    let same = b.binary(B::Equal, extents, to)?;
    b.require(same, format!("what is resized has not the declared shape {target:?}"))?;
    let part = |b: &mut Builder, own: Operand, place: usize| b.narrow(own, 0, place, 1);
    let mut axes = Vec::new();
    for (place, axis) in named.iter().enumerate() {
        let scale = part(b, scales, place)?;
        let region = match region {
            Some([start, end]) => Some([part(b, start, place)?, part(b, end, place)?]),
            None => None,
        };
        axes.push(Axis { place: *axis, input: shape[*axis], output: target[*axis], scale, region });
    }
    Ok(axes)
}

/// Scales, and extents before they are rounded down, from sizes.
fn sized(
    b: &mut Builder,
    given: impl Fn(&mut Builder, usize, usize) -> Step,
    (place, count): (usize, usize),
    from: Operand,
    policy: &str,
) -> Result<(Operand, Operand), NodeError> {
    let sizes = given(b, place, count)?;
    let ratios = b.divide(sizes, from)?;
    let function = match policy {
        "stretch" => return Ok((ratios, sizes)),
        "not_larger" => ReduceFunction::Minimum,
        "not_smaller" => ReduceFunction::Maximum,
        other => return Err(NodeError::invalid(format!("policy '{other}' is unknown"))),
    };
    let common = b.reduce(function, ratios, vec![0], true)?;
    let scales = b.expand(common, vec![count])?;
    let widths = b.multiply(scales, from)?;
    Ok((scales, b.with_scalar(B::Add, widths, 0.5)?))
}

/// The places in the input that the outputs stand for, a list of `f64`.
fn coordinates(b: &mut Builder, axis: &Axis, mode: CoordinateMode) -> Step {
    let Axis { input, output, scale, .. } = *axis;
    let index = counted(b, output)?;
    let index = b.cast(index, DataType::F64)?;
    let last = input as f64 - 1.0;
    let single = output <= 1;
    let half_pixel = |b: &mut Builder| -> Step {
        let middle = b.with_scalar(B::Add, index, 0.5)?;
        let scaled = b.divide(middle, scale)?;
        b.with_scalar(B::Subtract, scaled, 0.5)
    };
    match mode {
        CoordinateMode::HalfPixel => half_pixel(b),
        CoordinateMode::PytorchHalfPixel if !single => half_pixel(b),
        CoordinateMode::Asymmetric => b.divide(index, scale),
        CoordinateMode::PytorchHalfPixel | CoordinateMode::AlignCorners if single => {
            b.with_scalar(B::Multiply, index, 0.0)
        }
        CoordinateMode::PytorchHalfPixel | CoordinateMode::AlignCorners => {
            let span = width(b, axis)?;
            let span = b.with_scalar(B::Subtract, span, 1.0)?;
            let scaled = b.with_scalar(B::Multiply, index, last)?;
            b.divide(scaled, span)
        }
        CoordinateMode::HalfPixelSymmetric => {
            let whole = b.with_scalar(B::Multiply, scale, input as f64)?;
            let part = b.scalar_with(B::Divide, output as f64, whole)?;
            let offset = b.scalar_with(B::Subtract, 1.0, part)?;
            let offset = b.with_scalar(B::Multiply, offset, input as f64 / 2.0)?;
            let places = half_pixel(b)?;
            b.add(places, offset)
        }
        CoordinateMode::TfCropAndResize => {
            let [start, end] = axis.region.ok_or_else(|| NodeError::invalid("roi is left out"))?;
            if single {
                let middle = b.add(start, end)?;
                let middle = b.with_scalar(B::Multiply, middle, 0.5 * last)?;
                return b.expand(middle, vec![output]);
            }
            let (length, span) = (b.subtract(end, start)?, width(b, axis)?);
            let length = b.with_scalar(B::Multiply, length, last)?;
            let span = b.with_scalar(B::Subtract, span, 1.0)?;
            let scaled = b.multiply(index, length)?;
            let scaled = b.divide(scaled, span)?;
            let first = b.with_scalar(B::Multiply, start, last)?;
            b.add(scaled, first)
        }
    }
}

/// The output's extent before rounding.
fn width(b: &mut Builder, axis: &Axis) -> Step {
    let width = b.with_scalar(B::Multiply, axis.scale, axis.input as f64)?;
    let apart = b.with_scalar(B::Subtract, width, axis.output as f64)?;
    let apart = b.unary(U::Abs, apart)?;
    let same = b.with_scalar(B::Less, apart, 1e-6)?;
    let whole = b.scalar(DataType::F64, axis.output as f64)?;
    b.select(same, whole, width)
}

fn nearest(
    b: &mut Builder,
    axis: &Axis,
    x: Operand,
    coordinates: Operand,
    rounding: NearestRounding,
) -> Step {
    let (shift, function) = match rounding {
        NearestRounding::RoundPreferFloor => (-0.5, U::Ceil),
        NearestRounding::RoundPreferCeil => (0.5, U::Floor),
        NearestRounding::Floor => (0.0, U::Floor),
        NearestRounding::Ceil => (0.0, U::Ceil),
    };
    let places = b.with_scalar(B::Add, coordinates, shift)?;
    let places = b.unary(function, places)?;
    let places = b.with_scalar(B::Maximum, places, 0.0)?;
    let places = b.with_scalar(B::Minimum, places, axis.input as f64 - 1.0)?;
    let places = b.cast(places, DataType::I64)?;
    b.apply(Gather { axis: axis.place }, &[x, places])
}

/// What each input element counts for each output element, `f64[output, input]`.
fn weights(b: &mut Builder, axis: &Axis, coordinates: Operand, sampling: &Sampling<'_>) -> Step {
    let Axis { input, output, .. } = *axis;
    let cubic = match sampling.mode {
        ResizeMode::Cubic { coefficient_a, exclude_outside } => {
            Some((coefficient_a, exclude_outside))
        }
        _ => None,
    };
    let reach = if cubic.is_some() { 2.0 } else { 1.0 };
    // A widened filter reaches as far as the output is smaller, whose extent is rounded.
    let wider = if sampling.antialias { input as f64 / (output as f64 - 0.5) } else { 1.0 };
    let far = (reach * wider.abs().max(1.0)).ceil() as usize + 1;
    // The input with as much of its edges on both sides as counts.
    let beside = 2 * far + 2;
    let all = input.saturating_add(2 * beside);
    if all.checked_mul(output.max(input)).is_none_or(|entries| entries > LARGEST) {
        return Err(NodeError::unsupported(format!("resizing {input} to {output} elements")));
    }
    let places: Vec<f64> = (0..all).map(|place| place as f64 - beside as f64).collect();
    let places = Tensor::from_f64(DataType::F64, [1, all], &places)?;
    let places = b.constant(places);
    // Farther outside, all neighbours are the edge.
    let centers = b.with_scalar(B::Maximum, coordinates, -(far as f64) - 1.0)?;
    let centers = b.with_scalar(B::Minimum, centers, (input + far) as f64)?;
    let centers = b.reshape(centers, vec![output, 1])?;
    let mut distance = b.subtract(places, centers)?;
    if sampling.antialias {
        let scale = b.with_scalar(B::Minimum, axis.scale, 1.0)?;
        distance = b.multiply(distance, scale)?;
    }
    let distance = b.unary(U::Abs, distance)?;
    let mut weights = filter(b, distance, cubic.map(|(coefficient, _)| coefficient))?;
    let excludes = cubic.is_some_and(|(_, excludes)| excludes);
    if excludes {
        let inside: Vec<f64> = (0..all)
            .map(|at| f64::from(u8::from((beside..beside + input).contains(&at))))
            .collect();
        let inside = Tensor::from_f64(DataType::F64, [1, all], &inside)?;
        let inside = b.constant(inside);
        weights = b.multiply(weights, inside)?;
    }
    if excludes || sampling.antialias {
        let sum = b.reduce(ReduceFunction::Sum, weights, vec![1], true)?;
        let none = b.with_scalar(B::Equal, sum, 0.0)?;
        let one = b.scalar(DataType::F64, 1.0)?;
        let sum = b.select(none, one, sum)?;
        weights = b.divide(weights, sum)?;
    }
    // What counts for the edges' repetitions counts for the edges.
    let mut folded = vec![0.0; all * input];
    for place in 0..all {
        folded[place * input + place.saturating_sub(beside).min(input - 1)] = 1.0;
    }
    let folded = b.constant(Tensor::from_f64(DataType::F64, [all, input], &folded)?);
    b.matmul(weights, folded)
}

/// The filter at distances: a triangle, or a cubic one (Keys, 1981) with a coefficient.
fn filter(b: &mut Builder, x: Operand, coefficient: Option<f64>) -> Step {
    let Some(a) = coefficient else {
        let height = b.scalar_with(B::Subtract, 1.0, x)?;
        return b.with_scalar(B::Maximum, height, 0.0);
    };
    let polynomial = |b: &mut Builder, coefficients: [f64; 4]| -> Step {
        let mut value = b.with_scalar(B::Multiply, x, coefficients[0])?;
        for coefficient in &coefficients[1..3] {
            value = b.with_scalar(B::Add, value, *coefficient)?;
            value = b.multiply(value, x)?;
        }
        b.with_scalar(B::Add, value, coefficients[3])
    };
    let near = polynomial(b, [a + 2.0, -(a + 3.0), 0.0, 1.0])?;
    let far = polynomial(b, [a, -5.0 * a, 8.0 * a, -4.0 * a])?;
    let is_near = b.with_scalar(B::LessEqual, x, 1.0)?;
    let is_far = b.with_scalar(B::Less, x, 2.0)?;
    let zero = b.scalar(DataType::F64, 0.0)?;
    let beyond = b.select(is_far, far, zero)?;
    b.select(is_near, near, beyond)
}

/// Sums along an axis of `x` with weights `[output, input]`.
fn weighted(b: &mut Builder, axis: &Axis, x: Operand, weights: Operand) -> Step {
    let rank = b.rank(x);
    let mut turn: Vec<usize> = (0..rank).filter(|own| *own != axis.place).collect();
    turn.push(axis.place);
    let turned = b.transpose(x, turn)?;
    let mut shape = b.shape(turned);
    shape.insert(rank - 1, 1);
    let turned = b.reshape(turned, shape)?;
    let weights = b.cast(weights, b.dtype(x))?;
    let none = b.with_scalar(B::Equal, weights, 0.0)?;
    let products = b.multiply(turned, weights)?;
    let zero = b.scalar(b.dtype(x), 0.0)?;
    let products = b.select(none, zero, products)?;
    let sums = b.reduce(ReduceFunction::Sum, products, vec![rank], false)?;
    let mut back: Vec<usize> = (0..rank - 1).collect();
    back.insert(axis.place, rank - 1);
    b.transpose(sums, back)
}
