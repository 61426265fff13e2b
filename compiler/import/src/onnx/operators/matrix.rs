//! Matrix products.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::BinaryFunction as B;

/// `MatMul`.
pub(super) fn matmul(builder: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![builder.matmul(node.input(0)?, node.input(1)?)?])
}

/// `Gemm`: `alpha * A' * B' + beta * C`.
pub(super) fn gemm(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (alpha, beta) = (node.float_or("alpha", 1.0)?, node.float_or("beta", 1.0)?);
    let (turn_a, turn_b) = (node.flag("transA", false)?, node.flag("transB", false)?);
    let a = matrix(builder, node.input(0)?, turn_a)?;
    let b = matrix(builder, node.input(1)?, turn_b)?;
    let mut product = builder.matmul(a, b)?;
    if alpha != 1.0 {
        product = builder.with_scalar(B::Multiply, product, alpha)?;
    }
    if let Some(mut c) = node.optional(2) {
        if beta != 1.0 {
            c = builder.with_scalar(B::Multiply, c, beta)?;
        }
        product = builder.add(product, c)?;
    }
    Ok(vec![product])
}

fn matrix(builder: &mut Builder, operand: Operand, turned: bool) -> Step {
    if builder.rank(operand) != 2 {
        let found = builder.tensor_type(operand);
        return Err(NodeError::invalid(format!("{found} is no matrix")));
    }
    if turned { builder.transpose(operand, vec![1, 0]) } else { Ok(operand) }
}
