//! Group normalization as exporters wrote it before ONNX had an operator for it: a reshape that makes each group
//! of channels one channel, an instance normalization, and the reshape back. As one operator it needs no channels
//! one after another, so that it is computed on blocks of them ([`crate::packed_normalization`]).

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, GroupNormalization, InstanceNormalization, Op, Reshape};
use hone_types::{Tensor, TensorType};

/// Replaces normalizations between two reshapes by [`GroupNormalization`] where the scale and the bias of the
/// groups are constants.
pub fn recognize_group_normalization(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(found) = Normalized::of(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let mut inputs = vec![rewriter.value(found.input)];
        for parameter in found.parameters {
            inputs.push(rewriter.constant(&node.name, parameter));
        }
        let output = rewriter.add_simple(&node.name, found.operation, &inputs)?;
        rewriter.replace(node.outputs[0], output);
    }
    Ok(rewriter.finish())
}

/// What the second reshape gives.
struct Normalized {
    input: ValueId,
    operation: GroupNormalization,
    /// Scale and bias of each channel.
    parameters: [Tensor; 2],
}

impl Normalized {
    /// The normalization that `node`, a reshape, gives back the shape of its input.
    fn of(graph: &Graph, node: &Node<Op>) -> Option<Self> {
        node.operation.downcast::<Reshape>()?;
        let producer = |value: ValueId| graph.producer(value).map(|id| &graph.nodes()[id]);
        let normalization = producer(node.inputs[0]?)?;
        let epsilon = normalization.operation.downcast::<InstanceNormalization>()?.epsilon;
        let [Some(grouped), Some(scale), Some(bias)] = normalization.inputs[..] else {
            return None;
        };
        let first = producer(grouped)?;
        first.operation.downcast::<Reshape>()?;
        let input = first.inputs[0]?;
        let [batch, channels, _, ..] = graph.tensor_type(input).shape[..] else { return None };
        let [same_batch, groups, ..] = graph.tensor_type(grouped).shape[..] else { return None };
        let is_back = graph.tensor_type(input) == graph.tensor_type(node.outputs[0]);
        if !is_back || batch != same_batch || groups == 0 || !channels.is_multiple_of(groups) {
            return None;
        }
        let each = channels / groups;
        let parameters = [scale, bias].map(|value| repeated(graph.constant(value)?, each));
        let [Some(scale), Some(bias)] = parameters else { return None };
        let operation = GroupNormalization { groups, epsilon };
        Some(Self { input, operation, parameters: [scale, bias] })
    }
}

/// Each element of a list `times` times.
fn repeated(list: &Tensor, times: usize) -> Option<Tensor> {
    let elements = list.bytes().chunks_exact(list.dtype().bytes());
    let bytes: Vec<u8> = elements.flat_map(|element| element.repeat(times)).collect();
    let length = list.shape().iter().product::<usize>() * times;
    Tensor::from_bytes(TensorType::new(list.dtype(), [length]), bytes).ok()
}
