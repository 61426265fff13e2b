//! Convolutions whose vectors hold positions in place of channels.
//!
//! On packed channels a vector holds channels of one position, and where those fill it badly, as 3 channels do one of 16
//! lanes and 25 channels two, most of what is multiplied is filler. Where a window moves by one element along the last axis,
//! a vector of plain values holds neighbouring positions of one channel, whatever the channels, and the sum of products is that
//! of a matrix product: weights are broadcast, and each vector that is read serves all channels of the result.
//!
//! What a convolution takes either way is estimated, with what it takes to pack and unpack what its neighbours leave or want
//! in the other layout. Since they decide by the same rule, all are decided together, in rounds: each node by what its neighbours
//! did in the round before.

use crate::PassError;
use crate::layout::Layout;
use crate::layout_regions::{PACKING, UNPACKING, is_convolution, may_be_packed};
use crate::packed_operands::Operands;
use crate::winograd::{Extents, filtered};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{Concat, Convolution, Graph, Op, Pad, PadMode, Window};
use hone_types::DataType;
use std::collections::{HashMap, HashSet};

/// How much more time a multiply-add takes with vectors of positions than with packed channels: most of them are not aligned.
const UNALIGNED: f64 = 1.15;

/// Fraction of the time on packed channels that vectors of positions must save: the estimate is no finer.
const MIN_GAIN: f64 = 0.1;

/// What it takes to pack an element of a result for those who read it packed, in multiply-adds of one vector: a kernel of its own,
/// where on packed channels there is none. It is assumed. With the fourth of it GhostNet, which reads every other result packed and
/// plain, took 1.28 of the time on Zen 4.
const PACKING_RESULT: f64 = 6.0;

/// What it takes to pack an element where it is joined with others that are packed, in multiply-adds of one vector: a
/// kernel that reads operands in several layouts gathers element by element. Measured on Zen 4, 48 of 144 channels: 6 ns each.
const PACKING_JOINED: f64 = 40.0;

/// After so many rounds those that still change are left packed.
const MAX_ROUNDS: usize = 8;

/// The results of convolutions that are computed on vectors of `lanes` positions; those in `products` are decided.
pub(crate) fn by_positions(
    graph: &Graph,
    lanes: usize,
    (working, rates): (DataType, Option<&Rates>),
    products: &HashSet<ValueId>,
) -> HashSet<ValueId> {
    let mut costs = HashMap::new();
    // What lies in whole vectors where everything that may be is packed.
    let in_vectors = Layouts::of(graph, lanes, |value| products.contains(&value)).packed;
    for (_, node) in graph.nodes().iter() {
        let known = node.outputs.iter().any(|output| products.contains(output));
        if !known && let Some(cost) = Cost::of(graph, node, (lanes, &in_vectors), (working, rates))
        {
            costs.insert(node.outputs[0], cost);
        }
    }
    let cheaper = |cost: &Cost| cost.plain < cost.packed * (1.0 - MIN_GAIN);
    let mut plain: HashSet<ValueId> =
        costs.iter().filter(|(_, cost)| cheaper(cost)).map(|(value, _)| *value).collect();
    for round in 0..MAX_ROUNDS {
        if plain.is_empty() {
            break;
        }
        let layouts =
            Layouts::of(graph, lanes, |value| plain.contains(&value) || products.contains(&value));
        let is_plain = |value: ValueId, cost: &Cost| {
            cheaper(&layouts.with_moves(graph, value, *cost, plain.contains(&value)))
        };
        let next: HashSet<ValueId> = costs
            .iter()
            .filter(|(value, cost)| is_plain(**value, cost))
            .map(|(value, _)| *value)
            .collect();
        if next == plain {
            break;
        }
        plain = if round + 1 == MAX_ROUNDS { &next & &plain } else { next };
    }
    plain
}

/// What a convolution takes in either layout, in multiply-adds of one vector, but for values that are moved between layouts.
#[derive(Clone, Copy)]
struct Cost {
    input: ValueId,
    plain: f64,
    packed: f64,
}

impl Cost {
    /// `None` for other nodes, and for convolutions that are not computed on vectors of positions.
    fn of(
        graph: &Graph,
        node: &Node<Op>,
        (lanes, in_vectors): (usize, &HashSet<ValueId>),
        (working, rates): (DataType, Option<&Rates>),
    ) -> Option<Self> {
        let convolution = node.operation.downcast::<Convolution>()?;
        let operands = Operands::of(graph, node, working)?;
        let (input, result) =
            (graph.tensor_type(operands.input), graph.tensor_type(node.outputs[0]));
        let Window { strides, .. } = &convolution.window;
        // Over three axes what is moved between the layouts took longer than what was saved: a U-Net of volumes on Zen 4 1.3
        // of the time.
        let fits = convolution.groups == 1
            && strides.len() <= 2
            && input.dtype == working
            && strides.last() == Some(&1);
        if !fits || operands.shape.contains(&0) {
            return None;
        }
        let ([outputs, channels, window @ ..], [batch, _, spatial @ ..]) =
            (operands.shape, &result.shape[..])
        else {
            return None;
        };
        // Without a window all positions of an image are neighbours.
        let is_point = window.iter().all(|extent| *extent == 1)
            && strides.iter().all(|stride| *stride == 1)
            && !convolution.window.is_padded();
        let row = if is_point { spatial.iter().product::<usize>() } else { *spatial.last()? };
        let positions = batch * spatial.iter().product::<usize>();
        let taps = window.iter().product::<usize>();
        let vectors = (positions / row.max(1) * row.div_ceil(lanes)) as f64;
        let plain = UNALIGNED * vectors * (outputs * channels * taps) as f64;
        let terms = (channels.next_multiple_of(lanes.min(*channels)) * taps) as f64;
        let mut packed = positions as f64 * terms * outputs.div_ceil(lanes) as f64;
        // Channels that fill no vectors are filtered where they are packed for that, in smaller blocks.
        let whole = channels.is_multiple_of(lanes) || !in_vectors.contains(&operands.input);
        if let Some(rates) = rates.filter(|_| whole)
            && let Some(extents) = Extents::of(convolution, operands.shape, &result.shape, 1)
        {
            let whole = Extents { outputs: outputs.next_multiple_of(lanes), ..extents };
            packed *= filtered(convolution, window, whole, rates).unwrap_or(1.0);
        }
        Some(Self { input: operands.input, plain, packed })
    }
}

/// In which layouts values are there and wanted.
struct Layouts {
    /// Values that nodes leave packed.
    packed: HashSet<ValueId>,
    /// How many nodes want a value packed and plain; graph outputs count as such.
    wanted: HashMap<ValueId, [usize; 2]>,
    /// Values that are joined with packed ones.
    joined: HashSet<ValueId>,
}

impl Layouts {
    fn of(graph: &Graph, lanes: usize, is_plain: impl Fn(ValueId) -> bool) -> Self {
        let mut packed = HashSet::new();
        let nodes: Vec<&Node<Op>> = graph.nodes().iter().map(|(_, node)| node).collect();
        for node in &nodes {
            let convolves =
                is_convolution(node) && !node.outputs.iter().any(|output| is_plain(*output));
            if convolves || passes_packed(graph, node, lanes, &packed) {
                packed.extend(&node.outputs);
            }
        }
        let (mut wanted, mut joined) = (HashMap::<ValueId, [usize; 2]>::new(), HashSet::new());
        for port in graph.outputs() {
            wanted.entry(port.value).or_default()[1] += 1;
        }
        for node in nodes.into_iter().rev() {
            let result = node.outputs.first();
            let of_result =
                result.and_then(|result| wanted.get(result)).copied().unwrap_or_default();
            let wants = match result {
                Some(result) if is_convolution(node) => [!is_plain(*result), is_plain(*result)],
                Some(result) if packed.contains(result) => [true, false],
                // What is computed plain may as well be computed packed, if it is wanted so.
                Some(_)
                    if may_be_packed(graph, node, lanes) && joins_blocks(graph, node, lanes) =>
                {
                    of_result.map(|count| count > 0)
                }
                _ => [false, true],
            };
            let joins = node.operation.downcast::<Concat>().is_some()
                && result.is_some_and(|result| packed.contains(result))
                || !is_convolution(node) && result.is_some_and(|result| joined.contains(result));
            let inputs = node.inputs.iter().flatten();
            let inputs = inputs.take(if is_convolution(node) { 1 } else { usize::MAX });
            for input in inputs {
                if joins {
                    joined.insert(*input);
                }
                let counts = wanted.entry(*input).or_default();
                for (count, wants) in counts.iter_mut().zip(wants) {
                    *count += usize::from(wants);
                }
            }
        }
        Self { packed, wanted, joined }
    }

    /// What a convolution takes with what is moved for its sake: its result for those who want it in the other layout, and its
    /// input where nobody else wants that as it is not there. `is_plain` says what was assumed of it.
    fn with_moves(&self, graph: &Graph, result: ValueId, cost: Cost, is_plain: bool) -> Cost {
        let elements = |value: ValueId| graph.tensor_type(value).elements() as f64;
        let wants = |value: ValueId| self.wanted.get(&value).copied().unwrap_or_default();
        let [for_packed, for_plain] =
            wants(result).map(|count| if count > 0 { elements(result) } else { 0.0 });
        let packing = if self.joined.contains(&result) { PACKING_JOINED } else { PACKING_RESULT };
        let mut moved = Cost {
            packed: cost.packed + UNPACKING * for_plain,
            plain: cost.plain + packing * for_packed,
            ..cost
        };
        let [others_packed, others_plain] = {
            let [packed, plain] = wants(cost.input);
            [
                packed.saturating_sub(usize::from(!is_plain)),
                plain.saturating_sub(usize::from(is_plain)),
            ]
        };
        if self.packed.contains(&cost.input) {
            moved.plain += if others_plain == 0 { UNPACKING * elements(cost.input) } else { 0.0 };
        } else {
            moved.packed += if others_packed == 0 { PACKING * elements(cost.input) } else { 0.0 };
        }
        moved
    }
}

/// Whether a node that is no convolution is computed on packed values, where these are.
fn passes_packed(graph: &Graph, node: &Node<Op>, lanes: usize, packed: &HashSet<ValueId>) -> bool {
    let inputs = node.inputs.iter().flatten();
    let there = inputs.filter(|input| packed.contains(input)).count();
    let enough = match node.operation.downcast::<Concat>() {
        Some(_) => there * 2 >= node.inputs.len(),
        None => true,
    };
    there > 0
        && enough
        && !is_convolution(node)
        && may_be_packed(graph, node, lanes)
        && joins_blocks(graph, node, lanes)
}

/// Whether what a concatenation joins are whole blocks of channels; other nodes join nothing.
fn joins_blocks(graph: &Graph, node: &Node<Op>, lanes: usize) -> bool {
    let channels = |value: &ValueId| graph.tensor_type(*value).shape.get(1).copied();
    let fills = |value: &ValueId| channels(value).is_some_and(|count| count.is_multiple_of(lanes));
    node.operation.downcast::<Concat>().is_none() || node.inputs.iter().flatten().all(fills)
}

impl Layout<'_> {
    /// A convolution of plain values, which are padded first.
    pub(crate) fn convolution_by_positions(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let mut inputs = Vec::new();
        for input in &node.inputs {
            inputs.push(match input {
                Some(input) => Some(self.plain(*input, &node.name)?),
                None => None,
            });
        }
        let Window { pads_begin, pads_end, .. } = &convolution.window;
        let axes = pads_begin.len();
        if convolution.window.is_padded()
            && let Some(Some(input)) = inputs.first_mut()
        {
            let pads = |pads: &[usize]| {
                [0, 0].into_iter().chain(pads.iter().map(|pad| *pad as i64)).collect()
            };
            let (begin, end) = (pads(pads_begin), pads(pads_end));
            let pad = Pad { begin, end, mode: PadMode::Constant, value: 0.0 };
            *input = self.rewriter.add_simple(&node.name, pad, &[*input])?;
        }
        let zeros = vec![0; axes];
        let window =
            Window { pads_begin: zeros.clone(), pads_end: zeros, ..convolution.window.clone() };
        let plain = Convolution { window, groups: convolution.groups };
        let result = self.rewriter.add(&node.name, plain, &inputs)?[0];
        self.finish_plain(node, result);
        Ok(true)
    }
}
