//! Pads integers in place of the numbers that are dequantized from them, where a depthwise convolution reads those in
//! windows that overlap: it converts integers itself, and they are fewer bytes to pad. What stands for zero is the zero
//! point.

use crate::dequantized::Dequantized;
use crate::fuse::windows_overlap;
use crate::readers::Readers;
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, Op, Pad, PadMode};

/// Moves padding with zeros in front of dequantizations.
pub fn pad_integers(graph: &Graph) -> Result<Graph, PassError> {
    let readers = Readers::of(graph);
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match padded(&readers, node) {
            Some((found, pad)) => {
                let value = write(&found, &mut rewriter, node, pad)?;
                rewriter.replace(node.outputs[0], value);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// What a node pads with zeros for a depthwise convolution alone, and how the integers are padded in place of that. Where
/// windows overlap little, the convolution pads while it reads, in its own kernel.
fn padded<'a>(readers: &Readers<'a>, node: &Node<Op>) -> Option<(Dequantized<'a>, Pad)> {
    let pad = node.operation.downcast::<Pad>()?;
    let zeros = pad.mode == PadMode::Constant && pad.value == 0.0 && node.inputs.len() == 1;
    let reader = readers.reader_of(node.outputs[0])?;
    if !zeros || !windows_overlap(readers.graph, reader) {
        return None;
    }
    let found = Dequantized::of(readers.graph, node.inputs[0]?)?;
    let pad = Pad { value: found.zero, ..pad.clone() };
    (!found.steps.is_empty()).then_some((found, pad))
}

/// Pads the integers, and dequantizes them behind that.
fn write(
    found: &Dequantized<'_>,
    rewriter: &mut Rewriter<'_>,
    node: &Node<Op>,
    pad: Pad,
) -> Result<ValueId, PassError> {
    let integers = rewriter.value(found.integers);
    let mut value = rewriter.add_simple(&node.name, pad, &[integers])?;
    for step in found.steps.iter().rev() {
        let mut inputs = vec![Some(value)];
        for constant in step.inputs.iter().skip(1).flatten() {
            inputs.push(Some(rewriter.value(*constant)));
        }
        value = rewriter.add(&step.name, step.operation.clone(), &inputs)?[0];
    }
    Ok(value)
}
