//! Division by a norm.

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

/// `x / norm(x)` along an axis; zero where the norm is zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LpNormalization {
    /// The axis the norm is taken along.
    pub axis: usize,
    /// Order of the norm: 1 or 2.
    pub order: u8,
}

impl LpNormalization {
    /// Name in text forms.
    pub const NAME: &'static str = "lp_normalization";
}

impl Operator for LpNormalization {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        check_float(input)?;
        if !matches!(self.order, 1 | 2) {
            return Err(InferError::new(format!("a norm of order {} is not 1 or 2", self.order)));
        }
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
            let norm = match self.order {
                1 => places().map(|place| values[place].abs()).sum::<f64>(),
                _ => places().map(|place| values[place].powi(2)).sum::<f64>().sqrt(),
            };
            places().for_each(|place| {
                values[place] = if norm == 0.0 { 0.0 } else { values[place] / norm }
            });
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
        let mut lines = output.shape.clone();
        let extents = [lines.remove(axis)];
        let sums =
            reduce_in(builder, "sum", dtype, &lines, &extents, Combiner::Sum, |point, by| {
                let read = [&point[..axis], by, &point[axis..]].concat();
                let value = load_wide(x, read, output.dtype);
                if self.order == 1 { value.unary(UnaryOp::Abs) } else { value.clone() * value }
            });
        Some(vec![builder.map("normalize", &output, |point| {
            let sum = Expr::Load(sums, [&point[..axis], &point[axis + 1..]].concat());
            let norm = if self.order == 1 { sum } else { sum.unary(UnaryOp::Sqrt) };
            let zero = Expr::Constant(0.0, dtype);
            let value = load_wide(x, point.to_vec(), output.dtype) / norm.clone();
            let value = norm.equal(zero.clone()).select(zero, value);
            converted(value, dtype, output.dtype)
        })])
    }
}
