//! Matrices that a quantizer left: integers times a scale for each column, bit for bit.

use hone_types::{DataType, Tensor, TensorError};

/// A matrix `[K, N]` as integers times a scale for each column.
pub(crate) struct Multiples {
    rows: usize,
    /// `[K, N]`
    integers: Vec<f64>,
    /// `[N]`
    scales: Vec<f64>,
}

impl Multiples {
    /// `None` where a column is not a scale times integers of at most [`LARGEST`].
    pub(crate) fn of(matrix: &Tensor) -> Option<Self> {
        let [rows, columns] = matrix.shape()[..] else { return None };
        let rounding = Rounding::of(matrix.dtype())?;
        let values = matrix.to_f64();
        let mut integers = vec![0.0; values.len()];
        let mut scales = Vec::with_capacity(columns);
        for column in 0..columns {
            let elements = || values.iter().skip(column).step_by(columns).copied();
            let scale = scale_of(elements, &rounding)?;
            for (integer, value) in
                integers.iter_mut().skip(column).step_by(columns).zip(elements())
            {
                *integer = (value / scale).round();
            }
            scales.push(scale);
        }
        Some(Self { rows, integers, scales })
    }

    /// The narrowest type for the integers.
    pub(crate) fn narrowest(&self) -> DataType {
        let is_byte = |value: &f64| (f64::from(i8::MIN)..=f64::from(i8::MAX)).contains(value);
        if self.integers.iter().all(is_byte) { DataType::I8 } else { DataType::I16 }
    }

    /// The largest magnitude of an integer.
    pub(crate) fn largest(&self) -> usize {
        self.integers.iter().fold(0.0f64, |largest, value| largest.max(value.abs())) as usize
    }

    /// The integers `[K, N]` and the scales `[N]`, of these types.
    pub(crate) fn tensors(
        &self,
        integers: DataType,
        working: DataType,
    ) -> Result<[Tensor; 2], TensorError> {
        let columns = self.scales.len();
        Ok([
            Tensor::from_f64(integers, [self.rows, columns], &self.integers)?,
            Tensor::from_f64(working, [columns], &self.scales)?,
        ])
    }
}

/// Largest magnitude of the integers: that of a byte without a sign less a zero point.
const LARGEST: f64 = 255.0;

/// How the numbers of a type are rounded.
struct Rounding {
    round: fn(f64) -> f64,
    /// The number next to another one, and the numbers beside that.
    near: fn(f64) -> [f64; 3],
}

impl Rounding {
    fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::F32 => Some(Self {
                round: |value| f64::from(value as f32),
                near: |value| {
                    let rounded = value as f32;
                    [rounded, rounded.next_down(), rounded.next_up()].map(f64::from)
                },
            }),
            DataType::F64 => Some(Self {
                round: |value| value,
                near: |value| [value, value.next_down(), value.next_up()],
            }),
            _ => None,
        }
    }
}

/// The scale of which every element of a column is a multiple, exactly; `None` where there is none.
fn scale_of<I: Iterator<Item = f64>>(elements: impl Fn() -> I, rounding: &Rounding) -> Option<f64> {
    if !elements().all(f64::is_finite) {
        return None;
    }
    let magnitudes = || elements().map(f64::abs).filter(|value| *value != 0.0);
    let largest = magnitudes().fold(0.0, f64::max);
    let smallest = magnitudes().fold(f64::INFINITY, f64::min);
    if largest == 0.0 {
        return Some(1.0);
    }
    // The smallest element is some integer times the scale; divided by it, it is the scale but for the last bit.
    let integers = 1..=(LARGEST * smallest / largest).floor() as u32;
    let candidates = integers.flat_map(|integer| (rounding.near)(smallest / f64::from(integer)));
    let is_multiple =
        |value: f64, scale: f64| (rounding.round)((value / scale).round() * scale) == value;
    candidates
        .into_iter()
        .filter(|scale| *scale > 0.0)
        .find(|scale| elements().all(|value| is_multiple(value, *scale)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The scales and integers of one column of `f32`, where it is of multiples.
    fn column(values: &[f32]) -> Option<(f64, Vec<f64>)> {
        let matrix = Tensor::from_elements([values.len(), 1], values).unwrap();
        Multiples::of(&matrix).map(|multiples| (multiples.scales[0], multiples.integers))
    }

    #[test]
    fn quantized_columns_are_multiples_bit_by_bit() {
        // The last two lie right below a power of two and right above one.
        for scale in [0.1f32, 0.003_921_569, 1.7e-5, 0.000_487_9, 0.000_488_3] {
            // Their smallest magnitude is one, three or seven times the scale.
            for integers in [&[-128i16, 1, 90, 0][..], &[127, -3, 88], &[-7, 250, 33]] {
                let values: Vec<f32> =
                    integers.iter().map(|integer| f32::from(*integer) * scale).collect();
                let (found, multiples) = column(&values).unwrap();
                let again: Vec<f32> =
                    multiples.iter().map(|integer| *integer as f32 * found as f32).collect();
                assert_eq!(again, values);
            }
        }
        assert_eq!(column(&[0.0, 0.0]), Some((1.0, vec![0.0, 0.0])));
    }

    #[test]
    fn other_columns_are_not() {
        assert_eq!(column(&[1.0, 256.0]), None);
        assert_eq!(column(&[1.0, 3.3, 0.71]), None);
        assert_eq!(column(&[1.0, f32::INFINITY]), None);
        assert_eq!(column(&[1.0, f32::NAN]), None);
        assert_eq!(column(&[0.0, f32::NAN]), None);
    }
}
