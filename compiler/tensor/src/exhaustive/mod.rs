//! Index arithmetic held against all values of small loops, one by one.
//!
//! What is said of an expression (a range, a simpler form, a bound over inner loops, that it determines a
//! variable) has to hold at every point; where a form is one that the analysis is made for, it also has to be said
//! as closely as the points allow.

#![allow(clippy::unwrap_used)]

mod affine;
mod domain;
mod independence;
mod sums;

use crate::{BinaryOp, Domain, Expr, UnaryOp, VarId};
use hone_types::{Id, Random};

/// Loops from the outermost in, and every iteration of them.
pub(crate) struct Loops {
    pub(crate) domain: Domain,
    pub(crate) points: Vec<Vec<i64>>,
}

impl Loops {
    /// Nested loops of these extents, which may mention the variables outside.
    pub(crate) fn of(extents: &[Expr]) -> Self {
        let mut domain = Domain::default();
        let mut points: Vec<Vec<i64>> = vec![vec![]];
        for (place, extent) in extents.iter().enumerate() {
            domain.push(id(place), extent);
            let inner = |point: Vec<i64>| {
                let values = 0..value(extent, &point);
                values.map(move |value| [point.clone(), vec![value]].concat())
            };
            points = points.into_iter().flat_map(inner).collect();
        }
        Self { domain, points }
    }

    /// Nested loops of constant extents.
    pub(crate) fn constant(extents: &[i64]) -> Self {
        Self::of(&extents.iter().map(|extent| Expr::Integer(*extent)).collect::<Vec<_>>())
    }

    /// A few small nests: constant extents, tiles with a last part, triangles.
    pub(crate) fn several() -> Vec<Self> {
        let last = |whole: i64, tile: i64| {
            Expr::Integer(tile).minimum(Expr::Integer(whole) - var(0) * tile)
        };
        vec![
            Self::constant(&[3, 4, 5]),
            Self::constant(&[1, 6, 2]),
            Self::of(&[Expr::Integer(4), last(10, 3), Expr::Integer(2)]),
            Self::of(&[Expr::Integer(3), var(0) + 1, Expr::Integer(5) - var(1)]),
            Self::of(&[Expr::Integer(5), Expr::Integer(5) - var(0), last(9, 2).maximum(1.into())]),
        ]
    }

    /// Least and largest value of an expression.
    pub(crate) fn ends(&self, expr: &Expr) -> (i64, i64) {
        let values = || self.points.iter().map(|point| value(expr, point));
        (values().min().unwrap_or(0), values().max().unwrap_or(0))
    }
}

pub(crate) fn id(place: usize) -> VarId {
    VarId::from_index(place)
}

pub(crate) fn var(place: usize) -> Expr {
    Expr::Var(id(place))
}

/// What an index expression is where the loops' variables have the values of `point`.
pub(crate) fn value(expr: &Expr, point: &[i64]) -> i64 {
    match expr {
        Expr::Integer(value) => *value,
        Expr::Var(var) => point[var.index()],
        Expr::Binary(op, left, right) => {
            let (left, right) = (value(left, point), value(right, point));
            match op {
                BinaryOp::Add => left + right,
                BinaryOp::Subtract => left - right,
                BinaryOp::Multiply => left * right,
                BinaryOp::FloorDivide => (left as f64 / right as f64).floor() as i64,
                BinaryOp::Modulo => left - right * (left as f64 / right as f64).floor() as i64,
                BinaryOp::Minimum => left.min(right),
                BinaryOp::Maximum => left.max(right),
                _ => panic!("{op:?} makes no index"),
            }
        }
        Expr::Select(condition, then, otherwise) => match truth(condition, point) {
            true => value(then, point),
            false => value(otherwise, point),
        },
        _ => panic!("{expr:?} is no index"),
    }
}

/// Whether a condition holds there.
pub(crate) fn truth(condition: &Expr, point: &[i64]) -> bool {
    match condition {
        Expr::Unary(UnaryOp::Not, inner) => !truth(inner, point),
        Expr::Binary(BinaryOp::And, a, b) => truth(a, point) && truth(b, point),
        Expr::Binary(BinaryOp::Or, a, b) => truth(a, point) || truth(b, point),
        Expr::Binary(BinaryOp::Less, a, b) => value(a, point) < value(b, point),
        Expr::Binary(BinaryOp::LessEqual, a, b) => value(a, point) <= value(b, point),
        Expr::Binary(BinaryOp::Equal, a, b) => value(a, point) == value(b, point),
        _ => panic!("{condition:?} is no condition"),
    }
}

/// A whole number from `-most` to `most`.
pub(crate) fn integer(random: &mut Random, most: i64) -> i64 {
    random.below((2 * most + 1) as usize) as i64 - most
}

/// An expression over the first `vars` variables, of at most `depth` operations on top of each other.
pub(crate) fn expression(random: &mut Random, vars: usize, depth: usize) -> Expr {
    if depth == 0 || random.below(6) == 0 {
        return match random.below(4) {
            0 => Expr::Integer(integer(random, 9)),
            _ => var(random.below(vars)),
        };
    }
    let inner = expression(random, vars, depth - 1);
    let divisor = Expr::Integer(random.below(6) as i64 + 1);
    match random.below(9) {
        0 | 1 => inner + expression(random, vars, depth - 1),
        2 => inner - expression(random, vars, depth - 1),
        3 | 4 => inner * integer(random, 6),
        5 => inner.floor_divide(divisor),
        6 => inner.modulo(divisor),
        7 => inner.minimum(expression(random, vars, depth - 1)),
        _ => inner.maximum(expression(random, vars, depth - 1)),
    }
}

/// A condition over the first `vars` variables, of at most `depth` connectives on top of each other.
pub(crate) fn condition(random: &mut Random, vars: usize, depth: usize) -> Expr {
    if depth == 0 || random.below(3) == 0 {
        let (left, right) = (expression(random, vars, 2), expression(random, vars, 1));
        let op = *random.pick(&[BinaryOp::Less, BinaryOp::LessEqual, BinaryOp::Equal]).unwrap();
        return left.binary(op, right);
    }
    let inner = condition(random, vars, depth - 1);
    match random.below(3) {
        0 => inner.unary(UnaryOp::Not),
        1 => inner.and(condition(random, vars, depth - 1)),
        _ => inner.binary(BinaryOp::Or, condition(random, vars, depth - 1)),
    }
}
