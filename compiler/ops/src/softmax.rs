//! Softmax and its logarithm.

use crate::express::{converted, input, load_wide, reduce_in, wide};
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::around;
use crate::shape::{check_axis, check_float};
use hone_graph::InferError;
use hone_tensor::UnaryOp;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Softmax {
    /// The axis that sums to one.
    pub axis: usize,
    /// Whether the result is the logarithm.
    pub log: bool,
}

impl Softmax {
    /// Name in text forms.
    pub const NAME: &'static str = "softmax";
}

impl Operator for Softmax {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        check_float(input)?;
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let (outer, extent, inner) = around(input.shape(), self.axis);
        let mut values = input.to_f64();
        for line in 0..outer * inner {
            let first = line / inner * extent * inner + line % inner;
            let places = || (0..extent).map(|step| first + step * inner);
            let largest =
                places().fold(f64::NEG_INFINITY, |most, place| most.larger(values[place]));
            let sum: f64 = places().map(|place| (values[place] - largest).exp()).sum();
            for place in places() {
                let shifted = values[place] - largest;
                values[place] = if self.log { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
        Ok(vec![f64::write(input.tensor_type(), &values)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = builder.tensor_type(x);
        let (dtype, axis) = (wide(output.dtype), self.axis);
        let wide_output = TensorType::new(dtype, output.shape.clone());
        let extents = [output.shape[axis]];
        let mut lines = output.shape.clone();
        lines.remove(axis);
        let line = |point: &[Expr]| [&point[..axis], &point[axis + 1..]].concat();
        let along = |point: &[Expr], by: &[Expr]| [&point[..axis], by, &point[axis..]].concat();
        let largest = reduce_in(
            builder,
            "maximum",
            dtype,
            &lines,
            &extents,
            Combiner::Maximum,
            |point, by| load_wide(x, along(point, by), output.dtype),
        );
        let shifted = |point: &[Expr]| {
            load_wide(x, point.to_vec(), output.dtype) - Expr::Load(largest, line(point))
        };
        let powers = builder.map("exp", &wide_output, |point| shifted(point).unary(UnaryOp::Exp));
        let sums =
            reduce_in(builder, "sum", dtype, &lines, &extents, Combiner::Sum, |point, by| {
                Expr::Load(powers, along(point, by))
            });
        // One division or logarithm per line.
        let line_type = TensorType::new(dtype, lines.clone());
        let finish = builder.map("finish", &line_type, |place| {
            let sum = Expr::Load(sums, place.to_vec());
            if self.log { sum.unary(UnaryOp::Log) } else { Expr::Constant(1.0, dtype) / sum }
        });
        Some(vec![builder.map("normalize", &output, |point| {
            let finish = Expr::Load(finish, line(point));
            let value = if self.log {
                shifted(point) - finish
            } else {
                Expr::Load(powers, point.to_vec()) * finish
            };
            converted(value, dtype, output.dtype)
        })])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        outputs.iter().map(|output| 5 * output.elements() as u64).sum()
    }
}
