//! Losses, made of simpler operators.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{
    BinaryFunction as B, Gather, GatherElements, ReduceFunction as R, UnaryFunction as U,
};

/// `NegativeLogLikelihoodLoss`: inputs log probabilities `[N, C, d...]`, target `[N, d...]`, and optionally a
/// weight for each class.
pub(super) fn negative_log_likelihood(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    Ok(vec![loss(builder, node, input)?])
}

/// `SoftmaxCrossEntropyLoss`: the same of the logarithm of a softmax over the classes, which is the second
/// output.
pub(super) fn softmax_cross_entropy(builder: &mut Builder, node: &mut Node) -> Outputs {
    let scores = node.input(0)?;
    let logarithms = super::normalization::softmax_of(builder, scores, 1, true)?;
    Ok(vec![loss(builder, node, logarithms)?, logarithms])
}

fn loss(b: &mut Builder, node: &mut Node, input: Operand) -> Step {
    let target = node.input(1)?;
    let ignored = node.int("ignore_index")?;
    let reduction = node.string_or("reduction", "mean")?;
    let shape = b.shape(target);
    if b.rank(input) != shape.len() + 1 || shape.is_empty() {
        let (input, target) = (b.tensor_type(input), b.tensor_type(target));
        return Err(NodeError::invalid(format!("target {target} does not fit {input}")));
    }
    let dtype = b.dtype(input);
    // Where the target is the class that does not count, any class is looked up and nothing counts.
    let mut counts = None;
    let mut class = target;
    if let Some(ignored) = ignored {
        let number = b.integers(&[ignored])?;
        let number = b.reshape(number, vec![])?;
        let number = b.cast(number, b.dtype(target))?;
        let same = b.binary(B::Equal, target, number)?;
        let zero = b.scalar(b.dtype(target), 0.0)?;
        class = b.select(same, zero, target)?;
        counts = Some(b.unary(U::Not, same)?);
    }
    let column = b.reshape(class, [&shape[..1], &[1], &shape[1..]].concat())?;
    let chosen = b.apply(GatherElements { axis: 1 }, &[input, column])?;
    let chosen = b.reshape(chosen, shape.clone())?;
    let mut loss = b.unary(U::Negate, chosen)?;
    let mut weight = match node.optional(2) {
        Some(weights) => Some(b.apply(Gather { axis: 0 }, &[weights, class])?),
        None => None,
    };
    if let Some(weight) = weight {
        loss = b.multiply(loss, weight)?;
    }
    if let Some(counts) = counts {
        let (zero, one) = (b.scalar(dtype, 0.0)?, b.scalar(dtype, 1.0)?);
        loss = b.select(counts, loss, zero)?;
        weight = Some(b.select(counts, weight.unwrap_or(one), zero)?);
    }
    let all: Vec<usize> = (0..shape.len()).collect();
    match (reduction.as_str(), weight) {
        ("none", _) => Ok(loss),
        ("sum", _) => b.reduce(R::Sum, loss, all, false),
        ("mean", None) => b.reduce(R::Mean, loss, all, false),
        ("mean", Some(weight)) => {
            let sum = b.reduce(R::Sum, loss, all.clone(), false)?;
            let weights = b.reduce(R::Sum, weight, all, false)?;
            b.divide(sum, weights)
        }
        (other, _) => Err(NodeError::invalid(format!("reduction '{other}' is unknown"))),
    }
}
