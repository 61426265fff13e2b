//! Matrix products.

use crate::Slice;
use crate::binary::broadcast_indices;
use crate::binary::broadcast_shapes;
use crate::column_parts::{columns_at_a_time, in_parts};
use crate::express::{input, load_wide, only_output, reduce};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::shape::{bounded, check_same_type};
use crate::strided::{Points, broadcast_strides};
use crate::sums::{COLUMNS, Products, for_each_chunk};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `[..., M, K] x [..., K, N] -> [..., M, N]`, with NumPy's rules: leading axes broadcast; a vector
/// on the left is a row, on the right a column, and that axis does not appear in the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatMul {}

impl MatMul {
    /// Name in text forms.
    pub const NAME: &'static str = "matmul";
}

impl Operator for MatMul {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_same_type(left, &[right])?;
        let refuse = || InferError::new(format!("{left} and {right} have no matrix product"));
        let extents = Extents::of(&left.shape, &right.shape).ok_or_else(refuse)?;
        Ok(vec![bounded(left.dtype, extents.output(left.rank(), right.rank()))?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let Some(extents) = Extents::of(left.shape(), right.shape()) else {
            return Err(OpError::Value("operands have no matrix product".into()));
        };
        let shapes = [left.shape(), right.shape()];
        let part = columns_at_a_time(extents.reduced, 1);
        if let [_, columns] = right.shape()
            && part < *columns
        {
            let columns_of = |columns: Range<usize>| -> Result<Tensor, OpError> {
                let (starts, steps) = (vec![0, columns.start], vec![1, 1]);
                let slice = Slice { starts, steps, extents: vec![extents.reduced, columns.len()] };
                let right = slice.reference(&[Some(right)])?.remove(0);
                Ok(self.reference(&[Some(left), Some(&right)])?.remove(0))
            };
            return Ok(vec![in_parts(&output, part, columns_of)?]);
        }
        Ok(vec![with_number!(output.dtype, Scalar => {
            let operands = [&Scalar::read(left)[..], &Scalar::read(right)];
            Scalar::write(&output, &extents.products(shapes, operands))?
        })])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (left, right) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let types = [left, right].map(|buffer| builder.tensor_type(buffer));
        let extents = Extents::of(&types[0].shape, &types[1].shape)?;
        let batch = extents.batch.len();
        let sums =
            reduce(builder, "matmul", &output, &[extents.reduced], Combiner::Sum, |point, by| {
                let (left_batch, right_batch) = batches(&types[0].shape, &types[1].shape);
                let mut left_read = broadcast_indices(&point[..batch], left_batch);
                let mut right_read = broadcast_indices(&point[..batch], right_batch);
                if types[0].rank() > 1 {
                    left_read.push(point[batch].clone());
                }
                left_read.push(by[0].clone());
                right_read.push(by[0].clone());
                if types[1].rank() > 1 {
                    right_read.push(point[point.len() - 1].clone());
                }
                let dtype = output.dtype;
                load_wide(left, left_read, dtype) * load_wide(right, right_read, dtype)
            });
        Some(vec![sums])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let left = inputs.first().copied().flatten();
        let reduced = left.and_then(|left| left.shape.last()).map_or(0, |extent| *extent as u64);
        let elements = outputs.iter().map(|output| output.elements() as u64);
        elements.map(|elements| elements.saturating_mul(2).saturating_mul(reduced)).sum()
    }
}

/// The leading axes of both operands.
fn batches<'a>(left: &'a [usize], right: &'a [usize]) -> (&'a [usize], &'a [usize]) {
    let batch = |shape: &'a [usize]| &shape[..shape.len().saturating_sub(2)];
    (batch(left), batch(right))
}

/// A number whose matrices have a product.
trait Factor: Number {
    /// Adds to `output`, `[rows, columns]`, the product of `left`, `[rows, reduced]`, and `right`,
    /// `[reduced, columns]`.
    fn product(extents: &Extents, left: &[Self], right: &[Self], output: &mut [Self]);
}

impl Factor for f64 {
    /// The right operand is packed into panels of [`COLUMNS`] columns, which stay in the cache.
    fn product(extents: &Extents, left: &[f64], right: &[f64], output: &mut [f64]) {
        /// Rows that one thread computes with a panel.
        const ROWS: usize = 32;
        /// Products that are not worth a second thread.
        const SMALL: usize = 1 << 18;
        let Extents { reduced, columns, rows, .. } = *extents;
        let panels = pack_panels(right, columns);
        let offsets: Vec<usize> = (0..reduced).map(|k| k * COLUMNS).collect();
        let small = rows * columns * reduced < SMALL;
        let rows = if small { rows } else { ROWS };
        for_each_chunk(output, rows * columns, |index, output| {
            let left = &left[index * rows * reduced..][..output.len() / columns * reduced];
            let mut sums = vec![0.0; output.len() / columns * COLUMNS];
            for (panel, terms) in panels.chunks_exact(reduced * COLUMNS).enumerate() {
                sums.fill(0.0);
                Products { factors: left, terms, offsets: &offsets }.add_to(&mut sums, COLUMNS);
                let first = panel * COLUMNS;
                let width = COLUMNS.min(columns - first);
                for (row, sums) in output.chunks_exact_mut(columns).zip(sums.chunks(COLUMNS)) {
                    row[first..first + width].copy_from_slice(&sums[..width]);
                }
            }
        });
    }
}

/// `[reduced, columns]` as `[ceil(columns / COLUMNS), reduced, COLUMNS]`, filled up with zeros.
fn pack_panels(matrix: &[f64], columns: usize) -> Vec<f64> {
    let reduced = matrix.len() / columns.max(1);
    let mut panels = vec![0.0; columns.div_ceil(COLUMNS) * reduced * COLUMNS];
    for (panel, first) in panels.chunks_mut(reduced * COLUMNS).zip((0..).step_by(COLUMNS)) {
        let width = COLUMNS.min(columns - first);
        for (packed, row) in panel.chunks_mut(COLUMNS).zip(matrix.chunks(columns)) {
            packed[..width].copy_from_slice(&row[first..first + width]);
        }
    }
    panels
}

/// Sums of integers wrap around, so their order is free.
fn integer_product<N: Number>(extents: &Extents, left: &[N], right: &[N], output: &mut [N]) {
    let rows = left.chunks_exact(extents.reduced);
    for (left, output) in rows.zip(output.chunks_exact_mut(extents.columns)) {
        for (factor, right) in left.iter().zip(right.chunks_exact(extents.columns)) {
            for (sum, value) in output.iter_mut().zip(right) {
                *sum = sum.plus(factor.times(*value));
            }
        }
    }
}

impl Factor for i64 {
    fn product(extents: &Extents, left: &[i64], right: &[i64], output: &mut [i64]) {
        integer_product(extents, left, right, output);
    }
}

impl Factor for u64 {
    fn product(extents: &Extents, left: &[u64], right: &[u64], output: &mut [u64]) {
        integer_product(extents, left, right, output);
    }
}

/// Extents of a product.
struct Extents {
    batch: Vec<usize>,
    rows: usize,
    reduced: usize,
    columns: usize,
}

impl Extents {
    /// `None` where the operands do not match.
    fn of(left: &[usize], right: &[usize]) -> Option<Self> {
        let (rows, left_reduced, left_batch) = match left {
            [] => return None,
            [reduced] => (1, *reduced, &[][..]),
            [batch @ .., rows, reduced] => (*rows, *reduced, batch),
        };
        let (right_reduced, columns, right_batch) = match right {
            [] => return None,
            [reduced] => (*reduced, 1, &[][..]),
            [batch @ .., reduced, columns] => (*reduced, *columns, batch),
        };
        let batch = broadcast_shapes(left_batch, right_batch)?;
        (left_reduced == right_reduced).then_some(Self {
            batch,
            rows,
            reduced: left_reduced,
            columns,
        })
    }

    /// All products of the batch.
    fn products<N: Factor>(&self, shapes: [&[usize]; 2], operands: [&[N]; 2]) -> Vec<N> {
        let sizes = [self.rows * self.reduced, self.reduced * self.columns];
        let size = self.rows * self.columns;
        let count: usize = self.batch.iter().product();
        let mut output = vec![N::ZERO; count * size];
        if size == 0 || self.reduced == 0 {
            return output;
        }
        let (left_batch, right_batch) = batches(shapes[0], shapes[1]);
        let strides =
            [left_batch, right_batch].map(|batch| broadcast_strides(batch, self.batch.len()));
        let mut points = Points::new(&self.batch);
        for output in output.chunks_exact_mut(size) {
            let starts = [0, 1].map(|operand| points.place(&strides[operand]) * sizes[operand]);
            let (left, right) =
                (&operands[0][starts[0]..][..sizes[0]], &operands[1][starts[1]..][..sizes[1]]);
            N::product(self, left, right, output);
            points.advance();
        }
        output
    }

    fn output(&self, left_rank: usize, right_rank: usize) -> Vec<usize> {
        let mut shape = self.batch.clone();
        if left_rank > 1 {
            shape.push(self.rows);
        }
        if right_rank > 1 {
            shape.push(self.columns);
        }
        shape
    }
}
