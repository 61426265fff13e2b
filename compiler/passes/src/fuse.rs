//! Which nodes become one kernel, by the four fusion classes (TVM, OSDI 2018, section 3).
//!
//! A group has at most one *anchor*: a node that is not injective. Injective nodes join the group of
//! the value they read when they are its only reader, so no path leaves a group and comes back. An
//! injective node may also join its only reader, when that reader is a reduction or injective, and then not computed
//! from what an anchor makes. A value
//! with several readers keeps its group open when all paths from it meet again in one node by way of
//! element-wise nodes alone (`x * sigmoid(x)`). Nodes that only convert a reduced-precision number
//! (`free_nodes.rs`) are repeated by every group that reads their result; where one node alone does, they and it join
//! the group that makes the number, as the addition behind a quantized convolution. Groups are bounded
//! (`groups.rs`), and every step takes time in proportion to the nodes and edges of the graph.

use crate::count_masks::{count_masks, is_heavy};
use crate::free_nodes::{extends_float, free_nodes};
use crate::groups::Groups;
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{FusionClass, Graph, Op, PackedDepthwise, Pad, PadMode, Reduce, Unpack};
use hone_types::Id;
use std::collections::BTreeSet;

/// Nodes that become one kernel, in topological order.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The nodes; every value that leaves the group is an output of the last one. A free node
    /// (`free_nodes.rs`) belongs to every group that reads its result.
    pub nodes: Vec<NodeId>,
    /// The node that is not injective, if there is one.
    pub anchor: Option<NodeId>,
}

/// Divides the nodes of a graph into groups, in an order in which they can run.
pub fn fuse(graph: &Graph) -> Vec<Group> {
    let mut fuser = Fuser::new(graph);
    graph.nodes().ids().for_each(|node| fuser.join_diamond(node));
    graph.nodes().ids().for_each(|node| fuser.join_producer(node));
    graph.nodes().ids().rev().for_each(|node| fuser.join_consumer(node));
    fuser.into_groups()
}

/// Maximum element-wise nodes between a value and the node where its paths meet.
const MAX_DIAMOND_NODES: usize = 16;

/// Maximum nodes of a chain in which each reads the one before. Scheduling a kernel takes time that grows with
/// the third power of its stages, and a kernel of this many is bound by arithmetic: one more gains nothing.
const MAX_CHAIN_NODES: usize = 32;

/// Maximum nodes of a branch, whose result a longer chain reads. A branch may join the group of a chain that
/// takes in no further node for itself.
const MAX_BRANCH_NODES: usize = 8;

struct Fuser<'a> {
    graph: &'a Graph,
    /// For each value, the nodes that read it in order; a graph output counts as unknown readers.
    readers: Vec<Vec<NodeId>>,
    escapes: Vec<bool>,
    /// For each node, whether its readers repeat it.
    free: Vec<bool>,
    /// For each node, whether it masks what lies behind a count and all of its result is needed.
    masks: Vec<bool>,
    groups: Groups<'a>,
}

impl<'a> Fuser<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut escapes = vec![false; graph.values().len()];
        graph.outputs().iter().for_each(|port| escapes[port.value.index()] = true);
        graph.extents().iter().for_each(|extent| escapes[extent.value.index()] = true);
        let mut readers = graph.consumers();
        readers.iter_mut().for_each(|nodes| nodes.dedup());
        let free = free_nodes(graph, &readers, &escapes);
        let masks = count_masks(graph, &readers, &escapes);
        Self { graph, readers, escapes, free, masks, groups: Groups::new(graph) }
    }

    fn is_free(&self, node: NodeId) -> bool {
        self.free[node.index()]
    }

    /// Joins an injective node to the group that makes one of its inputs, where it is the only reader.
    fn join_producer(&mut self, node: NodeId) {
        if self.is_free(node)
            || self.class(node) != FusionClass::Injective
            || self.groups.members(node)[0] != node
        {
            return;
        }
        let candidates = self.graph.nodes()[node].inputs.iter().flatten().filter_map(|value| {
            let nodes = self.converted(*value, node)?;
            let producer = *nodes.last()?;
            let fits = self.makes_chain(producer, node) && self.accepts(producer, node, *value);
            fits.then_some(nodes)
        });
        // The heaviest producer gains most from keeping its result in registers.
        let flops = |nodes: &Vec<NodeId>| nodes.last().map(|producer| self.groups.flops(*producer));
        if let Some(nodes) = candidates.max_by_key(flops)
            && self.groups.join(&[&nodes[..], &[node]].concat())
        {
            nodes.iter().for_each(|node| self.free[node.index()] = false);
        }
    }

    /// The nodes that convert a value for its only reader, and in front of them the one that makes what they convert,
    /// which is read for nothing else: last node first. `None` where that is an input or constant, or read elsewhere.
    fn converted(&self, value: ValueId, reader: NodeId) -> Option<Vec<NodeId>> {
        let mut nodes = vec![self.graph.producer(value)?];
        let (mut value, mut reader) = (value, reader);
        while let Some(last) = nodes.last().copied().filter(|last| self.is_free(*last)) {
            if !self.is_only_reader(value, reader) {
                return None;
            }
            (value, reader) = (self.graph.nodes()[last].inputs[0]?, last);
            nodes.push(self.graph.producer(value)?);
        }
        self.is_only_reader(value, reader).then_some(nodes)
    }

    /// Joins the element-wise nodes between a node and the one where all paths from it meet again.
    fn join_diamond(&mut self, node: NodeId) {
        let source = &self.graph.nodes()[node];
        if self.class(node) == FusionClass::Opaque
            || source.outputs.len() != 1
            || self.is_free(node)
        {
            return;
        }
        let value = source.outputs[0];
        if self.escapes[value.index()] || self.readers[value.index()].len() < 2 {
            return;
        }
        if let Some(mut region) = self.diamond(value) {
            region.push(node);
            self.groups.join(&region);
        }
    }

    /// The element-wise nodes that read `value`, directly or not, up to the first through which all
    /// paths go; `None` where there is no such node within [`MAX_DIAMOND_NODES`].
    fn diamond(&self, value: ValueId) -> Option<Vec<NodeId>> {
        let mut region: Vec<NodeId> = Vec::new();
        let mut values = vec![value];
        while region.len() < MAX_DIAMOND_NODES {
            let outside = |value: &ValueId| {
                let mut readers = self.readers[value.index()].iter().copied();
                readers.find(|reader| !region.contains(reader))
            };
            let open: Vec<ValueId> = values
                .iter()
                .copied()
                .filter(|value| self.escapes[value.index()] || outside(value).is_some())
                .collect();
            if let [last] = open[..]
                && region.last().is_some_and(|node| self.graph.nodes()[*node].outputs == [last])
            {
                return Some(region);
            }
            if open.iter().any(|value| self.escapes[value.index()]) {
                return None;
            }
            let next = open.iter().filter_map(outside).min()?;
            let is_joined = self.groups.members(next).len() > 1;
            if !self.keeps_shape(value, next) || is_joined || self.is_free(next) {
                return None;
            }
            region.push(next);
            values.extend(&self.graph.nodes()[next].outputs);
        }
        None
    }

    /// Whether the groups of two nodes are together no longer than a chain may be.
    fn makes_chain(&self, producer: NodeId, reader: NodeId) -> bool {
        let [one, other] = [producer, reader].map(|node| self.groups.members(node).len());
        one + other <= MAX_CHAIN_NODES
    }

    fn accepts(&self, producer: NodeId, node: NodeId, value: ValueId) -> bool {
        let anchor = self.groups.anchor(producer);
        let fits = match anchor.map(|anchor| self.class(anchor)) {
            None => true,
            Some(FusionClass::Opaque) => false,
            Some(_) => self.keeps_shape(value, node),
        };
        fits && self.is_only_reader(value, node)
            && self.class(producer) != FusionClass::Opaque
            && !self.scatters_samples(producer, node)
            && !self.gathers_again(producer, node)
            && !self.stops_before(producer, node)
    }

    /// Whether elements that the group of `node` gathers would be gathered again for each of several elements that `reader`
    /// computes from one, such as an index of rows that is gathered itself.
    fn gathers_again(&self, node: NodeId, reader: NodeId) -> bool {
        let elements = |node: NodeId| -> usize {
            let output = self.graph.nodes()[node].outputs.first();
            output.map_or(0, |output| self.graph.tensor_type(*output).elements())
        };
        self.groups.gathers(node)
            && self.class(reader) == FusionClass::Injective
            && elements(reader) > elements(node)
    }

    /// Whether the group of `producer` is to stop at a count, behind which `mask` stores zeros.
    fn stops_before(&self, producer: NodeId, mask: NodeId) -> bool {
        let value = self.graph.nodes()[producer].outputs[0];
        self.masks[mask.index()] && is_heavy(self.graph, value, self.groups.flops(producer))
    }

    /// Whether `reader` takes channels out of their vectors after `node` interpolated them: finding the
    /// samples would then no longer be done once for all channels of a vector.
    fn scatters_samples(&self, node: NodeId, reader: NodeId) -> bool {
        self.graph.nodes()[reader].operation.downcast::<Unpack>().is_some()
            && self.groups.interpolates(node)
    }

    /// Whether a node's result has the shape of `value`, element for element.
    fn keeps_shape(&self, value: ValueId, node: NodeId) -> bool {
        let Some(output) = self.graph.nodes()[node].outputs.first() else { return false };
        let elementwise = matches!(
            hone_graph::Operation::name(&self.graph.nodes()[node].operation),
            "unary" | "binary" | "cast" | "select"
        );
        elementwise && self.graph.tensor_type(*output).shape == self.graph.tensor_type(value).shape
    }

    /// Joins an injective group to its only reader, where that is injective or a reduction.
    fn join_consumer(&mut self, node: NodeId) {
        if self.groups.anchor(node).is_some() {
            return;
        }
        let output = self.graph.nodes()[node].outputs[0];
        let [reader] = self.readers[output.index()][..] else { return };
        let is_branch = self.groups.members(node).len() <= MAX_BRANCH_NODES;
        if self.escapes[output.index()]
            || !(is_branch || self.makes_chain(node, reader))
            || self.groups.are_joined(node, reader)
            || self.is_free(node)
            || self.is_free(reader)
            || self.scatters_samples(node, reader)
            || self.gathers_again(node, reader)
            || self.stops_before(node, reader)
        {
            return;
        }
        let joins = match self.class(reader) {
            // A reduction would select again for each element of each window.
            FusionClass::Reduction => !self.groups.selects(node),
            FusionClass::Injective => match self.groups.anchor(reader) {
                None => true,
                // Other reductions may read an element in several windows.
                Some(anchor) => {
                    self.graph.nodes()[anchor].operation.downcast::<Reduce>().is_some()
                        && self.leads_to(reader, anchor)
                        && !self.groups.selects(node)
                }
            },
            FusionClass::ComplexOutFusable | FusionClass::Opaque => self.pads_lanes(node, reader),
        };
        if joins {
            self.groups.join(&[reader, node]);
        }
    }

    /// Whether an injective node is computed for the anchor of its group, and not from the anchor's result.
    fn leads_to(&self, node: NodeId, anchor: NodeId) -> bool {
        let mut at = node;
        while at < anchor {
            let readers = &self.readers[self.graph.nodes()[at].outputs[0].index()];
            let next =
                readers.iter().copied().find(|reader| self.groups.are_joined(*reader, anchor));
            // Readers come behind what they read.
            match next {
                Some(next) => at = next,
                None => return false,
            }
        }
        at == anchor
    }

    /// Whether `node` alone pads, with a constant, what `reader` reads in vectors of channels: there a
    /// guarded read costs no more than a plain one. Numbers that are dequantized for `node` are padded first where
    /// windows overlap: most windows are read without guards then, which costs more than reading once more.
    fn pads_lanes(&self, node: NodeId, reader: NodeId) -> bool {
        let reads_vectors = self.graph.nodes()[reader].operation.name() == "packed_depthwise";
        let padding = &self.graph.nodes()[node];
        let constant = padding.operation.downcast::<Pad>().filter(|_| padding.inputs.len() == 1);
        reads_vectors
            && self.groups.members(node).len() == 1
            && constant.is_some_and(|pad| pad.mode == PadMode::Constant)
            && !(self.reads_dequantized(node)
                && windows_overlap(self.graph, &self.graph.nodes()[reader]))
    }

    /// Whether a node repeats a dequantization for itself.
    fn reads_dequantized(&self, node: NodeId) -> bool {
        let mut inputs = self.graph.nodes()[node].inputs.iter().flatten();
        inputs.any(|input| {
            self.graph.producer(*input).is_some_and(|producer| {
                self.is_free(producer) && !extends_float(self.graph, &self.graph.nodes()[producer])
            })
        })
    }

    fn class(&self, node: NodeId) -> FusionClass {
        self.graph.nodes()[node].operation.fusion_class()
    }

    fn is_only_reader(&self, value: ValueId, node: NodeId) -> bool {
        !self.escapes[value.index()] && self.readers[value.index()] == [node]
    }

    /// A group's nodes with the free ones that they read in front.
    fn with_free(&self, members: &[NodeId]) -> Vec<NodeId> {
        let mut nodes: BTreeSet<NodeId> = members.iter().copied().collect();
        let mut pending = members.to_vec();
        while let Some(node) = pending.pop() {
            let inputs = self.graph.nodes()[node].inputs.iter().flatten();
            for producer in inputs.filter_map(|input| self.graph.producer(*input)) {
                if self.is_free(producer) && nodes.insert(producer) {
                    pending.push(producer);
                }
            }
        }
        nodes.into_iter().collect()
    }

    /// The groups, each at the position of its last node: all it reads is computed before that.
    fn into_groups(self) -> Vec<Group> {
        let is_last = |node: &NodeId| self.groups.members(*node).last() == Some(node);
        let last = self.graph.nodes().ids().filter(|node| is_last(node) && !self.is_free(*node));
        last.map(|node| Group {
            nodes: self.with_free(self.groups.members(node)),
            anchor: self.groups.anchor(node),
        })
        .collect()
    }
}

/// Whether a depthwise convolution reads most elements in four windows or more.
pub(crate) fn windows_overlap(graph: &Graph, node: &Node<Op>) -> bool {
    let depthwise = node.operation.downcast::<PackedDepthwise>();
    let strides = depthwise.map_or(&[][..], |depthwise| &depthwise.strides);
    let weights = node.inputs.get(1).copied().flatten();
    let window = weights.map_or(&[][..], |weights| &graph.tensor_type(weights).shape);
    // `[C / c, K.., c]`
    let window = window.iter().skip(1).take(strides.len()).product::<usize>();
    depthwise.is_some() && window >= 4 * strides.iter().product::<usize>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_graph::parse;

    /// The names of the nodes in the kernel of a depthwise convolution of bytes, with windows of 3 × 3.
    fn with_depthwise(stride: usize) -> Vec<String> {
        let side = 6 / stride;
        let text = format!(
            r#"%0 = input "x" u8[1, 1, 6, 6, 8]
%1 = cast "wide" (%0) {{"to":"i32"}} -> i32[1, 1, 6, 6, 8]
%2 = cast "number" (%1) {{"to":"f32"}} -> f32[1, 1, 6, 6, 8]
%3 = constant "scale" f32[] [0.5]
%4 = binary "scaled" (%2, %3) {{"function":"multiply"}} -> f32[1, 1, 6, 6, 8]
%5 = pad "pad" (%4) {{"begin":[0,0,1,1,0],"end":[0,0,1,1,0],"mode":"constant","value":0.0}} -> f32[1, 1, 8, 8, 8]
%6 = constant "weights" f32[1, 3, 3, 8] pattern
%7 = packed_depthwise "sums" (%5, %6) {{"dilations":[1,1],"strides":[{stride},{stride}]}} -> f32[1, 1, {side}, {side}, 8]
output "y" %7
"#
        );
        let graph = parse::<Op>(&text).unwrap();
        let last = fuse(&graph).pop().unwrap();
        last.nodes.iter().map(|node| graph.nodes()[*node].name.clone()).collect()
    }

    #[test]
    fn branches_of_what_a_reduction_sums_are_computed_in_it() {
        let text = r#"%0 = input "x" f32[8, 16]
%1 = input "places" i64[8]
%2 = input "others" i64[8]
%3 = gather "one" (%0, %1) {"axis":0} -> f32[8, 16]
%4 = gather "other" (%0, %2) {"axis":0} -> f32[8, 16]
%5 = binary "added" (%3, %4) {"function":"add"} -> f32[8, 16]
%6 = reduce "sum" (%5) {"axes":[0],"function":"sum","keep_axes":false} -> f32[16]
%7 = input "bias" f32[16]
%8 = unary "small" (%7) {"function":"tanh"} -> f32[16]
%9 = binary "biased" (%6, %8) {"function":"add"} -> f32[16]
output "y" %9
"#;
        let graph = parse::<Op>(text).unwrap();
        let groups = fuse(&graph);
        let names = |group: &Group| -> Vec<String> {
            group.nodes.iter().map(|node| graph.nodes()[*node].name.clone()).collect()
        };
        // What is added to the sum is none of its operands.
        let groups: Vec<Vec<String>> = groups.iter().map(names).collect();
        assert_eq!(groups, [vec!["small"], vec!["one", "other", "added", "sum", "biased"]]);
    }

    /// The kernels of a gather whose index is gathered itself, from a table with rows of `length` elements.
    fn with_gathered_index(length: usize) -> Vec<Vec<String>> {
        let text = format!(
            r#"%0 = input "x" i64[8, 16]
%1 = input "places" i64[8, 4]
%2 = input "table" f32[32, {length}]
%3 = gather_elements "index" (%0, %1) {{"axis":1}} -> i64[8, 4]
%4 = binary "next" (%3, %1) {{"function":"add"}} -> i64[8, 4]
%5 = gather "rows" (%2, %4) {{"axis":0}} -> f32[8, 4, {length}]
%6 = reduce "sum" (%5) {{"axes":[1],"function":"sum","keep_axes":false}} -> f32[8, {length}]
output "y" %6
"#
        );
        let graph = parse::<Op>(&text).unwrap();
        let name = |node: &NodeId| graph.nodes()[*node].name.clone();
        fuse(&graph).iter().map(|group| group.nodes.iter().map(name).collect()).collect()
    }

    #[test]
    fn what_is_gathered_is_not_gathered_again_for_each_element_of_a_row() {
        assert_eq!(with_gathered_index(2), [vec!["index", "next"], vec!["rows", "sum"]]);
        assert_eq!(with_gathered_index(1), [["index", "next", "rows", "sum"]]);
    }

    #[test]
    fn what_reads_a_dequantized_number_alone_joins_the_kernel_that_quantizes_it() {
        let text = |others: &str| {
            format!(
                r#"%0 = input "x" f32[4, 8]
%1 = input "y" f32[8, 8]
%2 = input "skip" f32[4, 8]
%3 = matmul "product" (%0, %1) {{}} -> f32[4, 8]
%4 = unary "round" (%3) {{"function":"round"}} -> f32[4, 8]
%5 = cast "bytes" (%4) {{"to":"u8"}} -> u8[4, 8]
%6 = cast "wide" (%5) {{"to":"i32"}} -> i32[4, 8]
%7 = cast "number" (%6) {{"to":"f32"}} -> f32[4, 8]
%8 = binary "added" (%7, %2) {{"function":"add"}} -> f32[4, 8]
output "z" %8
{others}"#
            )
        };
        let names = |others| -> Vec<Vec<String>> {
            let graph = parse::<Op>(&text(others)).unwrap();
            let name = |node: &NodeId| graph.nodes()[*node].name.clone();
            fuse(&graph).iter().map(|group| group.nodes.iter().map(name).collect()).collect()
        };
        let product = ["product", "round", "bytes"];
        let added = ["wide", "number", "added"];
        assert_eq!(names(""), [[product, added].concat()]);
        // The bytes leave the kernel, so that what reads them converts them for itself.
        assert_eq!(names("output \"w\" %5\n"), [product, added]);
    }

    #[test]
    fn what_overlapping_windows_read_is_dequantized_once() {
        assert_eq!(with_depthwise(1), ["sums"]);
        assert_eq!(with_depthwise(2), ["wide", "number", "scaled", "pad", "sums"]);
    }
}
