//! Products for the reference results, some columns at a time: weights are several times as large in `f64` as they are
//! stored, and those of a large model would not fit in memory so.

use crate::operator::OpError;
use hone_types::{Tensor, TensorType};
use std::ops::Range;

/// Weights that the reference has in `f64` at a time.
pub(crate) const PART: usize = 1 << 22;

/// The columns of a product of `depth` terms that are computed at a time, a multiple of `block`.
pub(crate) fn columns_at_a_time(depth: usize, block: usize) -> usize {
    (PART / depth.max(1)).next_multiple_of(block.max(1)).max(block)
}

/// A tensor whose last axis is computed `part` indices at a time: `compute` gives each part.
///
/// # Errors
/// What `compute` gives; parts of another type than that of their indices.
pub(crate) fn in_parts(
    output: &TensorType,
    part: usize,
    compute: impl Fn(Range<usize>) -> Result<Tensor, OpError>,
) -> Result<Tensor, OpError> {
    let columns = output.shape.last().copied().unwrap_or(1);
    let size = output.dtype.bytes();
    let mut bytes = vec![0u8; output.bytes()];
    for first in (0..columns).step_by(part.max(1)) {
        let indices = first..columns.min(first + part);
        let (from, width) = (first * size, indices.len() * size);
        let found = compute(indices)?;
        if found.dtype() != output.dtype
            || found.bytes().len() * columns * size != bytes.len() * width
        {
            return Err(OpError::Value(format!("{} is no part of {output}", found.tensor_type())));
        }
        let rows = bytes.chunks_exact_mut((columns * size).max(1));
        for (row, part) in rows.zip(found.bytes().chunks_exact(width.max(1))) {
            row[from..from + width].copy_from_slice(part);
        }
    }
    Ok(Tensor::from_bytes(output.clone(), bytes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_types::DataType;

    #[test]
    fn parts_are_put_side_by_side() {
        let output = TensorType::new(DataType::F32, [2, 5]);
        let part = |columns: Range<usize>| {
            let rows = [0.0f32, 10.0].into_iter();
            let all = rows.flat_map(|row| columns.clone().map(move |column| row + column as f32));
            let all: Vec<f32> = all.collect();
            Ok(Tensor::from_elements([2, columns.len()], &all)?)
        };
        let whole = in_parts(&output, 2, part).unwrap();
        let expected = [0.0f32, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0, 12.0, 13.0, 14.0];
        assert_eq!(whole.elements::<f32>().unwrap(), expected);
        assert!(in_parts(&output, 2, |_| part(0..1)).is_err());
        assert_eq!(columns_at_a_time(PART / 10, 16), 16);
        assert_eq!(columns_at_a_time(PART * 2, 1), 1);
    }
}
