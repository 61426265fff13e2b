//! Reduced precision between kernels. What one kernel hands to the next is stored in 16 bits; products
//! are summed by the instructions for that type where both operands can be laid out as those read them; all
//! else extends what it reads to `f32` and computes in `f32`, as do sums.
//!
//! A value is converted to 16 bits by the group that computes it, so that its last node costs half the memory
//! traffic, and extended by each group that reads it ([`crate::fuse()`] repeats that for free). It stays in
//! `f32` where a sum of products reads it that is not computed by those instructions, since such a kernel reads
//! each element many times. Groups that only move elements move those of 16 bits.

use crate::{Group, PassError, Rewriter, fuse};
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{
    Attention, Cast, FusionClass, Graph, MatMul, Op, Operator, PackedConvolution, PackedMatMul,
    WinogradMultiply, interleave, products_of,
};
use hone_types::{DataType, Id};
use std::collections::{HashMap, HashSet};

/// Maximum side of Winograd's tiles whose products may be of reduced precision: with larger ones the
/// transforms magnify rounding errors.
pub(crate) const MAX_REDUCED_TILE: usize = 2;

/// Stores what passes between kernels as `reduced`, an element type of 16 bits, and multiplies by
/// instructions for it. Nodes that satisfy `keep`, what they read and what they compute stay in `f32`.
pub fn narrow(
    graph: &Graph,
    reduced: DataType,
    keep: &dyn Fn(&Node<Op>) -> bool,
) -> Result<Graph, PassError> {
    run(graph, reduced, keep, (&is_product, false))
}

/// The same for devices whose instructions read operands in their plain order: products of matrices and convolutions on
/// packed channels, with constant operands or computed ones, have both operands rounded to `reduced` and are summed in `f32`.
pub fn narrow_plain(
    graph: &Graph,
    reduced: DataType,
    keep: &dyn Fn(&Node<Op>) -> bool,
) -> Result<Graph, PassError> {
    run(graph, reduced, keep, (&is_plain_product, true))
}

/// Whether a node becomes a sum of products of reduced precision; and whether instructions read their operands as `f32` that
/// was rounded.
type Chosen<'a> = (&'a dyn Fn(&Graph, &Node<Op>, DataType) -> bool, bool);

fn run(
    graph: &Graph,
    reduced: DataType,
    keep: &dyn Fn(&Node<Op>) -> bool,
    chosen: Chosen<'_>,
) -> Result<Graph, PassError> {
    let plan = Plan::new(graph, reduced, keep, chosen);
    let mut pass = ReducedPrecision {
        graph,
        reduced,
        plan,
        plain: chosen.1,
        rewriter: Rewriter::new(graph),
        reduced_values: HashMap::new(),
        extended_values: HashMap::new(),
    };
    for (id, node) in graph.nodes().iter() {
        if pass.rewriter.is_needed(id) {
            pass.node(id, node)?;
        }
    }
    Ok(pass.rewriter.finish())
}

/// What is decided before anything is rewritten.
struct Plan {
    /// Nodes that become sums of products of reduced precision.
    products: HashSet<NodeId>,
    /// Values that are stored in reduced precision.
    stored_reduced: HashSet<ValueId>,
    /// Nodes that move elements of reduced precision.
    movers: HashSet<NodeId>,
}

impl Plan {
    fn new(
        graph: &Graph,
        reduced: DataType,
        keep: &dyn Fn(&Node<Op>) -> bool,
        chosen: Chosen<'_>,
    ) -> Self {
        let products = graph.nodes().iter();
        let products = products.filter(|(_, node)| !keep(node) && chosen.0(graph, node, reduced));
        let products = products.map(|(id, _)| id).collect();
        let mut plan = Self { products, stored_reduced: HashSet::new(), movers: HashSet::new() };
        let readers = graph.consumers();
        let escapes: HashSet<ValueId> = graph.outputs().iter().map(|port| port.value).collect();
        for group in fuse(graph) {
            let Some(last) = group.nodes.last() else { continue };
            let node = &graph.nodes()[*last];
            let [output] = node.outputs[..] else { continue };
            let kept = group.nodes.iter().any(|id| keep(&graph.nodes()[*id]));
            let opaque = group.anchor.is_some_and(|anchor| {
                graph.nodes()[anchor].operation.fusion_class() == FusionClass::Opaque
            });
            let once =
                |value: ValueId| readers[value.index()].len() == 1 && !escapes.contains(&value);
            let needs_f32 = |reader: &NodeId| {
                let node = &graph.nodes()[*reader];
                keep(node) || plan.reads_often(*reader, node)
            };
            let readers = &readers[output.index()];
            if graph.tensor_type(output).dtype == DataType::F32
                && !(kept || opaque || escapes.contains(&output) || readers.is_empty())
                && !readers.iter().any(needs_f32)
            {
                plan.stored_reduced.insert(output);
                if plan.only_moves(graph, &group, &once) {
                    plan.movers.extend(&group.nodes);
                }
            }
        }
        plan
    }

    /// Whether a node reads each element many times, in `f32`.
    fn reads_often(&self, id: NodeId, node: &Node<Op>) -> bool {
        let repeats = matches!(
            node.operation.fusion_class(),
            FusionClass::ComplexOutFusable | FusionClass::Opaque
        );
        let few = matches!(
            hone_graph::Operation::name(&node.operation),
            "packed_depthwise" | "winograd_input"
        );
        repeats && !few && !self.products.contains(&id)
    }

    /// Whether a group moves elements alone, all of which can be of reduced precision; those of a value that is
    /// read `once` can be converted on the way.
    fn only_moves(&self, graph: &Graph, group: &Group, once: &dyn Fn(ValueId) -> bool) -> bool {
        group.nodes.iter().all(|id| {
            let node = &graph.nodes()[*id];
            let moves = matches!(
                hone_graph::Operation::name(&node.operation),
                "reshape" | "transpose" | "concat" | "slice" | "pack" | "unpack" | "pad" | "expand"
            );
            moves
                && node.inputs.iter().flatten().all(|input| {
                    let inside = graph
                        .producer(*input)
                        .is_some_and(|producer| group.nodes.contains(&producer));
                    inside
                        || self.stored_reduced.contains(input)
                        || graph.constant(*input).is_some()
                        || graph.producer(*input).is_none() && once(*input)
                })
        })
    }
}

/// Whether a node can become a sum of products of reduced precision: its weights are constants, and what is
/// summed comes in whole pairs.
fn is_product(graph: &Graph, node: &Node<Op>, reduced: DataType) -> bool {
    let Some(weights) =
        node.inputs.get(1).copied().flatten().and_then(|value| graph.constant(value))
    else {
        return false;
    };
    let shape = weights.shape();
    let summed = if node.operation.downcast::<PackedConvolution>().is_some() {
        shape.get(shape.len() - 2)
    } else if node.operation.downcast::<PackedMatMul>().is_some() && shape.len() == 3 {
        shape.get(1)
    } else if node.operation.downcast::<WinogradMultiply>().is_some()
        && shape[0] == MAX_REDUCED_TILE + 2
    {
        shape.get(shape.len() - 2)
    } else {
        None
    };
    let whole = |depth: usize| summed.is_some_and(|summed| summed.is_multiple_of(depth));
    weights.dtype() == DataType::F32 && products_of(reduced).is_some_and(whole)
}

/// Operands of a node that are multiplied with one another: those of an attention are queries, keys and values.
fn factors(node: &Node<Op>) -> usize {
    if node.operation.downcast::<Attention>().is_some() { 3 } else { 2 }
}

/// The operation of a node that is a sum of products of reduced precision: an attention's weights are multiplied, too.
fn rounding(node: &Node<Op>, reduced: DataType) -> Op {
    match node.operation.downcast::<Attention>() {
        Some(attention) => Attention { rounded: Some(reduced), ..attention.clone() }.into(),
        None => node.operation.clone(),
    }
}

/// Whether a node is a product of matrices of `f32`, a convolution of them, or an attention.
fn is_plain_product(graph: &Graph, node: &Node<Op>, _: DataType) -> bool {
    let operands = node.inputs.iter().take(factors(node)).flatten();
    let operands = operands.map(|input| graph.tensor_type(*input));
    let operation = &node.operation;
    (operation.downcast::<MatMul>().is_some()
        || operation.downcast::<Attention>().is_some()
        || operation.downcast::<PackedConvolution>().is_some())
        && operands.into_iter().all(|operand| operand.dtype == DataType::F32 && operand.rank() >= 2)
}

struct ReducedPrecision<'a> {
    graph: &'a Graph,
    reduced: DataType,
    plan: Plan,
    /// Whether products read operands as `f32` that was rounded.
    plain: bool,
    rewriter: Rewriter<'a>,
    /// The new value of reduced precision for each old one.
    reduced_values: HashMap<ValueId, ValueId>,
    /// The new `f32` value for each old one that is stored in reduced precision, or read so by a product.
    extended_values: HashMap<ValueId, ValueId>,
}

impl ReducedPrecision<'_> {
    fn node(&mut self, id: NodeId, node: &Node<Op>) -> Result<(), PassError> {
        if self.plan.movers.contains(&id) {
            return self.mover(node);
        }
        let product = self.plan.products.contains(&id);
        let plain = product && self.plain;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (index, input) in node.inputs.iter().enumerate() {
            inputs.push(match input {
                None => None,
                Some(input) if plain && index < factors(node) => {
                    Some(self.rounded(*input, &node.name)?)
                }
                Some(input) if plain => Some(self.extended(*input, &node.name)?),
                Some(input) if product && index == 0 => Some(self.reduced(*input, &node.name)?),
                Some(input) if product && index == 1 => Some(self.weights(node, *input)?),
                Some(input) => Some(self.extended(*input, &node.name)?),
            });
        }
        let operation = match plain {
            true => rounding(node, self.reduced),
            false => node.operation.clone(),
        };
        let outputs = self.rewriter.add(&node.name, operation, &inputs)?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.rewriter.replace(*old, new);
            if self.plan.stored_reduced.contains(old) {
                self.reduced(*old, &node.name)?;
            }
        }
        Ok(())
    }

    fn mover(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in node.inputs.iter().flatten() {
            inputs.push(match self.graph.tensor_type(*input).dtype {
                DataType::F32 => self.reduced(*input, &node.name)?,
                _ => self.rewriter.value(*input),
            });
        }
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &inputs)?;
        self.reduced_values.insert(node.outputs[0], output);
        Ok(())
    }

    /// An old value in reduced precision.
    fn reduced(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        if let Some(reduced) = self.reduced_values.get(&old) {
            return Ok(*reduced);
        }
        let cast = Cast { to: self.reduced };
        let reduced = match self.graph.constant(old) {
            Some(constant) => {
                let tensor = converted(node, cast.reference(&[Some(constant)]))?.remove(0);
                self.rewriter.constant(node, tensor)
            }
            None => {
                let exact = self.rewriter.value(old);
                self.rewriter.add_simple(node, cast, &[exact])?
            }
        };
        self.reduced_values.insert(old, reduced);
        Ok(reduced)
    }

    /// An old value as nodes outside its group read it in `f32`.
    fn extended(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        match self.plan.stored_reduced.contains(&old) {
            true => self.rounded(old, node),
            false => Ok(self.rewriter.value(old)),
        }
    }

    /// An old value in `f32`, rounded to reduced precision.
    fn rounded(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        if let Some(extended) = self.extended_values.get(&old) {
            return Ok(*extended);
        }
        let reduced = self.reduced(old, node)?;
        let extended = self.rewriter.add_simple(node, Cast { to: DataType::F32 }, &[reduced])?;
        self.extended_values.insert(old, extended);
        Ok(extended)
    }

    fn weights(&mut self, node: &Node<Op>, weights: ValueId) -> Result<ValueId, PassError> {
        let Some(constant) = self.graph.constant(weights) else {
            return self.extended(weights, &node.name);
        };
        let tensor = converted(&node.name, interleave(constant, self.reduced))?;
        Ok(self.rewriter.constant(&node.name, tensor))
    }
}

fn converted<T>(node: &str, result: Result<T, hone_ops::OpError>) -> Result<T, PassError> {
    result.map_err(|source| PassError::Constant { node: node.to_string(), source })
}
