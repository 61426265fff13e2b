//! `Resize` and `Upsample`.

use super::resize_decided::{Places, Sampling, resample};
use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{axes, axis, extents};
use hone_ops::{CoordinateMode, NearestRounding, Resize, ResizeMode};

/// No extent of a result is larger.
const LARGEST: f64 = 4_294_967_296.0;

/// `Resize`. Opset 10 is `Upsample` with another name; 11 added modes and sizes, 18 axes, antialias
/// and policies for the aspect ratio.
pub(super) fn resize(builder: &mut Builder, node: &mut Node) -> Outputs {
    if node.opset < 11 {
        return upsample(builder, node);
    }
    let x = node.input(0)?;
    let shape = builder.shape(x);
    let rank = shape.len();
    let coordinates = coordinates(node)?;
    let rounding = rounding(node)?;
    let coefficient_a = node.float_or("cubic_coeff_a", -0.75)?;
    let exclude_outside = node.flag("exclude_outside", false)?;
    let mode = match node.string_or("mode", "nearest")?.as_str() {
        "nearest" => ResizeMode::Nearest { rounding },
        "linear" => ResizeMode::Linear,
        "cubic" => ResizeMode::Cubic { coefficient_a, exclude_outside },
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let named: Vec<usize> = match node.ints("axes")? {
        Some(named) => {
            axes(&named, rank)?;
            named.iter().map(|place| axis(*place, rank)).collect::<Result<_, _>>()?
        }
        None => (0..rank).collect(),
    };
    let policy = node.string_or("keep_aspect_ratio_policy", "stretch")?;
    let antialias = node.flag("antialias", false)?;
    let extrapolation = node.float_or("extrapolation_value", 0.0)?;
    let sampled = CoordinateMode::TfCropAndResize == coordinates;
    let places = Places { region: sampled.then_some(1), scales: 2, sizes: Some(3) };
    let (policy_of, named_of) = (policy.as_str(), named.as_slice());
    let sampling = Sampling {
        mode,
        coordinates,
        antialias,
        extrapolation,
        policy: policy_of,
        named: named_of,
    };
    if let Some(resized) = resample(builder, node, x, &places, &sampling)? {
        return Ok(vec![resized]);
    }
    let region = region(builder, node, coordinates, &named, rank)?;
    let (scales, sizes) = targets(builder, node, &shape, &named, &region, &policy)?;
    let operator = Resize { mode, coordinates, scales, sizes, antialias, extrapolation, region };
    Ok(vec![builder.apply(operator, &[x])?])
}

/// `Upsample`, and `Resize` of opset 10: scales, nearest or linear, no shift of coordinates.
pub(super) fn upsample(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let shape = builder.shape(x);
    let mode = match node.string_or("mode", "nearest")?.as_str() {
        "nearest" => ResizeMode::Nearest { rounding: NearestRounding::Floor },
        "linear" | "bilinear" => ResizeMode::Linear,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let named: Vec<usize> = (0..shape.len()).collect();
    let sampling = Sampling {
        mode,
        coordinates: CoordinateMode::Asymmetric,
        antialias: false,
        extrapolation: 0.0,
        policy: "stretch",
        named: &named,
    };
    let places = Places { region: None, scales: 1, sizes: None };
    if let Some(resized) = resample(builder, node, x, &places, &sampling)? {
        return Ok(vec![resized]);
    }
    let scales: Vec<f64> = if node.operator == "Upsample" && node.opset < 9 {
        let scales = node.floats("scales")?.unwrap_or_default();
        scales.iter().map(|scale| f64::from(*scale)).collect()
    } else {
        builder.floats_of(node, 1)?
    };
    if scales.len() != shape.len() {
        return Err(NodeError::invalid(format!("scales {scales:?} do not fit {shape:?}")));
    }
    let sizes = shape
        .iter()
        .zip(&scales)
        .map(|(extent, scale)| extent_of(*extent as f64 * scale))
        .collect::<Result<_, _>>()?;
    let operator = Resize {
        mode,
        coordinates: CoordinateMode::Asymmetric,
        scales,
        sizes,
        antialias: false,
        extrapolation: 0.0,
        region: Vec::new(),
    };
    Ok(vec![builder.apply(operator, &[x])?])
}

fn coordinates(node: &mut Node) -> Result<CoordinateMode, NodeError> {
    Ok(match node.string_or("coordinate_transformation_mode", "half_pixel")?.as_str() {
        "half_pixel" => CoordinateMode::HalfPixel,
        "pytorch_half_pixel" => CoordinateMode::PytorchHalfPixel,
        "align_corners" => CoordinateMode::AlignCorners,
        "asymmetric" => CoordinateMode::Asymmetric,
        "half_pixel_symmetric" => CoordinateMode::HalfPixelSymmetric,
        "tf_crop_and_resize" => CoordinateMode::TfCropAndResize,
        other => {
            return Err(NodeError::unsupported(format!("coordinate transformation '{other}'")));
        }
    })
}

fn rounding(node: &mut Node) -> Result<NearestRounding, NodeError> {
    Ok(match node.string_or("nearest_mode", "round_prefer_floor")?.as_str() {
        "round_prefer_floor" => NearestRounding::RoundPreferFloor,
        "round_prefer_ceil" => NearestRounding::RoundPreferCeil,
        "floor" => NearestRounding::Floor,
        "ceil" => NearestRounding::Ceil,
        other => return Err(NodeError::invalid(format!("nearest_mode '{other}' is unknown"))),
    })
}

/// The region sampled: all starts, then all ends; empty where the whole input is.
fn region(
    builder: &Builder,
    node: &Node,
    coordinates: CoordinateMode,
    named: &[usize],
    rank: usize,
) -> Result<Vec<f64>, NodeError> {
    if coordinates != CoordinateMode::TfCropAndResize {
        return Ok(Vec::new());
    }
    let given = builder.floats_of(node, 1)?;
    if given.len() != 2 * named.len() {
        return Err(NodeError::invalid(format!("roi {given:?} does not fit the axes")));
    }
    let mut region = [vec![0.0; rank], vec![1.0; rank]].concat();
    for (place, axis) in named.iter().enumerate() {
        (region[*axis], region[rank + axis]) = (given[place], given[named.len() + place]);
    }
    Ok(region)
}

/// Extent of a result, rounded down.
fn extent_of(size: f64) -> Result<usize, NodeError> {
    if (0.0..=LARGEST).contains(&size) {
        return Ok(size.floor() as usize);
    }
    Err(NodeError::invalid(format!("{size} is no extent")))
}

/// Scale and extent of each axis, from whichever of the two inputs is given.
fn targets(
    builder: &mut Builder,
    node: &Node,
    shape: &[usize],
    named: &[usize],
    region: &[f64],
    policy: &str,
) -> Result<(Vec<f64>, Vec<usize>), NodeError> {
    let rank = shape.len();
    let (mut scales, mut sizes) = (vec![1.0; rank], shape.to_vec());
    let given = match node.optional(2) {
        Some(_) => builder.floats_of(node, 2)?,
        None => Vec::new(),
    };
    if !given.is_empty() {
        if given.len() != named.len() {
            return Err(NodeError::invalid(format!("scales {given:?} do not fit the axes")));
        }
        for (axis, scale) in named.iter().zip(given) {
            // A part of the axis only, where a region is sampled.
            let part = if region.is_empty() { 1.0 } else { region[rank + axis] - region[*axis] };
            scales[*axis] = scale;
            sizes[*axis] = extent_of(shape[*axis] as f64 * part * scale)?;
        }
        return Ok((scales, sizes));
    }
    let implied = node.declared(0).filter(|_| policy == "stretch");
    let implied = implied.filter(|target| target.len() == rank);
    let implied =
        implied.map(|target| named.iter().map(|axis| i64::try_from(target[*axis]).ok()).collect());
    let given = extents(&builder.integers_held(node, 3, implied)?, "sizes")?;
    if given.len() != named.len() {
        return Err(NodeError::invalid(format!("sizes {given:?} do not fit the axes")));
    }
    let ratios = named.iter().zip(&given).map(|(axis, size)| *size as f64 / shape[*axis] as f64);
    let common = match policy {
        "stretch" => None,
        "not_larger" => Some(ratios.fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(ratios.fold(0.0, f64::max)),
        other => return Err(NodeError::invalid(format!("policy '{other}' is unknown"))),
    };
    for (axis, size) in named.iter().zip(given) {
        let extent = shape[*axis] as f64;
        match common {
            None => (scales[*axis], sizes[*axis]) = (size as f64 / extent, size),
            Some(scale) => {
                scales[*axis] = scale;
                sizes[*axis] = extent_of((scale * extent + 0.5).floor())?;
            }
        }
    }
    Ok((scales, sizes))
}
