//! Elements chosen by indices: their adjoints are added up where they came from.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{
    Concat, Gather, GatherElements, GatherNd, ScatterElements, ScatterNd, ScatterReduction, TopK,
};
use hone_types::{Tensor, TensorType};

impl Rule for Gather {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let data = nodes.tensor_type(site.input(0)?).clone();
        Ok(vec![Some(added_along(nodes, &data, self.axis, site.input(1)?, dy)?), None])
    }
}

/// Zeros of type `data`, to which the slices of `dy` along the axes that took the place of `axis` are added at `indices`.
pub(super) fn added_along(
    n: &mut Nodes<'_>,
    data: &TensorType,
    axis: usize,
    indices: ValueId,
    dy: ValueId,
) -> Step {
    let (index_axes, count) = {
        let own = n.tensor_type(indices);
        (own.rank(), own.elements())
    };
    // Indices first, as one axis.
    let rank = n.tensor_type(dy).rank();
    let (before, behind) = (0..axis, axis + index_axes..rank);
    let order: Vec<usize> = (axis..axis + index_axes).chain(before).chain(behind).collect();
    let mut front = data.shape.clone();
    let extent = front.remove(axis);
    let slices = n.transpose(dy, &order)?;
    let slices = n.reshape(slices, &[&[count], &front[..]].concat())?;
    let indices = n.reshape(indices, &[count, 1])?;
    front.insert(0, extent);
    let zeros = n.filled(&TensorType::new(data.dtype, front), 0.0)?;
    let sums = n.apply(ScatterNd::new(ScatterReduction::Add), &[zeros, indices, slices])?;
    n.move_axis(sums, 0, axis)
}

impl Rule for GatherElements {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let data = nodes.tensor_type(site.input(0)?).clone();
        let zeros = nodes.filled(&data, 0.0)?;
        let add = ScatterElements::new(self.axis, ScatterReduction::Add);
        Ok(vec![Some(nodes.apply(add, &[zeros, site.input(1)?, dy])?), None])
    }
}

impl Rule for GatherNd {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let data = nodes.tensor_type(site.input(0)?).clone();
        let indices = with_batch(nodes, site.input(1)?, self.batch_axes)?;
        let zeros = nodes.filled(&data, 0.0)?;
        let add = ScatterNd::new(ScatterReduction::Add);
        Ok(vec![Some(nodes.apply(add, &[zeros, indices, dy])?), None])
    }
}

/// Index tuples that begin with their own places along the leading axes.
fn with_batch(n: &mut Nodes<'_>, indices: ValueId, batch_axes: usize) -> Step {
    if batch_axes == 0 {
        return Ok(indices);
    }
    let TensorType { dtype, shape } = n.tensor_type(indices).clone();
    let last = shape.len() - 1;
    let mut parts = Vec::with_capacity(batch_axes + 1);
    for axis in 0..batch_axes {
        let places: Vec<f64> = (0..shape[axis]).map(|place| place as f64).collect();
        let mut own = vec![1; shape.len()];
        own[axis] = shape[axis];
        let places = n.constant(Tensor::from_f64(dtype, own, &places)?);
        parts.push(n.expand(places, &[&shape[..last], &[1]].concat())?);
    }
    parts.push(indices);
    n.apply(Concat { axis: last }, &parts)
}

impl Rule for TopK {
    /// The adjoint of each element in its place; what was not chosen has none.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let data = nodes.tensor_type(site.input(0)?).clone();
        let indices = *site.outputs.get(1).ok_or(RuleError::Input(1))?;
        let zeros = nodes.filled(&data, 0.0)?;
        let add = ScatterElements::new(self.axis, ScatterReduction::Add);
        Ok(vec![Some(nodes.apply(add, &[zeros, indices, dy])?)])
    }
}

impl Rule for ScatterElements {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let indices = site.input(1)?;
        let updates = nodes.tensor_type(site.input(2)?).clone();
        let read = GatherElements { axis: self.axis };
        match self.reduction {
            ScatterReduction::Add => {
                let own = nodes.apply(read, &[dy, indices])?;
                Ok(vec![Some(dy), None, Some(own)])
            }
            ScatterReduction::None => {
                let write = Self::new(self.axis, ScatterReduction::None);
                let zeros = nodes.filled(&updates, 0.0)?;
                let left = nodes.apply(write.clone(), &[dy, indices, zeros])?;
                let own = nodes.apply(read.clone(), &[dy, indices])?;
                let numbers = numbers(nodes, &updates.shape, self.axis)?;
                let places = TensorType::new(nodes.dtype(numbers), nodes.shape(dy));
                let none = nodes.filled(&places, 0.0)?;
                let last = nodes.apply(write, &[none, indices, numbers])?;
                let last = nodes.apply(read, &[last, indices])?;
                Ok(vec![Some(left), None, Some(where_last(nodes, last, numbers, own)?)])
            }
            other => Err(missing(other)),
        }
    }
}

impl Rule for ScatterNd {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let indices = site.input(1)?;
        let updates = nodes.tensor_type(site.input(2)?).clone();
        let read = GatherNd { batch_axes: 0 };
        match self.reduction {
            ScatterReduction::Add => {
                let own = nodes.apply(read, &[dy, indices])?;
                Ok(vec![Some(dy), None, Some(own)])
            }
            ScatterReduction::None => {
                let write = Self::new(ScatterReduction::None);
                let zeros = nodes.filled(&updates, 0.0)?;
                let left = nodes.apply(write.clone(), &[dy, indices, zeros])?;
                let own = nodes.apply(read.clone(), &[dy, indices])?;
                // Each tuple has a number; those of a place are the number of the last one.
                let tuples = nodes.shape(indices);
                let (tuple, points) = tuples.split_last().ok_or(RuleError::Input(1))?;
                let count: usize = points.iter().product();
                let numbers = numbers(nodes, &[count], 0)?;
                let numbers = nodes.reshape(numbers, points)?;
                let places = TensorType::new(nodes.dtype(numbers), &nodes.shape(dy)[..*tuple]);
                let none = nodes.filled(&places, 0.0)?;
                let last = nodes.apply(write, &[none, indices, numbers])?;
                let last = nodes.apply(read, &[last, indices])?;
                let slices = vec![1; updates.rank() - points.len()];
                let flat = [points, &slices[..]].concat();
                let (last, numbers) = (nodes.reshape(last, &flat)?, nodes.reshape(numbers, &flat)?);
                Ok(vec![Some(left), None, Some(where_last(nodes, last, numbers, own)?)])
            }
            other => Err(missing(other)),
        }
    }
}

/// The number of each place along an axis.
fn numbers(n: &mut Nodes<'_>, shape: &[usize], axis: usize) -> Step {
    let places: Vec<i64> = (0..shape[axis] as i64).collect();
    let mut own = vec![1; shape.len()];
    own[axis] = shape[axis];
    let places = n.constant(Tensor::from_elements(own, &places)?);
    n.expand(places, shape)
}

/// Of several updates of a place the last one remains; the others change nothing.
fn where_last(n: &mut Nodes<'_>, last: ValueId, numbers: ValueId, own: ValueId) -> Step {
    let is_last = n.binary(hone_ops::BinaryFunction::Equal, last, numbers)?;
    n.keep(is_last, own)
}

fn missing(reduction: ScatterReduction) -> RuleError {
    RuleError::Missing(format!("updates that meet what is there by {reduction:?}"))
}
