//! Elements and slices of a tensor, replaced or combined at places that indices say.
//!
//! Every update is looked at once, in order: of several for one place the last replaces the others, and sums add up in
//! the order of the updates.

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
            Some(1) => update.apply::<1>(|_, new| new),
            Some(2) => update.apply::<2>(|_, new| new),
            Some(4) => update.apply::<4>(|_, new| new),
            _ => update.apply::<8>(|_, new| new),
        },
        (_, DataType::F32) => update.combine(reduction, f32::from_ne_bytes, f32::to_ne_bytes),
        (_, DataType::F64) => update.combine(reduction, f64::from_ne_bytes, f64::to_ne_bytes),
        (_, DataType::I32) => update.combine(reduction, i32::from_ne_bytes, i32::to_ne_bytes),
        _ => update.combine(reduction, i64::from_ne_bytes, i64::to_ne_bytes),
    }
}

/// What updates are combined with.
trait Number: Copy {
    fn sum(self, new: Self) -> Self;
    fn product(self, new: Self) -> Self;
    fn larger(self, new: Self) -> Self;
    fn smaller(self, new: Self) -> Self;
}

macro_rules! floats {
    ($number:ty) => {
        impl Number for $number {
            fn sum(self, new: Self) -> Self {
                self + new
            }

            fn product(self, new: Self) -> Self {
                self * new
            }

            fn larger(self, new: Self) -> Self {
                if self > new || self.is_nan() { self } else { new }
            }

            fn smaller(self, new: Self) -> Self {
                if self < new || self.is_nan() { self } else { new }
            }
        }
    };
}

macro_rules! integers {
    ($number:ty) => {
        impl Number for $number {
            fn sum(self, new: Self) -> Self {
                self.wrapping_add(new)
            }

            fn product(self, new: Self) -> Self {
                self.wrapping_mul(new)
            }

            fn larger(self, new: Self) -> Self {
                self.max(new)
            }

            fn smaller(self, new: Self) -> Self {
                self.min(new)
            }
        }
    };
}

floats!(f32);
floats!(f64);
integers!(i32);
integers!(i64);

/// What is updated, and by what.
struct Update<'a> {
    places: ScatterPlaces,
    operands: [&'a HostValue<'a>; 3],
    result: &'a mut [u8],
}

/// Updates as many elements as the third number says, from a place of the result and a number of an update on.
type Run<'a> = dyn FnMut(usize, usize, usize) + 'a;

impl Update<'_> {
    /// Combines numbers of `SIZE` bytes. What combines them is known where rows are updated, so that vectors of numbers are.
    fn combine<N: Number, const SIZE: usize>(
        self,
        reduction: ScatterReduction,
        read: impl Fn([u8; SIZE]) -> N,
        write: impl Fn(N) -> [u8; SIZE],
    ) -> Result<(), String> {
        match reduction {
            ScatterReduction::Replace => self.apply::<SIZE>(|_, new| new),
            ScatterReduction::Add => self.apply(|old, new| write(read(old).sum(read(new)))),
            ScatterReduction::Multiply => {
                self.apply(|old, new| write(read(old).product(read(new))))
            }
            ScatterReduction::Maximum => self.apply(|old, new| write(read(old).larger(read(new)))),
            ScatterReduction::Minimum => self.apply(|old, new| write(read(old).smaller(read(new)))),
        }
    }

    /// Updates the elements, each of `SIZE` bytes, by `meet`.
    fn apply<const SIZE: usize>(
        self,
        meet: impl Fn([u8; SIZE], [u8; SIZE]) -> [u8; SIZE],
    ) -> Result<(), String> {
        let (old, _) = self.result.as_chunks_mut::<SIZE>();
        let (new, _) = self.operands[2].bytes.as_chunks::<SIZE>();
        let mut run = |place: usize, number: usize, count: usize| {
            let old = old.get_mut(place..).and_then(|old| old.get_mut(..count));
            let new = new.get(number..).and_then(|new| new.get(..count));
            for (old, new) in old.unwrap_or_default().iter_mut().zip(new.unwrap_or_default()) {
                *old = meet(*old, *new);
            }
        };
        visit(self.places, self.operands, new.len(), &mut run)
    }
}

/// Calls `run` for the rows of `count` updates, in order.
fn visit(
    places: ScatterPlaces,
    [data, indices, _]: [&HostValue<'_>; 3],
    count: usize,
    run: &mut Run<'_>,
) -> Result<(), String> {
    let (shape, strides) = (&data.of.shape[..], strides(&data.of.shape));
    let axis = match places {
        ScatterPlaces::Elements { axis } => axis as usize,
        ScatterPlaces::Slices => {
            let tuple = indices.of.shape.last().map_or(0, |own| *own as usize);
            let length = product(&shape[tuple..]);
            let points = count.checked_div(length).unwrap_or(0);
            for point in 0..points {
                let mut first = 0;
                for axis in 0..tuple {
                    let index = index(indices, point * tuple + axis, shape[axis])?;
                    first += index * strides[axis];
                }
                run(first, point * length, length);
            }
            return Ok(());
        }
    };
    let parts = &indices.of.shape[..];
    // The axes that a row leaves out: elements of a row lie side by side, but where the last axis is indexed.
    let is_whole = axis + 1 < shape.len() && parts[axis + 1..] == shape[axis + 1..];
    let outer = if is_whole { axis + 1 } else { shape.len() - 1 };
    let step = usize::from(axis < outer);
    let row = product(&parts[outer..]);
    let rows = count.checked_div(row).unwrap_or(0);
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
    Ok(())
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
    fn every_type_is_combined_as_its_own() {
        let of = |dtype, reduction, bytes: [Vec<u8>; 3]| {
            let types = [HostType::new(dtype, [3]), HostType::new(DataType::I64, [3])];
            let types = [&types[0], &types[1], &types[0]];
            output(ROWS, reduction, types).unwrap();
            let values = [0, 1, 2].map(|own| HostValue { of: types[own], bytes: &bytes[own] });
            let mut found = vec![0; bytes[0].len()];
            scatter(ROWS, reduction, [&values[0], &values[1], &values[2]], &mut found).unwrap();
            found
        };
        let at = longs(&[0, 1, 1]);
        let expected: [(ScatterReduction, [i64; 3]); 5] = [
            (ScatterReduction::Replace, [9, -3, 7]),
            (ScatterReduction::Add, [14, 1, 7]),
            (ScatterReduction::Multiply, [45, 36, 7]),
            (ScatterReduction::Maximum, [9, 6, 7]),
            (ScatterReduction::Minimum, [5, -3, 7]),
        ];
        let (old, new) = ([5, -2, 7], [9, 6, -3]);
        for (reduction, expected) in expected {
            let all = |to: fn(i64) -> Vec<u8>, dtype| {
                let bytes = |values: [i64; 3]| values.into_iter().flat_map(to).collect::<Vec<_>>();
                let found = of(dtype, reduction, [bytes(old), at.clone(), bytes(new)]);
                assert_eq!(found, bytes(expected), "{dtype:?} {reduction:?}");
            };
            all(|own| (own as f32).to_ne_bytes().to_vec(), DataType::F32);
            all(|own| (own as f64).to_ne_bytes().to_vec(), DataType::F64);
            all(|own| (own as i32).to_ne_bytes().to_vec(), DataType::I32);
            all(|own| own.to_ne_bytes().to_vec(), DataType::I64);
        }
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
