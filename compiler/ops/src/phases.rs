//! Transposed convolutions as convolutions: one per phase.
//!
//! With stride `s`, output `j * s + r` is reached only by taps `r + s * u`, from input `j - u`. So each
//! phase `r` is a plain convolution with every `s`-th weight, reversed. The phases' results are
//! channels of one convolution, which are then laid out side by side.

use crate::operator::Graph;
use crate::recurrent_nodes::Nodes;
use crate::{Convolution, ConvolutionTranspose, Expand, Pad, PadMode, Slice, Transpose, Window};
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
        Some(Self { stride, dilation, taps, pads, cut: (begin % stride, output) })
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
    interleave(&mut nodes, sums, own.groups, &axes).map(|output| Some(vec![output]))
}

/// Weights of all phases: `[groups * phases * out channels, channels / groups, taps...]`.
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
    value = nodes.add(Transpose { permutation }, &[value])?;
    let mut shape = vec![groups * phase_count(axes) * outputs, channels];
    shape.extend(axes.iter().map(|axis| axis.taps));
    nodes.reshape(value, &shape)
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

/// Lays the phases side by side along each axis, and cuts the output out.
fn interleave(
    nodes: &mut Nodes,
    sums: ValueId,
    groups: usize,
    axes: &[Axis],
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
    for (place, axis) in axes.iter().enumerate() {
        (starts[place + 2], wanted[place + 2]) = axis.cut;
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
