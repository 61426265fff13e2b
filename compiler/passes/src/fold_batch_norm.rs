//! Takes batch normalisation (inference form) into the convolution before it, or makes it one
//! multiplication and one addition per channel.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{BatchNormalization, Binary, BinaryFunction, Convolution, Graph, Op, OpError};
use hone_types::{Id, Tensor};
use std::collections::HashSet;

/// Removes every batch normalisation whose parameters are constants.
pub fn fold_batch_norm(graph: &Graph) -> Result<Graph, PassError> {
    let readers = graph.consumers();
    let outputs: HashSet<ValueId> = graph.outputs().iter().map(|port| port.value).collect();
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(affine) = Affine::of(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let convolution = node.inputs[0].and_then(|input| {
            let only_reader = readers[input.index()].len() == 1 && !outputs.contains(&input);
            graph.producer(input).filter(|_| only_reader)
        });
        let folded = convolution
            .map(|producer| fold(graph, &graph.nodes()[producer], &affine, &mut rewriter))
            .transpose()?
            .flatten();
        let output = match folded {
            Some(output) => output,
            None => apply(graph, node, &affine, &mut rewriter)?,
        };
        rewriter.replace(node.outputs[0], output);
    }
    Ok(rewriter.finish())
}

/// `y = x * factor + offset`, per channel.
struct Affine {
    factor: Vec<f64>,
    offset: Vec<f64>,
}

impl Affine {
    fn of(graph: &Graph, node: &Node<Op>) -> Option<Self> {
        let operation = node.operation.downcast::<BatchNormalization>()?;
        let constant = |index: usize| graph.constant(node.inputs.get(index).copied()??);
        let (scale, bias) = (constant(1)?.to_f64(), constant(2)?.to_f64());
        let (mean, variance) = (constant(3)?.to_f64(), constant(4)?.to_f64());
        let factor: Vec<f64> = scale
            .iter()
            .zip(&variance)
            .map(|(scale, variance)| scale / (variance + operation.epsilon).sqrt())
            .collect();
        let offset = (0..factor.len())
            .map(|channel| bias[channel] - mean[channel] * factor[channel])
            .collect();
        Some(Self { factor, offset })
    }
}

/// The convolution with scaled weights and bias, where those of the convolution are constants.
fn fold(
    graph: &Graph,
    node: &Node<Op>,
    affine: &Affine,
    rewriter: &mut Rewriter,
) -> Result<Option<ValueId>, PassError> {
    let Some(convolution) = node.operation.downcast::<Convolution>() else { return Ok(None) };
    let operand = |index: usize| node.inputs.get(index).copied().flatten();
    let Some(weights) = operand(1).and_then(|value| graph.constant(value)) else { return Ok(None) };
    let bias = match operand(2) {
        None => None,
        Some(value) => match graph.constant(value) {
            Some(bias) => Some(bias),
            None => return Ok(None),
        },
    };
    let constant = |source| PassError::Constant { node: node.name.clone(), source };
    let scaled = scale(weights, bias, affine).map_err(constant)?;
    let input = rewriter.value(node.inputs[0].unwrap_or(node.outputs[0]));
    let weights = rewriter.constant(&node.name, scaled.0);
    let bias = rewriter.constant(&node.name, scaled.1);
    let output = rewriter.add_simple(&node.name, convolution.clone(), &[input, weights, bias])?;
    Ok(Some(output))
}

fn scale(
    weights: &Tensor,
    bias: Option<&Tensor>,
    affine: &Affine,
) -> Result<(Tensor, Tensor), OpError> {
    let filter_elements: usize = weights.shape()[1..].iter().product();
    let mut values = weights.to_f64();
    for (filter, factor) in values.chunks_exact_mut(filter_elements.max(1)).zip(&affine.factor) {
        filter.iter_mut().for_each(|value| *value *= factor);
    }
    let biases = bias.map(Tensor::to_f64);
    let offsets: Vec<f64> = (0..affine.offset.len())
        .map(|channel| {
            let before = biases.as_ref().map_or(0.0, |biases| biases[channel]);
            before * affine.factor[channel] + affine.offset[channel]
        })
        .collect();
    let dtype = weights.dtype();
    Ok((
        Tensor::from_f64(dtype, weights.shape(), &values)?,
        Tensor::from_f64(dtype, [offsets.len()], &offsets)?,
    ))
}

/// One multiplication and one addition, broadcast over all axes but the channels'.
fn apply(
    graph: &Graph,
    node: &Node<Op>,
    affine: &Affine,
    rewriter: &mut Rewriter,
) -> Result<ValueId, PassError> {
    let input = node.inputs[0].unwrap_or(node.outputs[0]);
    let x_type = graph.tensor_type(input);
    let mut shape = vec![1; x_type.rank()];
    shape[1.min(x_type.rank() - 1)] = affine.factor.len();
    let constant = |values: &[f64]| {
        Tensor::from_f64(x_type.dtype, shape.clone(), values).map_err(|source| {
            PassError::Constant { node: node.name.clone(), source: source.into() }
        })
    };
    let (factor, offset) = (constant(&affine.factor)?, constant(&affine.offset)?);
    let (factor, offset) =
        (rewriter.constant(&node.name, factor), rewriter.constant(&node.name, offset));
    let x = rewriter.value(input);
    let scaled =
        rewriter.add_simple(&node.name, Binary::new(BinaryFunction::Multiply), &[x, factor])?;
    rewriter.add_simple(&node.name, Binary::new(BinaryFunction::Add), &[scaled, offset])
}
