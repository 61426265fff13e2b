//! Operators that only say under which shape elements are seen, or what a shape is.

use super::{counted, decided};
use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{axes, axis};
use hone_ops::BinaryFunction as B;

/// `Identity`.
pub(super) fn identity(_: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![node.input(0)?])
}

/// `Reshape`: 0 keeps an extent (unless `allowzero`), -1 takes what is left.
pub(super) fn reshape(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let mut wanted = None;
    let target = match node.opset {
        ..5 => node.ints("shape")?.unwrap_or_default(),
        _ if node.declared(0).is_none()
            && let Some(target) = counted::target(builder, node)? =>
        {
            wanted = Some(target.wanted);
            target.list
        }
        _ if decided::is_open(builder, node, 1) => {
            let shape = decided::reshape(builder, node, input)?;
            return Ok(vec![builder.reshape(input, shape)?]);
        }
        _ => builder.integers_of(node, 1)?,
    };
    let allow_zero = node.flag("allowzero", false)?;
    let from = builder.shape(input);
    let refuse = || NodeError::invalid(format!("shape {from:?} cannot be seen as {target:?}"));
    let mut shape = Vec::with_capacity(target.len());
    let mut open = None;
    for (place, extent) in target.iter().enumerate() {
        shape.push(match extent {
            0 if !allow_zero => *from.get(place).ok_or_else(refuse)?,
            -1 if open.is_none() => {
                open = Some(place);
                1
            }
            extent => usize::try_from(*extent).map_err(|_| refuse())?,
        });
    }
    if let Some(place) = open {
        let known = shape.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        let known = known.ok_or_else(refuse)?;
        let all: usize = from.iter().product();
        // With nothing to share out, any extent would do; none is as good as another.
        shape[place] = all.checked_div(known).unwrap_or(0);
        if let Some(wanted) = wanted.filter(|_| !builder.is_filled(input)) {
            let fits = builder.with_scalar(B::Equal, wanted, shape[place] as f64)?;
            builder.require(fits, format!("elements of {from:?} do not fit the shape of a run"))?;
        }
    }
    Ok(vec![builder.reshape(input, shape)?])
}

/// `Flatten`: everything before an axis, and everything from it on.
pub(super) fn flatten(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let shape = builder.shape(input);
    let place = node.int_or("axis", 1)?;
    let place = if place == shape.len() as i64 { shape.len() } else { axis(place, shape.len())? };
    let target = vec![shape[..place].iter().product(), shape[place..].iter().product()];
    Ok(vec![builder.reshape(input, target)?])
}

/// The axes of `Squeeze` and `Unsqueeze`: an attribute before opset 13, an input since.
fn axes_of(builder: &Builder, node: &mut Node) -> Result<Option<Vec<i64>>, NodeError> {
    if node.opset < 13 { node.ints("axes") } else { builder.optional_integers(node, 1) }
}

/// `Squeeze`: drops axes of extent 1.
pub(super) fn squeeze(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let mut shape = builder.shape(input);
    if node.opset >= 13 && decided::is_open(builder, node, 1) {
        let shape = decided::squeezed(builder, node, &shape)?;
        return Ok(vec![builder.reshape(input, shape)?]);
    }
    match axes_of(builder, node)? {
        None => shape.retain(|extent| *extent != 1),
        Some(named) => {
            for place in axes(&named, shape.len())?.into_iter().rev() {
                if shape[place] != 1 {
                    return Err(NodeError::invalid(format!(
                        "axis {place} has extent {}, not 1",
                        shape[place]
                    )));
                }
                shape.remove(place);
            }
        }
    }
    Ok(vec![builder.reshape(input, shape)?])
}

/// `Unsqueeze`: adds axes of extent 1.
pub(super) fn unsqueeze(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let mut shape = builder.shape(input);
    if node.opset >= 13 && decided::is_open(builder, node, 1) {
        let shape = decided::unsqueezed(builder, node, &shape)?;
        return Ok(vec![builder.reshape(input, shape)?]);
    }
    let named = axes_of(builder, node)?;
    let named = named.ok_or_else(|| NodeError::invalid("the axes are left out"))?;
    for place in axes(&named, shape.len() + named.len())? {
        shape.insert(place, 1);
    }
    Ok(vec![builder.reshape(input, shape)?])
}

/// `Shape`, of all axes or of some.
pub(super) fn shape(builder: &mut Builder, node: &mut Node) -> Outputs {
    let shape = builder.shape(node.input(0)?);
    let rank = shape.len() as i64;
    let within = |axis: i64| {
        let place = if axis < 0 { axis.saturating_add(rank) } else { axis };
        place.clamp(0, rank) as usize
    };
    let (start, end) = (node.int_or("start", 0)?, node.int_or("end", rank)?);
    let (start, end) = (within(start), within(end));
    let part: Vec<i64> =
        shape.get(start..end).unwrap_or_default().iter().map(|extent| *extent as i64).collect();
    Ok(vec![builder.integers(&part)?])
}

/// `Size`: the number of elements.
pub(super) fn size(builder: &mut Builder, node: &mut Node) -> Outputs {
    let elements: usize = builder.shape(node.input(0)?).iter().product();
    Ok(vec![builder.constant(hone_types::Tensor::scalar(elements as i64))])
}
