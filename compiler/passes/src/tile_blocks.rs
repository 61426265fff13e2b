//! Which values lie in blocks of as many channels as a row of a tile register holds. A convolution on a matrix unit reads
//! the rows of a tile where they lie, if the channels of a block are one of them, and has to copy them otherwise.

use hone_graph::{Node, ValueId};
use hone_machine::MIN_TILE_ROWS;
use hone_ops::{
    Binary, Cast, Concat, Convolution, Graph, GroupNormalization, InstanceNormalization, Op, Pad,
    Pool, Reduce, Reshape, Resize, Unary,
};
use hone_types::DataType;
use std::collections::HashMap;

/// What the readers of a value ask of its blocks; the largest of several wishes counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    #[default]
    Either,
    /// So many channels, which are a row of a tile.
    Tile(usize),
    /// A vector: depthwise convolutions, and what is computed on such blocks alone.
    Vector,
}

/// The rows of tiles on a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileRows {
    /// Bytes in a row.
    pub(crate) bytes: usize,
    /// Whether `f32` numbers are multiplied in tiles, as narrower ones, and how many a group has then.
    pub(crate) products: usize,
}

impl TileRows {
    /// Channels in a row of what a convolution reads, where it is computed in tiles. Weights that are computed are not
    /// laid out for tiles.
    pub(crate) fn channels(
        self,
        graph: &Graph,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Option<usize> {
        let group = match graph.tensor_type(node.inputs[0]?).dtype {
            DataType::I32 => BYTES_IN_GROUP,
            DataType::F32 if self.products > 1 => self.products,
            _ => return None,
        };
        let filters = graph.constant(node.inputs[1]?)?.shape();
        let results = &graph.tensor_type(node.outputs[0]).shape;
        let rows = results[0] * results[2..].iter().product::<usize>();
        let channels = self.bytes / BYTES_IN_GROUP * group;
        let fits =
            convolution.groups == 1 && filters[1].is_multiple_of(channels) && rows >= MIN_TILE_ROWS;
        fits.then_some(channels)
    }
}

/// Bytes of the numbers that are multiplied and summed for one element of a tile at once.
const BYTES_IN_GROUP: usize = 4;

/// The values that products in tiles read, directly or by way of nodes that compute element by element, and that
/// nothing else wants in blocks of a vector; and how many channels their blocks have.
pub(crate) fn tile_values(graph: &Graph, rows: TileRows) -> HashMap<ValueId, usize> {
    let mut wishes: HashMap<ValueId, Wish> = HashMap::new();
    // Readers come behind what they read.
    let nodes: Vec<&Node<Op>> = graph.nodes().iter().map(|(_, node)| node).collect();
    for node in nodes.into_iter().rev() {
        let outputs = node.outputs.iter().map(|output| wishes.get(output).copied());
        let result = outputs.flatten().max().unwrap_or_default();
        for input in node.inputs.iter().flatten() {
            let known = wishes.entry(*input).or_default();
            *known = (*known).max(wish(graph, rows, node, *input, result));
        }
    }
    let fits = |value: ValueId, channels| {
        let shape = &graph.tensor_type(value).shape;
        shape.len() > 2 && shape[1].is_multiple_of(channels)
    };
    let blocks = wishes.into_iter().filter_map(|(value, wish)| match wish {
        Wish::Tile(channels) if fits(value, channels) => Some((value, channels)),
        _ => None,
    });
    blocks.collect()
}

/// What a node asks of an input, where `result` is asked of its result.
fn wish(graph: &Graph, rows: TileRows, node: &Node<Op>, input: ValueId, result: Wish) -> Wish {
    let operation = &node.operation;
    if let Some(convolution) = operation.downcast::<Convolution>() {
        return rows.channels(graph, node, convolution).map_or(Wish::Vector, Wish::Tile);
    }
    let Some(output) = node.outputs.first() else { return Wish::Either };
    let shapes = [input, *output].map(|value| &graph.tensor_type(value).shape);
    if operation.downcast::<Binary>().is_some() {
        return if shapes[0] == shapes[1] { result } else { Wish::Either };
    }
    if operation.downcast::<Concat>().is_some() {
        // Parts that do not fill rows are put together by vectors.
        let mut parts = node.inputs.iter().flatten().map(|part| &graph.tensor_type(*part).shape);
        let mut fill = |row| parts.all(|part| part.len() > 2 && part[1].is_multiple_of(row));
        return match result {
            Wish::Tile(row) if fill(row) => result,
            _ => Wish::Vector,
        };
    }
    let keeps_channels =
        || shapes.iter().all(|shape| shape.len() > 2) && shapes[0][1] == shapes[1][1];
    let passes_on = operation.downcast::<Cast>().is_some()
        || operation.downcast::<Unary>().is_some()
        || operation.downcast::<Pool>().is_some()
        || operation.downcast::<Reduce>().is_some()
        || operation.downcast::<Pad>().is_some()
        || operation.downcast::<Resize>().is_some()
        || (operation.downcast::<Reshape>().is_some() && keeps_channels());
    let is_packed_by_vector = operation.downcast::<InstanceNormalization>().is_some()
        || operation.downcast::<GroupNormalization>().is_some();
    match (passes_on, is_packed_by_vector) {
        (true, _) => result,
        (_, true) => Wish::Vector,
        _ => Wish::Either,
    }
}
