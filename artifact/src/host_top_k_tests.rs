//! Compared with a stable sort of the elements by comparison.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::host::HostType;
use std::cmp::Ordering;

/// Numbers without a pattern (xorshift).
fn noise(count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(next).collect()
}

/// Checks elements of `N` bytes, which `order` compares, of `[3, extent, inner]`.
fn check<const N: usize>(
    dtype: DataType,
    elements: &[[u8; N]],
    (extent, inner): (usize, usize),
    order: impl Fn([u8; N], [u8; N]) -> Ordering,
) {
    let outer = elements.len() / (extent * inner);
    let of = HostType::new(dtype, [outer as u64, extent as u64, inner as u64]);
    let value = HostValue { of: &of, bytes: elements.as_flattened() };
    let counts = [1, 2, 9, extent / 7, extent / 6, extent / 2, extent];
    for (count, largest) in counts.into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let count = count.min(extent);
        let around = (outer as u64, extent as u64, inner as u64);
        let found = top_k(&value, &Wanted { around, count, largest }, &KeyLoops::PLAIN);
        for line in 0..outer * inner {
            let first = line / inner * extent * inner + line % inner;
            let mut places: Vec<usize> = (0..extent).collect();
            let own = |place: usize| elements[first + place * inner];
            places.sort_by(|a, b| match largest {
                true => order(own(*b), own(*a)),
                false => order(own(*a), own(*b)),
            });
            for (rank, place) in places.iter().take(count).enumerate() {
                let to = (line / inner * count + rank) * inner + line % inner;
                let what = format!("{dtype} {extent} {inner} {count} {largest} {line} {rank}");
                assert_eq!(found[0][to * N..][..N], own(*place), "{what}");
                assert_eq!(found[1][to * 8..][..8], (*place as i64).to_ne_bytes(), "{what}");
            }
        }
    }
}

const SHAPES: [(usize, usize); 4] = [(1, 1), (150, 1), (201, 3), (2100, 2)];

#[test]
fn integers_are_ordered_with_ties_by_index() {
    for shape in SHAPES {
        let noise = noise(3 * shape.0 * shape.1);
        macro_rules! check_all {
            ($($dtype:ident $integer:ident),*) => {$(
                // All values, and few different ones.
                for bits in [64, 2] {
                    let cut = |own: &u64| ((own >> (64 - bits)) as $integer).to_ne_bytes();
                    let elements: Vec<_> = noise.iter().map(cut).collect();
                    check(DataType::$dtype, &elements, shape, |a, b| {
                        $integer::from_ne_bytes(a).cmp(&$integer::from_ne_bytes(b))
                    });
                }
            )*};
        }
        check_all!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64);
    }
}

/// Zeros of both signs are equal, subnormal numbers are not zero, and what is no number is above infinity.
#[test]
fn floats_are_ordered_as_numbers() {
    fn order<F: PartialOrd>(a: F, b: F) -> Ordering {
        let nan = |own: &F| own.partial_cmp(own).is_none();
        a.partial_cmp(&b).unwrap_or_else(|| nan(&a).cmp(&nan(&b)))
    }
    let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
    for shape in SHAPES {
        let noise = noise(3 * shape.0 * shape.1);
        let pick = |own: &u64| match own % 5 {
            0 => special[(own >> 8) as usize % special.len()],
            _ => f64::from_bits(own >> 8 << 8),
        };
        let wide: Vec<_> = noise.iter().map(|own| pick(own).to_ne_bytes()).collect();
        check(DataType::F64, &wide, shape, |a, b| {
            order(f64::from_ne_bytes(a), f64::from_ne_bytes(b))
        });
        let single = |own: &u64| match own % 5 {
            0 => (pick(own) as f32).to_bits(),
            1 => (own >> 40) as u32 & 0x8000_0003,
            _ => (own >> 30) as u32,
        };
        let singles: Vec<_> = noise.iter().map(|own| single(own).to_ne_bytes()).collect();
        check(DataType::F32, &singles, shape, |a, b| {
            order(f32::from_ne_bytes(a), f32::from_ne_bytes(b))
        });
        let upper = |own: &u64| ((single(own) >> 16) as u16).to_ne_bytes();
        let halves: Vec<_> = noise.iter().map(upper).collect();
        let widened = |own: [u8; 2]| f32::from_bits(u32::from(u16::from_ne_bytes(own)) << 16);
        check(DataType::Bf16, &halves, shape, |a, b| order(widened(a), widened(b)));
    }
}

/// Each element is better than all before it, so that every part passes the bound.
#[test]
fn lines_that_rise_are_searched() {
    let elements: Vec<_> = (0..10_000).map(|own: i32| own.to_ne_bytes()).collect();
    check(DataType::I32, &elements, (10_000, 1), |a, b| {
        i32::from_ne_bytes(a).cmp(&i32::from_ne_bytes(b))
    });
}

/// Some extents multiply to more than fits, another is zero; or nothing is wanted.
#[test]
fn nothing_is_found_where_there_is_nothing() {
    for (shape, k) in [([1 << 20, 1 << 20, 0], 7), ([1 << 40, 0, 1 << 40], 0), ([1, 3, 1], 0)] {
        let of = HostType::new(DataType::F32, shape);
        let bytes = vec![0; of.bytes().unwrap() as usize];
        let function = crate::HostFunction::TopK { k, axis: 1, largest: true };
        let value = HostValue { of: &of, bytes: &bytes };
        let found = function.compute(&[Some(value)], &mut crate::text::Texts::default()).unwrap();
        assert!(found.len() == 2 && found.iter().all(Vec::is_empty));
    }
    let of = HostType::new(DataType::F32, [4, 3]);
    let function = |k, axis| crate::HostFunction::TopK { k, axis, largest: true };
    assert!(function(4, 1).outputs(&[Some(&of)]).is_err());
    assert!(function(1, 2).outputs(&[Some(&of)]).is_err());
}
