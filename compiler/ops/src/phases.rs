//! Transposed convolutions as convolutions: one per phase.
//!
//! With stride `s`, output `j * s + r` is reached only by taps `r + s * u`, from input `j - u`. So each
//! phase `r` is a plain convolution with every `s`-th weight, reversed. The phases' results are
//! channels of one convolution, which are then laid out side by side. That computes places of each phase which are cut off:
//! one more along every axis than there are. Where these are many, each phase is a convolution of its own.

use crate::operator::Graph;
use crate::recurrent_nodes::Nodes;
use crate::{
    Concat, Convolution, ConvolutionTranspose, Expand, Pad, PadMode, Slice, Transpose, Window,
};
use hone_graph::{InferError, ValueId};
use hone_types::TensorType;

/// One spatial axis.
struct Axis {
    stride: usize,
    dilation: usize,
    /// Taps of one phase.
    taps: usize,
    /// Padding of the phases' convolution.
    pads: [usize; 2],
    /// First place of the output among those of all phases, and its extent.
    cut: (usize, usize),
    /// Padding of the convolutions of single phases, in the order of the output's first places; none where these have
    /// different extents.
    alone: Option<Vec<Alone>>,
    /// Places of each phase where all are one convolution.
    rounds: usize,
}

/// One phase of an axis as a convolution of its own.
#[derive(Clone, Copy)]
struct Alone {
    phase: usize,
    pads: [usize; 2],
}

impl Axis {
    /// `None` for windows that phases do not share evenly.
    fn new(own: &ConvolutionTranspose, axis: usize, kernel: usize, input: usize) -> Option<Self> {
        let window = &own.window;
        let (stride, dilation) = (window.strides[axis], window.dilations[axis]);
        if stride > 1 && dilation > 1 {
            return None;
        }
        let output = own.extent(axis, input, kernel)?;
        let begin = window.pads_begin[axis];
        let taps = kernel.div_ceil(stride);
        let (first, last) = (begin / stride, (begin + output - 1) / stride);
        let pads = [((taps - 1) * dilation).checked_sub(first)?, last.saturating_sub(input - 1)];
        let reach = (taps - 1) * dilation;
        let alone = |place: usize| {
            let (phase, first) = ((begin + place) % stride, (begin + place) / stride);
            let last = first + output / stride - 1;
            let pads = [reach.checked_sub(first)?, last.checked_sub(input - 1)?];
            Some(Alone { phase, pads })
        };
        let alone = output.is_multiple_of(stride).then(|| (0..stride).map(alone).collect());
        let (cut, rounds) = ((begin % stride, output), last + 1 - first);
        Some(Self { stride, dilation, taps, pads, cut, alone: alone.flatten(), rounds })
    }

    /// The padding of the phases, where they are convolutions of their own.
    fn alone(&self) -> &[Alone] {
        self.alone.as_deref().unwrap_or_default()
    }
}

/// The nodes of a transposed convolution as a convolution; `None` where it stays as it is.
pub(crate) fn decompose(
    own: &ConvolutionTranspose,
    graph: &mut Graph,
    inputs: &[Option<ValueId>],
) -> Result<Option<Vec<ValueId>>, InferError> {
    let (Some(x), Some(w)) = (inputs[0], inputs[1]) else { return Ok(None) };
    let types = [x, w].map(|value| graph.tensor_type(value).clone());
    let [input, kernel] = [&types[0].shape, &types[1].shape];
    if input.contains(&0) || kernel.contains(&0) {
        return Ok(None);
    }
    let axes = (2..input.len()).map(|axis| Axis::new(own, axis - 2, kernel[axis], input[axis]));
    let Some(axes) = axes.collect::<Option<Vec<Axis>>>() else { return Ok(None) };
    let mut nodes = Nodes { graph, name: ConvolutionTranspose::NAME, dtype: types[0].dtype };
    let weights = weights(&mut nodes, w, &types[1], own.groups, &axes)?;
    if are_apart(own.groups, kernel[1], &axes) {
        let bias = inputs.get(2).copied().flatten();
        return apart(&mut nodes, (x, weights, bias), &axes).map(|output| Some(vec![output]));
    }
    let weights = joined(&mut nodes, weights)?;
    let mut operands = vec![x, weights];
    if let Some(bias) = inputs.get(2).copied().flatten() {
        operands.push(phase_bias(&mut nodes, bias, own.groups, &axes)?);
    }
    let list = |get: fn(&Axis) -> usize| axes.iter().map(get).collect();
    let window = Window {
        strides: vec![1; axes.len()],
        dilations: list(|axis| axis.dilation),
        pads_begin: list(|axis| axis.pads[0]),
        pads_end: list(|axis| axis.pads[1]),
    };
    let sums = nodes.add(Convolution { window, groups: own.groups }, &operands)?;
    let cuts: Vec<(usize, usize)> = axes.iter().map(|axis| axis.cut).collect();
    interleave(&mut nodes, sums, own.groups, (&axes, &cuts)).map(|output| Some(vec![output]))
}

/// Whether each phase is a convolution of its own: together they would compute a tenth more than is used, and the
/// channels of one fill vectors. On Zen 4, single phases run at the same share of the peak as all together: 256 channels of
/// 4×4 take 1.74 ms in place of 2.74, and 64 of 16×16, where an eighth is saved, 1.72 in place of 2.00.
fn are_apart(groups: usize, outputs: usize, axes: &[Axis]) -> bool {
    let phases = phase_count(axes);
    let joint: usize = axes.iter().map(|axis| axis.rounds).product();
    let alone: usize = axes.iter().map(|axis| axis.cut.1 / axis.stride).product();
    let fits = axes.iter().all(|axis| axis.alone.is_some());
    fits && groups == 1
        && (2..=MOST_APART).contains(&phases)
        && outputs.is_multiple_of(FULL)
        && joint * 10 >= alone * 11
}

/// Most convolutions that a transposed one becomes.
const MOST_APART: usize = 8;

/// Channels that fill whole vectors of every target.
const FULL: usize = 16;

/// A convolution of one group for each phase, laid out side by side. `weights` are those of all phases.
fn apart(
    nodes: &mut Nodes,
    (x, weights, bias): (ValueId, ValueId, Option<ValueId>),
    axes: &[Axis],
) -> Result<ValueId, InferError> {
    let shape = nodes.graph.tensor_type(weights).shape.clone();
    let mut results = Vec::with_capacity(phase_count(axes));
    for number in 0..phase_count(axes) {
        // The last axis varies fastest.
        let mut rest = number;
        let mut phases = Vec::with_capacity(axes.len());
        for axis in axes.iter().rev() {
            phases.insert(0, axis.alone()[rest % axis.stride]);
            rest /= axis.stride;
        }
        let (mut starts, mut extents) = (vec![0; shape.len()], shape.clone());
        for (place, own) in phases.iter().enumerate() {
            (starts[1 + place], extents[1 + place]) = (own.phase, 1);
        }
        let steps = vec![1; shape.len()];
        let own = nodes.add(Slice { starts, steps, extents }, &[weights])?;
        let own = joined(nodes, own)?;
        let window = Window {
            strides: vec![1; axes.len()],
            dilations: axes.iter().map(|axis| axis.dilation).collect(),
            pads_begin: phases.iter().map(|own| own.pads[0]).collect(),
            pads_end: phases.iter().map(|own| own.pads[1]).collect(),
        };
        let operands: Vec<ValueId> = [x, own].into_iter().chain(bias).collect();
        results.push(nodes.add(Convolution { window, groups: 1 }, &operands)?);
    }
    // [batch, phases * out channels, places...]: the phases are numbered by the output's first places.
    let all = nodes.add(Concat { axis: 1 }, &results)?;
    let cuts: Vec<(usize, usize)> = axes.iter().map(|axis| (0, axis.cut.1)).collect();
    interleave(nodes, all, 1, (axes, &cuts))
}

/// Weights of all phases: `[groups, phases..., out channels, channels / groups, taps...]`.
fn weights(
    nodes: &mut Nodes,
    w: ValueId,
    own: &TensorType,
    groups: usize,
    axes: &[Axis],
) -> Result<ValueId, InferError> {
    let (channels, outputs) = (own.shape[0] / groups, own.shape[1]);
    let mut end = vec![0; own.rank()];
    for (place, axis) in axes.iter().enumerate() {
        end[place + 2] = (axis.taps * axis.stride - own.shape[place + 2]) as i64;
    }
    let mut value = w;
    if end.iter().any(|end| *end > 0) {
        let begin = vec![0; own.rank()];
        value = nodes.add(Pad { begin, end, mode: PadMode::Constant, value: 0.0 }, &[value])?;
    }
    // Groups, channels, out channels, then taps and phase of each axis.
    let mut shape = vec![groups, channels, outputs];
    axes.iter().for_each(|axis| shape.extend([axis.taps, axis.stride]));
    value = nodes.reshape(value, &shape)?;
    let (mut starts, mut steps) = (vec![0; shape.len()], vec![1; shape.len()]);
    for (place, axis) in axes.iter().enumerate() {
        (starts[2 * place + 3], steps[2 * place + 3]) = (axis.taps - 1, -1);
    }
    value = nodes.add(Slice { starts, steps, extents: shape.clone() }, &[value])?;
    let phases = (0..axes.len()).map(|place| 2 * place + 4);
    let taps = (0..axes.len()).map(|place| 2 * place + 3);
    let permutation = [0].into_iter().chain(phases).chain([2, 1]).chain(taps).collect();
    nodes.add(Transpose { permutation }, &[value])
}

/// Weights of some phases, `[groups, phases..., out channels, channels / groups, taps...]` of as many phases as taps, with
/// the phases among the output channels: `[groups * phases * out channels, channels / groups, taps...]`.
fn joined(nodes: &mut Nodes, weights: ValueId) -> Result<ValueId, InferError> {
    let own = nodes.graph.tensor_type(weights).shape.clone();
    let (outputs, inner) = own.split_at(2 + (own.len() - 3) / 2);
    let mut shape = vec![outputs.iter().product()];
    shape.extend(inner);
    nodes.reshape(weights, &shape)
}

/// The bias once for each phase.
fn phase_bias(
    nodes: &mut Nodes,
    bias: ValueId,
    groups: usize,
    axes: &[Axis],
) -> Result<ValueId, InferError> {
    let (count, phases) = (nodes.graph.tensor_type(bias).elements(), phase_count(axes));
    if phases == 1 {
        return Ok(bias);
    }
    let own = nodes.reshape(bias, &[groups, 1, count / groups])?;
    let all = nodes.add(Expand { shape: vec![groups, phases, count / groups] }, &[own])?;
    nodes.reshape(all, &[phases * count])
}

/// Lays the phases side by side along each axis, and cuts the output out: its first place and extent along each.
fn interleave(
    nodes: &mut Nodes,
    sums: ValueId,
    groups: usize,
    (axes, cuts): (&[Axis], &[(usize, usize)]),
) -> Result<ValueId, InferError> {
    let own = nodes.graph.tensor_type(sums).shape.clone();
    let outputs = own[1] / phase_count(axes);
    let count = axes.len();
    let mut value = sums;
    let mut extents = vec![own[0], outputs];
    extents.extend(axes.iter().zip(&own[2..]).map(|(axis, rounds)| axis.stride * rounds));
    if phase_count(axes) > 1 {
        let mut shape = vec![own[0], groups];
        shape.extend(axes.iter().map(|axis| axis.stride));
        shape.push(outputs / groups);
        shape.extend(&own[2..]);
        value = nodes.reshape(value, &shape)?;
        let mut permutation = vec![0, 1, 2 + count];
        (0..count).for_each(|place| permutation.extend([3 + count + place, 2 + place]));
        value = nodes.add(Transpose { permutation }, &[value])?;
        value = nodes.reshape(value, &extents)?;
    }
    let mut starts = vec![0; extents.len()];
    let mut wanted = extents.clone();
    for (place, cut) in cuts.iter().enumerate() {
        (starts[place + 2], wanted[place + 2]) = *cut;
    }
    if wanted == extents {
        return Ok(value);
    }
    nodes.add(Slice { steps: vec![1; starts.len()], starts, extents: wanted }, &[value])
}

/// Number of phases over all axes.
fn phase_count(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.stride).product()
}
