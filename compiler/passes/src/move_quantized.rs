//! Moves quantized numbers as they are. Quantizers put a dequantization before and a quantization behind every operator,
//! and give operators that only move numbers, or take the largest of some, one scale and zero point for both. Those are
//! computed on the integers: dequantized and quantized again with the same scale, an integer is what it was.

use crate::dequantized::{Dequantized, bytes_of};
use crate::readers::{Readers, by_constant};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    BinaryFunction, Cast, Concat, Expand, Gather, Graph, Op, Pad, PadMode, Pool, PoolKind, Reduce,
    ReduceFunction, Reshape, Resize, ResizeMode, Slice, Tile, Transpose, Unary, UnaryFunction,
};
use hone_types::DataType;
use std::ops::{Range, RangeInclusive};

/// Maximum operators between a dequantization and a quantization.
const MAX_CHAIN_NODES: usize = 16;

/// Scales between which an integer of 8 bits times the scale, over the scale, rounds to itself: neither product nor
/// quotient leaves the normal numbers.
const SCALES: RangeInclusive<f64> = 1e-30..=1e30;

/// Computes on integers what moves them.
pub fn move_quantized(graph: &Graph) -> Result<Graph, PassError> {
    let mover = Mover { readers: Readers::of(graph) };
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let moved = mover
            .quantization(node)
            .and_then(|(value, scale)| mover.moved(value, scale, &mut { MAX_CHAIN_NODES }));
        match moved {
            Some(moved) => {
                let value = mover.write(&moved, &mut rewriter)?;
                rewriter.replace(node.outputs[0], value);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// Largest difference of two scales, relative to one of them, between which an integer of 8 bits still is what it was:
/// dequantized by one and quantized by the other it moves by 255 times that at most, far less than half a step.
const SAME_SCALE: f64 = 1e-5;

/// What integers stand for: `(q - zero) * scale`.
#[derive(Clone, Copy)]
struct Scale {
    scale: f64,
    zero: f64,
    dtype: DataType,
}

impl Scale {
    /// Whether every integer of one is the same integer of the other.
    fn keeps_integers(self, other: Self) -> bool {
        (self.zero, self.dtype) == (other.zero, other.dtype)
            && (self.scale - other.scale).abs() <= SAME_SCALE * self.scale
    }
}

/// Whether numbers of a type are computed as a model writes them: `f64` where a model was lifted to it.
fn is_real(dtype: DataType) -> bool {
    matches!(dtype, DataType::F32 | DataType::F64)
}

/// Integers, and what is computed of them.
enum Moved<'a> {
    /// A value of the graph.
    Integers(ValueId),
    /// A node of the graph, on other operands; `None` for one that stays as it is.
    Node(&'a Node<Op>, Vec<Option<Moved<'a>>>, Scale),
}

struct Mover<'a> {
    readers: Readers<'a>,
}

impl<'a> Mover<'a> {
    /// The operand of a binary operator whose other operand is one constant number, and this number.
    fn by_number(&self, node: &Node<Op>, function: BinaryFunction) -> Option<(ValueId, f64)> {
        let (value, number) = by_constant(self.readers.graph, node, function)?;
        (number.tensor_type().elements() == 1).then(|| (value, number.to_f64()[0]))
    }

    /// What a node quantizes, where it is the last one of a quantization.
    fn quantization(&self, node: &Node<Op>) -> Option<(ValueId, Scale)> {
        let cast = node.operation.downcast::<Cast>()?;
        let bytes = bytes_of(cast.to)?;
        let mut value = node.inputs[0]?;
        let mut zero = 0.0;
        if let Some((rounded, added)) =
            self.readers.producer(value).and_then(|node| self.by_number(node, BinaryFunction::Add))
        {
            (value, zero) = (rounded, added);
        }
        let round = self.readers.producer(value)?;
        let unary = round.operation.downcast::<Unary>()?;
        let divide = self.readers.producer(round.inputs[0]?)?;
        let (value, scale) = self.by_number(divide, BinaryFunction::Divide)?;
        let fits = unary.function == UnaryFunction::Round
            && is_real(self.readers.graph.tensor_type(value).dtype)
            && SCALES.contains(&scale)
            && zero.fract() == 0.0
            && bytes.contains(&zero);
        fits.then_some((value, Scale { scale, zero, dtype: cast.to }))
    }

    /// The integers that a value was dequantized from.
    fn dequantization(&self, value: ValueId) -> Option<(ValueId, Scale)> {
        let graph = self.readers.graph;
        let Dequantized { integers, zero, scales, .. } = Dequantized::of(graph, value)?;
        let [scale] = scales[..] else { return None };
        if !is_real(graph.tensor_type(value).dtype) {
            return None;
        }
        Some((integers, Scale { scale, zero, dtype: graph.tensor_type(integers).dtype }))
    }

    /// A value as integers with this scale, where it is made of such by moving them; `left` counts operators.
    fn moved(&self, value: ValueId, scale: Scale, left: &mut usize) -> Option<Moved<'a>> {
        if let Some((integers, found)) = self.dequantization(value) {
            return found.keeps_integers(scale).then_some(Moved::Integers(integers));
        }
        *left = left.checked_sub(1)?;
        let node = self.readers.producer_for_one(value)?;
        let operands = numbers_moved(node)?;
        let mut inputs: Vec<Option<Moved<'a>>> = node.inputs.iter().map(|_| None).collect();
        for operand in operands {
            inputs[operand] = Some(self.moved(node.inputs[operand]?, scale, left)?);
        }
        Some(Moved::Node(node, inputs, scale))
    }

    fn write(&self, moved: &Moved<'_>, rewriter: &mut Rewriter<'_>) -> Result<ValueId, PassError> {
        let (node, inputs, scale) = match moved {
            Moved::Integers(value) => return Ok(rewriter.value(*value)),
            Moved::Node(node, inputs, scale) => (*node, inputs, scale),
        };
        let mut operands = Vec::with_capacity(inputs.len());
        for (moved, input) in inputs.iter().zip(&node.inputs) {
            operands.push(match moved {
                Some(moved) => Some(self.write(moved, rewriter)?),
                None => input.map(|input| rewriter.value(input)),
            });
        }
        let operation: Op = match node.operation.downcast::<Pad>() {
            // What it pads with is zero.
            Some(pad) => Pad { value: scale.zero, ..pad.clone() }.into(),
            None => node.operation.clone(),
        };
        Ok(rewriter.add(&node.name, operation, &operands)?[0])
    }
}

/// The operands whose elements are those of a node's result, where it only moves elements, leaves some out, or takes the
/// largest or smallest of some; zeros may be added.
fn numbers_moved(node: &Node<Op>) -> Option<Range<usize>> {
    let operation = &node.operation;
    if operation.downcast::<Concat>().is_some() {
        return Some(0..node.inputs.len());
    }
    let moves = moves_elements(operation)
        || operation.downcast::<Gather>().is_some()
        || operation.downcast::<Pool>().is_some_and(|pool| pool.kind == PoolKind::Maximum)
        || operation.downcast::<Reduce>().is_some_and(|reduce| {
            matches!(reduce.function, ReduceFunction::Maximum | ReduceFunction::Minimum)
        })
        || operation.downcast::<Resize>().is_some_and(|resize| {
            matches!(resize.mode, ResizeMode::Nearest { .. }) && resize.region.is_empty()
        })
        || operation.downcast::<Pad>().is_some_and(|pad| {
            node.inputs.len() == 1 && (pad.mode != PadMode::Constant || pad.value == 0.0)
        });
    (moves && node.outputs.len() == 1).then_some(0..1)
}

/// Whether an operator gives elements of its only operand, wherever in it they lie and whatever they are.
pub(crate) fn moves_elements(operation: &Op) -> bool {
    operation.downcast::<Reshape>().is_some()
        || operation.downcast::<Transpose>().is_some()
        || operation.downcast::<Slice>().is_some()
        || operation.downcast::<Expand>().is_some()
        || operation.downcast::<Tile>().is_some()
}
