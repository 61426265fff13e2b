//! Dot products of rows: a matrix product whose right operand is transposed.

use crate::express::{input, load_wide, only_output, reduce};
use crate::matmul::MatMul;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{bounded, check_same_type};
use crate::transpose::Transpose;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `[..., M, K] x [..., N, K] -> [..., M, N]`: each row of the left operand with each row of the right one.
/// Both are read along the sum, which is the form for a matrix of which few others are rows: neither
/// has to be copied into another order. Leading axes are equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DotProducts {}

impl DotProducts {
    /// Name in text forms.
    pub const NAME: &'static str = "dot_products";
}

impl Operator for DotProducts {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_same_type(left, &[right])?;
        let (Some((depth, a)), Some((other, b))) =
            (left.shape.split_last(), right.shape.split_last())
        else {
            return Err(InferError::new(format!("{left} and {right} have no rows")));
        };
        let (Some((m, batch)), Some((n, same))) = (a.split_last(), b.split_last()) else {
            return Err(InferError::new(format!("{left} and {right} are no matrices")));
        };
        if depth != other || batch != same {
            return Err(InferError::new(format!("rows of {left} and {right} do not fit")));
        }
        Ok(vec![bounded(left.dtype, [batch, &[*m, *n]].concat())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let mut permutation: Vec<usize> = (0..right.shape().len()).collect();
        let last = permutation.len().saturating_sub(1);
        permutation.swap(last.saturating_sub(1), last);
        let columns = Transpose { permutation }.reference(&[Some(right)])?;
        MatMul {}.reference(&[Some(left), columns.first()])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (left, right) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let depth = *builder.tensor_type(left).shape.last()?;
        let rank = output.shape.len();
        let sums = reduce(builder, "dots", &output, &[depth], Combiner::Sum, |point, by| {
            let row = |place: usize| {
                let read = [&point[..rank - 2], &[point[place].clone(), by[0].clone()]].concat();
                (read, output.dtype)
            };
            let [(a, dtype), (b, _)] = [row(rank - 2), row(rank - 1)];
            load_wide(left, a, dtype) * load_wide(right, b, dtype)
        });
        Some(vec![sums])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        MatMul {}.flops(inputs, outputs)
    }
}
