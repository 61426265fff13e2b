//! The operands of an attention, with what lies between them and the products taken off: transpositions,
//! scalar factors, heads repeated for several queries, and axes of one element.

use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Expand, Graph, Reshape, Transpose};

/// Maximum nodes taken off one operand.
const MAX_NODES: usize = 8;

/// An operand of an attention.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// The value, in the graph.
    pub(crate) value: ValueId,
    /// The shape that it gets by a reshape.
    pub(crate) shape: Vec<usize>,
    /// Position of each axis of the attention's operand in that shape.
    pub(crate) positions: Vec<usize>,
    /// A transposition after the reshape.
    pub(crate) permutation: Option<Vec<usize>>,
}

/// The one element of a constant.
pub(crate) fn number(graph: &Graph, value: ValueId) -> Option<f64> {
    let constant =
        graph.constant(value).filter(|constant| constant.tensor_type().elements() == 1)?;
    constant.to_f64().first().copied()
}

/// The queries `[batch.., queries, size]`, where `batch` is that of the product, and their factor.
pub(crate) fn query_operand(
    graph: &Graph,
    value: ValueId,
    batch: &[usize],
) -> Option<(Operand, f64)> {
    let view = View::of(graph, value)?.taken_apart(graph, |_| true);
    let scale = view.scale;
    Some((view.operand(batch, false)?, scale))
}

/// The keys `[batch.., keys, size]` of a product's right operand `[batch.., size, keys]`, and their factor.
pub(crate) fn key_operand(
    graph: &Graph,
    value: ValueId,
    batch: &[usize],
) -> Option<(Operand, f64)> {
    let mut view = View::of(graph, value)?.taken_apart(graph, |_| true);
    let rank = view.axes.len();
    view.axes.swap(rank - 2, rank - 1);
    let scale = view.scale;
    Some((view.operand(batch, true)?, scale))
}

/// The values `[batch.., keys, width]`; neighbours stay neighbours.
pub(crate) fn value_operand(graph: &Graph, value: ValueId, batch: &[usize]) -> Option<Operand> {
    let neighbours = |axes: &[usize]| axes.last().is_some_and(|last| last + 1 == axes.len());
    let view = View::of(graph, value)?.taken_apart(graph, neighbours);
    if view.scale == 1.0 { view } else { View::of(graph, value)? }.operand(batch, true)
}

/// Positions of the axes `[batch.., queries, width]` in a result of `permutation`, both without batch axes of one
/// element; `shape` is that before the transposition.
pub(crate) fn positions_of_axes(permutation: &[usize], shape: &[usize]) -> Vec<usize> {
    let last = shape.len() - 2;
    let kept = |axis: usize| axis >= last || shape[axis] != 1;
    let order: Vec<usize> = permutation.iter().copied().filter(|axis| kept(*axis)).collect();
    let axes = (0..shape.len()).filter(|axis| kept(*axis));
    axes.filter_map(|axis| order.iter().position(|ordered| *ordered == axis)).collect()
}

/// A value as another one with its axes in another order, times a number.
#[derive(Clone)]
struct View {
    value: ValueId,
    shape: Vec<usize>,
    /// For each axis of the operand its position in `shape`.
    axes: Vec<usize>,
    scale: f64,
}

impl View {
    fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        let shape = graph.tensor_type(value).shape.clone();
        (shape.len() >= 2).then(|| Self {
            value,
            axes: (0..shape.len()).collect(),
            shape,
            scale: 1.0,
        })
    }

    /// The view of what the value is computed from, as far as `allowed` takes the axes.
    fn taken_apart(mut self, graph: &Graph, allowed: impl Fn(&[usize]) -> bool) -> Self {
        for _ in 0..MAX_NODES {
            match self.before(graph).filter(|before| allowed(&before.axes)) {
                Some(before) => self = before,
                None => break,
            }
        }
        self
    }

    fn before(&self, graph: &Graph) -> Option<Self> {
        if self.shape != graph.tensor_type(self.value).shape {
            return None;
        }
        let node = &graph.nodes()[graph.producer(self.value)?];
        let input = node.inputs.first().copied().flatten()?;
        if let Some(transpose) = node.operation.downcast::<Transpose>() {
            let axes = self.axes.iter().map(|axis| transpose.permutation[*axis]).collect();
            let shape = graph.tensor_type(input).shape.clone();
            return Some(Self { value: input, shape, axes, scale: self.scale });
        }
        if let Some(binary) = node.operation.downcast::<Binary>() {
            let other = node.inputs[1]?;
            let (value, factor) = match (number(graph, input), number(graph, other)) {
                (None, Some(factor)) => (input, factor),
                (Some(factor), None) => (other, factor),
                _ => return None,
            };
            let same = graph.tensor_type(value).shape == self.shape;
            let multiplies = binary.function == BinaryFunction::Multiply && factor.is_normal();
            return (multiplies && same).then(|| Self {
                value,
                scale: self.scale * factor,
                ..self.clone()
            });
        }
        node.operation.downcast::<Reshape>()?;
        self.before_repeating(graph, input)
    }

    /// Where each element along one axis was repeated and the copies joined with that axis: what it was
    /// before. The axis is then shorter.
    fn before_repeating(&self, graph: &Graph, expanded: ValueId) -> Option<Self> {
        let expand = &graph.nodes()[graph.producer(expanded)?];
        expand.operation.downcast::<Expand>()?;
        let source = expand.inputs[0]?;
        let (after, before) =
            (&graph.tensor_type(expanded).shape, &graph.tensor_type(source).shape);
        if after.len() != before.len() || after.len() != self.shape.len() + 1 {
            return None;
        }
        let mut repeated = (0..after.len()).filter(|axis| after[*axis] != before[*axis]);
        let (axis, None) = (repeated.next()?, repeated.next()) else { return None };
        let mut joined = after.clone();
        joined.remove(axis);
        joined[axis.checked_sub(1)?] *= after[axis];
        if joined != self.shape || before[axis] != 1 {
            return None;
        }
        let mut shape = before.clone();
        shape.remove(axis);
        Some(Self { value: source, shape, ..self.clone() })
    }

    /// The operand of an attention whose scores have the leading axes `batch`. Batch axes of one element
    /// are dropped where all operands have them so; only operands that queries share may have fewer
    /// elements than the batch.
    fn operand(self, batch: &[usize], shared: bool) -> Option<Operand> {
        let batch_rank = self.axes.len() - 2;
        let missing = batch.len().checked_sub(batch_rank)?;
        // Axes that the operand lacks are leading ones.
        let shape = [&vec![1; missing][..], &self.shape].concat();
        let positions: Vec<usize> =
            (0..missing).chain(self.axes.iter().map(|axis| axis + missing)).collect();
        for (position, extent) in positions.iter().zip(batch) {
            if shape[*position] != *extent && !shared {
                return None;
            }
        }
        let drops: Vec<usize> =
            (0..batch.len()).filter(|axis| batch[*axis] == 1).map(|axis| positions[axis]).collect();
        if drops.iter().any(|position| shape[*position] != 1) {
            return None;
        }
        let kept: Vec<usize> =
            (0..shape.len()).filter(|position| !drops.contains(position)).collect();
        let positions = positions.iter().filter(|position| !drops.contains(position));
        let positions = positions
            .filter_map(|position| kept.iter().position(|axis| axis == position))
            .collect();
        let shape = kept.iter().map(|position| shape[*position]).collect();
        Some(Operand { value: self.value, shape, positions, permutation: None })
    }
}
