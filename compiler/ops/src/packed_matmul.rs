//! Matrix product whose right operand is packed: at compile time where it is a constant.

use crate::matmul::MatMul;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packing::Unpack;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `y[.., m, j] = sum over k of a[.., m, k] * b[.., j / n, k, j % n]`: a `[.., M, K]`, b `[..,
/// ceil(N / n), K, n]` filled up with zeros, with the leading axes of a or with none; the result is
/// `[.., M, N]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedMatMul {
    /// Columns of the result, N.
    pub columns: usize,
}

impl PackedMatMul {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_matmul";
}

impl Operator for PackedMatMul {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (a, b) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let [batch @ .., blocks, depth, width] = &b.shape[..] else {
            return Err(InferError::new(format!("{b} is not packed")));
        };
        let fits = a.dtype == b.dtype
            && a.shape.last() == Some(depth)
            && (batch.is_empty()
                || a.shape.len() == b.shape.len() - 1 && a.shape.starts_with(batch))
            && *width > 0
            && self.columns.div_ceil(*width) == *blocks;
        if !fits {
            return Err(InferError::new(format!("operands {a} and {b} do not match")));
        }
        let mut shape = a.shape.clone();
        shape[a.rank() - 1] = self.columns;
        Ok(vec![TensorType::new(a.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (a, b) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        // [.., N / n, K, n] is the packing of [.., N, K] at axis N.
        let axis = b.shape().len() - 3;
        let rows = Unpack { axis, extent: self.columns }.reference(&[Some(b)])?;
        let mut permutation: Vec<usize> = (0..rows[0].shape().len()).collect();
        permutation.swap(axis, axis + 1);
        let b = crate::Transpose { permutation }.reference(&[Some(&rows[0])])?;
        MatMul {}.reference(&[Some(a), Some(&b[0])])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (a, b) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let (a_type, b_type) = (builder.tensor_type(a), builder.tensor_type(b));
        let output = self.infer(&[Some(&a_type), Some(&b_type)]).ok()?.remove(0);
        let batch = b_type.rank() - 3;
        let (depth, block) = (b_type.shape[batch + 1], b_type.shape[batch + 2]);
        let rows = &a_type.shape[..a_type.rank() - 1];
        let mut shape = rows.to_vec();
        shape.extend([b_type.shape[batch], block]);
        let sums_type = TensorType::new(a_type.dtype, shape);
        let sums = builder.reduce("matmul", &sums_type, &[depth], Combiner::Sum, |point, k| {
            let (outer, columns) = point.split_at(rows.len());
            let mut read = outer.to_vec();
            read.push(k[0].clone());
            let mut weight = outer[..batch].to_vec();
            weight.extend([columns[0].clone(), k[0].clone(), columns[1].clone()]);
            Expr::Load(a, read) * Expr::Load(b, weight)
        });
        Some(vec![builder.map("unblock", &output, |point| {
            let (column, outer) = (&point[rows.len()], &point[..rows.len()]);
            let mut read = outer.to_vec();
            read.push(column.clone().floor_divide(block.into()));
            read.push(column.clone().modulo(block.into()));
            Expr::Load(sums, read)
        })])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let depth = inputs.get(1).copied().flatten().map_or(0, |b| b.shape[b.rank() - 2]);
        outputs.iter().map(|output| 2 * output.elements() as u64 * depth as u64).sum()
    }
}
