//! Windows that reach past their input. Taps of a convolution that read padding alone are dropped; and
//! where most of what the others read is padding, as where windows are widely dilated, each tap becomes
//! a convolution of its own, of the part of the input that it reads.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Convolution, Graph, Op, OpError, Operator, Pad, PadMode, Slice, Window,
};
use hone_types::{DataType, Tensor};

/// Largest share of the products that is worth computing where taps are convolved one by one.
const LARGEST_SHARE: f64 = 0.6;
/// Most taps that are convolved one by one.
const MOST_TAPS: usize = 27;
/// Results, and so multiply-adds for each weight, from where computing and not loading them takes time.
const REUSE: usize = 64;

/// Drops and separates taps of `f32` convolutions with constant weights.
pub fn separate_taps(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let Some(taps) = Taps::of(graph, node).map_err(wrong)? else {
            rewriter.copy(node)?;
            continue;
        };
        let output = if taps.are_sparse() {
            taps.one_by_one(&mut rewriter, node)?
        } else {
            taps.together(&mut rewriter, node)?
        };
        rewriter.replace(node.outputs[0], output);
    }
    Ok(rewriter.finish())
}

/// A convolution's taps that read more than padding.
struct Taps {
    /// The convolution of these taps alone.
    convolution: Convolution,
    /// Their weights.
    weights: Tensor,
    /// Along each axis, the tap's part of the results.
    parts: Vec<Vec<Part>>,
    /// Results along each axis.
    results: Vec<usize>,
    /// Whether some taps were dropped.
    fewer: bool,
}

/// Where a tap reads the input and not padding: results `first..last` read from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    first: usize,
    last: usize,
    from: usize,
}

impl Part {
    /// The part of tap `tap`; empty where it reads padding alone.
    fn of(window: &Window, axis: usize, tap: usize, extents: [usize; 2]) -> Self {
        let [input, results] = extents;
        let (stride, offset) = (window.strides[axis], tap * window.dilations[axis]);
        let begin = window.pads_begin[axis];
        let first = begin.saturating_sub(offset).div_ceil(stride).min(results);
        let last = (input + begin).saturating_sub(offset).div_ceil(stride).min(results);
        Self { first, last: last.max(first), from: (first * stride + offset).saturating_sub(begin) }
    }

    fn len(self) -> usize {
        self.last - self.first
    }
}

impl Taps {
    /// `None` for other nodes, and where nothing can be gained.
    fn of(graph: &Graph, node: &Node<Op>) -> Result<Option<Self>, OpError> {
        let Some(convolution) = node.operation.downcast::<Convolution>() else { return Ok(None) };
        let (Some(x), Some(w)) = (node.inputs[0], node.inputs[1]) else { return Ok(None) };
        let Some(weights) = graph.constant(w) else { return Ok(None) };
        let [input, results] = [x, node.outputs[0]].map(|own| &graph.tensor_type(own).shape[2..]);
        let kernel = &weights.shape()[2..];
        let working = matches!(weights.dtype(), DataType::F32 | DataType::F64);
        if !working || !convolution.window.is_padded() {
            return Ok(None);
        }
        let window = &convolution.window;
        let part = |axis: usize, tap| Part::of(window, axis, tap, [input[axis], results[axis]]);
        let all: Vec<Vec<Part>> = (0..kernel.len())
            .map(|axis| (0..kernel[axis]).map(|tap| part(axis, tap)).collect())
            .collect();
        let Some((window, ranges)) = trimmed(window, &all, input, results) else { return Ok(None) };
        let weights = taps_of(weights, &ranges)?;
        let parts = all.iter().zip(&ranges).map(|(parts, range)| parts[range.clone()].to_vec());
        let taps = Self {
            convolution: Convolution { window, groups: convolution.groups },
            parts: parts.collect(),
            results: results.to_vec(),
            fewer: weights.shape()[2..] != *kernel,
            weights,
        };
        Ok((taps.fewer || taps.are_sparse()).then_some(taps))
    }

    /// Whether most products are with padding, and the rest takes long enough.
    fn are_sparse(&self) -> bool {
        let all: usize = self.parts.iter().map(Vec::len).product();
        let plain = self.convolution.window.strides.iter().all(|stride| *stride == 1);
        let live = self.parts.iter().zip(&self.results).map(|(parts, results)| {
            let read: usize = parts.iter().map(|part| part.len()).sum();
            read as f64 / (parts.len() * results) as f64
        });
        plain
            && (2..=MOST_TAPS).contains(&all)
            && self.results.iter().product::<usize>() >= REUSE
            && live.product::<f64>() <= LARGEST_SHARE
            && self.whole().is_some()
    }

    /// Each tap's place along the axes.
    fn places(&self) -> Vec<Vec<usize>> {
        self.parts.iter().fold(vec![Vec::new()], |places, parts| {
            let further = |place: &Vec<usize>| {
                let place = place.clone();
                (0..parts.len()).map(move |tap| [&place[..], &[tap]].concat())
            };
            places.iter().flat_map(further).collect()
        })
    }

    fn part(&self, place: &[usize]) -> Vec<Part> {
        place.iter().zip(&self.parts).map(|(tap, parts)| parts[*tap]).collect()
    }

    /// The tap that has a part in every result.
    fn whole(&self) -> Option<Vec<usize>> {
        self.places().into_iter().find(|place| {
            self.part(place).iter().zip(&self.results).all(|(part, all)| part.len() == *all)
        })
    }

    /// One convolution of these taps.
    fn together(&self, rewriter: &mut Rewriter, node: &Node<Op>) -> Result<ValueId, PassError> {
        let weights = rewriter.constant(&node.name, self.weights.clone());
        let mut inputs: Vec<_> =
            node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
        inputs[1] = Some(weights);
        Ok(rewriter.add(&node.name, self.convolution.clone(), &inputs)?[0])
    }

    /// The sum of convolutions of one tap each. The bias goes to the one that is part of all results.
    fn one_by_one(&self, rewriter: &mut Rewriter, node: &Node<Op>) -> Result<ValueId, PassError> {
        let whole = self.whole().unwrap_or_default();
        let mut sum = self.tap(rewriter, node, &whole)?;
        for place in self.places() {
            let empty = self.part(&place).iter().any(|part| part.len() == 0);
            if place == whole || empty {
                continue;
            }
            let own = self.tap(rewriter, node, &place)?;
            let add = Binary { function: BinaryFunction::Add };
            sum = rewriter.add_simple(&node.name, add, &[sum, own])?;
        }
        Ok(sum)
    }

    /// What one tap adds to every result.
    fn tap(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        place: &[usize],
    ) -> Result<ValueId, PassError> {
        let parts = self.part(place);
        let ranges: Vec<_> = place.iter().map(|tap| *tap..tap + 1).collect();
        let weights = taps_of(&self.weights, &ranges)
            .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        let whole = parts.iter().zip(&self.results).all(|(part, all)| part.len() == *all);
        let (x, bias) = (node.inputs[0], node.inputs.get(2).copied().flatten());
        let mut inputs: Vec<_> =
            x.into_iter().chain(bias.filter(|_| whole)).map(|own| rewriter.value(own)).collect();
        let extents = rewriter.target().tensor_type(inputs[0]).shape[2..].to_vec();
        let ends = parts.iter().zip(extents).map(|(own, all)| (own.from + own.len()).abs_diff(all));
        let cut = ends.map(|end| -(end as i64)).collect();
        let begin = parts.iter().map(|part| -(part.from as i64)).collect();
        inputs[0] = padded(rewriter, node, inputs[0], begin, cut)?;
        inputs.insert(1, rewriter.constant(&node.name, weights));
        let window = Window::plain(place.len());
        let operation = Convolution { window, groups: self.convolution.groups };
        let own = rewriter.add_simple(&node.name, operation, &inputs)?;
        let begin = parts.iter().map(|part| part.first as i64).collect();
        let ends = parts.iter().zip(&self.results).map(|(part, all)| (all - part.last) as i64);
        padded(rewriter, node, own, begin, ends.collect())
    }
}

/// A value with zeros around it along its spatial axes, or with less.
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

/// The window of the taps that read more than padding, and which these are along each axis; `None`
/// where there are none, or no such window.
fn trimmed(
    window: &Window,
    parts: &[Vec<Part>],
    input: &[usize],
    results: &[usize],
) -> Option<(Window, Vec<std::ops::Range<usize>>)> {
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

/// The weights of some taps.
fn taps_of(weights: &Tensor, ranges: &[std::ops::Range<usize>]) -> Result<Tensor, OpError> {
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
        let number = |place: usize| (place * 7 % 11) as f32 - 5.0;
        let tensor = |shape: &[usize]| {
            let elements: Vec<f32> = (0..shape.iter().product()).map(number).collect();
            Tensor::from_elements(shape.to_vec(), &elements).unwrap()
        };
        let x = tensor(&[1, 2, input[0], input[1]]);
        let mut graph = Graph::new();
        let value = graph.add_input("x", TensorType::new(DataType::F32, x.shape()));
        let w = graph.add_constant("w", tensor(&[3, 2, 3, 3]));
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
    fn taps_that_read_padding_alone_are_dropped() {
        assert_eq!(separated([9, 10], dilated(10, 1)), ["convolution"]);
        assert_eq!(separated([1, 10], dilated(1, 2)), ["convolution"]);
        assert_eq!(separated([2, 1], dilated(1, 1)), ["convolution"]);
    }

    #[test]
    fn taps_that_mostly_read_padding_are_separate() {
        let nodes = separated([9, 10], dilated(6, 1));
        assert_eq!(nodes.iter().filter(|name| *name == "convolution").count(), 9);
        assert_eq!(separated([9, 10], dilated(2, 1)), ["convolution"]);
    }
}
