//! Chooses the channel-packed layout for convolutions and the nodes between them.
//!
//! A value of shape `[N, C, X..]` may exist plain, packed as `[N, C / c, X.., c]`, or both. A
//! convolution makes its result packed, but for regions where that is not worth it (`layout_regions.rs`); nodes that
//! compute channel by channel take and give packed values; every other node gets plain ones. The filler lanes past the last channel of a packed value hold
//! numbers that never reach a result: weights there are zero. They must stay finite (`filler.rs`), so
//! other functions are left to plain values unless the channels fill their blocks. A block is the lanes of a vector, or a
//! row of a tile register where tiles are multiplied (`tile_blocks.rs`). Convolutions are in `layout_convolution.rs`, the
//! nodes between them in `layout_between.rs`.

use crate::filler::Filler;
use crate::graph_decisions::GraphDecisions;
use crate::layout_positions::by_positions;
use crate::layout_regions::plain_products;
use crate::packed_operands::Operands;
use crate::tile_blocks::{TileRows, tile_values};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{
    Binary, Cast, Concat, Convolution, Graph, GroupNormalization, InstanceNormalization, Op, Pack,
    Pad, Pool, Reduce, Reshape, Resize, Slice, Unary, Unpack,
};
use hone_types::DataType;
use std::collections::{HashMap, HashSet};

/// What the target asks of a layout.
#[derive(Clone, Copy, Debug)]
pub struct LayoutOptions<'a> {
    /// Channels in a block: the lanes of one vector.
    pub block: usize,
    /// Products that one instruction sums in each lane: more than one where they will be of reduced precision
    /// ([`crate::narrow()`]).
    pub products: usize,
    /// Whether integers are multiplied as such.
    pub integers: bool,
    /// Bytes in a row of a tile register, where bytes and numbers of reduced precision are multiplied in tiles.
    pub tile_row: Option<usize>,
    /// Figures by which Winograd convolution is chosen; `None` leaves every convolution direct.
    pub rates: Option<Rates>,
    /// The element type of the values that are packed: `f32`, or `f64` in a model that was lifted to it.
    pub working: DataType,
    /// Notes what is decided, and what was measured of it; `None` where the analytic model decides alone.
    pub decisions: Option<&'a GraphDecisions>,
}

/// Rewrites convolutions and their neighbours to packed layouts.
pub fn choose_layouts(graph: &Graph, options: LayoutOptions<'_>) -> Result<Graph, PassError> {
    rewritten(graph, Layout::new(graph, options))
}

/// The same for a device that multiplies matrices of `block` numbers of the depth at once and copies `chunk` of them:
/// channels lie in blocks of `block`, fewer than that in whole chunks, and convolutions pad what they read themselves.
pub fn choose_device_layouts(
    graph: &Graph,
    [block, chunk]: [usize; 2],
    working: DataType,
) -> Result<Graph, PassError> {
    let options = device_options([block, chunk], false, working);
    rewritten(graph, Layout { pads_within: true, ..Layout::new(graph, options) })
}

/// The same where integers are multiplied as such, and convolutions of other numbers stay as they are: of bytes, of which
/// `block` are a round of the depth.
pub fn choose_device_integer_layouts(
    graph: &Graph,
    [block, chunk]: [usize; 2],
    working: DataType,
) -> Result<Graph, PassError> {
    let layout = Layout::new(graph, device_options([block, chunk], true, working));
    let wanted = HashSet::new();
    rewritten(graph, Layout { pads_within: true, integers_alone: true, wanted, ..layout })
}

fn device_options(
    [block, products]: [usize; 2],
    integers: bool,
    working: DataType,
) -> LayoutOptions<'static> {
    let (tile_row, rates, decisions) = (None, None, None);
    LayoutOptions { block, products, integers, tile_row, rates, working, decisions }
}

fn rewritten(graph: &Graph, mut layout: Layout<'_>) -> Result<Graph, PassError> {
    for (id, node) in graph.nodes().iter() {
        if layout.rewriter.is_needed(id) && !layout.pack_node(node)? {
            layout.copy_plain(node)?;
        }
    }
    for port in graph.outputs() {
        layout.plain(port.value, "output")?;
    }
    Ok(layout.rewriter.finish())
}

/// A graph while its layouts are chosen.
pub(crate) struct Layout<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) rewriter: Rewriter<'a>,
    /// Channels in a block.
    pub(crate) block: usize,
    pub(crate) products: usize,
    integers: bool,
    /// Whether convolutions of other numbers stay plain.
    integers_alone: bool,
    /// What is multiplied in tiles, where anything is.
    pub(crate) tile_rows: Option<TileRows>,
    pub(crate) rates: Option<Rates>,
    pub(crate) decisions: Option<&'a GraphDecisions>,
    /// Whether convolutions pad what they read, so that nothing writes it padded.
    pub(crate) pads_within: bool,
    /// As [`LayoutOptions::working`].
    pub(crate) working: DataType,
    /// New values that hold an old one packed.
    packed: HashMap<ValueId, ValueId>,
    /// The same in blocks of another size, by that size.
    packed_again: HashMap<(ValueId, usize), ValueId>,
    /// Old values that lie in rows of tiles where they are computed packed, and the channels of such a row.
    in_tiles: HashMap<ValueId, usize>,
    /// What the filler of packed values holds, by old value; zero where nothing is noted.
    fillers: HashMap<ValueId, Filler>,
    /// Old values that exist plain in the new graph (constants and inputs always do).
    plain: HashMap<ValueId, ValueId>,
    /// Old values that nothing reads but packed.
    pub(crate) wanted: HashSet<ValueId>,
    /// Results of convolutions that are computed as products of plain values.
    products_of_plain: HashSet<ValueId>,
    /// Results of convolutions that are computed on vectors of positions, of plain values.
    by_positions: HashSet<ValueId>,
}

impl<'a> Layout<'a> {
    fn new(graph: &'a Graph, options: LayoutOptions<'a>) -> Self {
        let LayoutOptions { block, products, integers, tile_row, rates, working, decisions } =
            options;
        let tile_rows = tile_row.map(|bytes| TileRows { bytes, products });
        let rewriter = Rewriter::new(graph);
        // Numbers of reduced precision are multiplied by packed weights.
        let products_of_plain = match products {
            1 => plain_products(graph, block, working),
            _ => HashSet::new(),
        };
        let by_positions = match products {
            1 => by_positions(graph, block, (working, rates.as_ref()), &products_of_plain),
            _ => HashSet::new(),
        };
        let plain = &products_of_plain | &by_positions;
        Self {
            graph,
            rewriter,
            block,
            products,
            integers,
            integers_alone: false,
            tile_rows,
            rates,
            decisions,
            pads_within: false,
            working,
            packed: HashMap::new(),
            packed_again: HashMap::new(),
            in_tiles: tile_rows.map_or_else(HashMap::new, |rows| tile_values(graph, rows)),
            fillers: HashMap::new(),
            plain: HashMap::new(),
            wanted: wanted_packed(graph, working, &plain),
            products_of_plain,
            by_positions,
        }
    }

    /// Rewrites a node on packed values where that is possible and worth it; says whether it did.
    fn pack_node(&mut self, node: &Node<Op>) -> Result<bool, PassError> {
        let operation = &node.operation;
        if node.outputs.iter().any(|output| self.products_of_plain.contains(output)) {
            return self.product_of_plain(node);
        }
        if let Some(convolution) = operation.downcast::<Convolution>() {
            if node.outputs.iter().any(|output| self.by_positions.contains(output)) {
                return self.convolution_by_positions(node, convolution);
            }
            let done = self.integers && self.integer_convolution(node, convolution)?;
            return match done || self.integers_alone {
                true => Ok(done),
                false => self.convolution(node, convolution),
            };
        }
        if operation.downcast::<Cast>().is_some() {
            return self.cast(node);
        }
        if let Some(normalization) = operation.downcast::<InstanceNormalization>() {
            return self.normalization(node, None, normalization.epsilon);
        }
        if let Some(normalization) = operation.downcast::<GroupNormalization>() {
            return self.normalization(node, Some(normalization.groups), normalization.epsilon);
        }
        if let Some(unary) = operation.downcast::<Unary>() {
            return self.unary(node, unary);
        }
        if let Some(binary) = operation.downcast::<Binary>() {
            return self.binary(node, binary);
        }
        if let Some(pool) = operation.downcast::<Pool>() {
            return self.pool(node, pool);
        }
        if let Some(reduce) = operation.downcast::<Reduce>() {
            return self.reduce(node, reduce);
        }
        if let Some(reshape) = operation.downcast::<Reshape>() {
            return self.reshape(node, reshape);
        }
        if let Some(concat) = operation.downcast::<Concat>() {
            return self.concat(node, concat);
        }
        if let Some(slice) = operation.downcast::<Slice>() {
            return self.slice(node, slice);
        }
        if let Some(resize) = operation.downcast::<Resize>() {
            return self.resize(node, resize);
        }
        if let Some(pad) = operation.downcast::<Pad>() {
            return self.pad(node, pad);
        }
        Ok(false)
    }

    /// Whether layouts are those of a device.
    pub(crate) fn is_device(&self) -> bool {
        self.pads_within
    }

    fn copy_plain(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        for input in node.inputs.iter().flatten() {
            self.plain(*input, &node.name)?;
        }
        self.rewriter.copy(node)?;
        for output in &node.outputs {
            let value = self.rewriter.value(*output);
            self.plain.insert(*output, value);
        }
        Ok(())
    }

    /// The plain form of an old value, unpacked when first asked for.
    pub(crate) fn plain(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        if let Some(plain) = self.plain.get(&old) {
            return Ok(*plain);
        }
        let plain = match self.packed.get(&old) {
            None => self.rewriter.value(old),
            Some(packed) => {
                let extent = self.shape(old)[1];
                let plain =
                    self.rewriter.add_simple(node, Unpack { axis: 1, extent }, &[*packed])?;
                self.rewriter.replace(old, plain);
                plain
            }
        };
        self.plain.insert(old, plain);
        Ok(plain)
    }

    /// The form of an old value that is packed in blocks of so many channels, packed when first asked for. What lies in
    /// blocks of another size is packed again: for vectors what lies in rows of tiles, in whole vectors what a convolution
    /// reads in smaller blocks, and the other way round.
    pub(crate) fn packed(
        &mut self,
        old: ValueId,
        block: usize,
        node: &str,
    ) -> Result<ValueId, PassError> {
        let known = self.packed.get(&old).copied();
        if let Some(packed) = known {
            if self.block_of_packed(packed) == block {
                return Ok(packed);
            }
            if let Some(again) = self.packed_again.get(&(old, block)) {
                return Ok(*again);
            }
        }
        let plain = self.plain(old, node)?;
        let packed = self.rewriter.add_simple(node, Pack { axis: 1, block }, &[plain])?;
        match known {
            None => self.packed.insert(old, packed),
            Some(_) => self.packed_again.insert((old, block), packed),
        };
        Ok(packed)
    }

    /// Channels in a block of an old value that exists packed, in blocks of any size.
    pub(crate) fn any_block_of(&self, old: ValueId) -> Option<usize> {
        self.packed.get(&old).map(|packed| self.block_of_packed(*packed))
    }

    /// Elements along the last axis of a value of the new graph: channels in a block of a packed one.
    pub(crate) fn block_of_packed(&self, packed: ValueId) -> usize {
        self.rewriter.target().tensor_type(packed).shape.last().copied().unwrap_or(1)
    }

    /// Channels in a block of what a node computes packed.
    pub(crate) fn result_block(&self, node: &Node<Op>) -> usize {
        self.in_tiles.get(&node.outputs[0]).copied().unwrap_or(self.block)
    }

    /// Notes that `plain` is a node's result.
    pub(crate) fn finish_plain(&mut self, node: &Node<Op>, plain: ValueId) {
        self.rewriter.replace(node.outputs[0], plain);
        self.plain.insert(node.outputs[0], plain);
    }

    /// Channels in a block of an old value that exists packed for vectors or in rows of tiles.
    pub(crate) fn block_of(&self, old: ValueId) -> Option<usize> {
        self.any_block_of(old).filter(|block| *block >= self.block)
    }

    /// Whether nothing reads a node's result but packed, so that its operands may as well be packed first.
    pub(crate) fn is_wanted_packed(&self, node: &Node<Op>) -> bool {
        node.outputs.iter().all(|output| self.wanted.contains(output))
    }

    pub(crate) fn shape(&self, old: ValueId) -> &'a [usize] {
        &self.graph.tensor_type(old).shape
    }

    /// Whether an old value exists packed in blocks of the target's width.
    pub(crate) fn is_packed(&self, old: ValueId) -> bool {
        self.packed.get(&old).is_some_and(|packed| self.block_of_packed(*packed) == self.block)
    }

    pub(crate) fn is_float(&self, old: ValueId) -> bool {
        self.graph.tensor_type(old).dtype == self.working
    }

    /// Whether an old value's channels fill their blocks.
    pub(crate) fn fills_blocks(&self, old: ValueId) -> bool {
        self.shape(old).get(1).is_some_and(|channels| channels.is_multiple_of(self.block))
    }

    /// What the filler of an old value holds when it is packed.
    pub(crate) fn filler(&self, old: ValueId) -> Filler {
        self.fillers.get(&old).copied().unwrap_or(Filler::ZERO)
    }

    /// What the filler of a node's result holds, if it was computed as `filler`; `None` where that may not
    /// be finite.
    pub(crate) fn finite(&self, node: &Node<Op>, filler: Option<Filler>) -> Option<Filler> {
        let has_none = self.fills_blocks(node.outputs[0]);
        if has_none { Some(Filler::ZERO) } else { filler }
    }

    /// Notes that `packed` is a node's result, with zeros as filler.
    pub(crate) fn finish(&mut self, node: &Node<Op>, packed: ValueId) -> bool {
        self.packed.insert(node.outputs[0], packed);
        true
    }

    /// Notes that `packed` is a node's result, and what its filler is.
    pub(crate) fn finish_with(&mut self, node: &Node<Op>, packed: ValueId, filler: Filler) -> bool {
        self.fillers.insert(node.outputs[0], filler);
        self.finish(node, packed)
    }
}

/// Values that nothing reads but convolutions as their input, or by way of concatenated channels and of other sizes of the
/// image.
fn wanted_packed(graph: &Graph, working: DataType, plain: &HashSet<ValueId>) -> HashSet<ValueId> {
    // Whether all that was seen of a value's readers want it packed; readers come behind what they read.
    let mut wanted: HashMap<ValueId, bool> = HashMap::new();
    for port in graph.outputs() {
        wanted.insert(port.value, false);
    }
    let nodes: Vec<&Node<Op>> = graph.nodes().iter().map(|(_, node)| node).collect();
    for node in nodes.into_iter().rev() {
        let wants_result = node.outputs.iter().all(|output| wanted.get(output) == Some(&true));
        let passes_on = node.operation.downcast::<Resize>().is_some()
            || node.operation.downcast::<Concat>().is_some_and(|concat| concat.axis == 1);
        let convolves = node.operation.downcast::<Convolution>().is_some()
            && !plain.contains(&node.outputs[0])
            && Operands::of(graph, node, working).is_some();
        for (index, input) in node.inputs.iter().enumerate() {
            let Some(input) = input else { continue };
            let wants = convolves && index == 0 || passes_on && wants_result;
            let known = wanted.entry(*input).or_insert(true);
            *known &= wants;
        }
    }
    wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(value, _)| value).collect()
}
