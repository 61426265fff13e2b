//! One step of an optimizer: `Adagrad`, `Adam`, `Momentum` of `ai.onnx.preview.training`. Inputs are the rate, the
//! number of steps so far, then all parameters, all gradients, and all of each state.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, UnaryFunction as U};

/// The inputs behind the first two in `kinds` lists of equal length, by parameter.
fn parameters(node: &Node, kinds: usize) -> Result<Vec<Vec<Operand>>, NodeError> {
    let all = node.variadic()?;
    let rest = all.get(2..).unwrap_or_default();
    if rest.is_empty() || !rest.len().is_multiple_of(kinds) {
        return Err(NodeError::invalid(format!(
            "{} inputs are not {kinds} for each parameter",
            all.len()
        )));
    }
    let count = rest.len() / kinds;
    Ok((0..count).map(|own| (0..kinds).map(|kind| rest[kind * count + own]).collect()).collect())
}

/// Outputs of all parameters, kind by kind.
fn by_kind(results: Vec<Vec<Operand>>, kinds: usize) -> Vec<Operand> {
    (0..kinds).flat_map(|kind| results.iter().map(move |own| own[kind])).collect()
}

/// `gradient + norm * parameter`
fn regularized(b: &mut Builder, x: Operand, gradient: Operand, norm: f64) -> Step {
    if norm == 0.0 {
        return Ok(gradient);
    }
    let pull = b.with_scalar(B::Multiply, x, norm)?;
    b.add(pull, gradient)
}

/// The number of steps in the type of `like`.
fn steps(b: &mut Builder, node: &Node, like: Operand) -> Step {
    let steps = b.cast(node.input(1)?, b.dtype(like))?;
    b.reshape(steps, vec![])
}

/// `rate`, a scalar.
fn rate(b: &mut Builder, node: &Node) -> Step {
    b.reshape(node.input(0)?, vec![])
}

/// `Adagrad`.
pub(super) fn adagrad(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (decay, epsilon) = (node.float_or("decay_factor", 0.0)?, node.float_or("epsilon", 1e-6)?);
    let norm = node.float_or("norm_coefficient", 0.0)?;
    let rate = rate(b, node)?;
    let mut results = Vec::new();
    for own in parameters(node, 3)? {
        let (x, gradient, squares) = (own[0], own[1], own[2]);
        let steps = steps(b, node, x)?;
        let decayed = b.with_scalar(B::Multiply, steps, decay)?;
        let divisor = b.with_scalar(B::Add, decayed, 1.0)?;
        let rate = b.divide(rate, divisor)?;
        let gradient = regularized(b, x, gradient, norm)?;
        let square = b.multiply(gradient, gradient)?;
        let squares = b.add(squares, square)?;
        let root = b.unary(U::Sqrt, squares)?;
        let root = b.with_scalar(B::Add, root, epsilon)?;
        let scaled = b.multiply(rate, gradient)?;
        let change = b.divide(scaled, root)?;
        results.push(vec![b.subtract(x, change)?, squares]);
    }
    Ok(by_kind(results, 2))
}

/// `Adam`.
pub(super) fn adam(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (alpha, beta) = (node.float_or("alpha", 0.9)?, node.float_or("beta", 0.999)?);
    let epsilon = node.float_or("epsilon", 1e-6)?;
    let norm = node.float_or("norm_coefficient", 0.0)?;
    let norm_after = node.float_or("norm_coefficient_post", 0.0)?;
    let rate = rate(b, node)?;
    let mut results = Vec::new();
    for own in parameters(node, 4)? {
        let (x, gradient) = (own[0], regularized(b, own[0], own[1], norm)?);
        let square = b.multiply(gradient, gradient)?;
        let mut averages = Vec::new();
        for (old, new, share) in [(own[2], gradient, alpha), (own[3], square, beta)] {
            let old = b.with_scalar(B::Multiply, old, share)?;
            let new = b.with_scalar(B::Multiply, new, 1.0 - share)?;
            averages.push(b.add(old, new)?);
        }
        let root = b.unary(U::Sqrt, averages[1])?;
        let root = b.with_scalar(B::Add, root, epsilon)?;
        // What the averages lack in the first steps.
        let steps = steps(b, node, x)?;
        let lack = |b: &mut Builder, share: f64| -> Step {
            let power = b.scalar_with(B::Power, share, steps)?;
            b.scalar_with(B::Subtract, 1.0, power)
        };
        let (first, second) = (lack(b, alpha)?, lack(b, beta)?);
        let second = b.unary(U::Sqrt, second)?;
        let factor = b.divide(second, first)?;
        let adjusted = b.multiply(rate, factor)?;
        let started = b.with_scalar(B::Greater, steps, 0.0)?;
        let adjusted = b.select(started, adjusted, rate)?;
        let scaled = b.multiply(adjusted, averages[0])?;
        let change = b.divide(scaled, root)?;
        let mut next = b.subtract(x, change)?;
        if norm_after != 0.0 {
            next = b.with_scalar(B::Multiply, next, 1.0 - norm_after)?;
        }
        results.push(vec![next, averages[0], averages[1]]);
    }
    Ok(by_kind(results, 3))
}

/// `Momentum`, plain or Nesterov's.
pub(super) fn momentum(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (alpha, beta) = (node.float_or("alpha", 0.0)?, node.float_or("beta", 0.0)?);
    let norm = node.float_or("norm_coefficient", 0.0)?;
    let nesterov = match node.string_or("mode", "standard")?.as_str() {
        "standard" => false,
        "nesterov" => true,
        other => return Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    };
    let rate = rate(b, node)?;
    let mut results = Vec::new();
    for own in parameters(node, 3)? {
        let (x, gradient) = (own[0], regularized(b, own[0], own[1], norm)?);
        // The first gradient counts in full.
        let steps = steps(b, node, x)?;
        let started = b.with_scalar(B::Greater, steps, 0.0)?;
        let (one, share) = (b.scalar(b.dtype(x), 1.0)?, b.scalar(b.dtype(x), beta)?);
        let share = b.select(started, share, one)?;
        let old = b.with_scalar(B::Multiply, own[2], alpha)?;
        let new = b.multiply(share, gradient)?;
        let speed = b.add(old, new)?;
        let mut change = speed;
        if nesterov {
            let ahead = b.with_scalar(B::Multiply, speed, alpha)?;
            change = b.add(gradient, ahead)?;
        }
        let change = b.multiply(rate, change)?;
        results.push(vec![b.subtract(x, change)?, speed]);
    }
    Ok(by_kind(results, 2))
}
