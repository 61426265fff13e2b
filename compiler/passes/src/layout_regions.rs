//! Whether it is worth packing channels at all, for whole regions of a graph.
//!
//! Nodes that compute on packed channels and are neighbours form a region: values are packed where they enter it and
//! unpacked where they leave. A convolution of a window of one element is the product of its weights with a matrix of
//! channels and positions, which lie in the order in which a model has them; such a product packs its right operand in panels
//! and unpacks nothing. So a region of no other convolutions is computed plain where that takes less time for all of
//! it together. What a region costs is estimated for packed and plain values in one walk over the graph.

use crate::layout_between::slice_of_blocks;
use crate::packed_operands::{Operands, Weights};
use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{
    Binary, Cast, Concat, Convolution, Graph, GroupNormalization, InstanceNormalization, Op, Pad,
    Pool, Reduce, Reshape, Resize, Slice, Unary,
};
use hone_types::{DataType, Id};
use std::collections::HashSet;

/// What packing an element costs, in multiply-adds of one vector. It is measured: 0.2 to 0.3 ns and a multiply-add each
/// 0.18 ns on an Emerald Rapids.
pub(crate) const PACKING: f64 = 1.4;

/// What unpacking an element costs in the same unit: 0.4 to 0.55 ns there.
pub(crate) const UNPACKING: f64 = 2.5;

/// How much more time the multiply-adds of a product take than those of a convolution on packed channels: 1.04 to 1.07 there.
const PRODUCT: f64 = 1.05;

/// Rows from which the right operand of a product is packed ([`crate::pack_matmul_operands()`]).
const MIN_ROWS: usize = 16;

/// The results of convolutions that are computed as products of plain values, on vectors of `lanes` elements.
pub(crate) fn plain_products(graph: &Graph, lanes: usize, working: DataType) -> HashSet<ValueId> {
    let products = |node: &Node<Op>| Product::of(graph, node, lanes, working).is_some();
    if !graph.nodes().iter().any(|(_, node)| products(node)) {
        return HashSet::new();
    }
    let mut regions = Regions::of(graph, lanes);
    let mut layouts = Layouts { graph, lanes, packed: HashSet::new(), moved: HashSet::new() };
    let nodes: Vec<(NodeId, &Node<Op>)> = graph.nodes().iter().collect();
    for (id, node) in &nodes {
        let root = regions.root(id.index());
        if !is_convolution(node) {
            layouts.pass(node, &mut regions);
        } else if let Some(product) = Product::of(graph, node, lanes, working) {
            let cost = &mut regions.costs[root];
            cost.plain += product.plain;
            cost.packed += product.packed + layouts.pack(product.input);
            layouts.packed.extend(&node.outputs);
            regions.products[root].push(node.outputs[0]);
        } else {
            regions.costs[root].has_others = true;
            layouts.packed.extend(&node.outputs);
        }
    }
    for port in graph.outputs() {
        layouts.unpack(port.value, &mut regions);
    }
    let plain = |cost: &Cost| !cost.has_others && cost.plain < cost.packed;
    let all = regions.costs.iter().zip(regions.products).filter(|(cost, _)| plain(cost));
    all.flat_map(|(_, products)| products).collect()
}

/// A convolution that is a product of two matrices, and what it costs in either layout, but for values that neighbours
/// leave packed or want so.
struct Product {
    input: ValueId,
    plain: f64,
    packed: f64,
}

impl Product {
    fn of(graph: &Graph, node: &Node<Op>, lanes: usize, working: DataType) -> Option<Self> {
        let convolution = node.operation.downcast::<Convolution>()?;
        let operands = Operands::of(graph, node, working)?;
        let input = graph.tensor_type(operands.input);
        let window = &convolution.window;
        let is_product = convolution.groups == 1
            && input.dtype == working
            && input.shape[0] == 1
            && operands.shape[2..].iter().all(|extent| *extent == 1)
            && window.strides.iter().all(|stride| *stride == 1)
            && window.pads_begin.iter().chain(&window.pads_end).all(|pad| *pad == 0);
        let [rows, depth] = [operands.shape[0], operands.shape[1]];
        let columns = input.shape[2..].iter().product::<usize>();
        if !is_product || rows < MIN_ROWS || depth == 0 || columns <= lanes {
            return None;
        }
        let vectors = |rows: usize, depth: usize, columns: usize| {
            rows as f64 * depth as f64 * columns.div_ceil(lanes) as f64
        };
        let is_contiguous = columns.is_multiple_of(lanes) && columns <= 4 * lanes;
        let panels = if is_contiguous { 0.0 } else { PACKING * (depth * columns) as f64 };
        let weights = match operands.weights {
            Weights::Constant(_) => 0.0,
            Weights::Computed(_) => PACKING * (rows * depth) as f64,
        };
        Some(Self {
            input: operands.input,
            plain: PRODUCT * vectors(rows, depth, columns) + panels,
            packed: vectors(columns, depth.next_multiple_of(lanes.min(depth)), rows) + weights,
        })
    }
}

/// What the convolutions of a region cost.
#[derive(Clone, Default)]
struct Cost {
    plain: f64,
    packed: f64,
    /// Whether some of them are no products.
    has_others: bool,
}

/// Nodes that are neighbours, by index of a node.
struct Regions {
    /// Another node of the same region, nearer to its root; a root's own.
    parents: Vec<usize>,
    /// By root.
    costs: Vec<Cost>,
    /// By root: results of products.
    products: Vec<Vec<ValueId>>,
}

impl Regions {
    fn of(graph: &Graph, lanes: usize) -> Self {
        let count = graph.nodes().len();
        let (costs, products) = (vec![Cost::default(); count], vec![Vec::new(); count]);
        let mut regions = Self { parents: (0..count).collect(), costs, products };
        for (id, node) in graph.nodes().iter() {
            for input in node.inputs.iter().flatten().filter(|_| may_be_packed(graph, node, lanes))
            {
                let Some(producer) = graph.producer(*input) else { continue };
                if graph.tensor_type(*input).rank() > 2
                    && may_be_packed(graph, &graph.nodes()[producer], lanes)
                {
                    let (a, b) = (regions.root(id.index()), regions.root(producer.index()));
                    regions.parents[a.max(b)] = a.min(b);
                }
            }
        }
        regions
    }

    fn root(&mut self, node: usize) -> usize {
        let mut root = node;
        while self.parents[root] != root {
            self.parents[root] = self.parents[self.parents[root]];
            root = self.parents[root];
        }
        root
    }
}

/// Which values are packed as the graph is walked.
struct Layouts<'a> {
    graph: &'a Graph,
    /// Channels in a block.
    lanes: usize,
    packed: HashSet<ValueId>,
    /// Values that exist in both forms.
    moved: HashSet<ValueId>,
}

impl Layouts<'_> {
    /// What it costs that a value is there packed.
    fn pack(&mut self, value: ValueId) -> f64 {
        let is_there = self.packed.contains(&value) || !self.moved.insert(value);
        if is_there { 0.0 } else { PACKING * self.graph.tensor_type(value).elements() as f64 }
    }

    /// Adds to the region that makes it what it costs that a value is there plain.
    fn unpack(&mut self, value: ValueId, regions: &mut Regions) {
        if let Some(producer) = self.graph.producer(value)
            && self.packed.contains(&value)
            && self.moved.insert(value)
        {
            let root = regions.root(producer.index());
            regions.costs[root].packed +=
                UNPACKING * self.graph.tensor_type(value).elements() as f64;
        }
    }

    /// A node that is no convolution: on packed values where one of its inputs is.
    fn pass(&mut self, node: &Node<Op>, regions: &mut Regions) {
        let inputs = node.inputs.iter().flatten();
        let any = inputs.clone().any(|input| self.packed.contains(input));
        if any && may_be_packed(self.graph, node, self.lanes) {
            self.packed.extend(&node.outputs);
        } else {
            inputs.for_each(|input| self.unpack(*input, regions));
        }
    }
}

pub(crate) fn is_convolution(node: &Node<Op>) -> bool {
    node.operation.downcast::<Convolution>().is_some()
}

/// Whether a node is of a kind that computes on packed channels.
pub(crate) fn may_be_packed(graph: &Graph, node: &Node<Op>, lanes: usize) -> bool {
    let operation = &node.operation;
    let shape = |value: ValueId| &graph.tensor_type(value).shape;
    if let Some(reshape) = operation.downcast::<Reshape>() {
        let from = node.inputs[0].map_or(&[][..], |input| shape(input));
        return from.len() > 2 && reshape.shape.get(..2) == Some(&from[..2]);
    }
    if let Some(slice) = operation.downcast::<Slice>() {
        let from = node.inputs[0].map_or(&[][..], |input| shape(input));
        return slice_of_blocks(slice, from, lanes).is_some();
    }
    let channels = operation.downcast::<Concat>().is_none_or(|concat| concat.axis == 1);
    let kinds = [
        operation.downcast::<Convolution>().is_some(),
        operation.downcast::<Unary>().is_some(),
        operation.downcast::<Binary>().is_some(),
        operation.downcast::<Cast>().is_some(),
        operation.downcast::<Pool>().is_some(),
        operation.downcast::<Reduce>().is_some(),
        operation.downcast::<Concat>().is_some(),
        operation.downcast::<Resize>().is_some(),
        operation.downcast::<Pad>().is_some(),
        operation.downcast::<GroupNormalization>().is_some(),
        operation.downcast::<InstanceNormalization>().is_some(),
    ];
    channels && kinds.contains(&true)
}
