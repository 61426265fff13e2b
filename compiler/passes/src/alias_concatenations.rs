//! Lets nodes write what they compute into its place in a concatenation, which then costs no kernel: the concatenation
//! becomes a [`Join`], and whoever lays out memory puts its inputs inside of its result.
//!
//! That is so where each input is a contiguous part of the result (all axes before the joined one have extent 1, as
//! channels of a single image), and where it begins at a multiple of the alignment of buffers. An input that has its place
//! elsewhere (an input or output of the graph, a constant, what is joined a second time) is copied into the result by a
//! node of its own.
//!
//! A concatenation that is already computed in the kernel of what it joins, or of what reads it, copies nothing for
//! itself. What would be kernels of their own is counted against what is no longer copied.

use crate::free_nodes::extends_float;
use crate::separate_outputs::view_roots;
use crate::{Group, PassError, Rewriter, fuse};
use hone_graph::{Definition, Node, NodeId, ValueId};
use hone_ops::{Cast, Concat, Graph, Join, Op};
use hone_types::{DataType, Id, TensorType};
use std::collections::{HashMap, HashSet};

/// What memory asks of a part of a buffer that is written as a buffer of its own.
#[derive(Clone, Copy, Debug)]
pub struct SubBuffers {
    /// Bytes that its beginning is a multiple of.
    pub alignment: usize,
    /// The element type of the arithmetic: `f64` in a model that was lifted to it, of which the same is decided as of the
    /// model itself.
    pub working: DataType,
}

/// Bytes that are copied in the time that one more kernel takes, with the barrier behind it: some microseconds. An estimate,
/// which was not measured by itself.
const KERNEL_BYTES: usize = 32 << 10;

impl SubBuffers {
    fn bytes(self, tensor_type: &TensorType) -> usize {
        match (tensor_type.dtype, self.working) {
            (DataType::F64, DataType::F64) => tensor_type.elements() * DataType::F32.bytes(),
            _ => tensor_type.bytes(),
        }
    }

    /// Whether the inputs of a node that joins them along `axis` are aligned, contiguous parts of its result.
    pub(crate) fn are_inputs_of(self, graph: &Graph, node: &Node<Op>, axis: usize) -> bool {
        let output = graph.tensor_type(node.outputs[0]);
        if output.elements() == 0 || !Join::is_contiguous(&output.shape, axis) {
            return false;
        }
        let mut begin = 0;
        node.inputs.iter().flatten().all(|input| {
            let bytes = self.bytes(graph.tensor_type(*input));
            begin += bytes;
            bytes == 0 || (begin - bytes).is_multiple_of(self.alignment)
        })
    }
}

/// Rewrites concatenations whose inputs can be written in place.
pub fn alias_concatenations(graph: &Graph, sub_buffers: SubBuffers) -> Result<Graph, PassError> {
    if !graph.nodes().iter().any(|(_, node)| node.operation.downcast::<Concat>().is_some()) {
        return Ok(graph.clone());
    }
    let groups = fuse(graph);
    let mut group_of: HashMap<NodeId, &Group> = HashMap::new();
    for group in &groups {
        group_of.extend(group.nodes.iter().map(|node| (*node, group)));
    }
    let mut aliases = Aliases::new(graph, sub_buffers);
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let group = group_of.get(&id).copied();
        let (Some(concat), Some(group)) = (node.operation.downcast::<Concat>(), group) else {
            rewriter.copy(node)?;
            continue;
        };
        let Some(parts) = aliases.parts(id, node, (concat.axis, group)) else {
            rewriter.copy(node)?;
            continue;
        };
        let mut inputs = Vec::with_capacity(parts.len());
        for (value, is_aliased) in parts {
            let to = graph.tensor_type(value).dtype;
            let value = rewriter.value(value);
            inputs.push(match is_aliased {
                true => value,
                false => rewriter.add_simple(&node.name, Cast { to }, &[value])?,
            });
        }
        let output = rewriter.add_simple(&node.name, Join { axis: concat.axis }, &inputs)?;
        rewriter.replace(node.outputs[0], output);
    }
    Ok(rewriter.finish())
}

/// Which memory is already inside of which.
struct Aliases<'a> {
    graph: &'a Graph,
    sub_buffers: SubBuffers,
    /// For each value, the one whose memory it is.
    roots: Vec<ValueId>,
    /// Memory that has its place: of outputs of the graph, and of what is already joined.
    taken: HashSet<ValueId>,
}

impl<'a> Aliases<'a> {
    fn new(graph: &'a Graph, sub_buffers: SubBuffers) -> Self {
        let roots = view_roots(graph);
        let taken = graph.outputs().iter().map(|port| roots[port.value.index()]).collect();
        Self { graph, sub_buffers, roots, taken }
    }

    /// The inputs of a concatenation, and whether each is written in place; they then have their place. `None` where
    /// nothing is gained.
    fn parts(
        &mut self,
        id: NodeId,
        node: &Node<Op>,
        (axis, group): (usize, &Group),
    ) -> Option<Vec<(ValueId, bool)>> {
        if node.inputs.len() < 2 || !self.sub_buffers.are_inputs_of(self.graph, node, axis) {
            return None;
        }
        let mut joined: HashSet<ValueId> = HashSet::new();
        let mut parts = Vec::with_capacity(node.inputs.len());
        // Bytes that are no longer copied, and kernels beside the one that vanishes.
        let (mut saved, mut kernels) = (0, 0);
        for input in node.inputs.iter().flatten() {
            let bytes = self.sub_buffers.bytes(self.graph.tensor_type(*input));
            let root = self.roots[input.index()];
            let is_aliased = bytes == 0 || self.is_free(root) && joined.insert(root);
            let is_fused =
                self.graph.producer(root).is_some_and(|producer| group.nodes.contains(&producer));
            match is_aliased && !is_fused {
                true => saved += bytes,
                false => kernels += 1,
            }
            parts.push((*input, is_aliased));
        }
        let is_last = group.nodes.last() == Some(&id);
        let allowed = if is_last { 1 + saved / KERNEL_BYTES } else { 0 };
        if saved == 0 || kernels > allowed {
            return None;
        }
        self.taken.extend(joined);
        Some(parts)
    }

    /// Whether a computed value may lie inside of another one.
    fn is_free(&self, root: ValueId) -> bool {
        let computed = matches!(self.graph.values()[root].definition, Definition::Output(..));
        // What extends 16-bit numbers is computed by those who read it.
        let is_stored = self
            .graph
            .producer(root)
            .is_some_and(|producer| !extends_float(self.graph, &self.graph.nodes()[producer]));
        computed && is_stored && !self.taken.contains(&root)
    }
}
