//! Matrix products.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::BinaryFunction as B;
use hone_types::DataType;

/// `MatMul`.
pub(super) fn matmul(builder: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![builder.matmul(node.input(0)?, node.input(1)?)?])
}

/// `MatMulInteger`: `(A - a_zero_point) * (B - b_zero_point)` of bytes, in 32 bits. A zero point is one
/// number, or one for each row of A or column of B.
pub(super) fn matmul_integer(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (a, b) = (node.input(0)?, node.input(1)?);
    let (a_zero, b_zero) = (node.optional(2), node.optional(3));
    let a = centered(builder, a, a_zero, true)?;
    let b = centered(builder, b, b_zero, false)?;
    Ok(vec![builder.matmul(a, b)?])
}

/// Bytes in 32 bits, their zero point taken off.
fn centered(builder: &mut Builder, x: Operand, zero: Option<Operand>, of_rows: bool) -> Step {
    let wide = builder.cast(x, DataType::I32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let mut zero = builder.cast(zero, DataType::I32)?;
    let count = builder.tensor_type(zero).elements();
    if of_rows && builder.rank(zero) == 1 && count > 1 {
        zero = builder.reshape(zero, vec![count, 1])?;
    }
    builder.subtract(wide, zero)
}

/// `Gemm`: `alpha * A' * B' + beta * C`.
pub(super) fn gemm(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (alpha, beta) = (node.float_or("alpha", 1.0)?, node.float_or("beta", 1.0)?);
    // Before opset 7; the shapes say as much.
    node.ignore(&["broadcast"]);
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
