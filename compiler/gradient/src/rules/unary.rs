//! Functions of one value.

use super::{Pulled, Rule, Site};
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{BinaryFunction as B, Unary, UnaryFunction as U};
use std::f64::consts::PI;

impl Rule for Unary {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None]) };
        let x = site.input(0)?;
        if matches!(self.function, U::Floor | U::Ceil | U::Round | U::Sign) {
            return Ok(vec![None]);
        }
        Ok(vec![Some(pulled(self.function, nodes, x, y, dy)?)])
    }
}

/// `dy` times the derivative of `y = function(x)`.
fn pulled(function: U, n: &mut Nodes<'_>, x: ValueId, y: ValueId, dy: ValueId) -> Step {
    match function {
        U::Negate => n.negate(dy),
        U::Abs => {
            let sign = n.unary(U::Sign, x)?;
            n.multiply(dy, sign)
        }
        U::Exp => n.multiply(dy, y),
        U::Log => n.divide(dy, x),
        U::Sqrt => {
            let half = n.scale(dy, 0.5)?;
            n.divide(half, y)
        }
        U::Reciprocal => {
            let square = n.multiply(y, y)?;
            let factor = n.negate(square)?;
            n.multiply(dy, factor)
        }
        U::Relu => {
            let is_positive = n.with(B::Greater, x, 0.0)?;
            n.keep(is_positive, dy)
        }
        U::Erf => {
            let square = n.multiply(x, x)?;
            let exponent = n.negate(square)?;
            let bell = n.unary(U::Exp, exponent)?;
            let factor = n.scale(bell, 2.0 / PI.sqrt())?;
            n.multiply(dy, factor)
        }
        U::Sigmoid => {
            let rest = n.number_with(B::Subtract, 1.0, y)?;
            let factor = n.multiply(y, rest)?;
            n.multiply(dy, factor)
        }
        U::Tanh | U::Tan => {
            let square = n.multiply(y, y)?;
            let sign = if function == U::Tan { B::Add } else { B::Subtract };
            let factor = n.number_with(sign, 1.0, square)?;
            n.multiply(dy, factor)
        }
        U::Sin | U::Cosh | U::Sinh => {
            let other = match function {
                U::Sin => U::Cos,
                U::Cosh => U::Sinh,
                _ => U::Cosh,
            };
            let factor = n.unary(other, x)?;
            n.multiply(dy, factor)
        }
        U::Cos => {
            let sine = n.unary(U::Sin, x)?;
            let factor = n.negate(sine)?;
            n.multiply(dy, factor)
        }
        _ => inverse(function, n, x, dy),
    }
}

/// As [`pulled`], of the inverse trigonometric and hyperbolic functions. What has no derivative at all never comes here:
/// its results are no floats.
fn inverse(function: U, n: &mut Nodes<'_>, x: ValueId, dy: ValueId) -> Step {
    let square = n.multiply(x, x)?;
    let divisor = match function {
        U::Atan => n.with(B::Add, square, 1.0)?,
        U::Atanh => n.number_with(B::Subtract, 1.0, square)?,
        U::Asinh => {
            let sum = n.with(B::Add, square, 1.0)?;
            n.unary(U::Sqrt, sum)?
        }
        U::Acosh => {
            let difference = n.with(B::Subtract, square, 1.0)?;
            n.unary(U::Sqrt, difference)?
        }
        _ => {
            let difference = n.number_with(B::Subtract, 1.0, square)?;
            n.unary(U::Sqrt, difference)?
        }
    };
    let quotient = n.divide(dy, divisor)?;
    if function == U::Acos { n.negate(quotient) } else { Ok(quotient) }
}
