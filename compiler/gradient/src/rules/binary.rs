//! Functions of two values. What was broadcast is summed.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction as B, UnaryFunction as U};

impl Rule for Binary {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((y, dy)) = site.output() else { return Ok(vec![None; 2]) };
        let operands = Operands { a: site.input(0)?, b: site.input(1)?, y, dy };
        let mut contributions = Vec::with_capacity(2);
        for (place, operand) in [operands.a, operands.b].into_iter().enumerate() {
            contributions.push(match site.wants(place) {
                false => None,
                true => {
                    let whole = match place {
                        0 => operands.left(self.function, nodes),
                        _ => operands.right(self.function, nodes),
                    }?;
                    let shape = nodes.shape(operand);
                    Some(nodes.sum_to(whole, &shape)?)
                }
            });
        }
        Ok(contributions)
    }
}

/// `y = function(a, b)` and the adjoint of `y`.
struct Operands {
    a: ValueId,
    b: ValueId,
    y: ValueId,
    dy: ValueId,
}

impl Operands {
    /// What `a` contributes, of the shape of `y`.
    fn left(&self, function: B, n: &mut Nodes<'_>) -> Step {
        let Self { a, b, dy, .. } = *self;
        match function {
            B::Add | B::Subtract | B::Modulo | B::Remainder => Ok(dy),
            B::Multiply => n.multiply(dy, b),
            B::Divide => n.divide(dy, b),
            B::Power => self.base(n),
            B::Minimum => self.chosen(n, a, b, B::Less),
            B::Maximum => self.chosen(n, a, b, B::Greater),
            B::LeakyMultiply => {
                let scaled = n.multiply(dy, b)?;
                let is_negative = n.with(B::Less, a, 0.0)?;
                n.select(is_negative, scaled, dy)
            }
            _ => Err(missing(function)),
        }
    }

    /// What `b` contributes, of the shape of `y`.
    fn right(&self, function: B, n: &mut Nodes<'_>) -> Step {
        let Self { a, b, y, dy } = *self;
        match function {
            B::Add => Ok(dy),
            B::Subtract => n.negate(dy),
            B::Multiply => n.multiply(dy, a),
            B::Divide => {
                let quotient = n.divide(y, b)?;
                let product = n.multiply(dy, quotient)?;
                n.negate(product)
            }
            B::Power => self.exponent(n),
            B::Minimum => self.chosen(n, b, a, B::Less),
            B::Maximum => self.chosen(n, b, a, B::Greater),
            // `y = a - b * k` with a whole number `k`.
            B::Modulo | B::Remainder => {
                let multiple = n.subtract(y, a)?;
                let factor = n.divide(multiple, b)?;
                n.multiply(dy, factor)
            }
            B::LeakyMultiply => {
                let product = n.multiply(dy, a)?;
                let is_negative = n.with(B::Less, a, 0.0)?;
                n.keep(is_negative, product)
            }
            _ => Err(missing(function)),
        }
    }

    /// `dy` where `own` is the extreme, half of it where both are.
    fn chosen(&self, n: &mut Nodes<'_>, own: ValueId, other: ValueId, comes_before: B) -> Step {
        let half = n.scale(self.dy, 0.5)?;
        let is_equal = n.binary(B::Equal, own, other)?;
        let shared = n.keep(is_equal, half)?;
        let is_own = n.binary(comes_before, own, other)?;
        n.select(is_own, self.dy, shared)
    }

    /// `dy * b * a^(b - 1)`; zero where `b` is zero.
    fn base(&self, n: &mut Nodes<'_>) -> Step {
        let Self { a, b, dy, .. } = *self;
        let scaled = n.multiply(dy, b)?;
        let power = match n.only_number(b) {
            Some(0.0) => return Ok(scaled),
            Some(1.0) => return Ok(scaled),
            Some(2.0) => a,
            Some(exponent) => n.with(B::Power, a, exponent - 1.0)?,
            None => {
                let is_zero = n.with(B::Equal, b, 0.0)?;
                let one = n.scalar(n.dtype(b), 1.0)?;
                let exponent = n.select(is_zero, one, b)?;
                let exponent = n.with(B::Subtract, exponent, 1.0)?;
                n.binary(B::Power, a, exponent)?
            }
        };
        n.multiply(scaled, power)
    }

    /// `dy * y * ln(a)`; zero where `a` is zero.
    fn exponent(&self, n: &mut Nodes<'_>) -> Step {
        let is_zero = n.with(B::Equal, self.a, 0.0)?;
        let one = n.scalar(n.dtype(self.a), 1.0)?;
        let positive = n.select(is_zero, one, self.a)?;
        let logarithm = n.unary(U::Log, positive)?;
        let factor = n.multiply(self.y, logarithm)?;
        n.multiply(self.dy, factor)
    }
}

fn missing(function: B) -> RuleError {
    RuleError::Missing(format!("{function:?}"))
}
