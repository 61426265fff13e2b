//! Windows that reach past their input. Kernel positions of a convolution that read padding alone are dropped;
//! and where most of what the others read is padding, as where windows are strongly dilated, each position
//! becomes a separate convolution, of the part of the input that it reads. Where much of it is padding along one
//! axis, as that of a few frames of a video, only the positions along this axis are separate.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Convolution, Graph, Op, OpError, Operator, Pad, PadMode, Slice, Window,
};
use hone_types::{DataType, Tensor};
use std::ops::Range;

/// Maximum fraction of products with input, and not padding, where positions are convolved one by one.
const MAX_DENSITY: f64 = 0.6;
/// The same for one axis alone. Convolutions over two axes are left whole: they may become Winograd's.
const MAX_DENSITY_OF_AXIS: f64 = 0.85;
/// Minimum products that a position along one axis adds to each result, from where adding its sum to the others'
/// takes little time beside them.
const MIN_PRODUCTS: usize = 128;
/// Products that take as long as adding the sum of one position to that of the others, which lies in memory.
const PRODUCTS_OF_ADDING: usize = 8;
/// Maximum positions that are convolved one by one.
const MAX_POSITIONS: usize = 27;
/// Results, and so multiply-adds for each weight, from where computing and not loading them takes time.
const MIN_REUSE: usize = 64;

/// Drops and separates the taps, or kernel positions, of `f32` convolutions with constant weights.
pub fn separate_taps(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let Some(positions) = Positions::of(graph, node).map_err(wrong)? else {
            rewriter.copy(node)?;
            continue;
        };
        let output = match positions.separate_axes() {
            Some(separate) => positions.convolve_one_by_one(&separate, &mut rewriter, node)?,
            None => positions.convolve_together(&mut rewriter, node)?,
        };
        rewriter.replace(node.outputs[0], output);
    }
    Ok(rewriter.finish())
}

/// The kernel positions of a convolution that read more than padding.
struct Positions {
    /// The convolution with these positions alone.
    convolution: Convolution,
    /// Their weights.
    weights: Tensor,
    /// Along each axis, the results for which each index reads input.
    parts: Vec<Vec<WindowPart>>,
    /// Results along each axis.
    results: Vec<usize>,
    /// Whether some positions were dropped.
    is_smaller: bool,
}

/// Where an index along an axis of the kernel reads the input and not padding: results `first..last` read from
/// `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowPart {
    first: usize,
    last: usize,
    from: usize,
}

impl WindowPart {
    /// The part of `index` along `axis`; empty where it reads padding alone.
    fn of(window: &Window, axis: usize, index: usize, extents: [usize; 2]) -> Self {
        let [input, results] = extents;
        let (stride, offset) = (window.strides[axis], index * window.dilations[axis]);
        let begin = window.pads_begin[axis];
        let first = begin.saturating_sub(offset).div_ceil(stride).min(results);
        let last = (input + begin).saturating_sub(offset).div_ceil(stride).min(results);
        Self { first, last: last.max(first), from: (first * stride + offset).saturating_sub(begin) }
    }

    fn len(self) -> usize {
        self.last - self.first
    }
}

impl Positions {
    /// `None` for other nodes, and where nothing can be gained.
    fn of(graph: &Graph, node: &Node<Op>) -> Result<Option<Self>, OpError> {
        let Some(convolution) = node.operation.downcast::<Convolution>() else { return Ok(None) };
        let (Some(x), Some(w)) = (node.inputs[0], node.inputs[1]) else { return Ok(None) };
        let Some(weights) = graph.constant(w) else { return Ok(None) };
        let [input, results] =
            [x, node.outputs[0]].map(|value| &graph.tensor_type(value).shape[2..]);
        let kernel = &weights.shape()[2..];
        let working = matches!(weights.dtype(), DataType::F32 | DataType::F64);
        if !working || !convolution.window.is_padded() {
            return Ok(None);
        }
        let window = &convolution.window;
        let part =
            |axis: usize, index| WindowPart::of(window, axis, index, [input[axis], results[axis]]);
        let all: Vec<Vec<WindowPart>> = (0..kernel.len())
            .map(|axis| (0..kernel[axis]).map(|index| part(axis, index)).collect())
            .collect();
        let Some((window, ranges)) = trimmed(window, &all, input, results) else { return Ok(None) };
        let weights = weights_at(weights, &ranges)?;
        let parts = all.iter().zip(&ranges).map(|(parts, range)| parts[range.clone()].to_vec());
        let positions = Self {
            convolution: Convolution { window, groups: convolution.groups },
            parts: parts.collect(),
            results: results.to_vec(),
            is_smaller: weights.shape()[2..] != *kernel,
            weights,
        };
        let changes = positions.is_smaller || positions.separate_axes().is_some();
        Ok(changes.then_some(positions))
    }

    /// For each axis, whether its positions are convolved one by one; `None` where those of no axis are.
    fn separate_axes(&self) -> Option<Vec<bool>> {
        let axes = self.parts.len();
        if self.are_sparse() {
            return Some(vec![true; axes]);
        }
        let densities = (0..axes).map(|axis| (axis, self.density(axis)));
        let (axis, density) = densities.min_by(|one, other| one.1.total_cmp(&other.1))?;
        let separate: Vec<bool> = (0..axes).map(|other| other == axis).collect();
        let shape = self.weights.shape();
        let products = shape[1..].iter().product::<usize>() / self.parts[axis].len();
        let is_worth = axes != 2
            && self.parts[axis].len() <= MAX_POSITIONS
            && density <= MAX_DENSITY_OF_AXIS
            && self.convolution.window.strides[axis] == 1
            && products >= MIN_PRODUCTS
            && self.results.iter().product::<usize>() >= MIN_REUSE
            && self.covering_position(&separate).is_some();
        is_worth.then_some(separate)
    }

    /// Whether most products are with padding, and the rest takes long enough.
    fn are_sparse(&self) -> bool {
        let axes = self.parts.len();
        let all: usize = self.parts.iter().map(Vec::len).product();
        let plain = self.convolution.window.strides.iter().all(|stride| *stride == 1);
        plain
            && (2..=MAX_POSITIONS).contains(&all)
            && self.results.iter().product::<usize>() >= MIN_REUSE
            && (0..axes).map(|axis| self.density(axis)).product::<f64>()
                <= MAX_DENSITY * self.gain()
            && self.covering_position(&vec![true; axes]).is_some()
    }

    /// Which fraction of the time at a position is that of its products, where positions are convolved one by one. In
    /// depthwise convolutions it is small: each position has one product for a result.
    fn gain(&self) -> f64 {
        let products = self.weights.shape()[1];
        products as f64 / (products + PRODUCTS_OF_ADDING) as f64
    }

    /// Which fraction of what is read along an axis is input, and not padding.
    fn density(&self, axis: usize) -> f64 {
        let read: usize = self.parts[axis].iter().map(|part| part.len()).sum();
        read as f64 / (self.parts[axis].len() * self.results[axis]) as f64
    }

    /// Each position along the axes that are `separate`, with all indices along the others.
    fn positions(&self, separate: &[bool]) -> Vec<Vec<Range<usize>>> {
        let axes = self.parts.iter().zip(separate);
        axes.fold(vec![Vec::new()], |positions, (parts, separate)| {
            let indices: Vec<Range<usize>> = match separate {
                true => (0..parts.len()).map(|index| index..index + 1).collect(),
                false => std::iter::once(0..parts.len()).collect(),
            };
            let further = |position: &Vec<Range<usize>>| {
                let position = position.clone();
                indices.clone().into_iter().map(move |index| [&position[..], &[index]].concat())
            };
            positions.iter().flat_map(further).collect()
        })
    }

    /// The results that a position reads input for along each axis: all of them along axes that are not separate.
    fn parts_at(&self, position: &[Range<usize>], separate: &[bool]) -> Vec<WindowPart> {
        let part = |axis: usize| match separate[axis] {
            true => self.parts[axis][position[axis].start],
            false => WindowPart { first: 0, last: self.results[axis], from: 0 },
        };
        (0..position.len()).map(part).collect()
    }

    /// The position that reads input for every result.
    fn covering_position(&self, separate: &[bool]) -> Option<Vec<Range<usize>>> {
        self.positions(separate).into_iter().find(|position| {
            let parts = self.parts_at(position, separate);
            parts.iter().zip(&self.results).all(|(part, all)| part.len() == *all)
        })
    }

    /// One convolution with all these positions.
    fn convolve_together(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
    ) -> Result<ValueId, PassError> {
        let weights = rewriter.constant(&node.name, self.weights.clone());
        let mut inputs: Vec<_> =
            node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
        inputs[1] = Some(weights);
        Ok(rewriter.add(&node.name, self.convolution.clone(), &inputs)?[0])
    }

    /// The sum of convolutions with one position each. The bias goes to the one that reads input for all results.
    fn convolve_one_by_one(
        &self,
        separate: &[bool],
        rewriter: &mut Rewriter,
        node: &Node<Op>,
    ) -> Result<ValueId, PassError> {
        let covering = self.covering_position(separate).unwrap_or_default();
        let mut sum = self.convolve_one(separate, rewriter, node, &covering)?;
        for position in self.positions(separate) {
            let empty = self.parts_at(&position, separate).iter().any(|part| part.len() == 0);
            if position == covering || empty {
                continue;
            }
            let term = self.convolve_one(separate, rewriter, node, &position)?;
            let add = Binary { function: BinaryFunction::Add };
            sum = rewriter.add_simple(&node.name, add, &[sum, term])?;
        }
        Ok(sum)
    }

    /// What one position adds to every result.
    fn convolve_one(
        &self,
        separate: &[bool],
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        position: &[Range<usize>],
    ) -> Result<ValueId, PassError> {
        let parts = self.parts_at(position, separate);
        let weights = weights_at(&self.weights, position)
            .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        let covers_all = parts.iter().zip(&self.results).all(|(part, all)| part.len() == *all);
        let (x, bias) = (node.inputs[0], node.inputs.get(2).copied().flatten());
        let mut inputs: Vec<_> = x
            .into_iter()
            .chain(bias.filter(|_| covers_all))
            .map(|value| rewriter.value(value))
            .collect();
        let extents = rewriter.target().tensor_type(inputs[0]).shape[2..].to_vec();
        let cuts = parts.iter().zip(extents).zip(separate);
        let (begin, end) = cuts
            .map(|((part, all), separate)| match separate {
                true => (-(part.from as i64), -((part.from + part.len()).abs_diff(all) as i64)),
                false => (0, 0),
            })
            .unzip();
        inputs[0] = padded(rewriter, node, inputs[0], begin, end)?;
        inputs.insert(1, rewriter.constant(&node.name, weights));
        let mut window = self.convolution.window.clone();
        for axis in (0..position.len()).filter(|axis| separate[*axis]) {
            (window.pads_begin[axis], window.pads_end[axis]) = (0, 0);
            window.dilations[axis] = 1;
        }
        let operation = Convolution { window, groups: self.convolution.groups };
        let result = rewriter.add_simple(&node.name, operation, &inputs)?;
        let begin = parts.iter().map(|part| part.first as i64).collect();
        let ends = parts.iter().zip(&self.results).map(|(part, all)| (all - part.last) as i64);
        padded(rewriter, node, result, begin, ends.collect())
    }
}

/// A value with zeros added around it along its spatial axes, or with elements cut off.
fn padded(
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    value: ValueId,
    begin: Vec<i64>,
    end: Vec<i64>,
) -> Result<ValueId, PassError> {
    if begin.iter().chain(&end).all(|amount| *amount == 0) {
        return Ok(value);
    }
    let [begin, end] = [begin, end].map(|amounts| [vec![0, 0], amounts].concat());
    rewriter.add_simple(
        &node.name,
        Pad { begin, end, mode: PadMode::Constant, value: 0.0 },
        &[value],
    )
}

/// The window of the positions that read more than padding, and which these are along each axis; `None`
/// where there are none, or no such window.
fn trimmed(
    window: &Window,
    parts: &[Vec<WindowPart>],
    input: &[usize],
    results: &[usize],
) -> Option<(Window, Vec<Range<usize>>)> {
    let mut trimmed = window.clone();
    let mut ranges = Vec::new();
    for (axis, parts) in parts.iter().enumerate() {
        let first = parts.iter().position(|part| part.len() > 0)?;
        let last = parts.iter().rposition(|part| part.len() > 0)?;
        let (stride, dilation) = (window.strides[axis], window.dilations[axis]);
        if first > 0 || last + 1 < parts.len() {
            let begin = window.pads_begin[axis].checked_sub(first * dilation)?;
            let read = (results[axis] - 1) * stride + (last - first) * dilation + 1;
            trimmed.pads_begin[axis] = begin;
            trimmed.pads_end[axis] = read.saturating_sub(input[axis] + begin);
        }
        ranges.push(first..last + 1);
    }
    let kernel: Vec<usize> = ranges.iter().map(ExactSizeIterator::len).collect();
    (trimmed.output(input, &kernel).ok()? == results).then_some((trimmed, ranges))
}

/// The weights of some positions.
fn weights_at(weights: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor, OpError> {
    let shape = weights.shape();
    let slice = Slice {
        starts: [0, 0].into_iter().chain(ranges.iter().map(|range| range.start)).collect(),
        steps: vec![1; shape.len()],
        extents: shape[..2]
            .iter()
            .copied()
            .chain(ranges.iter().map(ExactSizeIterator::len))
            .collect(),
    };
    Ok(slice.reference(&[Some(weights)])?.remove(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_graph::Operation;
    use hone_ops::evaluate;
    use hone_types::TensorType;

    /// The names of the nodes after the pass, which changes no result.
    fn separated(input: [usize; 2], window: Window) -> Vec<String> {
        let number = |index: usize| (index * 7 % 11) as f32 - 5.0;
        let tensor = |shape: &[usize]| {
            let elements: Vec<f32> = (0..shape.iter().product()).map(number).collect();
            Tensor::from_elements(shape.to_vec(), &elements).unwrap()
        };
        let x = tensor(&[1, 16, input[0], input[1]]);
        let mut graph = Graph::new();
        let value = graph.add_input("x", TensorType::new(DataType::F32, x.shape()));
        let w = graph.add_constant("w", tensor(&[3, 16, 3, 3]));
        let b = graph.add_constant("b", tensor(&[3]));
        let convolution = Convolution { window, groups: 1 };
        let inputs = [Some(value), Some(w), Some(b)];
        let y = graph.add_node("y", convolution.into(), &inputs).unwrap()[0];
        graph.add_output("y", y);
        let changed = separate_taps(&graph).unwrap();
        let run = |graph: &Graph| evaluate(graph, std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(&graph)[0].to_f64(), run(&changed)[0].to_f64());
        changed.nodes().iter().map(|(_, node)| node.operation.name().to_string()).collect()
    }

    fn dilated(dilation: usize, strides: usize) -> Window {
        Window {
            strides: vec![strides; 2],
            dilations: vec![dilation; 2],
            pads_begin: vec![dilation; 2],
            pads_end: vec![dilation; 2],
        }
    }

    #[test]
    fn positions_that_read_padding_alone_are_dropped() {
        assert_eq!(separated([9, 10], dilated(10, 1)), ["convolution"]);
        assert_eq!(separated([1, 10], dilated(1, 2)), ["convolution"]);
        assert_eq!(separated([2, 1], dilated(1, 1)), ["convolution"]);
    }

    /// Three frames: the middle one of three positions in time reads all of them, the others two each.
    #[test]
    fn positions_along_a_short_axis_are_separate() {
        let element = |index: usize| (index * 7 % 11) as f32 - 5.0;
        let tensor = |shape: [usize; 5]| {
            let elements: Vec<f32> = (0..shape.iter().product()).map(element).collect();
            Tensor::from_elements(shape, &elements).unwrap()
        };
        let x = tensor([1, 16, 3, 6, 7]);
        let mut graph = Graph::new();
        let value = graph.add_input("x", TensorType::new(DataType::F32, x.shape()));
        let w = graph.add_constant("w", tensor([4, 16, 3, 3, 3]));
        let window = Window {
            strides: vec![1, 1, 2],
            dilations: vec![1, 2, 1],
            pads_begin: vec![1, 2, 1],
            pads_end: vec![1, 2, 1],
        };
        let convolution = Convolution { window, groups: 1 };
        let y = graph.add_node("y", convolution.into(), &[Some(value), Some(w)]).unwrap()[0];
        graph.add_output("y", y);
        let changed = separate_taps(&graph).unwrap();
        let run = |graph: &Graph| evaluate(graph, std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(&graph)[0].to_f64(), run(&changed)[0].to_f64());
        let convolutions =
            changed.nodes().iter().filter(|(_, node)| node.operation.name() == Convolution::NAME);
        assert_eq!(convolutions.count(), 3);
    }

    /// Each position would be a convolution and a sum.
    #[test]
    fn many_positions_along_an_axis_stay_together() {
        let count = |kernel: usize, dilation: usize| {
            let mut graph = Graph::new();
            let x = graph.add_input("x", TensorType::new(DataType::F32, [1, 128, 101]));
            let weights = vec![1.0f32; 128 * kernel];
            let w = Tensor::from_elements([1, 128, kernel], &weights).unwrap();
            let w = graph.add_constant("w", w);
            let window = Window {
                strides: vec![1],
                dilations: vec![dilation],
                pads_begin: vec![kernel / 2 * dilation],
                pads_end: vec![kernel / 2 * dilation],
            };
            let convolution = Convolution { window, groups: 1 };
            let y = graph.add_node("y", convolution.into(), &[Some(x), Some(w)]).unwrap()[0];
            graph.add_output("y", y);
            separate_taps(&graph).unwrap().nodes().len()
        };
        assert!(count(MAX_POSITIONS, 3) > MAX_POSITIONS);
        assert_eq!(count(101, 1), 1);
    }

    #[test]
    fn positions_that_mostly_read_padding_are_separate() {
        let nodes = separated([9, 10], dilated(6, 1));
        assert_eq!(nodes.iter().filter(|name| *name == "convolution").count(), 9);
        assert_eq!(separated([9, 10], dilated(2, 1)), ["convolution"]);
    }

    /// Each position of a depthwise window adds one product to a result.
    #[test]
    fn positions_with_few_products_stay_together() {
        let nodes = |channels: usize| {
            let window = dilated(6, 1);
            let mut graph = Graph::new();
            let x = graph.add_input("x", TensorType::new(DataType::F32, [1, channels, 9, 10]));
            let w = Tensor::zeros(TensorType::new(DataType::F32, [1, channels, 3, 3]));
            let w = graph.add_constant("w", w);
            let convolution = Convolution { window, groups: 1 };
            let y = graph.add_node("y", convolution.into(), &[Some(x), Some(w)]).unwrap()[0];
            graph.add_output("y", y);
            separate_taps(&graph).unwrap().nodes().len()
        };
        assert_eq!(nodes(1), 1);
        assert!(nodes(64) > 9);
    }
}
