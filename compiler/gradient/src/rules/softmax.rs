//! Softmax and its logarithm.

use super::{Pulled, Rule, Site};
use crate::nodes::Nodes;
use hone_ops::{Softmax, UnaryFunction};

impl Rule for Softmax {
    /// `dx = y * (dy - sum(dy * y))`, and of the logarithm `dy - exp(y) * sum(dy)`.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None]) };
        let axes = [self.axis];
        if self.log {
            let share = nodes.unary(UnaryFunction::Exp, y)?;
            let sum = nodes.sum(dy, &axes, true)?;
            let drawn = nodes.multiply(share, sum)?;
            return Ok(vec![Some(nodes.subtract(dy, drawn)?)]);
        }
        let weighted = nodes.multiply(dy, y)?;
        let sum = nodes.sum(weighted, &axes, true)?;
        let distance = nodes.subtract(dy, sum)?;
        Ok(vec![Some(nodes.multiply(y, distance)?)])
    }
}
