//! Disjoint sets of nodes that become one kernel each, with the properties that fusion decides by. Every
//! question costs the same however many nodes a graph has; joining two groups costs the size of both,
//! which is bounded.

use hone_graph::{Node, NodeId, Operation, ValueId};
use hone_ops::{
    FusionClass, Gather, GatherElements, GatherNd, Graph, Op, Resize, ResizeMode, node_flops,
};
use hone_types::Id;

/// Maximum nodes in one group, branches of a chain included.
const MAX_GROUP_NODES: usize = 64;

/// Maximum operations in the expression of one element after every element-wise node was put into its
/// readers. A chain of nodes that read their input twice doubles it with every link.
const MAX_EXPRESSION_OPERATIONS: u64 = 512;

/// The groups of a graph's nodes; at first each node is a group.
pub(crate) struct Groups<'a> {
    graph: &'a Graph,
    /// The group of each node, an index into `groups`.
    group_of: Vec<usize>,
    /// Groups that were joined to others stay behind, empty.
    groups: Vec<Members>,
    /// Scratch memory of `expression_size`, by node; zero outside that function.
    sizes: Vec<u64>,
}

/// The nodes of one group and what they are together.
#[derive(Default)]
struct Members {
    /// In topological order.
    nodes: Vec<NodeId>,
    /// The first node that is not injective.
    anchor: Option<NodeId>,
    flops: u64,
    interpolates: bool,
    selects: bool,
    gathers: bool,
}

impl<'a> Groups<'a> {
    /// Each node of `graph` as a group.
    pub(crate) fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            group_of: (0..graph.nodes().len()).collect(),
            groups: graph.nodes().ids().map(|node| Members::of(graph, node)).collect(),
            sizes: vec![0; graph.nodes().len()],
        }
    }

    /// The nodes of a node's group, in topological order.
    pub(crate) fn members(&self, node: NodeId) -> &[NodeId] {
        &self.group(node).nodes
    }

    /// The first node of a node's group that is not injective.
    pub(crate) fn anchor(&self, node: NodeId) -> Option<NodeId> {
        self.group(node).anchor
    }

    /// Floating-point operations of a node's group.
    pub(crate) fn flops(&self, node: NodeId) -> u64 {
        self.group(node).flops
    }

    /// Whether a node's group computes elements between those that it reads.
    pub(crate) fn interpolates(&self, node: NodeId) -> bool {
        self.group(node).interpolates
    }

    /// Whether a node's group selects for each element which tensor it comes from.
    pub(crate) fn selects(&self, node: NodeId) -> bool {
        self.group(node).selects
    }

    /// Whether a node's group reads elements one by one, at indices that are read themselves.
    pub(crate) fn gathers(&self, node: NodeId) -> bool {
        self.group(node).gathers
    }

    /// Whether two nodes are in one group.
    pub(crate) fn are_joined(&self, one: NodeId, other: NodeId) -> bool {
        self.group_of[one.index()] == self.group_of[other.index()]
    }

    /// Joins the groups of all `nodes`, unless the result is too large for one kernel; says whether it
    /// did.
    pub(crate) fn join(&mut self, nodes: &[NodeId]) -> bool {
        let mut groups: Vec<usize> = nodes.iter().map(|node| self.group_of[node.index()]).collect();
        groups.sort_unstable();
        groups.dedup();
        let count: usize = groups.iter().map(|group| self.groups[*group].nodes.len()).sum();
        if count > MAX_GROUP_NODES {
            return false;
        }
        let mut members: Vec<NodeId> =
            groups.iter().flat_map(|group| self.groups[*group].nodes.iter().copied()).collect();
        members.sort_unstable();
        if self.expression_size(&members) > MAX_EXPRESSION_OPERATIONS {
            return false;
        }
        let mut joined = Members::default();
        for group in &groups {
            joined.add_properties(std::mem::take(&mut self.groups[*group]));
        }
        members.iter().for_each(|node| self.group_of[node.index()] = groups[0]);
        self.groups[groups[0]] = Members { nodes: members, ..joined };
        true
    }

    fn group(&self, node: NodeId) -> &Members {
        &self.groups[self.group_of[node.index()]]
    }

    /// Operations of the largest expression of one element of any of `members` (in topological order).
    fn expression_size(&mut self, members: &[NodeId]) -> u64 {
        let mut maximum = 0;
        for id in members {
            let node = &self.graph.nodes()[*id];
            let read = node.inputs.iter().flatten();
            let size = read.map(|input| self.operand_size(*input)).fold(1, u64::saturating_add);
            maximum = maximum.max(size);
            // What is not injective is stored, and read as an element.
            let is_stored = node.operation.fusion_class() != FusionClass::Injective;
            self.sizes[id.index()] = if is_stored { 1 } else { size };
        }
        members.iter().for_each(|id| self.sizes[id.index()] = 0);
        maximum
    }

    fn operand_size(&self, value: ValueId) -> u64 {
        self.graph.producer(value).map_or(1, |node| self.sizes[node.index()].max(1))
    }
}

impl Members {
    fn of(graph: &Graph, id: NodeId) -> Self {
        let node = &graph.nodes()[id];
        let resize = node.operation.downcast::<Resize>();
        Self {
            nodes: vec![id],
            anchor: (node.operation.fusion_class() != FusionClass::Injective).then_some(id),
            flops: node_flops(graph, node),
            interpolates: resize
                .is_some_and(|resize| !matches!(resize.mode, ResizeMode::Nearest { .. })),
            selects: matches!(node.operation.name(), "concat" | "pad"),
            gathers: gathers_elements(graph, node),
        }
    }

    fn add_properties(&mut self, other: Self) {
        self.anchor = match (self.anchor, other.anchor) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.flops = self.flops.saturating_add(other.flops);
        self.interpolates |= other.interpolates;
        self.selects |= other.selects;
        self.gathers |= other.gathers;
    }
}

/// Whether a node gathers single elements: rows are read in vectors whatever row it is.
fn gathers_elements(graph: &Graph, node: &Node<Op>) -> bool {
    let rank = |input: usize| {
        let value = node.inputs.get(input).copied().flatten();
        value.map_or(0, |value| graph.tensor_type(value).rank())
    };
    let operation = &node.operation;
    if let Some(gather) = operation.downcast::<Gather>() {
        return gather.axis + 1 == rank(0);
    }
    if let Some(gather) = operation.downcast::<GatherNd>() {
        let points = node.inputs.get(1).copied().flatten();
        let tuple = points.and_then(|points| graph.tensor_type(points).shape.last().copied());
        return tuple.is_some_and(|tuple| gather.batch_axes + tuple == rank(0));
    }
    operation.downcast::<GatherElements>().is_some()
}
