//! Elements and slices of a tensor, replaced or combined at places that indices say.
//!
//! Every update is looked at once, in order: of several for one place the last replaces the others, and sums add up in
//! the order of the updates.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

use crate::DataType;
use crate::host::{HostType, HostValue};

/// How an update meets what is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScatterReduction {
    /// It replaces it.
    Replace,
    /// Sum; integers wrap around.
    Add,
    /// Product; integers wrap around.
    Multiply,
    /// The larger; no number where one is none.
    Maximum,
    /// The smaller; no number where one is none.
    Minimum,
}

/// Where updates go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScatterPlaces {
    /// Each element of the updates has an index along an axis; along the others it goes to its own place.
    Elements {
        /// The axis.
        axis: u32,
    },
    /// Each slice of the updates has a list of indices into the first axes, along the last axis of the indices.
    Slices,
}

/// Checks the operands (data, indices of `i32` or `i64`, updates), and gives the type of the result: that of the data.
pub(crate) fn output(
    places: ScatterPlaces,
    reduction: ScatterReduction,
    operands: [&HostType; 3],
) -> Result<HostType, String> {
    let [data, indices, updates] = operands;
    let combines =
        matches!(data.dtype, DataType::F32 | DataType::F64 | DataType::I32 | DataType::I64);
    let typed = matches!(indices.dtype, DataType::I32 | DataType::I64)
        && data.dtype == updates.dtype
        && (combines || reduction == ScatterReduction::Replace);
    let fits = match places {
        ScatterPlaces::Elements { axis } => {
            let mut pairs = indices.shape.iter().zip(&data.shape).enumerate();
            indices.shape == updates.shape
                && indices.shape.len() == data.shape.len()
                && (axis as usize) < data.shape.len()
                && pairs.all(|(own, (part, all))| own == axis as usize || part <= all)
        }
        ScatterPlaces::Slices => indices.shape.split_last().is_some_and(|(tuple, points)| {
            let tuple = usize::try_from(*tuple).unwrap_or(usize::MAX);
            let slice = data.shape.get(tuple..);
            slice.is_some_and(|slice| updates.shape == [points, slice].concat())
        }),
    };
    match typed && fits {
        true => Ok(data.clone()),
        false => Err("an operand has another type than the function takes".to_owned()),
    }
}

/// Stores the data with all updates in `result`, which has as many bytes, of operands that [`output`] takes.
///
/// # Errors
/// An index that is outside its axis.
pub(crate) fn scatter(
    places: ScatterPlaces,
    reduction: ScatterReduction,
    operands: [&HostValue<'_>; 3],
    result: &mut [u8],
) -> Result<(), String> {
    let bytes = result.len().min(operands[0].bytes.len());
    result[..bytes].copy_from_slice(&operands[0].bytes[..bytes]);
    let update = Update { places, operands, result };
    match (reduction, operands[0].of.dtype) {
        (ScatterReduction::Replace, dtype) => match dtype.bytes_of(&[]) {
            Some(1) => update.apply(u8::from_ne_bytes, u8::to_ne_bytes, |_, new| new)?,
            Some(2) => update.apply(u16::from_ne_bytes, u16::to_ne_bytes, |_, new| new)?,
            Some(4) => update.apply(u32::from_ne_bytes, u32::to_ne_bytes, |_, new| new)?,
            _ => update.apply(u64::from_ne_bytes, u64::to_ne_bytes, |_, new| new)?,
        },
        (_, DataType::F32) => {
            update.apply(f32::from_ne_bytes, f32::to_ne_bytes, of_floats(reduction))?;
        }
        (_, DataType::F64) => {
            update.apply(f64::from_ne_bytes, f64::to_ne_bytes, of_floats(reduction))?;
        }
        (_, DataType::I32) => {
            let meet: fn(i32, i32) -> i32 = match reduction {
                ScatterReduction::Multiply => i32::wrapping_mul,
                ScatterReduction::Maximum => i32::max,
                ScatterReduction::Minimum => i32::min,
                _ => i32::wrapping_add,
            };
            update.apply(i32::from_ne_bytes, i32::to_ne_bytes, meet)?;
        }
        _ => {
            let meet: fn(i64, i64) -> i64 = match reduction {
                ScatterReduction::Multiply => i64::wrapping_mul,
                ScatterReduction::Maximum => i64::max,
                ScatterReduction::Minimum => i64::min,
                _ => i64::wrapping_add,
            };
            update.apply(i64::from_ne_bytes, i64::to_ne_bytes, meet)?;
        }
    }
    Ok(())
}

/// How two floating-point numbers are combined.
fn of_floats<F>(reduction: ScatterReduction) -> fn(F, F) -> F
where
    F: Copy + PartialOrd + Add<Output = F> + Mul<Output = F>,
{
    match reduction {
        ScatterReduction::Replace => |_, new| new,
        ScatterReduction::Add => |old, new| old + new,
        ScatterReduction::Multiply => |old, new| old * new,
        ScatterReduction::Maximum => {
            |old, new| if old > new || is_no_number(old) { old } else { new }
        }
        ScatterReduction::Minimum => {
            |old, new| if old < new || is_no_number(old) { old } else { new }
        }
    }
}

/// What is no number has no order, not even to itself.
fn is_no_number<F: PartialOrd>(value: F) -> bool {
    value.partial_cmp(&value).is_none()
}

/// What is updated, and by what.
struct Update<'a> {
    places: ScatterPlaces,
    operands: [&'a HostValue<'a>; 3],
    result: &'a mut [u8],
}

impl Update<'_> {
    /// Updates the elements, each of `SIZE` bytes, by `meet`.
    fn apply<E, const SIZE: usize>(
        self,
        read: fn([u8; SIZE]) -> E,
        write: fn(E) -> [u8; SIZE],
        meet: impl Fn(E, E) -> E,
    ) -> Result<(), String> {
        let [data, indices, updates] = self.operands;
        let (old, _) = self.result.as_chunks_mut::<SIZE>();
        let (new, _) = updates.bytes.as_chunks::<SIZE>();
        let mut run = |place: usize, number: usize, count: usize| {
            let old = old.get_mut(place..).and_then(|old| old.get_mut(..count));
            let new = new.get(number..).and_then(|new| new.get(..count));
            for (old, new) in old.into_iter().flatten().zip(new.into_iter().flatten()) {
                *old = write(meet(read(*old), read(*new)));
            }
        };
        let (shape, strides) = (&data.of.shape[..], strides(&data.of.shape));
        match self.places {
            ScatterPlaces::Slices => {
                let tuple = indices.of.shape.last().map_or(0, |own| *own as usize);
                let length = product(&shape[tuple..]);
                let points = new.len().checked_div(length).unwrap_or(0);
                for point in 0..points {
                    let mut first = 0;
                    for axis in 0..tuple {
                        let index = index(indices, point * tuple + axis, shape[axis])?;
                        first += index * strides[axis];
                    }
                    run(first, point * length, length);
                }
            }
            ScatterPlaces::Elements { axis } => {
                let (axis, parts) = (axis as usize, &indices.of.shape[..]);
                // The axes that a row leaves out: elements of a row lie side by side, but where the last axis is indexed.
                let is_whole = axis + 1 < shape.len() && parts[axis + 1..] == shape[axis + 1..];
                let outer = if is_whole { axis + 1 } else { shape.len() - 1 };
                let step = usize::from(axis < outer);
                let row = product(&parts[outer..]);
                let rows = new.len().checked_div(row).unwrap_or(0);
                let mut at = vec![0; outer];
                for number in 0..rows {
                    let axes = at.iter().zip(&strides).enumerate();
                    let first: usize =
                        axes.filter(|own| own.0 != axis).map(|(_, (at, stride))| at * stride).sum();
                    let begin = number * row;
                    // Exporters repeat the index of a slice for each of its elements.
                    if step == 1 && repeats_one(indices, begin, row) {
                        let index = index(indices, begin, shape[axis])?;
                        run(first + index * strides[axis], begin, row);
                    } else {
                        for own in 0..row {
                            let index = index(indices, begin + own, shape[axis])?;
                            run(first + own * step + index * strides[axis], begin + own, 1);
                        }
                    }
                    advance(&mut at, &parts[..outer]);
                }
            }
        }
        Ok(())
    }
}

/// The next point in row-major order.
fn advance(at: &mut [usize], shape: &[u64]) {
    for (own, extent) in at.iter_mut().zip(shape).rev() {
        *own += 1;
        if (*own as u64) < *extent {
            return;
        }
        *own = 0;
    }
}

/// Elements of a tensor of this shape.
fn product(shape: &[u64]) -> usize {
    shape.iter().fold(1_u64, |all, own| all.saturating_mul(*own)) as usize
}

/// Whether `count` indices from `first` on are the same.
fn repeats_one(indices: &HostValue<'_>, first: usize, count: usize) -> bool {
    let size = indices.of.dtype.bytes_of(&[]).unwrap_or(0) as usize;
    let own = indices.bytes.get(first * size..(first + count) * size).unwrap_or_default();
    own.len() > size && own[size..] == own[..own.len() - size]
}

/// Elements between neighbours along each axis.
fn strides(shape: &[u64]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis] as usize);
    }
    strides
}

/// One of the indices; negative ones count from the end.
fn index(indices: &HostValue<'_>, number: usize, extent: u64) -> Result<usize, String> {
    let found = match indices.of.dtype {
        DataType::I32 => {
            indices.bytes.as_chunks().0.get(number).map(|own| i64::from(i32::from_ne_bytes(*own)))
        }
        _ => indices.bytes.as_chunks().0.get(number).map(|own| i64::from_ne_bytes(*own)),
    };
    let found = found.unwrap_or(0);
    let place = if found < 0 { found.saturating_add_unsigned(extent) } else { found };
    let place = u64::try_from(place).ok().filter(|place| *place < extent);
    place
        .map(|place| place as usize)
        .ok_or_else(|| format!("index {found} is outside an axis of {extent}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bytes<const SIZE: usize, E>(
        values: impl IntoIterator<Item = E>,
        of: fn(E) -> [u8; SIZE],
    ) -> Vec<u8> {
        values.into_iter().flat_map(of).collect()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        bytes(values.iter().copied(), f32::to_ne_bytes)
    }

    fn longs(values: &[i64]) -> Vec<u8> {
        bytes(values.iter().copied(), i64::to_ne_bytes)
    }

    fn run(
        places: ScatterPlaces,
        reduction: ScatterReduction,
        shapes: [&[u64]; 3],
        data: &[f32],
        indices: &[i64],
        updates: &[f32],
    ) -> Result<Vec<f32>, String> {
        let types = [DataType::F32, DataType::I64, DataType::F32];
        let types: Vec<HostType> = types
            .into_iter()
            .zip(shapes)
            .map(|(dtype, shape)| HostType::new(dtype, shape))
            .collect();
        output(places, reduction, [&types[0], &types[1], &types[2]])?;
        let bytes = [floats(data), longs(indices), floats(updates)];
        let [data, indices, updates] =
            [0, 1, 2].map(|own| HostValue { of: &types[own], bytes: &bytes[own] });
        let mut found = vec![0; data.bytes.len()];
        scatter(places, reduction, [&data, &indices, &updates], &mut found)?;
        Ok(found.as_chunks().0.iter().map(|own| f32::from_ne_bytes(*own)).collect())
    }

    const ROWS: ScatterPlaces = ScatterPlaces::Elements { axis: 0 };
    const COLUMNS: ScatterPlaces = ScatterPlaces::Elements { axis: 1 };

    #[test]
    fn elements_go_along_an_axis_and_stay_along_the_others() {
        let by = |places, shape: &[u64], indices: &[i64]| {
            let updates: Vec<f32> = (1..=indices.len()).map(|own| own as f32).collect();
            run(
                places,
                ScatterReduction::Replace,
                [&[3, 2], shape, shape],
                &[0.0; 6],
                indices,
                &updates,
            )
        };
        assert_eq!(by(ROWS, &[2, 2], &[2, 0, 0, -1]).unwrap(), [3.0, 2.0, 0.0, 0.0, 1.0, 4.0]);
        assert_eq!(by(COLUMNS, &[2, 1], &[1, -2]).unwrap(), [0.0, 1.0, 2.0, 0.0, 0.0, 0.0]);
        // Fewer columns than the data has.
        assert_eq!(by(ROWS, &[2, 1], &[1, 1]).unwrap(), [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]);
        assert!(
            by(ROWS, &[1, 2], &[3, 0]).unwrap_err().contains("index 3 is outside an axis of 3")
        );
        assert!(by(ROWS, &[1, 2], &[0, -4]).unwrap_err().contains("index -4 is outside"));
    }

    #[test]
    fn an_index_that_is_repeated_along_a_row_moves_all_of_it() {
        let updates: Vec<f32> = (1..=8).map(|own| own as f32).collect();
        let by = |reduction, shape: &[u64], indices: &[i64]| {
            let data: Vec<f32> = (0..12).map(|own| own as f32 * 100.0).collect();
            let shapes = [&[3, 2, 2], shape, shape];
            run(ROWS, reduction, shapes, &data, indices, &updates[..indices.len()])
        };
        let twice = by(ScatterReduction::Replace, &[2, 2, 2], &[2, 2, 2, 2, -3, -3, -3, -3]);
        let expected = [5.0, 6.0, 7.0, 8.0, 400.0, 500.0, 600.0, 700.0, 1.0, 2.0, 3.0, 4.0];
        assert_eq!(twice.unwrap(), expected);
        // A row of one index, and one of several.
        let mixed = by(ScatterReduction::Add, &[2, 2, 2], &[0, 0, 0, 0, 1, 2, 2, 1]).unwrap();
        let expected =
            [1.0, 102.0, 203.0, 304.0, 405.0, 500.0, 600.0, 708.0, 800.0, 906.0, 1007.0, 1100.0];
        assert_eq!(mixed, expected);
        // Rows that are shorter than those of the data.
        let short = by(ScatterReduction::Replace, &[2, 1, 2], &[1, 1, 1, 1]).unwrap();
        assert_eq!(short[4..8], [3.0, 4.0, 600.0, 700.0]);
        assert!(by(ScatterReduction::Replace, &[1, 2, 2], &[3, 3, 3, 3]).is_err());
    }

    #[test]
    fn updates_meet_what_is_there_in_order() {
        let by = |reduction| {
            run(ROWS, reduction, [&[2], &[3], &[3]], &[1.0, 5.0], &[0, 0, 1], &[2.0, -3.0, 4.0])
                .unwrap()
        };
        assert_eq!(by(ScatterReduction::Replace), [-3.0, 4.0]);
        assert_eq!(by(ScatterReduction::Add), [0.0, 9.0]);
        assert_eq!(by(ScatterReduction::Multiply), [-6.0, 20.0]);
        assert_eq!(by(ScatterReduction::Maximum), [2.0, 5.0]);
        assert_eq!(by(ScatterReduction::Minimum), [-3.0, 4.0]);
        let none = run(
            ROWS,
            ScatterReduction::Maximum,
            [&[1], &[2], &[2]],
            &[1.0],
            &[0, 0],
            &[f32::NAN, 9.0],
        );
        assert!(none.unwrap()[0].is_nan());
    }

    #[test]
    fn slices_have_lists_of_indices() {
        let by = |shapes: [&[u64]; 3], indices: &[i64]| {
            let updates = [1.0, 2.0, 3.0, 4.0];
            run(ScatterPlaces::Slices, ScatterReduction::Add, shapes, &[0.0; 8], indices, &updates)
        };
        let rows = by([&[4, 2], &[2, 1], &[2, 2]], &[3, 3]).unwrap();
        assert_eq!(rows, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 6.0]);
        let elements = by([&[4, 2], &[2, 2, 2], &[2, 2]], &[0, 0, 1, -1, 0, 0, 3, 1]).unwrap();
        assert_eq!(elements, [4.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 4.0]);
        assert!(
            by([&[4, 2], &[2, 1], &[2, 2]], &[0, 4])
                .unwrap_err()
                .contains("index 4 is outside an axis of 4")
        );
        assert!(by([&[4, 2], &[2, 3], &[2, 2]], &[0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn nothing_is_done_with_no_updates() {
        let none = run(ROWS, ScatterReduction::Add, [&[2], &[0], &[0]], &[1.0, 2.0], &[], &[]);
        assert_eq!(none.unwrap(), [1.0, 2.0]);
        let narrow =
            run(ROWS, ScatterReduction::Add, [&[2, 2], &[1, 0], &[1, 0]], &[1.0; 4], &[], &[]);
        assert_eq!(narrow.unwrap(), [1.0; 4]);
    }
}
