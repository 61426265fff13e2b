//! What constants do with the size: nothing, they are cut off at it, or they are affine functions of it.

use super::length::Length;
use super::lengths::Candidates;
use super::twins::{self, Axis};
use hone_ops::{Operator, Slice};
use hone_types::{DataType, Tensor, TensorType};
use std::collections::HashSet;

/// A constant at several sizes.
pub(super) enum Constant {
    /// The same at all of them.
    Whole,
    /// Along the dimension, and at every size the first positions of what it is at the bound.
    Along(Vec<Axis>),
    /// Along the dimension, and at every size the last positions of what it is at the bound.
    Ending(Vec<Axis>),
    /// Without the dimension, and an affine function of a length.
    Affine(Affine),
}

/// Elements `slope · length + offset`.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    /// The size, or steps that are counted from it.
    pub of: Length,
    pub slopes: Vec<f64>,
    pub offsets: Vec<f64>,
}

/// Most elements of a tensor that is computed from the size.
const MOST_ELEMENTS: usize = 1 << 12;

/// Integers up to here are numbers of `f64`, and so are their sums and differences.
const LARGEST: f64 = (1u64 << 51) as f64;

impl Constant {
    /// What a constant is that has these values at `sizes`, the bound first, where lengths count one of `steps`.
    pub fn of(tensors: &[&Tensor], sizes: &[usize], steps: &[Length]) -> Result<Self, String> {
        let [first, others @ ..] = tensors else { return Ok(Self::Whole) };
        let types: Vec<&TensorType> = tensors.iter().map(|tensor| tensor.tensor_type()).collect();
        let axes = twins::axes(&types, sizes, Candidates { steps, ..Candidates::default() })
            .map_err(|why| format!("reads a constant that {why}"))?;
        if !axes.is_empty() {
            let is_part = |end: bool| others.iter().all(|other| is_part(first, other, end));
            return match (is_part(false), is_part(true)) {
                (true, _) => Ok(Self::Along(axes)),
                (false, true) => Ok(Self::Ending(axes)),
                (false, false) => Err(format!(
                    "reads a constant of {} of which neither the beginning nor the end is what it is at smaller sizes",
                    first.tensor_type()
                )),
            };
        }
        if others.iter().all(|other| first == other) {
            return Ok(Self::Whole);
        }
        let mut functions = steps.iter().filter_map(|length| Affine::of(tensors, sizes, *length));
        match (functions.next(), functions.next()) {
            (Some(affine), None) => Ok(Self::Affine(affine)),
            (found, _) => {
                let (count, what) = (sizes.len(), first.tensor_type());
                let why = match found {
                    Some(_) => "may be a function of several lengths",
                    None => "is not seen to be an affine function of the size",
                };
                Err(format!(
                    "reads a constant of {what} that differs between {count} sizes, and {why}"
                ))
            }
        }
    }
}

impl Affine {
    /// The function that elements are at all sizes, exactly; at least three have to be known.
    fn of(tensors: &[&Tensor], sizes: &[usize], steps: Length) -> Option<Self> {
        let first = tensors.first()?;
        let count = first.tensor_type().elements();
        let dtype = first.dtype();
        let is_known =
            matches!(dtype, DataType::F32 | DataType::F64 | DataType::I32 | DataType::I64);
        if count > MOST_ELEMENTS || !is_known {
            return None;
        }
        let sizes = sizes.iter().map(|size| usize::try_from(steps.at(*size)).ok());
        let sizes: Vec<usize> = sizes.collect::<Option<_>>()?;
        let distinct: HashSet<usize> = sizes.iter().copied().collect();
        if distinct.len() < 3 {
            return None;
        }
        let values: Vec<Vec<f64>> = tensors.iter().map(|tensor| tensor.to_f64()).collect();
        let (mut slopes, mut offsets) = (Vec::new(), Vec::new());
        for element in 0..count {
            let values: Vec<f64> = values.iter().map(|values| values[element]).collect();
            let (slope, offset) = line(&values, &sizes)?;
            if !is_exact(dtype, slope, offset, sizes[0]) {
                return None;
            }
            slopes.push(slope);
            offsets.push(offset);
        }
        Some(Self { of: steps, slopes, offsets })
    }

    /// An element at a size.
    pub fn at(&self, element: usize, size: usize) -> f64 {
        self.slopes[element] * self.of.at(size) as f64 + self.offsets[element]
    }
}

/// Slope and offset of the line through numbers at sizes, where they lie on one.
fn line(values: &[f64], sizes: &[usize]) -> Option<(f64, f64)> {
    if values.iter().any(|value| !value.is_finite() || value.abs() > LARGEST) {
        return None;
    }
    let other = (1..sizes.len()).find(|index| sizes[*index] != sizes[0])?;
    let slope = (values[0] - values[other]) / (sizes[0] as f64 - sizes[other] as f64);
    let offset = values[0] - slope * sizes[0] as f64;
    let mut pairs = values.iter().zip(sizes);
    let fits = pairs.all(|(value, size)| slope * *size as f64 + offset == *value);
    fits.then_some((slope, offset))
}

/// Whether `slope · n + offset` is computed without rounding in a type, for all sizes up to a bound: all numbers are
/// multiples of a power of two, and few enough of it for the type's significand.
fn is_exact(dtype: DataType, slope: f64, offset: f64, bound: usize) -> bool {
    let digits = match dtype {
        DataType::F32 => 24,
        DataType::F64 => 53,
        DataType::I32 => 31,
        _ => 52,
    };
    let fraction_bits = if dtype.is_float() { digits } else { 0 };
    let largest = 2f64.powi(digits);
    let sum = slope.abs() * bound as f64 + offset.abs();
    (0..=fraction_bits).map(|fraction_bits| 2f64.powi(fraction_bits)).any(|parts| {
        let is_whole = |number: f64| (number * parts).fract() == 0.0;
        is_whole(slope) && is_whole(offset) && sum * parts < largest
    }) && (bound as f64) < largest
}

/// Whether a tensor is the first positions of another one along all its axes, or the last ones, in bits.
fn is_part(whole: &Tensor, part: &Tensor, end: bool) -> bool {
    let rank = whole.shape().len();
    let extents = part.shape().to_vec();
    let pairs = whole.shape().iter().zip(part.shape());
    let starts = pairs.map(|(whole, part)| if end { whole.saturating_sub(*part) } else { 0 });
    let slice = Slice { starts: starts.collect(), steps: vec![1; rank], extents };
    let fits = slice.infer(&[Some(whole.tensor_type())]).is_ok();
    let first = fits.then(|| slice.reference(&[Some(whole)]).ok()).flatten();
    first.is_some_and(|first| first.first() == Some(part))
}

/// The one number that all elements of a tensor are, where they are one.
pub(super) fn repeated(tensor: &Tensor) -> Option<f64> {
    let width = tensor.dtype().bytes();
    let first = tensor.bytes().get(..width)?;
    let same = tensor.bytes().chunks_exact(width).all(|element| element == first);
    let first = Tensor::from_bytes(TensorType::new(tensor.dtype(), []), first.to_vec()).ok()?;
    same.then(|| first.to_f64()[0]).filter(|number| !number.is_nan())
}

/// Whether all elements of a tensor are finite numbers.
pub(super) fn is_finite(tensor: &Tensor) -> bool {
    !tensor.dtype().is_float() || tensor.to_f64().iter().all(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SIZES: [usize; 3] = [16, 5, 3];

    fn of(tensors: &[Tensor], sizes: &[usize]) -> Result<Constant, String> {
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        Constant::of(&tensors, sizes, &[Length::size(1)])
    }

    fn scalars(values: [f32; 3]) -> Result<Constant, String> {
        let tensors = values.map(Tensor::scalar);
        of(&tensors, &SIZES)
    }

    #[test]
    fn scalars_are_whole_or_affine() {
        assert!(matches!(scalars([2.0; 3]), Ok(Constant::Whole)));
        let Ok(Constant::Affine(affine)) = scalars([15.5, 4.5, 2.5]) else { panic!("n - 0.5") };
        assert_eq!((affine.slopes[0], affine.offsets[0], affine.at(0, 9)), (1.0, -0.5, 8.5));
        let error = scalars([1.0 / 16.0, 0.2, 1.0 / 3.0]).err().unwrap();
        assert!(error.contains("not seen to be an affine function"), "{error}");
        assert!(scalars([4.0, 5f32.sqrt(), 3f32.sqrt()]).is_err());
        // A third of the size is rounded on the way.
        assert!(scalars([16.0 / 3.0, 5.0 / 3.0, 1.0]).is_err());
        // Two sizes lie on a line always.
        let tensors = [Tensor::scalar(16i64), Tensor::scalar(5i64)];
        assert!(of(&tensors, &SIZES[..2]).is_err());
    }

    #[test]
    fn constants_along_the_dimension_are_cut_off() {
        let mask = |n: usize, of: fn(usize, usize) -> f32| {
            let values: Vec<f32> = (0..n * (n + 1)).map(|i| of(i / (n + 1), i % (n + 1))).collect();
            Tensor::from_elements([n, n + 1], &values).unwrap()
        };
        let check = |element: fn(usize, usize) -> f32| {
            let tensors = SIZES.map(|n| mask(n, element));
            of(&tensors, &SIZES)
        };
        let Ok(Constant::Along(axes)) = check(|i, j| f32::from(u8::from(j <= i))) else {
            panic!("a causal mask")
        };
        let whole = |axis, extra| Axis { axis, length: Length::size(1).plus(extra).unwrap() };
        assert_eq!(axes, [whole(0, 0), whole(1, 1)]);
        let tensors = SIZES.map(|n| Tensor::from_elements([n], &vec![n as f32; n]).unwrap());
        let error = of(&tensors, &SIZES).err().unwrap();
        assert!(error.contains("neither the beginning nor the end"), "{error}");
        assert_eq!(repeated(&tensors[0]), Some(16.0));
        assert_eq!(repeated(&mask(3, |i, _| i as f32)), None);
        let others = [Tensor::scalar(1i64), Tensor::scalar(1i64), tensors[2].clone()];
        assert!(of(&others, &SIZES).is_err());
    }
}
