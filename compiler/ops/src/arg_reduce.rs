//! The place of the largest or smallest element.

use crate::express::{input, only_output};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_axis;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::{BinaryOp, UnaryOp};
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The index (`i64`) of the largest or smallest element along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArgReduce {
    /// Whether the largest is looked for, else the smallest.
    pub maximum: bool,
    /// The axis.
    pub axis: usize,
    /// Whether the axis stays, with extent 1.
    pub keep_axis: bool,
    /// Whether the last of several equal elements counts, else the first.
    pub select_last: bool,
}

impl ArgReduce {
    /// Name in text forms.
    pub const NAME: &'static str = "arg_reduce";

    /// The place of the extreme among `extent` values; what is not a number exceeds all others.
    fn place<N: Number>(&self, extent: usize, value: impl Fn(usize) -> N) -> i64 {
        let mut best = 0;
        for step in 1..extent {
            let (old, new) = (value(best), value(step));
            let (old_nan, new_nan) = (old.real().is_nan(), new.real().is_nan());
            let exceeds = new_nan || if self.maximum { new > old } else { new < old };
            let replaces = match old_nan {
                true => new_nan && self.select_last,
                false => exceeds || (new == old && self.select_last),
            };
            if replaces {
                best = step;
            }
        }
        best as i64
    }
}

impl Operator for ArgReduce {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        let mut shape = input.shape.clone();
        if shape[self.axis] == 0 {
            return Err(InferError::new(format!("axis {} of {input} is empty", self.axis)));
        }
        if self.keep_axis {
            shape[self.axis] = 1;
        } else {
            shape.remove(self.axis);
        }
        Ok(vec![crate::shape::bounded(DataType::I64, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let (outer, extent, inner) = around(input.shape(), self.axis);
        let places: Vec<i64> = with_number!(input.dtype(), Own => {
            let values = Own::read(input);
            let first = |line: usize| line / inner * extent * inner + line % inner;
            let value = |line: usize, step: usize| values[first(line) + step * inner];
            (0..outer * inner).map(|line| self.place(extent, |step| value(line, step))).collect()
        });
        Ok(vec![i64::write(&output, &places)?])
    }

    /// The extreme of each line, then the first or last place that has it.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        let extent = own.shape[self.axis];
        let read = |point: &[Expr], step: &Expr| {
            let mut read = point.to_vec();
            if self.keep_axis {
                read[self.axis] = step.clone();
            } else {
                read.insert(self.axis, step.clone());
            }
            Expr::Load(x, read)
        };
        let combiner = if self.maximum { Combiner::Maximum } else { Combiner::Minimum };
        let extremes = TensorType::new(own.dtype, output.shape.clone());
        let extreme = builder
            .reduce("extreme", &extremes, &[extent], combiner, |point, by| read(point, &by[0]));
        let (combiner, otherwise) = match self.select_last {
            false => (Combiner::Minimum, extent as i64 - 1),
            true => (Combiner::Maximum, 0),
        };
        Some(vec![builder.reduce("place", &output, &[extent], combiner, |point, by| {
            let value = read(point, &by[0]);
            let mut found = value.clone().equal(Expr::Load(extreme, point.to_vec()));
            if own.dtype.is_float() {
                found = found.binary(BinaryOp::Or, value.unary(UnaryOp::IsNan));
            }
            found.select(by[0].clone(), otherwise.into())
        })])
    }
}
