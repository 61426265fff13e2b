//! Operators whose results have a size that depends on data.
//!
//! Result types have the most that there may be. A result's first elements are those of the actual shape, row-major,
//! and all behind them are zero; the last result is how many there are, a scalar of `i64`. They have no tensor
//! expression: the runtime computes them itself.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{around, bounded, check_axis};
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// ONNX `NonZero`. Input: any; outputs: places of elements that are not zero `[rank, count]`, and the count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NonZero {}

/// ONNX `Compress`. Inputs: data, and for each place along the axis whether its slice is taken (`bool[n]`, which may be
/// shorter than the axis); outputs: the slices, and how many.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compress {
    /// The axis; all elements as a list without one.
    pub axis: Option<usize>,
}

/// ONNX `Unique`. Input: any; outputs: the slices that differ, the first place of each, which of them is at each
/// place, how often each is there, and how many there are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unique {
    /// The axis; all elements as a list without one.
    pub axis: Option<usize>,
    /// Whether slices are sorted; else they are in the order in which they are first.
    pub sorted: bool,
}

/// ONNX `NonMaxSuppression`. Inputs: boxes `f32[batch, boxes, 4]`, scores `f32[batch, classes, boxes]`, and optionally
/// the most boxes of a class (`i64`, 0 without it), the threshold on intersection over union (0) and that on scores;
/// outputs: batch, class and box of each chosen one `[count, 3]`, and how many.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NonMaxSuppression {
    /// Whether a box is its centre and size, x before y; else two corners, y before x.
    pub centers: bool,
    /// Most boxes of a class for which there is room.
    pub most: usize,
}

impl NonZero {
    /// Name in text forms.
    pub const NAME: &'static str = "non_zero";
}

impl Compress {
    /// Name in text forms.
    pub const NAME: &'static str = "compress";
}

impl Unique {
    /// Name in text forms.
    pub const NAME: &'static str = "unique";
}

impl NonMaxSuppression {
    /// Name in text forms.
    pub const NAME: &'static str = "non_max_suppression";
}

/// Parts of [`Operator`] of what the runtime computes itself.
macro_rules! by_runtime {
    () => {
        named!();

        fn fusion_class(&self) -> FusionClass {
            FusionClass::Opaque
        }

        fn is_compiled(&self) -> bool {
            false
        }
    };
}

fn count_type() -> TensorType {
    TensorType::new(DataType::I64, [])
}

/// Elements before, along and after an axis; all of them along it without one.
fn sizes(shape: &[usize], axis: Option<usize>) -> (usize, usize, usize) {
    axis.map_or((1, shape.iter().product(), 1), |axis| around(shape, axis))
}

/// The type with another extent of an axis; a list without one.
fn along(data: &TensorType, axis: Option<usize>, extent: usize) -> Result<TensorType, InferError> {
    let mut shape = data.shape.clone();
    match axis {
        Some(axis) => shape[axis] = extent,
        None => shape = vec![extent],
    }
    bounded(data.dtype, shape)
}

/// A tensor of a larger type: zeros behind the elements.
fn padded(of: &TensorType, mut bytes: Vec<u8>) -> Result<Tensor, OpError> {
    bytes.resize(of.bytes(), 0);
    Ok(Tensor::from_bytes(of.clone(), bytes)?)
}

/// Integers in a larger type.
fn integers(of: &TensorType, values: &[i64]) -> Result<Tensor, OpError> {
    padded(of, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// The slices at `places` along an axis, as bytes.
fn slices(data: &Tensor, axis: Option<usize>, places: &[usize]) -> Vec<u8> {
    let (outer, extent, inner) = sizes(data.shape(), axis);
    let length = inner * data.dtype().bytes();
    let starts =
        (0..outer).flat_map(|row| places.iter().map(move |own| (row * extent + own) * length));
    starts.flat_map(|start| data.bytes()[start..start + length].iter().copied()).collect()
}

impl Operator for NonZero {
    by_runtime!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let data = required(Self::NAME, inputs, 0)?;
        Ok(vec![bounded(DataType::I64, [data.rank(), data.elements()])?, count_type()])
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let data = required(Self::NAME, inputs, 0)?;
        let places = bounded(DataType::I64, [data.shape().len(), data.tensor_type().elements()])?;
        let values = data.to_f64();
        let found: Vec<usize> = (0..values.len()).filter(|place| values[*place] != 0.0).collect();
        let strides = data.tensor_type().strides();
        let axes = data.shape().iter().zip(strides);
        let indices: Vec<i64> = axes
            .flat_map(|(extent, stride)| {
                found.iter().map(move |own| (own / stride % extent) as i64)
            })
            .collect();
        Ok(vec![integers(&places, &indices)?, Tensor::scalar(found.len() as i64)])
    }
}

impl Operator for Compress {
    by_runtime!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, chosen) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        self.axis.map_or(Ok(()), |axis| check_axis(data, axis))?;
        if chosen.rank() != 1 || chosen.dtype != DataType::Bool {
            return Err(InferError::new(format!(
                "the condition is {chosen}, not a list of truth values"
            )));
        }
        let (_, extent, _) = sizes(&data.shape, self.axis);
        Ok(vec![along(data, self.axis, extent.min(chosen.shape[0]))?, count_type()])
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, chosen) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = &self.infer(&[Some(data.tensor_type()), Some(chosen.tensor_type())])?[0];
        let (_, extent, _) = sizes(data.shape(), self.axis);
        let listed = chosen.to_i64().into_iter().take(extent).enumerate();
        let places: Vec<usize> = listed.filter(|(_, own)| *own != 0).map(|(own, _)| own).collect();
        let taken = padded(output, slices(data, self.axis, &places))?;
        Ok(vec![taken, Tensor::scalar(places.len() as i64)])
    }
}

impl Operator for Unique {
    by_runtime!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let data = required(Self::NAME, inputs, 0)?;
        self.axis.map_or(Ok(()), |axis| check_axis(data, axis))?;
        let (_, extent, _) = sizes(&data.shape, self.axis);
        let list = bounded(DataType::I64, [extent])?;
        let slices = along(data, self.axis, extent)?;
        Ok(vec![slices, list.clone(), list.clone(), list, count_type()])
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let data = required(Self::NAME, inputs, 0)?;
        let types = self.infer(&[Some(data.tensor_type())])?;
        let (outer, extent, inner) = sizes(data.shape(), self.axis);
        let values: Vec<(i64, f64)> = data.to_i64().into_iter().zip(data.to_f64()).collect();
        let is_float = data.dtype().is_float();
        let compare = |a: usize, b: usize| {
            let elements = (0..outer).flat_map(|row| (0..inner).map(move |place| (row, place)));
            let pairs = elements.map(|(row, place)| {
                let at = |own: usize| values[(row * extent + own) * inner + place];
                let ((a, x), (b, y)) = (at(a), at(b));
                // Both zeros are one.
                if is_float { (x + 0.0).total_cmp(&(y + 0.0)) } else { a.cmp(&b) }
            });
            pairs.fold(Ordering::Equal, Ordering::then)
        };
        let mut order: Vec<usize> = (0..extent).collect();
        // Stable, so that the first of equal slices stays first.
        order.sort_by(|a, b| compare(*a, *b));
        let mut runs: Vec<Vec<usize>> = Vec::new();
        for place in order {
            match runs.last_mut().filter(|run| compare(run[0], place) == Ordering::Equal) {
                Some(run) => run.push(place),
                None => runs.push(vec![place]),
            }
        }
        if !self.sorted {
            runs.sort_by_key(|run| run[0]);
        }
        let places: Vec<usize> = runs.iter().map(|run| run[0]).collect();
        let mut of = vec![0i64; extent];
        for (index, run) in runs.iter().enumerate() {
            run.iter().for_each(|place| of[*place] = index as i64);
        }
        let lists: [Vec<i64>; 3] = [
            places.iter().map(|own| *own as i64).collect(),
            of,
            runs.iter().map(|run| run.len() as i64).collect(),
        ];
        let mut results = vec![padded(&types[0], slices(data, self.axis, &places))?];
        for (of, list) in types[1..].iter().zip(&lists) {
            results.push(integers(of, list)?);
        }
        results.push(Tensor::scalar(places.len() as i64));
        Ok(results)
    }
}

impl Operator for NonMaxSuppression {
    by_runtime!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (boxes, scores) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let floats = boxes.dtype == DataType::F32 && scores.dtype == DataType::F32;
        let ([batch, count, 4], [same, classes, scored]) = (&boxes.shape[..], &scores.shape[..])
        else {
            return Err(InferError::new(format!("{boxes} and {scores} are no boxes and scores")));
        };
        let scalars = [DataType::I64, DataType::F32, DataType::F32];
        let fits = inputs.iter().skip(2).zip(scalars).all(|(input, dtype)| {
            input.is_none_or(|own| own.dtype == dtype && own.elements() == 1)
        });
        if !floats || !fits || batch != same || count != scored || inputs.len() > 5 {
            return Err(InferError::new(format!(
                "{boxes}, {scores} and the limits do not fit one another"
            )));
        }
        let rows = batch.saturating_mul(*classes).saturating_mul(self.most.min(*count));
        Ok(vec![bounded(DataType::I64, [rows, 3])?, count_type()])
    }

    /// Each box is held against those that are chosen.
    fn flops(&self, inputs: &[Option<&TensorType>], _: &[TensorType]) -> u64 {
        let scores = inputs.get(1).copied().flatten().map_or(0, |own| own.elements() as u64);
        scores.saturating_mul(self.most as u64).saturating_mul(8)
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = &self.infer(&types)?[0];
        let (boxes, scores) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let scalar = |place: usize| inputs.get(place).copied().flatten().map(|own| own.to_f64()[0]);
        let (most, limit) = (scalar(2).unwrap_or(0.0), scalar(3).unwrap_or(0.0));
        let (corners, values) = (boxes.to_f64(), scores.to_f64());
        let [batch, classes, count] = [0, 1, 2].map(|axis| scores.shape()[axis]);
        let mut chosen = Vec::new();
        for (image, class) in (0..batch).flat_map(|own| (0..classes).map(move |class| (own, class)))
        {
            let score = |own: usize| values[(image * classes + class) * count + own];
            let corners = |own: usize| {
                let own: &[f64] = &corners[(image * count + own) * 4..][..4];
                match self.centers {
                    true => [
                        own[0] - own[2] / 2.0,
                        own[1] - own[3] / 2.0,
                        own[0] + own[2] / 2.0,
                        own[1] + own[3] / 2.0,
                    ],
                    false => [
                        own[0].min(own[2]),
                        own[1].min(own[3]),
                        own[0].max(own[2]),
                        own[1].max(own[3]),
                    ],
                }
            };
            let mut order: Vec<usize> = (0..count)
                .filter(|own| scalar(4).is_none_or(|least| score(*own) > least))
                .collect();
            order.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
            let mut kept: Vec<usize> = Vec::new();
            for own in order {
                let apart = |other: &usize| shared(corners(own), corners(*other)) <= limit;
                if (kept.len() as f64) < most && kept.iter().all(apart) {
                    kept.push(own);
                }
            }
            chosen.extend(kept.iter().flat_map(|own| [image as i64, class as i64, *own as i64]));
        }
        Ok(vec![integers(output, &chosen)?, Tensor::scalar((chosen.len() / 3) as i64)])
    }
}

/// Intersection over union of two boxes; 0 of empty ones.
fn shared(a: [f64; 4], b: [f64; 4]) -> f64 {
    let area = |own: [f64; 4]| (own[2] - own[0]).max(0.0) * (own[3] - own[1]).max(0.0);
    let both = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    let union = area(a) + area(b) - both;
    if union > 0.0 { both / union } else { 0.0 }
}
