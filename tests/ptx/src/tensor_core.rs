//! What the instructions of tensor cores compute, by the layouts that the manual of PTX gives.

use crate::machine::WARP;
use crate::types::Type;
use anyhow::{Context, Result, ensure};

/// The whole warps that lanes are; an instruction of a warp needs all of them.
pub(crate) fn warps(lanes: &[usize]) -> Result<impl Iterator<Item = [usize; WARP]> + use<>> {
    let mut warps = Vec::new();
    for lanes in lanes.chunks(WARP) {
        let warp: [usize; WARP] = lanes.try_into().ok().context("divergent warp: some lanes are missing")?;
        let whole = warp[0].is_multiple_of(WARP) && warp[WARP - 1] == warp[0] + WARP - 1;
        ensure!(whole, "divergent warp: some lanes are missing");
        warps.push(warp);
    }
    Ok(warps.into_iter())
}

/// The register of lane `place` after reading a matrix of 8 rows of 8 elements of 16 bits: two neighbours of a row,
/// or, transposed, of a column. Lane `4 r + c` has elements `2 c` and `2 c + 1` of row `r`.
pub(crate) fn fragment(rows: &[Vec<u8>], place: usize, transposed: bool) -> u64 {
    let element = |row: usize, column: usize| {
        u64::from(u16::from_le_bytes([rows[row][2 * column], rows[row][2 * column + 1]]))
    };
    let (row, column) = (place / 4, 2 * (place % 4));
    match transposed {
        false => element(row, column) | element(row, column + 1) << 16,
        true => element(column, row) | element(column + 1, row) << 16,
    }
}

/// `a . b + c` of 16x16, 16x8 and 16x8 elements as the registers of a warp hold them.
///
/// With `g` a lane's quotient by 4 and `t` its remainder: register `i` of `a` has the elements of row `g` (odd `i`:
/// `g + 8`), columns `2 t` and `2 t + 1` (from `i = 2` on: 8 more); register `i` of `b` rows `2 t` and `2 t + 1` (`i =
/// 1`: 8 more) of column `g`; register `i` of `c` row `g` (from `i = 2` on: `g + 8`), column `2 t` plus `i`'s lowest bit.
pub(crate) fn multiply(
    ty: Type,
    a: &[[u64; WARP]],
    b: &[[u64; WARP]],
    c: &[[u64; WARP]],
) -> [[u64; WARP]; 4] {
    let half = |word: u64, upper: usize| ty.float(word >> (16 * upper) & 0xffff);
    let (mut left, mut right) = ([[0f64; 16]; 16], [[0f64; 8]; 16]);
    for lane in 0..WARP {
        let (group, thread) = (lane / 4, lane % 4);
        for upper in 0..2 {
            for (place, own) in a.iter().enumerate() {
                let (row, column) = (group + 8 * (place % 2), 2 * thread + upper + 8 * (place / 2));
                left[row][column] = half(own[lane], upper);
            }
            for (place, own) in b.iter().enumerate() {
                right[2 * thread + upper + 8 * place][group] = half(own[lane], upper);
            }
        }
    }
    let mut sums = [[0; WARP]; 4];
    for (place, own) in sums.iter_mut().enumerate() {
        for (lane, sum) in own.iter_mut().enumerate() {
            let (row, column) = (lane / 4 + 8 * (place / 2), 2 * (lane % 4) + place % 2);
            let start = f64::from(f32::from_bits(c[place][lane] as u32));
            // Devices sum in an order and with a precision of their own; one rounding is as good as any.
            let whole = (0..16).fold(start, |sum, depth| sum + left[row][depth] * right[depth][column]);
            *sum = u64::from((whole as f32).to_bits());
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
        let lane = |own: &dyn Fn(usize, usize) -> u64| -> [u64; WARP] {
            std::array::from_fn(|lane| own(lane / 4, lane % 4))
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
        let d = multiply(ty, &a, &b, &vec![[0; WARP]; 4]);
        for (i, own) in d.iter().enumerate() {
            for (place, value) in own.iter().enumerate() {
                let expected = number(place / 4 + 8 * (i / 2), 2 * (place % 4) + i % 2);
                ensure!(f32::from_bits(*value as u32) == expected, "register {i} of lane {place}");
            }
        }
        Ok(())
    }
}
