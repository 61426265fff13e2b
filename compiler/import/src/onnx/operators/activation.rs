//! Activation functions, made of simpler ones.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, UnaryFunction as U};

/// `LeakyRelu`.
pub(super) fn leaky_relu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let alpha = node.float_or("alpha", 0.01)?;
    Ok(vec![builder.with_scalar(B::LeakyMultiply, node.input(0)?, alpha)?])
}

/// `alpha * (exp(x / divisor) - 1)` where `x` is negative, else `x`.
pub(super) fn exponential_below_zero(
    b: &mut Builder,
    x: Operand,
    alpha: f64,
    divisor: f64,
) -> Step {
    let scaled = if divisor == 1.0 { x } else { b.with_scalar(B::Divide, x, divisor)? };
    let exponential = b.unary(U::Exp, scaled)?;
    let less = b.with_scalar(B::Subtract, exponential, 1.0)?;
    let below = b.with_scalar(B::Multiply, less, alpha)?;
    let negative = b.with_scalar(B::Less, x, 0.0)?;
    b.select(negative, below, x)
}

/// `Elu`.
pub(super) fn elu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(vec![exponential_below_zero(builder, node.input(0)?, alpha, 1.0)?])
}

/// `Celu`.
pub(super) fn celu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(vec![exponential_below_zero(builder, node.input(0)?, alpha, alpha)?])
}

/// The `alpha` of `Selu` where none is given.
pub(super) const SELU_ALPHA: f64 = 1.673_263_192_176_818_8;

/// The `gamma` of `Selu` where none is given.
pub(super) const SELU_GAMMA: f64 = 1.050_700_902_938_842_8;

/// `gamma * Elu(x)`.
pub(super) fn selu_of(b: &mut Builder, x: Operand, alpha: f64, gamma: f64) -> Step {
    let elu = exponential_below_zero(b, x, alpha, 1.0)?;
    b.with_scalar(B::Multiply, elu, gamma)
}

/// `Selu`.
pub(super) fn selu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (alpha, gamma) = (node.float_or("alpha", SELU_ALPHA)?, node.float_or("gamma", SELU_GAMMA)?);
    Ok(vec![selu_of(builder, node.input(0)?, alpha, gamma)?])
}

/// `log(1 + exp(x))` as `max(x, 0) + log(1 + exp(-|x|))`, which does not overflow.
pub(super) fn log_one_plus_exp(b: &mut Builder, x: Operand) -> Step {
    let magnitude = b.unary(U::Abs, x)?;
    let negated = b.unary(U::Negate, magnitude)?;
    let exponential = b.unary(U::Exp, negated)?;
    let more = b.with_scalar(B::Add, exponential, 1.0)?;
    let rest = b.unary(U::Log, more)?;
    let positive = b.unary(U::Relu, x)?;
    b.add(positive, rest)
}

/// `Softplus`.
pub(super) fn softplus(builder: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![log_one_plus_exp(builder, node.input(0)?)?])
}

/// `x / (1 + |x|)`.
pub(super) fn softsign_of(b: &mut Builder, x: Operand) -> Step {
    let magnitude = b.unary(U::Abs, x)?;
    let more = b.with_scalar(B::Add, magnitude, 1.0)?;
    b.divide(x, more)
}

/// `Softsign`.
pub(super) fn softsign(builder: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![softsign_of(builder, node.input(0)?)?])
}

/// `min(max(alpha * x + beta, 0), 1)`
pub(super) fn hard_sigmoid_of(b: &mut Builder, x: Operand, alpha: f64, beta: f64) -> Step {
    let scaled = b.with_scalar(B::Multiply, x, alpha)?;
    let moved = b.with_scalar(B::Add, scaled, beta)?;
    let above = b.with_scalar(B::Maximum, moved, 0.0)?;
    b.with_scalar(B::Minimum, above, 1.0)
}

/// `HardSigmoid`.
pub(super) fn hard_sigmoid(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (alpha, beta) = (node.float_or("alpha", 0.2)?, node.float_or("beta", 0.5)?);
    Ok(vec![hard_sigmoid_of(builder, node.input(0)?, alpha, beta)?])
}

/// `HardSwish`: `x * min(max(x / 6 + 1 / 2, 0), 1)`.
pub(super) fn hard_swish(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let gate = hard_sigmoid_of(builder, x, 1.0 / 6.0, 0.5)?;
    Ok(vec![builder.multiply(x, gate)?])
}

/// `Swish`: `x * sigmoid(alpha * x)`.
pub(super) fn swish(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, alpha) = (node.input(0)?, node.float_or("alpha", 1.0)?);
    let scaled = if alpha == 1.0 { x } else { builder.with_scalar(B::Multiply, x, alpha)? };
    let gate = builder.unary(U::Sigmoid, scaled)?;
    Ok(vec![builder.multiply(x, gate)?])
}

/// `SwiGLU`: `a * sigmoid(alpha * a) * b`.
pub(super) fn gated_swish(builder: &mut Builder, node: &mut Node) -> Outputs {
    let gate = swish(builder, node)?[0];
    Ok(vec![builder.multiply(gate, node.input(1)?)?])
}

/// `Mish`: `x * tanh(softplus(x))`.
pub(super) fn mish(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let softplus = log_one_plus_exp(builder, x)?;
    let gate = builder.unary(U::Tanh, softplus)?;
    Ok(vec![builder.multiply(x, gate)?])
}

/// `x` where it is above `alpha`, else 0.
pub(super) fn above_threshold(b: &mut Builder, x: Operand, alpha: f64) -> Step {
    let above = b.with_scalar(B::Greater, x, alpha)?;
    let zero = b.scalar(b.dtype(x), 0.0)?;
    b.select(above, x, zero)
}

/// `ThresholdedRelu`.
pub(super) fn thresholded_relu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(vec![above_threshold(builder, node.input(0)?, alpha)?])
}

/// `Shrink`: what is within `lambd` of zero becomes zero, the rest moves towards it by `bias`.
pub(super) fn shrink(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, bias) = (node.input(0)?, node.float_or("bias", 0.0)?);
    let lambda = node.float_or("lambd", 0.5)?;
    let below = builder.with_scalar(B::Less, x, -lambda)?;
    let above = builder.with_scalar(B::Greater, x, lambda)?;
    let raised = builder.with_scalar(B::Add, x, bias)?;
    let lowered = builder.with_scalar(B::Subtract, x, bias)?;
    let zero = builder.scalar(builder.dtype(x), 0.0)?;
    let upper = builder.select(above, lowered, zero)?;
    Ok(vec![builder.select(below, raised, upper)?])
}

/// `Gelu`: exact by the error function, or approximated by `tanh`.
pub(super) fn gelu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    match node.string_or("approximate", "none")?.as_str() {
        "none" => Ok(vec![gelu_exact(builder, x)?]),
        "tanh" => Ok(vec![gelu_tanh(builder, x)?]),
        other => Err(NodeError::invalid(format!("approximation '{other}' is unknown"))),
    }
}

/// `FastGelu` of `com.microsoft`, with an optional bias.
pub(super) fn fast_gelu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = node.input(0)?;
    if let Some(bias) = node.optional(1) {
        x = builder.add(x, bias)?;
    }
    Ok(vec![gelu_tanh(builder, x)?])
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`
pub(super) fn gelu_exact(b: &mut Builder, x: Operand) -> Step {
    let scaled = b.with_scalar(B::Multiply, x, std::f64::consts::FRAC_1_SQRT_2)?;
    let erf = b.unary(U::Erf, scaled)?;
    half_gate(b, x, erf)
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`
fn gelu_tanh(b: &mut Builder, x: Operand) -> Step {
    let square = b.multiply(x, x)?;
    let cube = b.multiply(square, x)?;
    let small = b.with_scalar(B::Multiply, cube, 0.044_715)?;
    let sum = b.add(x, small)?;
    let scaled = b.with_scalar(B::Multiply, sum, (2.0 / std::f64::consts::PI).sqrt())?;
    let tanh = b.unary(U::Tanh, scaled)?;
    half_gate(b, x, tanh)
}

/// `x / 2 * (1 + gate)`
fn half_gate(b: &mut Builder, x: Operand, gate: Operand) -> Step {
    let more = b.with_scalar(B::Add, gate, 1.0)?;
    let half = b.with_scalar(B::Multiply, x, 0.5)?;
    b.multiply(half, more)
}
