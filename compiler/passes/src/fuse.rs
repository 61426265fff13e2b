//! Which nodes become one kernel, by the four fusion classes (TVM, OSDI 2018, section 3).
//!
//! A group has at most one *anchor*: a node that is not injective. Injective nodes join the group of
//! the value they read when they are its only reader, so no path leaves a group and comes back. An
//! injective node may also join its only reader, when that reader is injective or a reduction. A value
//! with several readers keeps its group open when all paths from it meet again in one node by way of
//! element-wise nodes alone (`x * sigmoid(x)`). Widening a narrow value, or making a number of a byte,
//! costs next to nothing: every group that reads the wide one does it for itself.

use hone_graph::{NodeId, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, FusionClass, Graph, Pad, PadMode, Resize, ResizeMode, Unpack,
};
use hone_types::{DataType, Id};

/// Nodes that become one kernel, in topological order.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The nodes; every value that leaves the group is an output of the last one. A node that widens
    /// a narrow value may belong to several groups.
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

/// Most element-wise nodes between a value and the node where its paths meet.
const LARGEST_DIAMOND: usize = 16;

struct Fuser<'a> {
    graph: &'a Graph,
    /// For each value, the nodes that read it; a graph output counts as unknown readers.
    readers: Vec<Vec<NodeId>>,
    escapes: Vec<bool>,
    /// The group of each node, named by one of its nodes.
    group: Vec<usize>,
}

impl<'a> Fuser<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut escapes = vec![false; graph.values().len()];
        graph.outputs().iter().for_each(|port| escapes[port.value.index()] = true);
        let mut readers = graph.consumers();
        readers.iter_mut().for_each(|nodes| nodes.dedup());
        Self { graph, readers, escapes, group: (0..graph.nodes().len()).collect() }
    }

    /// Whether a node widens narrow numbers for other nodes, which they can do for themselves.
    fn is_free(&self, node: NodeId) -> bool {
        let own = &self.graph.nodes()[node];
        let output = own.outputs[0];
        if self.escapes[output.index()] || self.readers[output.index()].is_empty() {
            return false;
        }
        self.widens(node) || (self.dequantizes(node) && self.readers_take_in(output))
    }

    /// Whether a node makes 32-bit numbers of 16-bit ones.
    fn widens(&self, node: NodeId) -> bool {
        let own = &self.graph.nodes()[node];
        let Some(cast) = own.operation.downcast::<Cast>() else { return false };
        let narrow = own.inputs[0].map(|input| self.graph.tensor_type(input).dtype);
        cast.to == DataType::F32 && matches!(narrow, Some(DataType::BF16 | DataType::F16))
    }

    /// Whether a node is one of those that make numbers of bytes: wider, less a constant, times one.
    fn dequantizes(&self, node: NodeId) -> bool {
        let own = &self.graph.nodes()[node];
        let Some(input) = own.inputs[0] else { return false };
        let wide = |dtype: DataType| matches!(dtype, DataType::I32 | DataType::F32);
        if !wide(self.graph.tensor_type(own.outputs[0]).dtype) {
            return false;
        }
        if own.operation.downcast::<Cast>().is_some() {
            let from = self.graph.tensor_type(input).dtype;
            return matches!(from, DataType::U8 | DataType::I8) || self.dequantizes_into(input);
        }
        let by_constant = |value: ValueId| {
            let own = self.graph.constant(value);
            own.is_some_and(|own| own.tensor_type().elements() == 1)
        };
        let simple = own.operation.downcast::<Binary>().is_some_and(|own| {
            matches!(own.function, BinaryFunction::Subtract | BinaryFunction::Multiply)
        });
        simple && own.inputs[1].is_some_and(by_constant) && self.dequantizes_into(input)
    }

    fn dequantizes_into(&self, value: ValueId) -> bool {
        self.graph.producer(value).is_some_and(|node| self.dequantizes(node))
    }

    /// Whether all who read a value compute it in place for nothing: who sums its products does not.
    fn readers_take_in(&self, value: ValueId) -> bool {
        self.readers[value.index()].iter().all(|reader| {
            matches!(self.class(*reader), FusionClass::Injective | FusionClass::Reduction)
        })
    }

    /// Joins an injective node to the group that makes one of its inputs, where it is the only reader.
    fn join_producer(&mut self, node: NodeId) {
        if self.is_free(node) {
            return;
        }
        if self.class(node) != FusionClass::Injective
            || self.members(self.group[node.index()])[0] != node
        {
            return;
        }
        let candidates = self.inputs(node).into_iter().filter(|value| {
            let producer = self.graph.producer(*value);
            let taken = |producer| !self.is_free(producer) && self.accepts(producer, node, *value);
            producer.is_some_and(taken)
        });
        // The heaviest producer gains most from keeping its result in registers.
        let best = candidates.max_by_key(|value| self.weight(*value));
        if let Some(producer) = best.and_then(|value| self.graph.producer(value)) {
            self.merge(producer, node);
        }
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
        if let Some(region) = self.diamond(value) {
            region.into_iter().for_each(|member| self.merge(node, member));
        }
    }

    /// The element-wise nodes that read `value`, directly or not, up to the first through which all
    /// paths go; `None` where there is no such node near.
    fn diamond(&self, value: ValueId) -> Option<Vec<NodeId>> {
        let mut region: Vec<NodeId> = Vec::new();
        let mut values = vec![value];
        while region.len() < LARGEST_DIAMOND {
            let outside = |value: &ValueId| {
                let readers = self.readers[value.index()].iter();
                readers.copied().filter(|reader| !region.contains(reader)).min()
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
            if !self.keeps_shape(value, next) || self.is_joined(next) || self.is_free(next) {
                return None;
            }
            region.push(next);
            values.extend(&self.graph.nodes()[next].outputs);
        }
        None
    }

    /// Whether a node shares its group with another.
    fn is_joined(&self, node: NodeId) -> bool {
        self.group.iter().filter(|group| **group == self.group[node.index()]).count() > 1
    }

    fn accepts(&self, producer: NodeId, node: NodeId, value: ValueId) -> bool {
        let anchored = self.anchor(self.group[producer.index()]);
        let fits = match anchored.map(|anchor| self.class(anchor)) {
            None => true,
            Some(FusionClass::Opaque) => false,
            Some(_) => self.keeps_shape(value, node),
        };
        fits && self.is_only_reader(value, node)
            && self.class(producer) != FusionClass::Opaque
            && !self.scatters_samples(producer, node)
    }

    /// Whether `reader` takes channels out of their vectors that `node` samples between places: what
    /// each place takes to find is then no longer shared by the channels.
    fn scatters_samples(&self, node: NodeId, reader: NodeId) -> bool {
        let sampled = |member: &NodeId| {
            let resize = self.graph.nodes()[*member].operation.downcast::<Resize>();
            resize.is_some_and(|own| !matches!(own.mode, ResizeMode::Nearest { .. }))
        };
        self.graph.nodes()[reader].operation.downcast::<Unpack>().is_some()
            && self.members(self.group[node.index()]).iter().any(sampled)
    }

    /// Whether a node's result has the shape of `value`, element for element.
    fn keeps_shape(&self, value: ValueId, node: NodeId) -> bool {
        let output = self.graph.nodes()[node].outputs[0];
        let elementwise = matches!(
            hone_graph::Operation::name(&self.graph.nodes()[node].operation),
            "unary" | "binary" | "cast" | "select"
        );
        elementwise && self.graph.tensor_type(output).shape == self.graph.tensor_type(value).shape
    }

    /// Joins an injective group to its only reader, where that is injective or a reduction.
    fn join_consumer(&mut self, node: NodeId) {
        if self.anchor(self.group[node.index()]).is_some() {
            return;
        }
        let output = self.graph.nodes()[node].outputs[0];
        let [reader] = self.readers[output.index()][..] else { return };
        let joined = self.group[reader.index()] == self.group[node.index()];
        if self.escapes[output.index()] || joined || self.is_free(node) || self.is_free(reader) {
            return;
        }
        if self.scatters_samples(node, reader) {
            return;
        }
        if self.class(reader) == FusionClass::Reduction && self.selects(node) {
            return;
        }
        let takes_in =
            matches!(self.class(reader), FusionClass::Injective | FusionClass::Reduction);
        let injective_group = self.anchor(self.group[reader.index()]).is_none();
        if self.pads_lanes(node, reader) {
            self.merge(reader, node);
            return;
        }
        let reads_once = self.class(reader) == FusionClass::Injective && injective_group;
        if takes_in && (reads_once || self.class(reader) == FusionClass::Reduction) {
            self.merge(reader, node);
        }
    }

    /// Whether a node's group chooses for each element which tensor it comes from. A reduction would
    /// choose again for each element of each window.
    fn selects(&self, node: NodeId) -> bool {
        self.members(self.group[node.index()]).into_iter().any(|member| {
            let name = hone_graph::Operation::name(&self.graph.nodes()[member].operation);
            matches!(name, "concat" | "pad")
        })
    }

    /// Whether `node` alone pads, with a constant, what `reader` walks in vectors of channels: there a
    /// tested read costs no more than a plain one.
    fn pads_lanes(&self, node: NodeId, reader: NodeId) -> bool {
        let name = |node: NodeId| hone_graph::Operation::name(&self.graph.nodes()[node].operation);
        let alone = self.members(self.group[node.index()]).len() == 1;
        let constant = self.graph.nodes()[node].operation.downcast::<Pad>();
        alone
            && name(reader) == "packed_depthwise"
            && constant.is_some_and(|pad| pad.mode == PadMode::Constant)
    }

    fn class(&self, node: NodeId) -> FusionClass {
        self.graph.nodes()[node].operation.fusion_class()
    }

    fn inputs(&self, node: NodeId) -> Vec<ValueId> {
        self.graph.nodes()[node].inputs.iter().copied().flatten().collect()
    }

    fn is_only_reader(&self, value: ValueId, node: NodeId) -> bool {
        !self.escapes[value.index()] && self.readers[value.index()] == [node]
    }

    /// Work behind a value, to choose between two producers.
    fn weight(&self, value: ValueId) -> u64 {
        let Some(producer) = self.graph.producer(value) else { return 0 };
        let members = self.members(self.group[producer.index()]);
        members.into_iter().map(|node| self.flops(node)).sum()
    }

    fn flops(&self, node: NodeId) -> u64 {
        let node = &self.graph.nodes()[node];
        let inputs: Vec<_> = node
            .inputs
            .iter()
            .map(|input| input.map(|value| self.graph.tensor_type(value)))
            .collect();
        let outputs: Vec<_> =
            node.outputs.iter().map(|value| self.graph.tensor_type(*value).clone()).collect();
        node.operation.flops(&inputs, &outputs)
    }

    fn members(&self, group: usize) -> Vec<NodeId> {
        self.graph.nodes().ids().filter(|node| self.group[node.index()] == group).collect()
    }

    fn anchor(&self, group: usize) -> Option<NodeId> {
        self.members(group).into_iter().find(|node| self.class(*node) != FusionClass::Injective)
    }

    fn merge(&mut self, into: NodeId, from: NodeId) {
        let (into, from) = (self.group[into.index()], self.group[from.index()]);
        self.group.iter_mut().filter(|group| **group == from).for_each(|group| *group = into);
    }

    /// A group's nodes with those that widen what they read in front.
    fn with_free(&self, members: Vec<NodeId>) -> Vec<NodeId> {
        let mut nodes = members.clone();
        let mut pending = members;
        while let Some(node) = pending.pop() {
            let producers =
                self.inputs(node).into_iter().filter_map(|own| self.graph.producer(own));
            for free in producers.filter(|own| self.is_free(*own)) {
                if !nodes.contains(&free) {
                    nodes.push(free);
                    pending.push(free);
                }
            }
        }
        nodes.sort_unstable();
        nodes
    }

    /// The groups, each placed where its last node stands: all it reads is made before that.
    fn into_groups(self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for node in self.graph.nodes().ids() {
            let group = self.group[node.index()];
            let members = self.members(group);
            if members.last() == Some(&node) && !self.is_free(node) {
                let anchor = self.anchor(group);
                groups.push(Group { anchor, nodes: self.with_free(members) });
            }
        }
        groups
    }
}
