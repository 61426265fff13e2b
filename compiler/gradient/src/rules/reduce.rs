//! Reductions of whole axes.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{
    BinaryFunction as B, CumulativeSum, Reduce, ReduceFunction as R, UnaryFunction as U,
};

impl Rule for Reduce {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None]) };
        let x = site.input(0)?;
        let line = Lines::new(self, nodes, x, [y, dy])?;
        Ok(vec![Some(line.pulled(self.function, nodes)?)])
    }
}

/// The operand, and result and adjoint with the reduced axes in their places, of extent 1.
struct Lines<'a> {
    x: ValueId,
    y: ValueId,
    dy: ValueId,
    shape: Vec<usize>,
    axes: &'a [usize],
}

impl<'a> Lines<'a> {
    fn new(
        reduce: &'a Reduce,
        n: &mut Nodes<'_>,
        x: ValueId,
        [y, dy]: [ValueId; 2],
    ) -> Result<Self, RuleError> {
        let shape = n.shape(x);
        let axes = &reduce.axes[..];
        let mut kept = shape.clone();
        axes.iter().for_each(|axis| kept[*axis] = 1);
        Ok(Self { x, y: n.reshape(y, &kept)?, dy: n.reshape(dy, &kept)?, shape, axes })
    }

    fn pulled(&self, function: R, n: &mut Nodes<'_>) -> Step {
        let Self { x, y, dy, .. } = *self;
        let count = self.axes.iter().map(|axis| self.shape[*axis]).product::<usize>();
        match function {
            R::Sum => n.expand(dy, &self.shape),
            R::Mean => {
                let share = n.scale(dy, 1.0 / count as f64)?;
                n.expand(share, &self.shape)
            }
            R::Maximum | R::Minimum => self.shared(n),
            R::Product => self.product(n),
            R::L1 => {
                let sign = n.unary(U::Sign, x)?;
                n.multiply(dy, sign)
            }
            R::L2 => {
                let factor = n.divide_or_zero(dy, y)?;
                n.multiply(factor, x)
            }
            R::SumSquare => {
                let double = n.scale(dy, 2.0)?;
                n.multiply(double, x)
            }
            R::LogSum => {
                let sum = n.sum(x, self.axes, true)?;
                let share = n.divide(dy, sum)?;
                n.expand(share, &self.shape)
            }
            R::LogSumExp => {
                let distance = n.subtract(x, y)?;
                let share = n.unary(U::Exp, distance)?;
                n.multiply(dy, share)
            }
        }
    }

    /// Of several extreme elements each has an equal share.
    fn shared(&self, n: &mut Nodes<'_>) -> Step {
        let is_extreme = n.binary(B::Equal, self.x, self.y)?;
        let one = n.scalar(n.dtype(self.x), 1.0)?;
        let counted = n.keep(is_extreme, one)?;
        let count = n.sum(counted, self.axes, true)?;
        let share = n.divide(self.dy, count)?;
        n.keep(is_extreme, share)
    }

    /// Each element gets the product of all others: of those before it and those behind it, so that zeros do no harm.
    fn product(&self, n: &mut Nodes<'_>) -> Step {
        let kept: Vec<usize> =
            (0..self.shape.len()).filter(|axis| !self.axes.contains(axis)).collect();
        let order = [&kept[..], self.axes].concat();
        let length: usize = self.axes.iter().map(|axis| self.shape[*axis]).product();
        let mut lines: Vec<usize> = kept.iter().map(|axis| self.shape[*axis]).collect();
        let turned: Vec<usize> = order.iter().map(|axis| self.shape[*axis]).collect();
        lines.push(length);
        let x = n.transpose(self.x, &order)?;
        let x = n.reshape(x, &lines)?;
        let mut others = |reverse| {
            let axis = lines.len() - 1;
            n.apply(
                CumulativeSum { axis, exclusive: true, reverse, product: true, in_rows: false },
                &[x],
            )
        };
        let (before, behind) = (others(false)?, others(true)?);
        let factor = n.multiply(before, behind)?;
        let factor = n.reshape(factor, &turned)?;
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
        let factor = n.transpose(factor, &back)?;
        n.multiply(self.dy, factor)
    }
}
