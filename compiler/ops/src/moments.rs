//! Mean and variance, which the normalizations share.

use crate::express::{load_wide, reduce_in, wide};
use hone_tensor::{BufferId, Builder, Combiner, Expr, UnaryOp};
use hone_types::{DataType, TensorType};

/// Moves and scales values to mean 0 and variance 1; `epsilon` is added to the variance.
pub(crate) fn standardize(values: &mut [f64], epsilon: f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let deviation = (variance + epsilon).sqrt();
    values.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
}

/// What mean and variance are taken of.
pub(crate) struct Lines {
    /// The buffer.
    pub x: BufferId,
    /// Extents over which there is a mean each.
    pub kept: Vec<usize>,
    /// Extents it is taken over.
    pub reduced: Vec<usize>,
    /// Added to the variance.
    pub epsilon: f64,
}

/// Mean and reciprocal deviation of each line.
pub(crate) struct Moments {
    mean: BufferId,
    factor: BufferId,
}

impl Lines {
    /// Adds blocks that compute them. `read` gives the place in the buffer of a line and a place in
    /// it.
    pub fn moments(
        &self,
        builder: &mut Builder,
        read: impl Fn(&[Expr], &[Expr]) -> Vec<Expr>,
    ) -> Moments {
        let own = builder.tensor_type(self.x).dtype;
        let dtype = wide(own);
        let lines = TensorType::new(dtype, self.kept.clone());
        let (kept, reduced) = (&self.kept, &self.reduced);
        let count = reduced.iter().product::<usize>() as f64;
        let over = |sums: BufferId, point: &[Expr]| {
            Expr::Load(sums, point.to_vec()) * Expr::Constant(1.0 / count, dtype)
        };
        let value = |point: &[Expr], by: &[Expr]| load_wide(self.x, read(point, by), own);
        let sums = reduce_in(builder, "sum", dtype, kept, reduced, Combiner::Sum, value);
        let mean = builder.map("mean", &lines, |point| over(sums, point));
        let squares =
            reduce_in(builder, "squares", dtype, kept, reduced, Combiner::Sum, |point, by| {
                let distance = value(point, by) - Expr::Load(mean, point.to_vec());
                distance.clone() * distance
            });
        let factor = builder.map("factor", &lines, |point| {
            let variance = over(squares, point) + constant(self.epsilon, dtype);
            constant(1.0, dtype) / variance.unary(UnaryOp::Sqrt)
        });
        Moments { mean, factor }
    }
}

impl Moments {
    /// `value` moved and scaled by the moments of its line.
    pub fn standardized(&self, value: Expr, line: &[Expr]) -> Expr {
        (value - Expr::Load(self.mean, line.to_vec())) * Expr::Load(self.factor, line.to_vec())
    }
}

fn constant(value: f64, dtype: DataType) -> Expr {
    Expr::Constant(value, dtype)
}
