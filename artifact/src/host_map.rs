//! Functions of maps: two lists with room for keys and their values, and how many of them are there.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

use crate::DataType;
use crate::host::{HostType, HostValue, head};

/// The functions. Operands: keys `[room]` of `u64` (handles of strings) or `i64`, values `[room]`, how many are there
/// (`i64`). A key that is there twice ends the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MapFunction {
    /// What is computed.
    pub kind: MapKind,
    /// Whether a key below zero ends the run.
    pub refuses_negative: bool,
}

/// What is computed of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MapKind {
    /// The values of known keys. Operands behind the map's: these keys in the order of their type (`[n]`), the place of
    /// each in the result (`i64[n]`), and the value of those that are not in the map (one element). Result: `[1, n]`.
    Lookup,
    /// All values in the order of their keys: `[1, room]`, zeros behind those that are there.
    Ordered,
}

impl MapFunction {
    /// As [`crate::HostFunction::outputs`].
    pub(crate) fn outputs(&self, inputs: &[Option<&HostType>]) -> Result<Vec<HostType>, String> {
        let wrong = || "an operand has another type than the function takes".to_owned();
        let operand = |place: usize| inputs.get(place).copied().flatten().ok_or_else(wrong);
        let (keys, values, count) = (operand(0)?, operand(1)?, operand(2)?);
        let one = HostType::new(DataType::I64, []);
        let typed = match keys.dtype {
            DataType::I64 => true,
            DataType::U64 => !self.refuses_negative,
            _ => false,
        };
        let [room] = keys.shape[..] else { return Err(wrong()) };
        if !typed || values.shape != keys.shape || *count != one {
            return Err(wrong());
        }
        let list = |extent: u64| Ok(vec![HostType::new(values.dtype, [1, extent])]);
        if self.kind == MapKind::Ordered {
            return if inputs.len() == 3 { list(room) } else { Err(wrong()) };
        }
        let (known, places, other) = (operand(3)?, operand(4)?, operand(5)?);
        let [extent] = known.shape[..] else { return Err(wrong()) };
        let fits = known.dtype == keys.dtype
            && *places == HostType::new(DataType::I64, [extent])
            && other.dtype == values.dtype
            && other.bytes() == values.dtype.bytes_of(&[])
            && inputs.len() == 6;
        if fits { list(extent) } else { Err(wrong()) }
    }

    /// As [`crate::HostFunction::compute`], of operands that [`MapFunction::outputs`] takes.
    pub(crate) fn compute(&self, inputs: &[Option<HostValue<'_>>]) -> Result<Vec<Vec<u8>>, String> {
        let operand = |place: usize| {
            inputs.get(place).and_then(Option::as_ref).ok_or("an operand is missing".to_owned())
        };
        let (keys, values) = (operand(0)?, operand(1)?);
        let count = i64::from_ne_bytes(head(operand(2)?.bytes));
        let room = keys.of.shape.first().copied().unwrap_or(0);
        let count = u64::try_from(count).ok().filter(|own| *own <= room).ok_or_else(|| {
            format!("a map of {count} keys is given, and there is room for {room}")
        })? as usize;
        let given = numbers(keys, count);
        let mut seen = HashSet::with_capacity(count);
        if let Some(twice) = given.iter().find(|key| !seen.insert(**key)) {
            return Err(match keys.of.dtype {
                DataType::I64 => format!("key {twice} is twice in a map"),
                _ => "a key is twice in a map".to_owned(),
            });
        }
        if let Some(key) = given.iter().find(|key| self.refuses_negative && **key < 0) {
            return Err(format!("key {key} of a map is negative"));
        }
        let size = values.of.dtype.bytes_of(&[]).unwrap_or(1) as usize;
        let value = |place: usize| &values.bytes[place * size..][..size];
        if self.kind == MapKind::Ordered {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|place| given[*place]);
            return Ok(vec![order.into_iter().flat_map(|place| value(place).to_vec()).collect()]);
        }
        let (known, places) = (operand(3)?, operand(4)?);
        let extent = known.of.shape.first().copied().unwrap_or(0) as usize;
        let (known, places) = (numbers(known, extent), numbers(places, extent));
        let mut result = operand(5)?.bytes.repeat(extent);
        for (place, key) in given.iter().enumerate() {
            // A vocabulary may name a key more than once.
            let first = known.partition_point(|own| own < key);
            for at in (first..extent).take_while(|at| known[*at] == *key) {
                let to = usize::try_from(places[at]).ok().filter(|to| *to < extent);
                let to = to.ok_or("a key has no place in the result")?;
                result[to * size..][..size].copy_from_slice(value(place));
            }
        }
        Ok(vec![result])
    }
}

/// The first elements, in the order of their type.
fn numbers(value: &HostValue<'_>, count: usize) -> Vec<i128> {
    let number = |own: &[u8]| match value.of.dtype {
        DataType::I64 => i128::from(i64::from_ne_bytes(head(own))),
        _ => i128::from(u64::from_ne_bytes(head(own))),
    };
    value.bytes.chunks_exact(8).take(count).map(number).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(function: &MapFunction, keys: &[i64], count: i64) -> Result<Vec<f32>, String> {
        let list =
            |values: &[i64]| values.iter().flat_map(|own| own.to_ne_bytes()).collect::<Vec<u8>>();
        let room = keys.len() as u64;
        let halves = keys.iter().flat_map(|key| (*key as f32 / 2.0).to_ne_bytes()).collect();
        let mut operands = vec![
            (HostType::new(DataType::I64, [room]), list(keys)),
            (HostType::new(DataType::F32, [room]), halves),
            (HostType::new(DataType::I64, []), list(&[count])),
        ];
        if function.kind == MapKind::Lookup {
            operands.push((HostType::new(DataType::I64, [4]), list(&[-4, 2, 2, 7])));
            operands.push((HostType::new(DataType::I64, [4]), list(&[2, 0, 3, 1])));
            operands.push((HostType::new(DataType::F32, [1]), 9f32.to_ne_bytes().to_vec()));
        }
        let types: Vec<Option<&HostType>> = operands.iter().map(|own| Some(&own.0)).collect();
        function.outputs(&types)?;
        let values: Vec<_> =
            operands.iter().map(|(of, bytes)| Some(HostValue { of, bytes })).collect();
        let result = function.compute(&values)?;
        Ok(result[0].chunks_exact(4).map(|own| f32::from_ne_bytes(head(own))).collect())
    }

    #[test]
    fn values_are_found_by_keys() {
        let mut function = MapFunction { kind: MapKind::Lookup, refuses_negative: false };
        assert_eq!(run(&function, &[5, 2, -4, 7], 3).unwrap(), [1.0, 9.0, -2.0, 1.0]);
        assert_eq!(run(&function, &[2, 2], 0).unwrap(), [9.0; 4]);
        assert_eq!(run(&function, &[2, 2], 2).unwrap_err(), "key 2 is twice in a map");
        assert!(run(&function, &[2], 2).unwrap_err().contains("room for 1"));
        assert!(run(&function, &[2], -1).unwrap_err().contains("-1 keys"));
        function = MapFunction { kind: MapKind::Ordered, refuses_negative: true };
        assert_eq!(run(&function, &[5, 2, 0], 2).unwrap(), [1.0, 2.5]);
        assert_eq!(run(&function, &[-5], 1).unwrap_err(), "key -5 of a map is negative");
    }
}
