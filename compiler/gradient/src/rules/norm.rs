//! Divisions by a norm of a line or of neighbouring channels.

use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{
    BinaryFunction as B, LocalResponseNormalization, LpNormalization, ReduceFunction as R,
    UnaryFunction as U,
};
use hone_types::Tensor;

impl Rule for LpNormalization {
    /// `dx = (dy - slope * sum(dy * y)) / norm`, `slope` that of the norm: the sign of `x`, or `y`. Zero where the norm is.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None]) };
        let x = site.input(0)?;
        let function = if self.order == 1 { R::L1 } else { R::L2 };
        let norm = nodes.reduce(function, x, &[self.axis], true)?;
        let slope = if self.order == 1 { nodes.unary(U::Sign, x)? } else { y };
        let product = nodes.multiply(dy, y)?;
        let sum = nodes.sum(product, &[self.axis], true)?;
        let drawn = nodes.multiply(slope, sum)?;
        let rest = nodes.subtract(dy, drawn)?;
        Ok(vec![Some(nodes.divide_or_zero(rest, norm)?)])
    }
}

impl Rule for LocalResponseNormalization {
    /// By its parts: the sum of squares of neighbours is a product with a matrix of ones beside the diagonal.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let x = site.input(0)?;
        let y = normalized(self, nodes, x)?;
        nodes.through(y, dy, &[Some(x)])
    }
}

fn normalized(own: &LocalResponseNormalization, n: &mut Nodes<'_>, x: ValueId) -> Step {
    let shape = n.shape(x);
    let (dtype, channels) = (n.dtype(x), shape[1]);
    let before = (own.size - 1) / 2;
    let is_near = |to: usize, from: usize| from + before >= to && from + before < to + own.size;
    let near: Vec<f64> = (0..channels * channels)
        .map(|place| f64::from(u8::from(is_near(place / channels, place % channels))))
        .collect();
    let near = n.constant(Tensor::from_f64(dtype, [channels, channels], &near)?);
    let inner = shape[2..].iter().product();
    let lines = n.reshape(x, &[shape[0], channels, inner])?;
    let squares = n.multiply(lines, lines)?;
    let sums = n.matmul(near, squares)?;
    let sums = n.reshape(sums, &shape)?;
    let scaled = n.scale(sums, own.alpha / own.size as f64)?;
    let strength = n.with(B::Add, scaled, own.bias)?;
    let factor = n.with(B::Power, strength, -own.beta)?;
    n.multiply(x, factor)
}
