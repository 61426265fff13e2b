//! Pads integers in place of the numbers that are dequantized from them, where a depthwise convolution reads those in
//! windows that overlap: it converts integers itself, and they are fewer bytes to pad. What stands for zero is the zero
//! point.

use crate::fuse::windows_overlap;
use crate::readers::{Readers, by_constant};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op, Pad, PadMode};
use hone_types::DataType;

/// Maximum steps from an integer to a number: two conversions, a zero point and a scale.
const MAX_STEPS: usize = 4;

/// Moves padding with zeros in front of dequantizations.
pub fn pad_integers(graph: &Graph) -> Result<Graph, PassError> {
    let readers = Readers::of(graph);
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match Dequantized::padded(&readers, node) {
            Some((found, pad)) => {
                let value = found.write(&mut rewriter, node, pad)?;
                rewriter.replace(node.outputs[0], value);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// What numbers were dequantized from.
struct Dequantized<'a> {
    integers: ValueId,
    /// The steps from an integer to a number, the last one first.
    steps: Vec<&'a Node<Op>>,
    /// The integer that stands for zero.
    zero: f64,
}

impl<'a> Dequantized<'a> {
    /// What a node pads with zeros for a depthwise convolution alone, and how the integers are padded in place of that. Where
    /// windows overlap little, the convolution pads while it reads, in its own kernel.
    fn padded(readers: &Readers<'a>, node: &Node<Op>) -> Option<(Self, Pad)> {
        let pad = node.operation.downcast::<Pad>()?;
        let zeros = pad.mode == PadMode::Constant && pad.value == 0.0 && node.inputs.len() == 1;
        let reader = readers.reader_of(node.outputs[0])?;
        if !zeros || !windows_overlap(readers.graph, reader) {
            return None;
        }
        let found = Self::of(readers.graph, node.inputs[0]?)?;
        let pad = Pad { value: found.zero, ..pad.clone() };
        (!found.steps.is_empty()).then_some((found, pad))
    }

    fn of(graph: &'a Graph, numbers: ValueId) -> Option<Self> {
        let mut found = Self { integers: numbers, steps: Vec::new(), zero: 0.0 };
        loop {
            let dtype = graph.tensor_type(found.integers).dtype;
            if matches!(dtype, DataType::U8 | DataType::I8) {
                let ends = if dtype == DataType::U8 { 0.0..=255.0 } else { -128.0..=127.0 };
                return ends.contains(&found.zero).then_some(found);
            }
            let node = &graph.nodes()[graph.producer(found.integers)?];
            found.integers = match node.operation.downcast::<Cast>() {
                // Where floats become integers the zero point is no integer of what is padded.
                Some(_) if dtype.is_float() => node.inputs[0]?,
                Some(_) => node.inputs[0].filter(|from| is_integer(graph, *from))?,
                None => found.less_constant(graph, node)?,
            };
            found.steps.push(node);
            if found.steps.len() > MAX_STEPS {
                return None;
            }
        }
    }

    /// What a node scales or takes a zero point from, which is noted.
    fn less_constant(&mut self, graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
        let function = node.operation.downcast::<Binary>()?.function;
        let (value, constant) = by_constant(graph, node, function)?;
        if node.inputs[0] != Some(value) {
            return None;
        }
        let number =
            *constant.to_f64().first().filter(|_| constant.tensor_type().elements() == 1)?;
        match function {
            // Zero stays zero; integers that are scaled have another zero point than their results.
            BinaryFunction::Multiply if !is_integer(graph, value) => {
                number.is_finite().then_some(value)
            }
            // In integers, where it is exact.
            BinaryFunction::Subtract if graph.tensor_type(value).dtype == DataType::I32 => {
                self.zero += number;
                Some(value)
            }
            _ => None,
        }
    }

    fn write(
        &self,
        rewriter: &mut Rewriter<'_>,
        node: &Node<Op>,
        pad: Pad,
    ) -> Result<ValueId, PassError> {
        let integers = rewriter.value(self.integers);
        let mut value = rewriter.add_simple(&node.name, pad, &[integers])?;
        for step in self.steps.iter().rev() {
            let mut inputs = vec![Some(value)];
            for constant in step.inputs.iter().skip(1).flatten() {
                inputs.push(Some(rewriter.value(*constant)));
            }
            value = rewriter.add(&step.name, step.operation.clone(), &inputs)?[0];
        }
        Ok(value)
    }
}

fn is_integer(graph: &Graph, value: ValueId) -> bool {
    !graph.tensor_type(value).dtype.is_float()
}
