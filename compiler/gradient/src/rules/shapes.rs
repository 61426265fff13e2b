//! Elements that are moved, repeated, joined or cut.

use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{Concat, Expand, Reshape, Slice, Tile, Transpose, Trilu};

impl Rule for Reshape {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let shape = nodes.shape(site.input(0)?);
        Ok(vec![Some(nodes.reshape(dy, &shape)?)])
    }
}

impl Rule for Transpose {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let mut back = vec![0; self.permutation.len()];
        self.permutation.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
        Ok(vec![Some(nodes.transpose(dy, &back)?)])
    }
}

impl Rule for Expand {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let shape = nodes.shape(site.input(0)?);
        Ok(vec![Some(nodes.sum_to(dy, &shape)?)])
    }
}

impl Rule for Tile {
    /// The sum of all repetitions.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let shape = nodes.shape(site.input(0)?);
        let apart: Vec<usize> =
            self.repeats.iter().zip(&shape).flat_map(|(repeats, own)| [*repeats, *own]).collect();
        let repeats: Vec<usize> = (0..shape.len()).map(|axis| 2 * axis).collect();
        let apart = nodes.reshape(dy, &apart)?;
        let sum = nodes.sum(apart, &repeats, false)?;
        Ok(vec![Some(nodes.reshape(sum, &shape)?)])
    }
}

impl Rule for Trilu {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        Ok(vec![Some(nodes.apply(self.clone(), &[dy])?)])
    }
}

impl Rule for Concat {
    /// Each input gets its own part.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; site.inputs.len()]) };
        let mut begin = 0;
        let mut contributions = Vec::with_capacity(site.inputs.len());
        for place in 0..site.inputs.len() {
            let shape = nodes.shape(site.input(place)?);
            let mut starts = vec![0; shape.len()];
            starts[self.axis] = begin;
            begin += shape[self.axis];
            contributions.push(match site.wants(place) && !shape.contains(&0) {
                true => Some(nodes.part(dy, starts, shape)?),
                false => None,
            });
        }
        Ok(contributions)
    }
}

impl Rule for Slice {
    /// The adjoint in its places, with zeros everywhere else.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let shape = nodes.shape(site.input(0)?);
        if self.extents.contains(&0) {
            return Ok(vec![None]);
        }
        let mut value = dy;
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        for (axis, extent) in shape.iter().enumerate() {
            let (step, count) = (self.steps[axis].unsigned_abs() as usize, self.extents[axis]);
            let mut first = self.starts[axis];
            if self.steps[axis] < 0 {
                value = reversed(nodes, value, axis)?;
                first -= (count - 1) * step;
            }
            let mut covered = count;
            if step > 1 && count > 1 {
                value = spread(nodes, value, axis, step)?;
                covered = count * step;
            }
            begin.push(first as i64);
            // What the last step covers may reach beyond the end, and is cut off.
            end.push(*extent as i64 - first as i64 - covered as i64);
        }
        Ok(vec![Some(nodes.pad(value, begin, end)?)])
    }
}

/// An axis backwards.
fn reversed(n: &mut Nodes<'_>, x: ValueId, axis: usize) -> Step {
    let extents = n.shape(x);
    if extents[axis] == 1 {
        return Ok(x);
    }
    let (mut starts, mut steps) = (vec![0; extents.len()], vec![1; extents.len()]);
    starts[axis] = extents[axis] - 1;
    steps[axis] = -1;
    n.apply(Slice { starts, steps, extents }, &[x])
}

/// `step - 1` zeros behind each element along an axis.
fn spread(n: &mut Nodes<'_>, x: ValueId, axis: usize, step: usize) -> Step {
    let mut shape = n.shape(x);
    let mut apart = shape.clone();
    apart.insert(axis + 1, 1);
    let x = n.reshape(x, &apart)?;
    let mut end = vec![0; apart.len()];
    end[axis + 1] = step as i64 - 1;
    let x = n.pad(x, vec![0; apart.len()], end)?;
    shape[axis] *= step;
    n.reshape(x, &shape)
}
