//! What the instructions of tensor cores compute, by the layouts that the manual of PTX gives.

use crate::machine::WARP;
use crate::types::Type;
use anyhow::{Context, Result, ensure};

/// The whole warps that lanes are; an instruction of a warp needs all of them.
pub(crate) fn warps(lanes: &[usize]) -> Result<impl Iterator<Item = [usize; WARP]> + use<>> {
    let mut warps = Vec::new();
    for lanes in lanes.chunks(WARP) {
        let warp: [usize; WARP] =
            lanes.try_into().ok().context("divergent warp: some lanes are missing")?;
        let whole = warp[0].is_multiple_of(WARP) && warp[WARP - 1] == warp[0] + WARP - 1;
        ensure!(whole, "divergent warp: some lanes are missing");
        warps.push(warp);
    }
    Ok(warps.into_iter())
}

/// The register of lane `index` after reading a matrix of 8 rows of 8 elements of 16 bits: two neighbours of a row,
/// or, transposed, of a column. Lane `4 r + c` has elements `2 c` and `2 c + 1` of row `r`.
pub(crate) fn fragment(rows: &[Vec<u8>], index: usize, transposed: bool) -> u64 {
    let element = |row: usize, column: usize| {
        u64::from(u16::from_le_bytes([rows[row][2 * column], rows[row][2 * column + 1]]))
    };
    let (row, column) = (index / 4, 2 * (index % 4));
    match transposed {
        false => element(row, column) | element(row, column + 1) << 16,
        true => element(column, row) | element(column + 1, row) << 16,
    }
}

/// What a warp multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// Floats of this type, summed in `f32`.
    Floats(Type),
    /// `f32` without the lowest 13 bits, summed in `f32`.
    TensorFloats,
    /// Bytes of these types, summed in `s32`.
    Bytes([Type; 2]),
}

impl Factors {
    /// Elements of a register.
    fn packed(self) -> usize {
        match self {
            Factors::Floats(_) => 2,
            Factors::TensorFloats => 1,
            Factors::Bytes(_) => 4,
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        4 / self.packed()
    }

    /// Depth of one product.
    pub(crate) fn depth(self) -> usize {
        8 * self.packed()
    }

    /// An element of a register of an operand (0 is the left one).
    pub(crate) fn element(self, operand: usize, word: u64, index: usize) -> f64 {
        match self {
            Factors::Floats(ty) => ty.float(word >> (16 * index) & 0xffff),
            Factors::TensorFloats => f64::from(f32::from_bits(word as u32 & !0x1fff)),
            Factors::Bytes(types) => types[operand].wide(word >> (8 * index) & 0xff) as f64,
        }
    }

    /// A sum and what is added to it. Devices sum in an order and with a precision of their own; one rounding is as
    /// good as any. Bytes are summed exactly, and wrap.
    pub(crate) fn sum(self, start: u64, products: f64) -> u64 {
        match self {
            Factors::Bytes(_) => u64::from((start as u32).wrapping_add(products as i64 as u32)),
            _ => u64::from(((f64::from(f32::from_bits(start as u32)) + products) as f32).to_bits()),
        }
    }
}

/// Most of the depth that one instruction takes.
const DEEPEST: usize = 32;

/// `a . b + c` of 16 rows and 8 columns as the registers of a warp hold them. A register of `a` and `b` has `n` elements
/// of 32 bits in all, and the depth is `8 n`.
///
/// With `g` a lane's quotient by 4 and `t` its remainder: register `i` of `a` has the elements of row `g` (odd `i`:
/// `g + 8`), columns `n t` to `n t + n - 1` (from `i = 2` on: `4 n` more); register `i` of `b` rows `n t` to `n t + n -
/// 1` (`i = 1`: `4 n` more) of column `g`; register `i` of `c` row `g` (from `i = 2` on: `g + 8`), column `2 t` plus
/// `i`'s lowest bit.
pub(crate) fn multiply(
    factors: Factors,
    a: &[[u64; WARP]],
    b: &[[u64; WARP]],
    c: &[[u64; WARP]],
) -> [[u64; WARP]; 4] {
    let packed = factors.packed();
    let (mut left, mut right) = ([[0f64; DEEPEST]; 16], [[0f64; 8]; DEEPEST]);
    for lane in 0..WARP {
        let (group, thread) = (lane / 4, lane % 4);
        for part in 0..packed {
            let depth = packed * thread + part;
            for (index, words) in a.iter().enumerate() {
                let (row, column) = (group + 8 * (index % 2), depth + 4 * packed * (index / 2));
                left[row][column] = factors.element(0, words[lane], part);
            }
            for (index, words) in b.iter().enumerate() {
                right[depth + 4 * packed * index][group] = factors.element(1, words[lane], part);
            }
        }
    }
    let mut sums = [[0; WARP]; 4];
    for (index, values) in sums.iter_mut().enumerate() {
        for (lane, sum) in values.iter_mut().enumerate() {
            let (row, column) = (lane / 4 + 8 * (index / 2), 2 * (lane % 4) + index % 2);
            let products = (0..8 * packed).map(|depth| left[row][depth] * right[depth][column]);
            *sum = factors.sum(c[index][lane], products.sum());
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `b` is the identity, so the sums are `a`'s first columns where the layouts fit each other.
    #[test]
    fn a_product_with_the_identity_gives_the_columns() -> Result<()> {
        let ty = Type::named("f16").context("f16")?;
        let bits = |value: f32| u64::from(half::f16::from_f32(value).to_bits());
        let number = |row: usize, column: usize| (16 * row + column) as f32;
        let lane = |value_of: &dyn Fn(usize, usize) -> u64| -> [u64; WARP] {
            std::array::from_fn(|lane| value_of(lane / 4, lane % 4))
        };
        let a: Vec<[u64; WARP]> = (0..4)
            .map(|i| {
                lane(&|g, t| {
                    let (row, column) = (g + 8 * (i % 2), 2 * t + 8 * (i / 2));
                    bits(number(row, column)) | bits(number(row, column + 1)) << 16
                })
            })
            .collect();
        let one = |row: usize, column: usize| bits(f32::from(u8::from(row == column)));
        let b: Vec<[u64; WARP]> = (0..2)
            .map(|i| lane(&|g, t| one(2 * t + 8 * i, g) | one(2 * t + 8 * i + 1, g) << 16))
            .collect();
        let d = multiply(Factors::Floats(ty), &a, &b, &vec![[0; WARP]; 4]);
        for (i, values) in d.iter().enumerate() {
            for (index, value) in values.iter().enumerate() {
                let expected = number(index / 4 + 8 * (i / 2), 2 * (index % 4) + i % 2);
                ensure!(f32::from_bits(*value as u32) == expected, "register {i} of lane {index}");
            }
        }
        Ok(())
    }
}
