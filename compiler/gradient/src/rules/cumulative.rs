//! Running sums.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::Nodes;
use hone_ops::CumulativeSum;

impl Rule for CumulativeSum {
    /// The running sum from the other end.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        if self.product {
            return Err(RuleError::Missing("running products".into()));
        }
        let back = Self { reverse: !self.reverse, ..self.clone() };
        Ok(vec![Some(nodes.apply(back, &[dy])?)])
    }
}
