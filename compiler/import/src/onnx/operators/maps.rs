//! Operators of maps. A map is given as a list of keys, a list of values, and how many of them are there.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, extents};
use hone_ops::{Map, MapFunction};
use hone_types::{DataType, Tensor};

/// Most values of a result.
const LARGEST: usize = 1 << 24;

/// The keys, values and count of the first input.
fn map_of(b: &Builder, node: &Node) -> Result<[Operand; 3], NodeError> {
    let found = b.key_maps.get(&node.input(0)?).copied();
    found.ok_or_else(|| NodeError::invalid("input number 0 is no map"))
}

/// The values of known keys, in the order of `vocabulary`; `other` of keys that the map has not.
fn looked_up(
    b: &mut Builder,
    map: [Operand; 3],
    vocabulary: Operand,
    other: Operand,
    refuses_negative: bool,
) -> Step {
    let [keys, values, count] = map;
    let Some(known) = b.tensor(vocabulary).cloned().filter(|own| own.dtype() == b.dtype(keys))
    else {
        return Err(NodeError::invalid("the vocabulary is of another type than the keys"));
    };
    let mut order: Vec<i64> = (0..known.shape()[0] as i64).collect();
    let sorted = match known.elements::<u64>() {
        Ok(handles) => {
            order.sort_by_key(|place| handles[*place as usize]);
            let sorted: Vec<u64> = order.iter().map(|place| handles[*place as usize]).collect();
            Tensor::from_elements([sorted.len()], &sorted)?
        }
        Err(_) => {
            let numbers = known.to_i64();
            order.sort_by_key(|place| numbers[*place as usize]);
            let sorted: Vec<i64> = order.iter().map(|place| numbers[*place as usize]).collect();
            Tensor::from_elements([sorted.len()], &sorted)?
        }
    };
    let (sorted, places) = (b.constant(sorted), b.integers(&order)?);
    let map = Map { function: MapFunction::Lookup, refuses_negative };
    let found = b.apply(map, &[keys, values, count, sorted, places, other])?;
    Ok(if b.is_text(values) { b.as_text(found) } else { found })
}

/// `DictVectorizer`: the values of the vocabulary's keys, zeros or empty strings of those that the map has not.
pub(super) fn vectorize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let map = map_of(builder, node)?;
    let texts = node.strings("string_vocabulary")?.unwrap_or_default();
    let numbers = node.ints("int64_vocabulary")?.unwrap_or_default();
    let vocabulary = match (texts.is_empty(), numbers.is_empty()) {
        (false, true) if builder.is_text(map[0]) => builder.texts(&texts)?,
        (true, false) if !builder.is_text(map[0]) => builder.integers(&numbers)?,
        (true, true) => return Err(NodeError::invalid("it has no vocabulary")),
        (false, false) => return Err(NodeError::invalid("it has two vocabularies")),
        _ => return Err(NodeError::invalid("the vocabulary is of another type than the keys")),
    };
    let other = builder.scalar(builder.dtype(map[1]), 0.0)?;
    Ok(vec![looked_up(builder, map, vocabulary, other, false)?])
}

/// `CastMap`: the values of a map from numbers as a row: in the order of their keys, or each at the place that its key
/// says.
pub(super) fn cast(builder: &mut Builder, node: &mut Node) -> Outputs {
    let map = map_of(builder, node)?;
    let is_text = builder.is_text(map[1]);
    let form = node.string_or("map_form", "DENSE")?;
    let to = node.string_or("cast_to", "TO_FLOAT")?;
    let extent = node.int_or("max_map", 1)?;
    let dtype = match to.as_str() {
        "TO_FLOAT" => Some(DataType::F32),
        "TO_INT64" => Some(DataType::I64),
        "TO_STRING" if is_text => None,
        "TO_STRING" => return Err(NodeError::unsupported("CastMap of numbers to strings")),
        other => return Err(NodeError::invalid(format!("cast_to '{other}' is unknown"))),
    };
    if builder.is_text(map[0]) {
        return Err(NodeError::invalid("the keys of the map are strings"));
    }
    let found = match form.as_str() {
        "SPARSE" => {
            let extent = extents(&[extent], "max_map")?[0];
            if extent > LARGEST {
                return Err(NodeError::invalid(format!("max_map is more than {LARGEST}")));
            }
            let places = builder.integers(&(0..extent as i64).collect::<Vec<_>>())?;
            let other = match is_text {
                // What is read as zero, and what onnxruntime writes for it.
                true => builder.texts(&[if dtype.is_some() { "0" } else { "0.f" }.to_owned()])?,
                false => builder.scalar(builder.dtype(map[1]), 0.0)?,
            };
            looked_up(builder, map, places, other, true)?
        }
        "DENSE" => {
            let ordered = Map { function: MapFunction::Ordered, refuses_negative: false };
            builder.apply(ordered, &map)?
        }
        other => return Err(NodeError::invalid(format!("map_form '{other}' is unknown"))),
    };
    let part = (form == "DENSE").then_some(map[2]);
    let row = match (is_text, dtype) {
        (true, Some(_)) if part.is_some() => {
            // What lies behind the strings that are there is none that says a number.
            return Err(NodeError::unsupported("a dense CastMap of strings to numbers"));
        }
        (true, Some(dtype)) => super::strings::read(builder, found, dtype)?,
        (true, None) => builder.as_text(found),
        (false, Some(dtype)) => builder.cast(found, dtype)?,
        (false, None) => found,
    };
    Ok(vec![match part {
        Some(count) => builder.cut(row, 1, count)?,
        None => row,
    }])
}
