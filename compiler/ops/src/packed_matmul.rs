//! Matrix product whose right operand is packed: at compile time where it is a constant.

use crate::Cast;
use crate::column_parts::{columns_at_a_time, in_parts};
use crate::interleave::{
    at, dot_of, multiply, place, places, plain_type, product, separate, sum_type,
};
use crate::matmul::MatMul;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packing::Unpack;
use crate::shape::output_type;
use crate::strided::copy_strided_into;
use crate::sums::for_each_chunk;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y[.., m, j] = sum over k of a[.., m, k] * b[.., j / n, k, j % n]`: a `[.., M, K]`, b `[..,
/// ceil(N / n), K, n]` filled up with zeros, with the leading axes of a or with none; the result is
/// `[.., M, N]`. An operand b of a narrow type is interleaved, `[.., ceil(N / n), K / d, n, d]`; the
/// result has then the type of the sums.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedMatMul {
    /// Columns of the result, N.
    pub columns: usize,
}

impl PackedMatMul {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_matmul";

    /// Packs a matrix `[K, N]` in blocks of `block` columns: `[ceil(N / n), K, n]`, filled up with zeros.
    ///
    /// # Errors
    /// What is no matrix, or blocks without columns.
    pub fn pack(matrix: &Tensor, block: usize) -> Result<Tensor, OpError> {
        let [depth, columns] = matrix.shape()[..] else {
            return Err(OpError::Value(format!("{} is no matrix", matrix.tensor_type())));
        };
        if block == 0 {
            return Err(OpError::Value("a block has no columns".to_owned()));
        }
        let packed = match matrix.transposed_matrix() {
            Some(rows) => pack_rows(rows, (columns, depth), block),
            None => pack_columns(matrix, (depth, columns), block),
        };
        let shape = vec![columns.div_ceil(block), depth, block];
        Ok(Tensor::from_bytes(TensorType::new(matrix.dtype(), shape), packed)?)
    }
}

/// Packs a matrix `[depth, columns]`, whose memory is given back then.
fn pack_columns(matrix: &Tensor, (depth, columns): (usize, usize), block: usize) -> Vec<u8> {
    let size = matrix.dtype().bytes();
    let (row, line) = (columns * size, block * size);
    let mut packed = vec![0u8; columns.div_ceil(block) * depth * line];
    let bytes = matrix.bytes();
    for_each_chunk(&mut packed, depth * line, |index, panel| {
        let first = index * line;
        let length = line.min(row - first);
        for (k, line) in panel.chunks_exact_mut(line).enumerate() {
            line[..length].copy_from_slice(&bytes[k * row + first..][..length]);
        }
    });
    matrix.release(0..bytes.len());
    packed
}

/// Packs a matrix that is stored as its columns `[columns, depth]`; the memory of each panel's is given back.
fn pack_rows(matrix: &Tensor, (columns, depth): (usize, usize), block: usize) -> Vec<u8> {
    let size = matrix.dtype().bytes();
    let line = block * size;
    let mut packed = vec![0u8; columns.div_ceil(block) * depth * line];
    let source = (matrix.bytes(), size);
    for_each_chunk(&mut packed, depth * line, |index, panel| {
        let first = index * block;
        let width = block.min(columns - first);
        let copy = |bytes: &mut [u8]| {
            copy_strided_into(bytes, source, &[depth, width], first * depth, &[1, depth as isize]);
        };
        if width == block {
            copy(panel);
        } else {
            let mut filled = vec![0; depth * width * size];
            copy(&mut filled);
            for (line, filled) in panel.chunks_exact_mut(line).zip(filled.chunks(width * size)) {
                line[..filled.len()].copy_from_slice(filled);
            }
        }
        matrix.release(first * depth * size..(first + width) * depth * size);
    });
    packed
}

impl Operator for PackedMatMul {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (a, b) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let plain = plain_type(b);
        let [batch @ .., blocks, depth, width] = &plain.shape[..] else {
            return Err(InferError::new(format!("{b} is not packed")));
        };
        let fits = multiply(a.dtype, b.dtype)
            && a.shape.last() == Some(depth)
            && (batch.is_empty() || a.shape.len() == batch.len() + 2 && a.shape.starts_with(batch))
            && *width > 0
            && self.columns.div_ceil(*width) == *blocks;
        if !fits {
            return Err(InferError::new(format!("operands {a} and {b} do not match")));
        }
        let mut shape = a.shape.clone();
        shape[a.rank() - 1] = self.columns;
        Ok(vec![TensorType::new(sum_type(b.dtype), shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (a, b) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if dot_of(b.dtype()).is_some() {
            let a = Cast { to: sum_type(b.dtype()) }.reference(&[Some(a)])?;
            let b = separate(b)?;
            return self.reference(&[Some(&a[0]), Some(&b)]);
        }
        let output = output_type(self, inputs)?;
        if let [_, depth, width] = b.shape()[..]
            && columns_at_a_time(depth, width) < self.columns
        {
            let panel = depth * width * b.dtype().bytes();
            let columns_of = |columns: Range<usize>| -> Result<Tensor, OpError> {
                let panels = columns.start / width..columns.end.div_ceil(width);
                let shape = [panels.len(), depth, width];
                let bytes = b.bytes()[panels.start * panel..panels.end * panel].to_vec();
                let b = Tensor::from_bytes(TensorType::new(b.dtype(), shape), bytes)?;
                let part = Self { columns: columns.len() };
                Ok(part.reference(&[Some(a), Some(&b)])?.remove(0))
            };
            return Ok(vec![in_parts(&output, columns_at_a_time(depth, width), columns_of)?]);
        }
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
        let plain = plain_type(&b_type);
        let (batch, depth) = (plain.rank() - 3, places(&b_type));
        let block = plain.shape[batch + 2];
        let rows = &a_type.shape[..a_type.rank() - 1];
        let mut shape = rows.to_vec();
        shape.extend([b_type.shape[batch], block]);
        let sums_type = TensorType::new(output.dtype, shape);
        let sums = builder.reduce("matmul", &sums_type, &depth, Combiner::Sum, |point, k| {
            let (outer, columns) = point.split_at(rows.len());
            let mut read = outer.to_vec();
            read.push(place(&b_type, k));
            let mut weight = outer[..batch].to_vec();
            weight.push(columns[0].clone());
            weight.extend(at(k, &columns[1]));
            product(Expr::Load(a, read), Expr::Load(b, weight), b_type.dtype)
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
        let b = inputs.get(1).copied().flatten();
        let depth = b.map_or(0, |b| plain_type(b).shape.iter().rev().nth(1).copied().unwrap_or(0));
        outputs.iter().map(|output| 2 * output.elements() as u64 * depth as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Pack, Transpose};

    #[test]
    fn packed_at_once_is_transposed_and_packed() {
        for (depth, columns, block) in [(3, 8, 4), (5, 7, 4), (2, 3, 8), (0, 5, 2), (4, 0, 2)] {
            let elements: Vec<f32> = (0..depth * columns).map(|own| own as f32).collect();
            let matrix = Tensor::from_elements([depth, columns], &elements).unwrap();
            let rows = Transpose { permutation: vec![1, 0] }.reference(&[Some(&matrix)]).unwrap();
            let expected = Pack { axis: 0, block }.reference(&[Some(&rows[0])]).unwrap();
            assert_eq!(PackedMatMul::pack(&matrix, block).unwrap(), expected[0]);
            // From the order in which its transposition is stored, which is not moved for that.
            let moved = |_: &Tensor| -> Vec<u8> { panic!("the matrix was transposed") };
            let transposed = Tensor::transposed(rows[0].clone(), moved).unwrap();
            assert_eq!(PackedMatMul::pack(&transposed, block).unwrap(), expected[0]);
        }
        assert!(PackedMatMul::pack(&Tensor::scalar(1.0f32), 4).is_err());
    }

    #[test]
    fn large_products_are_the_same_in_parts_of_columns() {
        let (depth, columns, block) = (1 << 17, 70, 8);
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|own| (own * 31 % 17) as f32 - 8.0).collect()
        };
        let a = Tensor::from_elements([2, depth], &numbers(2 * depth)).unwrap();
        let b = Tensor::from_elements([depth, columns], &numbers(depth * columns)).unwrap();
        assert!(columns_at_a_time(depth, block) < columns);
        let plain = MatMul {}.reference(&[Some(&a), Some(&b)]).unwrap();
        let packed = PackedMatMul::pack(&b, block).unwrap();
        let found = PackedMatMul { columns }.reference(&[Some(&a), Some(&packed)]).unwrap();
        assert_eq!(found, plain);
        let (a, b) = (a.elements::<f32>().unwrap(), b.elements::<f32>().unwrap());
        for (row, column) in [(0, 0), (1, 33), (0, 69)] {
            let products =
                (0..depth).map(|k| f64::from(a[row * depth + k] * b[k * columns + column]));
            let sum = plain[0].elements::<f32>().unwrap()[row * columns + column];
            assert_eq!(f64::from(sum), products.sum::<f64>());
        }
    }
}
