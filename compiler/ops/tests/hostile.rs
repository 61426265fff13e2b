//! Shape rules meet whatever a file may hold: they refuse, and never panic.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;

use cases::cases;
use hone_graph::Operation;
use hone_types::{DataType, TensorType};
use serde_json::Value;

const ROUNDS: usize = 400;
const EXTENTS: [u64; 12] =
    [0, 1, 2, 3, 4, 7, 1 << 20, 1 << 32, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX];
const NUMBERS: [i64; 11] = [0, 1, 2, 3, -1, -2, 100, 1 << 33, i64::MAX, i64::MIN, i64::MIN + 1];

#[test]
fn shape_rules_refuse_and_never_panic() {
    let mut random = Random(1);
    let mut accepted = 0;
    for case in cases() {
        let attributes = case.operator.attributes();
        for _ in 0..ROUNDS {
            let mut mutated = attributes.clone();
            if random.below(2) == 0 {
                mutate(&mut mutated, &mut random);
            }
            let name = case.operator.name();
            let Ok(operator) = hone_ops::from_attributes(name, mutated) else { continue };
            let mut types = case.types();
            for tensor_type in &mut types {
                if random.below(3) == 0 {
                    *tensor_type = random_type(&mut random, tensor_type.as_ref());
                }
            }
            types.truncate(random.below(types.len() + 2).max(1));
            let types: Vec<Option<&TensorType>> = types.iter().map(Option::as_ref).collect();
            if let Ok(outputs) = Operation::infer(&operator, &types) {
                accepted += 1;
                for output in &outputs {
                    assert!(output.checked_bytes().is_some(), "{operator:?} of {types:?}");
                }
                operator.flops(&types, &outputs);
            }
        }
    }
    assert!(accepted > 0);
}

/// Replaces some numbers, and the lengths of some lists.
fn mutate(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| mutate(field, random)),
        Value::Array(entries) => {
            if random.below(6) == 0 {
                entries.pop();
            }
            entries.iter_mut().for_each(|entry| mutate(entry, random));
        }
        Value::Number(_) if random.below(3) == 0 => {
            *value = NUMBERS[random.below(NUMBERS.len())].into();
        }
        _ => {}
    }
}

/// Another type: of random rank and extents, or with one extent replaced.
fn random_type(random: &mut Random, old: Option<&TensorType>) -> Option<TensorType> {
    let mut extent = || EXTENTS[random.below(EXTENTS.len())] as usize;
    let replacement = [extent(), extent(), extent(), extent(), extent(), extent(), extent()];
    let old = old?;
    match random.below(4) {
        0 => None,
        1 => {
            let dtype = DataType::all().nth(random.below(13))?;
            Some(TensorType::new(dtype, &replacement[..random.below(7)]))
        }
        _ => {
            let mut new = old.clone();
            let axis = random.below(new.rank().max(1));
            if let Some(extent) = new.shape.get_mut(axis) {
                *extent = replacement[0];
            }
            Some(new)
        }
    }
}

/// A small generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}
