//! Chooses the channel-packed layout for convolutions and the nodes between them.
//!
//! A value of shape `[N, C, X..]` may exist plain, packed as `[N, C / c, X.., c]`, or both. A
//! convolution makes its result packed; nodes that compute channel by channel take and give packed
//! values; every other node gets plain ones. The filler lanes past the last channel of a packed value hold
//! numbers that never reach a result: weights there are zero. They must stay finite (`filler.rs`), so
//! other functions are left to plain values unless the channels fill their blocks.

use crate::dilation::{batch_to_space, space_to_batch};
use crate::filler::Filler;
use crate::graph_decisions::GraphDecisions;
use crate::group_parts::GroupParts;
use crate::merge_groups::GroupMerge;
use crate::packed_operands::{
    Operands, PackedOperands, Weights, pack_depthwise_weights, pack_weights,
};
use crate::tile_blocks::{TileRows, tile_values};
use crate::winograd::{Extents, Subject, decide_tile, dilations};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{
    Binary, Cast, Concat, Convolution, Graph, GroupNormalization, InstanceNormalization,
    LARGEST_BUFFER, Op, OpError, Operator, Pack, PackedConvolution, PackedDepthwise, Pad, PadMode,
    Pool, Reduce, Reshape, Resize, Unary, Unpack, Window, WinogradInput, WinogradMultiply,
    WinogradOutput, winograd_weights,
};
use hone_types::{DataType, Tensor};
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
    let mut layout = Layout::new(graph, options);
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
    products: usize,
    integers: bool,
    /// What is multiplied in tiles, where anything is.
    pub(crate) tile_rows: Option<TileRows>,
    rates: Option<Rates>,
    decisions: Option<&'a GraphDecisions>,
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
    wanted: HashSet<ValueId>,
}

impl<'a> Layout<'a> {
    fn new(graph: &'a Graph, options: LayoutOptions<'a>) -> Self {
        let LayoutOptions { block, products, integers, tile_row, rates, working, decisions } =
            options;
        let tile_rows = tile_row.map(|bytes| TileRows { bytes, products });
        let rewriter = Rewriter::new(graph);
        Self {
            graph,
            rewriter,
            block,
            products,
            integers,
            tile_rows,
            rates,
            decisions,
            working,
            packed: HashMap::new(),
            packed_again: HashMap::new(),
            in_tiles: tile_rows.map_or_else(HashMap::new, |rows| tile_values(graph, rows)),
            fillers: HashMap::new(),
            plain: HashMap::new(),
            wanted: wanted_packed(graph, working),
        }
    }

    /// Rewrites a node on packed values where that is possible and worth it; says whether it did.
    fn pack_node(&mut self, node: &Node<Op>) -> Result<bool, PassError> {
        let operation = &node.operation;
        if let Some(convolution) = operation.downcast::<Convolution>() {
            let done = self.integers && self.integer_convolution(node, convolution)?;
            return if done { Ok(true) } else { self.convolution(node, convolution) };
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
        if let Some(resize) = operation.downcast::<Resize>() {
            return self.resize(node, resize);
        }
        if let Some(pad) = operation.downcast::<Pad>() {
            return self.pad(node, pad);
        }
        Ok(false)
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

    /// The packed form of an old value, packed when first asked for. Fewer channels
    /// than a block make a block of their own size. What lies in rows of tiles is packed again for vectors, and the
    /// other way round.
    pub(crate) fn packed(
        &mut self,
        old: ValueId,
        block: usize,
        node: &str,
    ) -> Result<ValueId, PassError> {
        let known = self.packed.get(&old).copied();
        if let Some(packed) = known {
            let found = self.block_of_packed(packed);
            // Fewer channels than a vector has lanes are a block for either.
            if found == block || found.max(block) <= self.block {
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

    /// Elements along the last axis of a value of the new graph: channels in a block of a packed one.
    fn block_of_packed(&self, packed: ValueId) -> usize {
        self.rewriter.target().tensor_type(packed).shape.last().copied().unwrap_or(1)
    }

    /// Channels in a block of what a node computes packed.
    pub(crate) fn result_block(&self, node: &Node<Op>) -> usize {
        self.in_tiles.get(&node.outputs[0]).copied().unwrap_or(self.block)
    }

    /// Channels in a block of an old value that exists packed for vectors or in rows of tiles.
    pub(crate) fn block_of(&self, old: ValueId) -> Option<usize> {
        let block = self.block_of_packed(*self.packed.get(&old)?);
        (block >= self.block).then_some(block)
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

    fn is_float(&self, old: ValueId) -> bool {
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

    fn convolution(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let Some(operands) = Operands::of(self.graph, node, self.working) else {
            return Ok(false);
        };
        if !padded_fits(self.shape(operands.input), &convolution.window) {
            // Lowering refuses it by name.
            return Ok(false);
        }
        let (w, groups) = (operands.shape, convolution.groups);
        let channels = self.shape(operands.input)[1];
        let depthwise = groups > 1 && groups == channels && groups == w[0];
        let per_group = [w[1], w[0] / groups];
        let whole_blocks = per_group.iter().all(|channels| channels.is_multiple_of(self.block));
        let merged;
        let (weights, groups) = if groups > 1 && !depthwise && !whole_blocks {
            // Weights that are computed are not merged: that would write zeros in every run.
            let Some(weights) = operands.weights.constant() else { return Ok(false) };
            let merge = GroupMerge::of(groups, per_group, self.block);
            let bias = operands.bias.map(Weights::constant);
            if let Some(cut) = GroupParts::of(groups, per_group, self.block, merge)
                && channels > self.block
                && bias != Some(None)
            {
                let input = self.packed(operands.input, self.block, &node.name)?;
                let input = self.padded_windows(node, &convolution.window, input, (0.0, &[]))?;
                let bias = bias.flatten();
                let output = self.convolve_parts(node, convolution, &cut, input, weights, bias)?;
                return Ok(self.finish(node, output));
            }
            let Some(merge) = merge else { return Ok(false) };
            let weights = merge.weights(weights, groups);
            merged = weights
                .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
            (Weights::Constant(&merged), merge.groups)
        } else {
            (operands.weights, groups)
        };
        let convolution = &Convolution { groups, ..convolution.clone() };
        let whole = channels.next_multiple_of(self.products);
        let row = self.tile_rows.and_then(|rows| rows.channels(self.graph, node, convolution));
        let block = match row {
            Some(row) => row,
            None if depthwise => self.block,
            None => self.block.min(whole),
        };
        let mut input = self.packed(operands.input, block, &node.name)?;
        let block = self.rewriter.target().tensor_type(input).shape.last().copied().unwrap_or(1);
        let tile = match weights.constant().filter(|_| !depthwise) {
            None => None,
            Some(weights) => self.winograd_tile(node, convolution, weights, block),
        };
        let dilations = tile.and_then(|_| dilations(convolution)).unwrap_or([1, 1]);
        let mut beyond = vec![0; convolution.window.strides.len()];
        if let Some(tile) = tile {
            // The last tiles are whole: what they compute beyond the result is left out of it.
            let extents = self.shape(node.outputs[0]).iter().rev();
            let last = beyond.iter_mut().rev().zip(extents).zip(dilations.iter().rev());
            for ((beyond, extent), dilation) in last {
                *beyond = extent.next_multiple_of(tile * dilation) - extent;
            }
        }
        input = self.padded_windows(node, &convolution.window, input, (0.0, &beyond))?;
        let packed = PackedOperands { input, block, weights, bias: operands.bias };
        let output = if depthwise {
            self.depthwise(node, convolution, packed)?
        } else if let Some((tile, weights)) = tile.zip(weights.constant()) {
            self.winograd(node, (tile, dilations, &convolution.window), weights, packed)?
        } else {
            self.direct(node, convolution, packed)?
        };
        Ok(self.finish(node, output))
    }

    /// A packed input with what a window reads around it, and so many elements `beyond` its end per spatial axis,
    /// none where `beyond` is shorter; all of them are `padding`.
    pub(crate) fn padded_windows(
        &mut self,
        node: &Node<Op>,
        window: &Window,
        input: ValueId,
        (padding, beyond): (f64, &[usize]),
    ) -> Result<ValueId, PassError> {
        match window_padding(window, padding, beyond) {
            Some(pad) => self.rewriter.add_simple(&node.name, pad, &[input]),
            None => Ok(input),
        }
    }

    fn depthwise(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let weights = match operands.weights {
            Weights::Constant(weights) => {
                self.packed_constant(node, pack_depthwise_weights(weights, self.block))?
            }
            Weights::Computed(weights) => {
                let shape = self.shape(weights);
                let shape = [&shape[..1], &shape[2..]].concat();
                let weights = self.plain(weights, &node.name)?;
                let filters =
                    self.rewriter.add_simple(&node.name, Reshape { shape }, &[weights])?;
                let pack = Pack { axis: 0, block: self.block };
                self.rewriter.add_simple(&node.name, pack, &[filters])?
            }
        };
        let Window { strides, dilations, .. } = convolution.window.clone();
        self.convolve(node, PackedDepthwise { strides, dilations }, weights, operands)
    }

    fn direct(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let result = if convolution.groups == 1 { self.result_block(node) } else { self.block };
        let weights = match operands.weights {
            Weights::Constant(weights) => {
                self.packed_constant(node, pack_weights(weights, operands.block, result))?
            }
            Weights::Computed(weights) => {
                let weights = self.plain(weights, &node.name)?;
                let pack = Pack { axis: 1, block: operands.block };
                let inputs = self.rewriter.add_simple(&node.name, pack, &[weights])?;
                let pack = Pack { axis: 0, block: result };
                self.rewriter.add_simple(&node.name, pack, &[inputs])?
            }
        };
        let Window { strides, dilations, .. } = convolution.window.clone();
        let groups = convolution.groups;
        self.convolve(
            node,
            PackedConvolution { strides, dilations, groups, inputs: None },
            weights,
            operands,
        )
    }

    /// Adds a convolution of packed operands.
    fn convolve(
        &mut self,
        node: &Node<Op>,
        operation: impl Into<Op>,
        weights: ValueId,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let mut inputs = vec![Some(operands.input), Some(weights)];
        if let Some(bias) = operands.bias {
            let block = self.block_of_packed(weights);
            inputs.push(Some(self.packed_bias(node, bias, block)?));
        }
        Ok(self.rewriter.add(&node.name, operation, &inputs)?[0])
    }

    fn winograd_tile(
        &self,
        node: &Node<Op>,
        convolution: &Convolution,
        weights: &Tensor,
        block: usize,
    ) -> Option<usize> {
        let (weights, result) = (weights.shape(), self.shape(node.outputs[0]));
        let extents = Extents::of(convolution, weights, result, self.products)?;
        let whole = weights[1].is_multiple_of(block) && self.is_float(node.outputs[0]);
        let rates = self.rates.as_ref().filter(|_| whole)?;
        let subject = Subject { convolution, weights, result, block: self.block };
        decide_tile(&subject, extents, rates, self.decisions.map(|all| (all, node.name.as_str())))
    }

    /// A convolution in Winograd's three steps; of several images where it is dilated over two axes.
    fn winograd(
        &mut self,
        node: &Node<Op>,
        (tile, dilations, window): (usize, [usize; 2], &Window),
        weights: &Tensor,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let weights = winograd_weights(weights, tile, operands.block, self.block);
        let weights = self.packed_constant(node, weights)?;
        let (dilated, mut input) = (dilations != [1, 1], operands.input);
        if dilated {
            input = space_to_batch(&mut self.rewriter, &node.name, input, dilations)?;
        }
        let tiles = self.rewriter.add_simple(&node.name, WinogradInput { tile }, &[input])?;
        let outer = window.strides.len() - dilations.len();
        let multiply = WinogradMultiply {
            strides: window.strides[..outer].to_vec(),
            dilations: window.dilations[..outer].to_vec(),
        };
        let products = self.rewriter.add_simple(&node.name, multiply, &[tiles, weights])?;
        let mut inputs = vec![Some(products)];
        if let Some(bias) = operands.bias {
            inputs.push(Some(self.packed_bias(node, bias, self.block)?));
        }
        let shape = &self.shape(node.outputs[0])[2 + outer..];
        let kept = [shape[0], shape[1]];
        let spatial = [kept[0].div_ceil(dilations[0]), kept[1].div_ceil(dilations[1])];
        let sums = self.rewriter.add(&node.name, WinogradOutput { tile, spatial }, &inputs)?[0];
        match dilated {
            true => batch_to_space(&mut self.rewriter, &node.name, sums, dilations, kept),
            false => Ok(sums),
        }
    }

    fn packed_constant(
        &mut self,
        node: &Node<Op>,
        tensor: Result<Tensor, OpError>,
    ) -> Result<ValueId, PassError> {
        let tensor =
            tensor.map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        Ok(self.rewriter.constant(&node.name, tensor))
    }

    fn packed_bias(
        &mut self,
        node: &Node<Op>,
        bias: Weights,
        block: usize,
    ) -> Result<ValueId, PassError> {
        let pack = Pack { axis: 0, block };
        match bias {
            Weights::Constant(bias) => {
                let packed = pack.reference(&[Some(bias)]);
                self.packed_constant(node, packed.map(|mut packed| packed.remove(0)))
            }
            Weights::Computed(bias) => {
                let bias = self.plain(bias, &node.name)?;
                self.rewriter.add_simple(&node.name, pack, &[bias])
            }
        }
    }
}

/// Whether a padded input is no larger than a buffer may be.
fn padded_fits(shape: &[usize], window: &Window) -> bool {
    let pads = window.pads_begin.iter().zip(&window.pads_end);
    let pads = [None, None].into_iter().chain(pads.map(Some));
    let padded = shape.iter().zip(pads).try_fold(size_of::<f64>(), |bytes, (extent, pads)| {
        let (begin, end) = pads.map_or((0, 0), |(begin, end)| (*begin, *end));
        bytes.checked_mul(extent.checked_add(begin)?.checked_add(end)?.max(1))
    });
    padded.is_some_and(|bytes| bytes <= LARGEST_BUFFER)
}

/// What adds to a packed input what a window reads around it, and so many elements `beyond` its end per spatial axis.
/// `None` where that is nothing.
pub(crate) fn window_padding(window: &Window, value: f64, beyond: &[usize]) -> Option<Pad> {
    let [begin, mut end] = [&window.pads_begin, &window.pads_end]
        .map(|pads| [&[0, 0], pads.as_slice(), &[0]].concat())
        .map(|pads| pads.into_iter().map(|pad| pad as i64).collect::<Vec<_>>());
    for (end, beyond) in end[2..].iter_mut().zip(beyond) {
        *end += *beyond as i64;
    }
    let pads = begin.iter().chain(&end).any(|pad| *pad > 0);
    pads.then_some(Pad { begin, end, mode: PadMode::Constant, value })
}

/// Values that nothing reads but convolutions as their input, or by way of concatenated channels and of other sizes of the
/// image.
fn wanted_packed(graph: &Graph, working: DataType) -> HashSet<ValueId> {
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
