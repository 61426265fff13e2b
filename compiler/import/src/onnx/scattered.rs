//! `ScatterElements` and `ScatterND` of which a run decides how many places there are.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::operators::indexing::{scatter_elements, scatter_nd};
use super::shorthands::{Step, axis};
use super::sized::{Behind, Part};
use crate::NodeError;
use hone_ops::BinaryFunction as B;
use hone_types::{DataType, Tensor, TensorType};

/// The result where a part of the places is there: what is behind the part goes to one slice more than there is, which is
/// cut off again. `None` where the places are all there.
///
/// # Errors
/// What an operator refuses.
pub(super) fn scattered(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let part_of = |place: usize| parts.iter().find(|(own, _)| *own == place).map(|(_, part)| *part);
    let Some(of_places) = part_of(1) else { return Ok(None) };
    let by_elements = node.operator != "ScatterND";
    let (data, places, updates) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let along = match by_elements {
        true => axis(node.int_or("axis", 0)?, b.rank(data))?,
        false => 0,
    };
    let (shape, rank) = (b.shape(data), b.rank(places));
    let is_list = by_elements || of_places.axis + 1 < rank && b.shape(places)[rank - 1] > 0;
    if !is_list || shape.is_empty() || b.narrow_type(data).is_some() {
        return Ok(None);
    }
    let updates = match part_of(2) {
        None => updates,
        Some(part) if part.axis != of_places.axis => return Ok(None),
        Some(part) => {
            let (one, other) = (b.single(part.count)?, b.single(of_places.count)?);
            let equal = b.binary(B::Equal, one, other)?;
            b.require(equal, "places and what goes there have different sizes")?;
            b.filled(updates, part, Behind::Zeros)?
        }
    };
    let of_data = part_of(0);
    let extent = match of_data {
        Some(part) if part.axis == along => b.single(part.count)?,
        _ => b.scalar(DataType::I64, shape[along] as f64)?,
    };
    let data = match of_data {
        Some(part) => b.filled(data, part, Behind::Zeros)?,
        None => data,
    };
    let mut slice = shape.clone();
    slice[along] = 1;
    let slice = b.constant(Tensor::zeros(TensorType::new(b.dtype(data), slice)));
    let wide = b.concat(&[data, slice], along)?;
    let beyond = b.scalar(DataType::I64, shape[along] as f64)?;
    let places = led_away(b, places, of_places, (extent, beyond), by_elements)?;
    let mut asked = node.again();
    asked.inputs = vec![Some(wide), Some(places), Some(updates)];
    let found = match by_elements {
        true => {
            asked.set_int("axis", along as i64);
            scatter_elements(b, &mut asked)?
        }
        false => scatter_nd(b, &mut asked)?,
    };
    let [found] = found[..] else { return Ok(None) };
    let found = b.narrow(found, along, 0, shape[along])?;
    if let Some(part) = of_data {
        b.set_spread_extent(found, part.axis, part.count);
    }
    Ok(Some(found))
}

/// Places along an axis of `extent`, those behind their part at `beyond`. What counts from the end counts from that of the
/// extent. In lists of places along several axes that is their first number.
fn led_away(
    b: &mut Builder,
    places: Operand,
    part: Part,
    (extent, beyond): (Operand, Operand),
    by_elements: bool,
) -> Step {
    let places = b.filled(places, part, Behind::Zeros)?;
    let places = b.cast(places, DataType::I64)?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let (shape, axis) = (b.shape(places), part.axis);
    let numbers = b.integers(&(0..shape[axis] as i64).collect::<Vec<_>>())?;
    let across = [&[shape[axis]][..], &vec![1; shape.len() - axis - 1]].concat();
    let numbers = b.reshape(numbers, across)?;
    let count = b.single(part.count)?;
    let there = b.binary(B::Less, numbers, count)?;
    let mut back = b.binary(B::Less, places, zero)?;
    let mut off = beyond;
    if !by_elements {
        let first: Vec<bool> = (0..shape[shape.len() - 1]).map(|own| own == 0).collect();
        let first = b.constant(Tensor::from_elements([first.len()], &first)?);
        back = b.binary(B::And, back, first)?;
        off = b.select(first, beyond, zero)?;
    }
    let moved = b.add(places, extent)?;
    let places = b.select(back, moved, places)?;
    b.select(there, places, off)
}
