//! The largest or smallest elements of lines.

use crate::express::input;
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{around, bounded, check_axis, output_types};
use hone_graph::InferError;
use hone_tensor::{BinaryOp, BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// The `k` largest or smallest elements along an axis, the most extreme first, and their indices
/// (`i64`). Of equal elements the one with the lower index comes first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopK {
    /// Number of elements.
    pub k: usize,
    /// The axis.
    pub axis: usize,
    /// Whether the largest are wanted, else the smallest.
    pub largest: bool,
}

impl TopK {
    /// Name in text forms.
    pub const NAME: &'static str = "top_k";

    /// The places of the elements wanted of a line.
    fn places<N: Number>(&self, line: &[N]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..line.len()).collect();
        let order = |a: &usize, b: &usize| {
            let order = line[*a].partial_cmp(&line[*b]).unwrap_or(Ordering::Equal);
            if self.largest { order.reverse() } else { order }
        };
        places.sort_by(order);
        places.truncate(self.k);
        places
    }
}

impl Operator for TopK {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        if self.k > input.shape[self.axis] {
            let (k, axis) = (self.k, self.axis);
            return Err(InferError::new(format!(
                "{input} has fewer than {k} places on axis {axis}"
            )));
        }
        let mut shape = input.shape.clone();
        shape[self.axis] = self.k;
        Ok(vec![bounded(input.dtype, shape.clone())?, bounded(DataType::I64, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let outputs = output_types(self, inputs)?;
        let (outer, extent, inner) = around(input.shape(), self.axis);
        let mut indices = vec![0_i64; outputs[1].elements()];
        let top = with_number!(input.dtype(), Own => {
            let values = Own::read(input);
            let mut top = vec![Own::ZERO; indices.len()];
            for line in 0..outer * inner {
                let (slice, rest) = (line / inner, line % inner);
                let own: Vec<Own> = (0..extent)
                    .map(|step| values[(slice * extent + step) * inner + rest])
                    .collect();
                for (rank, step) in self.places(&own).into_iter().enumerate() {
                    let place = (slice * self.k + rank) * inner + rest;
                    (top[place], indices[place]) = (own[step], step as i64);
                }
            }
            Own::write(&outputs[0], &top)?
        });
        Ok(vec![top, i64::write(&outputs[1], &indices)?])
    }

    /// Every element's rank is counted; the element of each rank is then found.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let own = builder.tensor_type(x);
        let (axis, extent) = (self.axis, own.shape[self.axis]);
        let mut shape = own.shape.clone();
        shape[axis] = self.k;
        if extent == 0 || self.k == 0 {
            let value = builder.map("top", &TensorType::new(own.dtype, shape.clone()), |_| {
                Expr::Constant(0.0, own.dtype)
            });
            let places = TensorType::new(DataType::I64, shape);
            return Some(vec![value, builder.map("places", &places, |_| Expr::Integer(0))]);
        }
        let at = |point: &[Expr], place: Expr| {
            let mut read = point.to_vec();
            read[axis] = place;
            read
        };
        let ranks = TensorType::new(DataType::I64, own.shape.clone());
        let ranks = builder.reduce("rank", &ranks, &[extent], Combiner::Sum, |point, by| {
            let value = Expr::Load(x, point.to_vec());
            let other = Expr::Load(x, at(point, by[0].clone()));
            let exceeds = match self.largest {
                true => value.clone().less(other.clone()),
                false => other.clone().less(value.clone()),
            };
            let earlier = other.equal(value).and(by[0].clone().less(point[axis].clone()));
            let precedes = exceeds.binary(BinaryOp::Or, earlier);
            precedes.select(1.into(), 0.into())
        });
        let places = TensorType::new(DataType::I64, shape.clone());
        let places = builder.reduce("places", &places, &[extent], Combiner::Sum, |point, by| {
            let rank = Expr::Load(ranks, at(point, by[0].clone()));
            rank.equal(point[axis].clone()).select(by[0].clone(), 0.into())
        });
        let top = builder.map("top", &TensorType::new(own.dtype, shape), |point| {
            // Inside already, unless an element is not a number and so has no rank: bounded, so that
            // no result of comparisons leads outside.
            let last = Expr::Integer(extent as i64 - 1);
            let place = Expr::Load(places, point.to_vec()).maximum(0.into()).minimum(last);
            Expr::Load(x, at(point, place.cast(DataType::I64)))
        });
        Some(vec![top, places])
    }
}
