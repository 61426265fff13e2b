//! Attention as one node: a product, what exporters do to scores, a softmax over the keys and a product
//! with the values become [`Attention`], whose kernel keeps the scores of a few queries in its thread's
//! memory. Transpositions of the operands and of the result, scalar factors of the operands, and heads
//! that were repeated for several queries go into it, too.
//!
//! What is written in another order, or read by further nodes, stays as it is. So do small ones: queries
//! are the lanes of the kernel's vectors.

use crate::attention_operands::{
    Operand, key_operand, positions_of_axes, query_operand, value_operand,
};
use crate::attention_parts::add_in_parts;
use crate::{PassError, Rewriter};
use hone_graph::{Node, NodeId, ValueId};
use hone_machine::TYPICAL_L2_BYTES;
use hone_ops::{
    Attention, Binary, BinaryFunction, EmptyRows, Graph, MatMul, Op, Reduce, ReduceFunction,
    Reshape, ScoreStep, Select, Softmax, Transpose, Unary, UnaryFunction,
};
use hone_types::DataType;
use std::collections::HashMap;

/// Maximum nodes between the first product and the softmax.
const MAX_CHAIN_NODES: usize = 16;

/// Minimum keys: below, a kernel's three stages are too short to be worth their loops.
const MIN_KEYS: usize = 8;

/// Maximum scores of a head whose queries do not fill their last vector: they are computed together, and kept
/// twice, in half of a typical second-level cache, whatever the processor has.
const MAX_UNEVEN_SCORES: usize = TYPICAL_L2_BYTES / 2 / (2 * size_of::<f32>());

/// Maximum products that are summed for a score, times the queries or keys, whichever are more. Beyond, as where channels
/// attend to each other and all positions of an image are summed, the scores are next to nothing beside what they are computed
/// of, and products of packed operands are faster: 0.76 ms in place of 1.6 ms with 48 channels and 9216 positions.
const MAX_DEPTH: usize = 16;

/// Minimum queries on devices: below, most of the rows that are multiplied at once would be filled up.
const MIN_DEVICE_QUERIES: usize = 8;

/// Joins the nodes of each attention of numbers of type `working`, where its queries fill a vector of
/// `lanes`.
pub fn fuse_attention(graph: &Graph, lanes: usize, working: DataType) -> Result<Graph, PassError> {
    let matcher = Matcher::new(graph, lanes, working);
    let softmaxes = graph.nodes().ids().filter_map(|node| matcher.attention(node));
    joined(graph, softmaxes.collect(), Some(lanes))
}

/// The same for devices that multiply rows of operands as they lie: where those of queries and keys, and those of values, have
/// one of some `lengths` and each row's elements are neighbours. What has another form stays two products and a softmax, and so
/// do those whose last node has a name that `joins` refuses.
pub fn fuse_device_attention(
    graph: &Graph,
    lengths: &[usize],
    working: DataType,
    joins: &dyn Fn(&str) -> bool,
) -> Result<Graph, PassError> {
    let matcher = Matcher::new(graph, MIN_DEVICE_QUERIES, working);
    let fits = |found: &Found| {
        let Attention { query, key, value, .. } = &found.operation;
        let operands = found.operands.iter().zip([query, key, value]);
        let name = &graph.nodes()[found.last].name;
        let mut operands = operands.into_iter();
        joins(name)
            && operands.all(|(operand, positions)| {
                let last = positions.len().checked_sub(1);
                let length = operand.shape.last();
                operand.permutation.is_none()
                    && positions.last().copied() == last
                    && length.is_some_and(|length| lengths.contains(length))
            })
    };
    let softmaxes = graph.nodes().ids().filter_map(|node| matcher.attention(node));
    joined(graph, softmaxes.filter(fits).collect(), None)
}

/// The graph with the nodes of each of these joined; in parts where there are `lanes` of a vector.
fn joined(graph: &Graph, found: Vec<Found>, lanes: Option<usize>) -> Result<Graph, PassError> {
    let found: HashMap<NodeId, Found> =
        found.into_iter().map(|found| (found.last, found)).collect();
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match found.get(&id) {
            // The nodes before this one are left without readers.
            Some(found) => replace(&mut rewriter, graph, node, found, lanes)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// An attention in the graph.
struct Found {
    /// The node whose result the attention gives.
    last: NodeId,
    operation: Attention,
    operands: Vec<Operand>,
}

/// Replaces the last of an attention's nodes by the attention.
fn replace(
    rewriter: &mut Rewriter,
    graph: &Graph,
    node: &Node<Op>,
    found: &Found,
    lanes: Option<usize>,
) -> Result<(), PassError> {
    let mut inputs = Vec::new();
    for operand in &found.operands {
        let mut value = rewriter.value(operand.value);
        if graph.tensor_type(operand.value).shape != operand.shape {
            let reshape = Reshape { shape: operand.shape.clone() };
            value = rewriter.add_simple(&node.name, reshape, &[value])?;
        }
        if let Some(permutation) = &operand.permutation {
            let transpose = Transpose { permutation: permutation.clone() };
            value = rewriter.add_simple(&node.name, transpose, &[value])?;
        }
        inputs.push(value);
    }
    let operands = (&found.operands[..], &inputs[..]);
    let source = (graph, node.name.as_str());
    let mut result = match lanes {
        Some(lanes) => add_in_parts(rewriter, source, &found.operation, operands, lanes)?,
        None => rewriter.add_simple(&node.name, found.operation.clone(), &inputs)?,
    };
    let shape = &graph.tensor_type(node.outputs[0]).shape;
    if rewriter.target().tensor_type(result).shape != *shape {
        result = rewriter.add_simple(&node.name, Reshape { shape: shape.clone() }, &[result])?;
    }
    rewriter.replace(node.outputs[0], result);
    Ok(())
}

/// Finds attentions.
struct Matcher<'a> {
    graph: &'a Graph,
    readers: Vec<Vec<NodeId>>,
    escapes: Vec<bool>,
    lanes: usize,
    working: DataType,
}

/// What happens to the scores, from the softmax upwards: each step with its operand and the shape of the
/// scores there.
type Steps = Vec<(ScoreStep, Option<(ValueId, Vec<usize>)>)>;

impl<'a> Matcher<'a> {
    fn new(graph: &'a Graph, lanes: usize, working: DataType) -> Self {
        use hone_types::Id;
        let mut escapes = vec![false; graph.values().len()];
        graph.outputs().iter().for_each(|port| escapes[port.value.index()] = true);
        let mut readers = graph.consumers();
        readers.iter_mut().for_each(|nodes| nodes.dedup());
        Self { graph, readers, escapes, lanes, working }
    }

    /// The attention around a softmax.
    fn attention(&self, id: NodeId) -> Option<Found> {
        let node = &self.graph.nodes()[id];
        let softmax = node.operation.downcast::<Softmax>()?;
        let scores = node.inputs[0]?;
        let scores_type = self.graph.tensor_type(scores);
        let last_axis = softmax.axis + 1 == scores_type.rank();
        if softmax.log || !last_axis || scores_type.dtype != self.working {
            return None;
        }
        let (product, mut steps) = self.product_above(scores)?;
        let product = &self.graph.nodes()[product];
        let shape = &self.graph.tensor_type(product.outputs[0]).shape;
        let (weights, empty_rows) = self.weights_below(node.outputs[0], &steps)?;
        let [reader] = self.only_readers(weights)?[..] else { return None };
        let second = &self.graph.nodes()[reader];
        second.operation.downcast::<MatMul>()?;
        let (left, value) = (second.inputs[0]?, second.inputs[1]?);
        if left != weights || value == weights {
            return None;
        }
        let rank = shape.len();
        if rank < 2 || shape[rank - 2] < self.lanes || shape[rank - 1] < MIN_KEYS {
            return None;
        }
        let (queries, keys) = (shape[rank - 2], shape[rank - 1]);
        if !queries.is_multiple_of(self.lanes) && queries.saturating_mul(keys) > MAX_UNEVEN_SCORES {
            return None;
        }
        let depth = *self.graph.tensor_type(product.inputs[0]?).shape.last()?;
        if depth > MAX_DEPTH.saturating_mul(queries.max(keys)) {
            return None;
        }
        let batch = &shape[..rank - 2];
        let (query, query_scale) = query_operand(self.graph, product.inputs[0]?, batch)?;
        let (key, key_scale) = key_operand(self.graph, product.inputs[1]?, batch)?;
        let weights_shape = &self.graph.tensor_type(weights).shape;
        let value = value_operand(self.graph, value, &weights_shape[..weights_shape.len() - 2])?;
        steps.reverse();
        let mut scale = query_scale * key_scale;
        while let Some((ScoreStep::Multiply(factor), _)) = steps.first() {
            scale *= factor;
            steps.remove(0);
        }
        let mut operands = vec![query.clone(), key.clone(), value.clone()];
        let mut score_steps = Vec::new();
        for (step, operand) in steps {
            if let Some((operand, scores)) = operand {
                operands.push(self.score_operand(operand, &scores)?);
            }
            score_steps.push(step);
        }
        let (last, output) = self.result(reader)?;
        let operation = Attention {
            query: query.positions,
            key: key.positions,
            value: value.positions,
            output,
            scale,
            steps: score_steps,
            empty_rows,
            rounded: None,
            part: None,
        };
        let finite = operation.scale.is_finite();
        finite.then_some(Found { last, operation, operands })
    }

    /// The readers of a value that no output is.
    fn only_readers(&self, value: ValueId) -> Option<&[NodeId]> {
        use hone_types::Id;
        (!self.escapes[value.index()]).then_some(&self.readers[value.index()][..])
    }

    /// The product that the scores come from, and the steps on the way to it.
    fn product_above(&self, scores: ValueId) -> Option<(NodeId, Steps)> {
        // A sum's scores may be its left or its right operand: both ways are tried, each once.
        let mut pending: Vec<(ValueId, Steps)> = vec![(scores, Vec::new())];
        for _ in 0..4 * MAX_CHAIN_NODES {
            let (value, steps) = pending.pop()?;
            let producer = self.graph.producer(value)?;
            let node = &self.graph.nodes()[producer];
            let unshared = self.only_readers(value).is_some_and(|readers| readers.len() == 1);
            if !unshared || steps.len() > MAX_CHAIN_NODES {
                continue;
            }
            if node.operation.downcast::<MatMul>().is_some() {
                return Some((producer, steps));
            }
            for (step, from) in self.steps_of(node) {
                let shape = &self.graph.tensor_type(value).shape;
                let from_shape = &self.graph.tensor_type(from).shape;
                let same = match step {
                    Some(_) => from_shape == shape,
                    None => moves_units(from_shape, shape),
                };
                if same {
                    let mut longer = steps.clone();
                    longer.extend(step.map(|(step, operand)| {
                        (step, operand.map(|operand| (operand, shape.clone())))
                    }));
                    pending.push((from, longer));
                }
            }
        }
        None
    }

    /// What a node may be as a step, with what it changes; no step is a reshape.
    #[allow(clippy::type_complexity)]
    fn steps_of(&self, node: &Node<Op>) -> Vec<(Option<(ScoreStep, Option<ValueId>)>, ValueId)> {
        let operation = &node.operation;
        let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        if operation.downcast::<Reshape>().is_some() {
            return vec![(None, inputs[0])];
        }
        let is_tanh = |unary: &Unary| unary.function == UnaryFunction::Tanh;
        if operation.downcast::<Unary>().is_some_and(is_tanh) {
            return vec![(Some((ScoreStep::Tanh, None)), inputs[0])];
        }
        if operation.downcast::<Select>().is_some()
            && let [condition, then, otherwise] = inputs[..]
        {
            let replaced = |instead| Some((ScoreStep::ReplaceWhere { instead }, Some(condition)));
            let kept = |otherwise| Some((ScoreStep::KeepWhere { otherwise }, Some(condition)));
            return match (self.number(then), self.number(otherwise)) {
                (Some(number), None) => vec![(replaced(number), otherwise)],
                (None, Some(number)) => vec![(kept(number), then)],
                _ => vec![],
            };
        }
        let (Some(binary), [left, right]) = (operation.downcast::<Binary>(), &inputs[..]) else {
            return vec![];
        };
        let (left, right) = (*left, *right);
        match (binary.function, self.number(left), self.number(right)) {
            (BinaryFunction::Multiply, None, Some(by)) => {
                vec![(Some((ScoreStep::Multiply(by), None)), left)]
            }
            (BinaryFunction::Multiply, Some(by), None) => {
                vec![(Some((ScoreStep::Multiply(by), None)), right)]
            }
            (BinaryFunction::Divide, None, Some(by)) if (1.0 / by).is_normal() => {
                vec![(Some((ScoreStep::Multiply(1.0 / by), None)), left)]
            }
            (BinaryFunction::Add, _, _) => vec![
                (Some((ScoreStep::Add, Some(left))), right),
                (Some((ScoreStep::Add, Some(right))), left),
            ],
            _ => vec![],
        }
    }

    /// The weights that the values are multiplied with, and what rows without a key give.
    fn weights_below(&self, softmax: ValueId, steps: &Steps) -> Option<(ValueId, EmptyRows)> {
        let readers = self.only_readers(softmax)?;
        let selects = readers.iter().find_map(|reader| {
            let node = &self.graph.nodes()[*reader];
            node.operation.downcast::<Select>().map(|_| node)
        });
        let Some(select) = selects else { return Some((softmax, EmptyRows::NotNumbers)) };
        let (condition, then, otherwise) =
            (select.inputs[0]?, select.inputs[1]?, select.inputs[2]?);
        let same = self.graph.tensor_type(select.outputs[0]).shape
            == self.graph.tensor_type(softmax).shape;
        if otherwise != softmax || self.number(then) != Some(0.0) || !same {
            return None;
        }
        let tested = &self.graph.nodes()[self.graph.producer(condition)?];
        let is_nan = |unary: &Unary| unary.function == UnaryFunction::IsNan;
        if tested.operation.downcast::<Unary>().is_some_and(is_nan)
            && tested.inputs[0] == Some(softmax)
            && readers.len() == 2
            && self.only_readers(condition)?.len() == 1
        {
            return Some((select.outputs[0], EmptyRows::ZeroWhereNan));
        }
        let hides = self.is_hidden_by_bias(tested, steps) && readers.len() == 1;
        hides.then_some((select.outputs[0], EmptyRows::Zero))
    }

    /// Whether a node says of each row that the bias that was added to the scores last is negative infinity
    /// throughout.
    fn is_hidden_by_bias(&self, node: &Node<Op>, steps: &Steps) -> bool {
        let Some((ScoreStep::Add, Some((bias, _)))) = steps.first() else { return false };
        let equal = node.operation.downcast::<Binary>();
        let (Some(maximum), Some(compared)) =
            (node.inputs[0], node.inputs.get(1).copied().flatten())
        else {
            return false;
        };
        let Some(producer) = self.graph.producer(maximum) else { return false };
        let reduction = &self.graph.nodes()[producer];
        let axis = self.graph.tensor_type(*bias).rank().saturating_sub(1);
        equal.is_some_and(|binary| binary.function == BinaryFunction::Equal)
            && self.number(compared) == Some(f64::NEG_INFINITY)
            && reduction.inputs[0] == Some(*bias)
            && reduction.operation.downcast::<Reduce>().is_some_and(|reduce| {
                reduce.function == ReduceFunction::Maximum
                    && reduce.axes == [axis]
                    && reduce.keep_axes
            })
    }

    /// The result's node and the positions of its axes: that of the second product, or of the transposition
    /// that alone reads it.
    fn result(&self, product: NodeId) -> Option<(NodeId, Vec<usize>)> {
        let value = self.graph.nodes()[product].outputs[0];
        let shape = &self.graph.tensor_type(value).shape;
        let plain: Vec<usize> = (0..shape.len()).collect();
        if let Some([reader]) = self.only_readers(value)
            && let Some(transpose) = self.graph.nodes()[*reader].operation.downcast::<Transpose>()
            && transpose.permutation.last() == plain.last()
        {
            return Some((*reader, positions_of_axes(&transpose.permutation, shape)));
        }
        Some((product, positions_of_axes(&plain, shape)))
    }

    /// An operand of the scores of shape `scores`, with queries as neighbours.
    fn score_operand(&self, value: ValueId, scores: &[usize]) -> Option<Operand> {
        let shape = &self.graph.tensor_type(value).shape;
        let missing = scores.len().checked_sub(shape.len())?;
        let padded = [&vec![1; missing][..], shape].concat();
        let last = scores.len() - 2;
        let kept = (0..scores.len()).filter(|axis| *axis >= last || scores[*axis] != 1);
        let shape: Vec<usize> = kept.map(|axis| padded[axis]).collect();
        let mut permutation: Vec<usize> = (0..shape.len()).collect();
        permutation.swap(shape.len() - 2, shape.len() - 1);
        Some(Operand { value, shape, positions: vec![], permutation: Some(permutation) })
    }

    fn number(&self, value: ValueId) -> Option<f64> {
        crate::attention_operands::number(self.graph, value)
    }
}

/// Whether two shapes of scores differ in leading axes of one element alone.
fn moves_units(from: &[usize], to: &[usize]) -> bool {
    let (Some((from, from_last)), Some((to, to_last))) =
        (from.split_last_chunk::<2>(), to.split_last_chunk::<2>())
    else {
        return false;
    };
    let long = |shape: &[usize]| -> Vec<usize> {
        shape.iter().copied().filter(|extent| *extent != 1).collect()
    };
    from_last == to_last && long(from) == long(to)
}
