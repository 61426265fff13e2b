//! Elements around a tensor.

use super::indexing::added_along;
use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{Operator, Pad, PadMode};
use hone_types::{Tensor, TensorType};

impl Rule for Pad {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let x = site.input(0)?;
        if self.mode != PadMode::Constant {
            return Ok(vec![Some(repeated(self, nodes, x, dy)?)]);
        }
        let negated = |counts: &[i64]| counts.iter().map(|count| -count).collect();
        let inside = nodes.pad(dy, negated(&self.begin), negated(&self.end))?;
        if !site.wants(1) {
            return Ok(vec![Some(inside)]);
        }
        // What is around the tensor is all that does not lie in it.
        let axes: Vec<usize> = (0..self.begin.len()).collect();
        let (all, own) = (nodes.sum(dy, &axes, false)?, nodes.sum(inside, &axes, false)?);
        let around = nodes.subtract(all, own)?;
        let shape = nodes.shape(site.input(1)?);
        Ok(vec![Some(inside), Some(nodes.reshape(around, &shape)?)])
    }
}

/// Axis by axis, the adjoints of elements that stand in several places added up.
fn repeated(pad: &Pad, n: &mut Nodes<'_>, x: ValueId, dy: ValueId) -> Step {
    let input = n.shape(x);
    let mut value = dy;
    for axis in 0..input.len() {
        let (begin, end) = (pad.begin[axis], pad.end[axis]);
        if begin == 0 && end == 0 {
            continue;
        }
        // The same padding of the places themselves says where each came from.
        let places: Vec<i64> = (0..input[axis] as i64).collect();
        let places = Tensor::from_elements([places.len()], &places)?;
        let alone = Pad { begin: vec![begin], end: vec![end], ..pad.clone() };
        let sources = n.constant(alone.reference(&[Some(&places)])?.remove(0));
        let mut shape = n.shape(value);
        shape[axis] = input[axis];
        let own = TensorType::new(n.dtype(value), shape);
        value = added_along(n, &own, axis, sources, value)?;
    }
    Ok(value)
}
