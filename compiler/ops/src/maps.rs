//! Maps: two lists with room for keys and their values, and how many of them are there.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A function of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapFunction {
    /// The values of known keys. Inputs behind the map's: the keys in ascending order, as elements of their type are
    /// ordered (`[n]`), the place of each in the result (`i64[n]`), and the value of keys that are not in the map (one
    /// element). Result: `[1, n]`.
    Lookup,
    /// All values in the order of their keys: `[1, room]`, zeros behind those that are there.
    Ordered,
}

/// A node of a [`MapFunction`]. Inputs: keys `[room]` of `u64` (handles of strings) or `i64`, values `[room]`, and how many
/// are there (`i64`, no axes). No key is there twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// What is computed.
    pub function: MapFunction,
    /// Whether a key below zero ends the run.
    pub refuses_negative: bool,
}

impl Map {
    /// Name in text forms.
    pub const NAME: &'static str = "map";

    /// Where each key is.
    fn places(&self, inputs: &[Option<&Tensor>]) -> Result<HashMap<Vec<u8>, usize>, OpError> {
        let keys = required(Self::NAME, inputs, 0)?;
        let (room, count) = (keys.shape()[0], required(Self::NAME, inputs, 2)?.to_i64()[0]);
        let count = usize::try_from(count).ok().filter(|count| *count <= room);
        let count =
            count.ok_or_else(|| OpError::Value(format!("a map has room for {room} keys")))?;
        let mut places = HashMap::new();
        for (place, key) in keys.bytes().chunks_exact(8).take(count).enumerate() {
            if places.insert(key.to_vec(), place).is_some() {
                return Err(OpError::Value("a key is twice in a map".into()));
            }
        }
        let negative = |key: &i64| *key < 0;
        if self.refuses_negative && keys.to_i64()[..count].iter().any(negative) {
            return Err(OpError::Value("a key of a map is negative".into()));
        }
        Ok(places)
    }
}

impl Operator for Map {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let list = |place: usize| required(Self::NAME, inputs, place);
        let (keys, values, count) = (list(0)?, list(1)?, list(2)?);
        let refuse =
            |what: &TensorType| Err(InferError::new(format!("{what} is not what it takes")));
        let typed = match self.refuses_negative {
            true => keys.dtype == DataType::I64,
            false => [DataType::U64, DataType::I64].contains(&keys.dtype),
        };
        if keys.rank() != 1 || !typed {
            return refuse(keys);
        }
        if values.shape != keys.shape {
            return refuse(values);
        }
        if *count != TensorType::new(DataType::I64, []) {
            return refuse(count);
        }
        match self.function {
            MapFunction::Ordered => Ok(vec![bounded(values.dtype, vec![1, keys.shape[0]])?]),
            MapFunction::Lookup => {
                let (known, places, other) = (list(3)?, list(4)?, list(5)?);
                if known.dtype != keys.dtype || known.rank() != 1 {
                    return refuse(known);
                }
                if *places != TensorType::new(DataType::I64, known.shape.clone()) {
                    return refuse(places);
                }
                if other.dtype != values.dtype || other.elements() != 1 {
                    return refuse(other);
                }
                Ok(vec![bounded(values.dtype, vec![1, known.shape[0]])?])
            }
        }
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<_> = inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = self.infer(&types)?.remove(0);
        let places = self.places(inputs)?;
        let values = required(Self::NAME, inputs, 1)?;
        let size = output.dtype.bytes();
        let value = |place: usize| &values.bytes()[place * size..][..size];
        let mut bytes = vec![0; output.bytes()];
        match self.function {
            MapFunction::Lookup => {
                let other = required(Self::NAME, inputs, 5)?.bytes();
                let known = required(Self::NAME, inputs, 3)?.bytes().chunks_exact(8);
                for (key, to) in known.zip(required(Self::NAME, inputs, 4)?.to_i64()) {
                    let own = places.get(key).map_or(other, |place| value(*place));
                    let room = usize::try_from(to)
                        .ok()
                        .and_then(|to| bytes.chunks_exact_mut(size).nth(to));
                    let room =
                        room.ok_or_else(|| OpError::Value(format!("there is no place {to}")))?;
                    room.copy_from_slice(own);
                }
            }
            MapFunction::Ordered => {
                let keys = required(Self::NAME, inputs, 0)?;
                let mut order: Vec<usize> = places.into_values().collect();
                match keys.elements::<u64>() {
                    Ok(keys) => order.sort_by_key(|place| keys[*place]),
                    Err(_) => {
                        let keys = keys.to_i64();
                        order.sort_by_key(|place| keys[*place]);
                    }
                }
                for (room, place) in bytes.chunks_exact_mut(size).zip(order) {
                    room.copy_from_slice(value(place));
                }
            }
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(function: MapFunction, keys: &[i64], count: i64) -> Result<Vec<f32>, OpError> {
        let values: Vec<f32> = keys.iter().map(|key| *key as f32 / 2.0).collect();
        let inputs = [
            Tensor::from_elements([keys.len()], keys).unwrap(),
            Tensor::from_elements([keys.len()], &values).unwrap(),
            Tensor::scalar(count),
            Tensor::from_elements([3], &[-4i64, 2, 7]).unwrap(),
            Tensor::from_elements([3], &[2i64, 0, 1]).unwrap(),
            Tensor::scalar(9f32),
        ];
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
        let map = Map { function, refuses_negative: false };
        Ok(map.reference(&inputs)?[0].elements().unwrap())
    }

    #[test]
    fn values_are_found_by_keys() {
        assert_eq!(run(MapFunction::Lookup, &[5, 2, -4, 7], 3).unwrap(), [1.0, 9.0, -2.0]);
        assert_eq!(run(MapFunction::Lookup, &[0, 0], 0).unwrap(), [9.0; 3]);
        assert_eq!(run(MapFunction::Ordered, &[5, 2, -4, 0], 3).unwrap(), [-2.0, 1.0, 2.5, 0.0]);
        assert!(run(MapFunction::Lookup, &[2, 2], 2).is_err());
        assert!(run(MapFunction::Lookup, &[2], 2).is_err());
        assert!(run(MapFunction::Lookup, &[2], -1).is_err());
    }
}
