//! Narrow numbers between kernels. What one kernel hands to the next is stored in 16 bits; products
//! are summed by the instructions for that type where both operands can lie as those read them; all
//! else widens what it reads and computes in `f32`, as do sums.
//!
//! A value is narrowed by the group that makes it, so that its last node costs half the memory
//! traffic, and widened by each group that reads it ([`crate::fuse()`] repeats widening for free). It
//! stays wide where a sum of products reads it that is not computed by those instructions, since such
//! a kernel reads each element many times. Groups that only move elements move narrow ones.

use crate::{Group, PassError, Rewriter, fuse};
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{
    Cast, FusionClass, Graph, Op, Operator, PackedConvolution, PackedMatMul, WinogradMultiply,
    interleave, products_of,
};
use hone_types::{DataType, Id};
use std::collections::{HashMap, HashSet};

/// Largest side of Winograd's tiles whose products may be narrow: with larger ones the
/// transformations magnify what rounding takes.
pub(crate) const NARROW_TILE: usize = 2;

/// Stores what passes between kernels as `narrow`, an element type of 16 bits, and multiplies by
/// instructions for it. Nodes for which `keep` holds, and what they read and make, stay in `f32`.
pub fn narrow(
    graph: &Graph,
    narrow: DataType,
    keep: &dyn Fn(&Node<Op>) -> bool,
) -> Result<Graph, PassError> {
    let plan = Plan::new(graph, narrow, keep);
    let mut pass = Narrow {
        graph,
        narrow,
        plan,
        rewriter: Rewriter::new(graph),
        slim: HashMap::new(),
        widened: HashMap::new(),
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
    /// Nodes that become sums of narrow products.
    products: HashSet<NodeId>,
    /// Values that are stored narrow.
    narrowed: HashSet<ValueId>,
    /// Nodes that move narrow elements.
    movers: HashSet<NodeId>,
}

impl Plan {
    fn new(graph: &Graph, narrow: DataType, keep: &dyn Fn(&Node<Op>) -> bool) -> Self {
        let products = graph.nodes().iter();
        let products = products.filter(|(_, node)| !keep(node) && is_product(graph, node, narrow));
        let products = products.map(|(id, _)| id).collect();
        let mut plan = Self { products, narrowed: HashSet::new(), movers: HashSet::new() };
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
            let wide = |reader: &NodeId| {
                let node = &graph.nodes()[*reader];
                keep(node) || plan.reads_wide(*reader, node)
            };
            let readers = &readers[output.index()];
            if graph.tensor_type(output).dtype == DataType::F32
                && !(kept || opaque || escapes.contains(&output) || readers.is_empty())
                && !readers.iter().any(wide)
            {
                plan.narrowed.insert(output);
                if plan.only_moves(graph, &group, &once) {
                    plan.movers.extend(&group.nodes);
                }
            }
        }
        plan
    }

    /// Whether a node reads each element many times, in `f32`.
    fn reads_wide(&self, id: NodeId, node: &Node<Op>) -> bool {
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

    /// Whether a group moves elements alone, all of which can be narrow; those of a value that is read
    /// `once` can be made so on the way.
    fn only_moves(&self, graph: &Graph, group: &Group, once: &dyn Fn(ValueId) -> bool) -> bool {
        group.nodes.iter().all(|id| {
            let node = &graph.nodes()[*id];
            let moves = matches!(
                hone_graph::Operation::name(&node.operation),
                "reshape" | "transpose" | "concat" | "slice" | "pack" | "unpack" | "pad" | "expand"
            );
            moves
                && node.inputs.iter().flatten().all(|input| {
                    let inside =
                        graph.producer(*input).is_some_and(|own| group.nodes.contains(&own));
                    inside
                        || self.narrowed.contains(input)
                        || graph.constant(*input).is_some()
                        || graph.producer(*input).is_none() && once(*input)
                })
        })
    }
}

/// Whether a node can become a sum of narrow products: its weights are constants, and what is summed
/// comes in whole pairs.
fn is_product(graph: &Graph, node: &Node<Op>, narrow: DataType) -> bool {
    let Some(weights) = node.inputs.get(1).copied().flatten().and_then(|own| graph.constant(own))
    else {
        return false;
    };
    let shape = weights.shape();
    let summed = if node.operation.downcast::<PackedConvolution>().is_some() {
        shape.get(shape.len() - 2)
    } else if node.operation.downcast::<PackedMatMul>().is_some() && shape.len() == 3 {
        shape.get(1)
    } else if node.operation.downcast::<WinogradMultiply>().is_some() && shape[0] == NARROW_TILE + 2
    {
        shape.get(4)
    } else {
        None
    };
    let whole = |depth: usize| summed.is_some_and(|summed| summed.is_multiple_of(depth));
    weights.dtype() == DataType::F32 && products_of(narrow).is_some_and(whole)
}

struct Narrow<'a> {
    graph: &'a Graph,
    narrow: DataType,
    plan: Plan,
    rewriter: Rewriter<'a>,
    /// New values that hold an old one narrow.
    slim: HashMap<ValueId, ValueId>,
    /// New values that hold a narrowed one widened.
    widened: HashMap<ValueId, ValueId>,
}

impl Narrow<'_> {
    fn node(&mut self, id: NodeId, node: &Node<Op>) -> Result<(), PassError> {
        if self.plan.movers.contains(&id) {
            return self.mover(node);
        }
        let product = self.plan.products.contains(&id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (place, input) in node.inputs.iter().enumerate() {
            inputs.push(match input {
                None => None,
                Some(input) if product && place == 0 => Some(self.slim(*input, &node.name)?),
                Some(input) if product && place == 1 => Some(self.weights(node, *input)?),
                Some(input) => Some(self.wide(*input, &node.name)?),
            });
        }
        let outputs = self.rewriter.add(&node.name, node.operation.clone(), &inputs)?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.rewriter.replace(*old, new);
            if self.plan.narrowed.contains(old) {
                self.slim(*old, &node.name)?;
            }
        }
        Ok(())
    }

    fn mover(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in node.inputs.iter().flatten() {
            inputs.push(match self.graph.tensor_type(*input).dtype {
                DataType::F32 => self.slim(*input, &node.name)?,
                _ => self.rewriter.value(*input),
            });
        }
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &inputs)?;
        self.slim.insert(node.outputs[0], output);
        Ok(())
    }

    /// The narrow form of an old value.
    fn slim(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        if let Some(slim) = self.slim.get(&old) {
            return Ok(*slim);
        }
        let cast = Cast { to: self.narrow };
        let slim = match self.graph.constant(old) {
            Some(constant) => {
                let tensor = converted(node, cast.reference(&[Some(constant)]))?.remove(0);
                self.rewriter.constant(node, tensor)
            }
            None => {
                let wide = self.rewriter.value(old);
                self.rewriter.add_simple(node, cast, &[wide])?
            }
        };
        self.slim.insert(old, slim);
        Ok(slim)
    }

    /// An old value as nodes outside its group read it in `f32`.
    fn wide(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        if !self.plan.narrowed.contains(&old) {
            return Ok(self.rewriter.value(old));
        }
        if let Some(wide) = self.widened.get(&old) {
            return Ok(*wide);
        }
        let slim = self.slim(old, node)?;
        let wide = self.rewriter.add_simple(node, Cast { to: DataType::F32 }, &[slim])?;
        self.widened.insert(old, wide);
        Ok(wide)
    }

    fn weights(&mut self, node: &Node<Op>, weights: ValueId) -> Result<ValueId, PassError> {
        let Some(constant) = self.graph.constant(weights) else {
            return self.wide(weights, &node.name);
        };
        let tensor = converted(&node.name, interleave(constant, self.narrow))?;
        Ok(self.rewriter.constant(&node.name, tensor))
    }
}

fn converted<T>(node: &str, result: Result<T, hone_ops::OpError>) -> Result<T, PassError> {
    result.map_err(|source| PassError::Constant { node: node.to_string(), source })
}
