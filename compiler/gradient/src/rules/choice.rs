//! Choices between values, and conversions between types of floats.

use super::{Pulled, Rule, Site};
use crate::nodes::Nodes;
use hone_ops::{Cast, Select};

impl Rule for Select {
    /// Each of both gets the adjoint where it was chosen.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let condition = site.input(0)?;
        let zero = nodes.scalar(nodes.dtype(dy), 0.0)?;
        let mut contributions = vec![None];
        for (place, branches) in [(1, [dy, zero]), (2, [zero, dy])] {
            contributions.push(match site.wants(place) {
                false => None,
                true => {
                    let whole = nodes.select(condition, branches[0], branches[1])?;
                    let shape = nodes.shape(site.input(place)?);
                    Some(nodes.sum_to(whole, &shape)?)
                }
            });
        }
        Ok(contributions)
    }
}

impl Rule for Cast {
    /// Only floats come here; rounding to fewer bits counts as leaving the number as it is.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let own = nodes.dtype(site.input(0)?);
        Ok(vec![Some(nodes.cast(dy, own)?)])
    }
}
