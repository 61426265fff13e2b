//! Products of matrices.

use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{DotProducts, MatMul};

impl Rule for MatMul {
    /// `dA = dY Bᵀ`, `dB = Aᵀ dY`; batches that were broadcast are summed.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let (a, b) = (site.input(0)?, site.input(1)?);
        let (a_shape, b_shape) = (nodes.shape(a), nodes.shape(b));
        let product = Product::new(nodes, a, b, dy)?;
        let left = match site.wants(0) {
            true => Some(product.left(nodes, &a_shape)?),
            false => None,
        };
        let right = match site.wants(1) {
            true => Some(product.right(nodes, &b_shape)?),
            false => None,
        };
        Ok(vec![left, right])
    }
}

/// A product whose operands have two axes at least, and the adjoint of the result.
struct Product {
    a: ValueId,
    b: ValueId,
    dy: ValueId,
}

impl Product {
    /// Vectors become matrices; and where all matrices on the left meet one on the right, they become one.
    fn new(
        n: &mut Nodes<'_>,
        a: ValueId,
        b: ValueId,
        dy: ValueId,
    ) -> Result<Self, crate::RuleError> {
        let (mut left, mut right) = (n.shape(a), n.shape(b));
        let mut result = n.shape(dy);
        if right.len() == 1 {
            right.push(1);
            result.push(1);
        }
        if left.len() == 1 {
            left.insert(0, 1);
            result.insert(result.len() - 1, 1);
        }
        if right.len() == 2 {
            let last = left.len() - 1;
            let rows: usize = left[..last].iter().product();
            left = vec![rows, left[last]];
            result = vec![rows, right[1]];
        }
        Ok(Self { a: n.reshape(a, &left)?, b: n.reshape(b, &right)?, dy: n.reshape(dy, &result)? })
    }

    fn left(&self, n: &mut Nodes<'_>, shape: &[usize]) -> Step {
        let turned = n.swap_last(self.b)?;
        let whole = n.matmul(self.dy, turned)?;
        let own = n.shape(self.a);
        let sum = n.sum_to(whole, &own)?;
        n.reshape(sum, shape)
    }

    fn right(&self, n: &mut Nodes<'_>, shape: &[usize]) -> Step {
        let turned = n.swap_last(self.a)?;
        let whole = n.matmul(turned, self.dy)?;
        let own = n.shape(self.b);
        let sum = n.sum_to(whole, &own)?;
        n.reshape(sum, shape)
    }
}

impl Rule for DotProducts {
    /// `Y = A Bᵀ`: `dA = dY B`, `dB = dYᵀ A`.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let left = nodes.matmul(dy, site.input(1)?)?;
        let turned = nodes.swap_last(dy)?;
        let right = nodes.matmul(turned, site.input(0)?)?;
        Ok(vec![Some(left), Some(right)])
    }
}
