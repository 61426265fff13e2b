//! Running sums and products.

use crate::cumulative_rows::sum_in_rows;
use crate::express::{converted, input, load_wide, only_output, wide};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_axis;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The sum, or product, of all elements up to each one along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CumulativeSum {
    /// The axis summed along.
    pub axis: usize,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// Whether to sum from the end.
    pub reverse: bool,
    /// Whether elements are multiplied, not added.
    #[serde(default)]
    pub product: bool,
    /// Whether it is computed in rows of neighbours, each in registers, as processors have them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_rows: bool,
}

impl CumulativeSum {
    /// Name in text forms.
    pub const NAME: &'static str = "cumulative_sum";

    /// The same as processors compute it for values of `shape`: in rows, where the axis is the last and longer
    /// than a row.
    pub fn on_processors(&self, shape: &[usize]) -> Self {
        let in_rows = !self.product
            && self.axis + 1 == shape.len()
            && shape[self.axis] > PART
            && !shape.contains(&0);
        Self { in_rows, ..self.clone() }
    }

    /// The sums or products, each from the one before.
    fn walk(&self, builder: &mut Builder, x: BufferId, output: &TensorType) -> BufferId {
        let (axis, dtype) = (self.axis, wide(output.dtype));
        let last = output.shape[axis] as i64 - 1;
        let sums =
            builder.scan("sums", &TensorType::new(dtype, &output.shape[..]), |point, own| {
                let at = |place: Expr| {
                    let mut read = point.to_vec();
                    read[axis] = place;
                    read
                };
                let place = point[axis].clone();
                let (before, is_later) = (place.clone() - 1, Expr::Integer(0).less(place.clone()));
                let turned = |place: Expr| match self.reverse {
                    true => Expr::Integer(last) - place,
                    false => place,
                };
                let added = if self.exclusive { before.clone() } else { place };
                let added = load_wide(x, at(turned(added)), output.dtype);
                let upto = Expr::Load(own, at(before));
                let (sum, neutral) = match self.product {
                    true => (upto * added.clone(), 1.0),
                    false => (upto + added.clone(), 0.0),
                };
                let first = if self.exclusive { Expr::Constant(neutral, dtype) } else { added };
                is_later.select(sum, first)
            });
        if !self.reverse && dtype == output.dtype {
            return sums;
        }
        builder.map("cumulative_sum", output, |point| {
            let mut read = point.to_vec();
            if self.reverse {
                read[axis] = Expr::Integer(last) - point[axis].clone();
            }
            converted(Expr::Load(sums, read), dtype, output.dtype)
        })
    }
}

impl Operator for CumulativeSum {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let (outer, extent, inner) = around(&output.shape, self.axis);
        Ok(vec![with_number!(output.dtype, Own => {
            let mut values = Own::read(input);
            let one = Own::read(&Tensor::from_f64(output.dtype, [1], &[1.0])?)[0];
            for line in 0..outer * inner {
                let first = line / inner * extent * inner + line % inner;
                let mut sum = if self.product { one } else { Own::ZERO };
                for step in 0..extent {
                    let step = if self.reverse { extent - 1 - step } else { step };
                    let value = &mut values[first + step * inner];
                    let before = sum;
                    sum = if self.product { sum.times(*value) } else { sum.plus(*value) };
                    *value = if self.exclusive { before } else { sum };
                }
            }
            Own::write(&output, &values)?
        })])
    }

    /// Sums of short parts of a line, each by itself; a running sum of what the parts come to; and both
    /// together. So neighbours are summed at once, and fewer roundings follow one another than from end
    /// to end. On processors rows are summed in registers (`cumulative_rows.rs`).
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        if self.in_rows {
            return Some(vec![sum_in_rows(self, builder, x, &output)]);
        }
        let (_, extent, inner) = around(&output.shape, self.axis);
        let dtype = wide(output.dtype);
        if extent <= PART || inner > 1 || self.product {
            return Some(vec![self.walk(builder, x, &output)]);
        }
        let parts = extent.div_ceil(PART);
        let zero = Expr::Constant(0.0, dtype);
        let rest = self.axis;
        let line = |point: &[Expr], place: Expr| {
            let mut read = point[..rest].to_vec();
            read.push(place);
            read.resize(output.shape.len(), Expr::Integer(0));
            load_wide(x, read, output.dtype)
        };
        // Place `i` of part `p`, counted in the direction of the sum, and past the end perhaps.
        let place = |part: &Expr, within: &Expr| {
            let forward = part.clone() * PART + within.clone();
            if self.reverse { Expr::from(extent - 1) - forward } else { forward }
        };
        let inside = |place: &Expr| match self.reverse {
            false => place.clone().less(extent.into()),
            true => Expr::Integer(-1).less(place.clone()),
        };
        let lead = &output.shape[..rest];
        let within = TensorType::new(dtype, [lead, &[parts, PART]].concat());
        let sums = builder.reduce("part", &within, &[PART], Combiner::Sum, |point, by| {
            let own = place(&point[rest], &by[0]);
            let value = line(point, own.clone());
            let earlier = by[0].clone().less_equal(point[rest + 1].clone());
            let value = match extent.is_multiple_of(PART) {
                true => value,
                false => inside(&own).select(value, zero.clone()),
            };
            earlier.select(value, zero.clone())
        });
        let totals = TensorType::new(dtype, [lead, &[parts]].concat());
        let totals = builder.scan("before", &totals, |point, own| {
            let mut last = point.to_vec();
            last[rest] = point[rest].clone() - 1;
            let part = [&last[..], &[Expr::from(PART - 1)]].concat();
            let sum = Expr::Load(own, last) + Expr::Load(sums, part);
            Expr::Integer(0).less(point[rest].clone()).select(sum, zero.clone())
        });
        Some(vec![builder.map("cumulative_sum", &output, |point| {
            let own = &point[rest];
            let step = match self.reverse {
                true => Expr::from(extent - 1) - own.clone(),
                false => own.clone(),
            };
            let (part, within) = (step.clone().floor_divide(PART.into()), step.modulo(PART.into()));
            let at = |more: &[Expr]| [&point[..rest], more].concat();
            let total = Expr::Load(totals, at(std::slice::from_ref(&part)));
            let upto = Expr::Load(sums, at(&[part, within]));
            let sum = match self.exclusive {
                false => total + upto,
                true => total + upto - load_wide(x, point.to_vec(), output.dtype),
            };
            converted(sum, dtype, output.dtype)
        })])
    }
}

/// Elements that are summed at once.
pub(crate) const PART: usize = 16;
