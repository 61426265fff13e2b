//! Scalar expressions: indices (in `i64`) and values.

use crate::{BufferId, Program, VarId};
use hone_types::DataType;

/// An operation on one value. Floating-point functions keep their operand's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-x`
    Negate,
    /// `|x|`
    Abs,
    /// e to the power of `x`
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// Arc sine.
    Asin,
    /// Arc cosine.
    Acos,
    /// Arc tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// Largest whole number not above `x`.
    Floor,
    /// Smallest whole number not below `x`.
    Ceil,
    /// Nearest whole number, halves to even.
    Round,
    /// Towards zero.
    Truncate,
    /// Logical or bitwise complement.
    Not,
    /// Whether `x` is not a number; a truth value.
    IsNan,
    /// Whether `x` is infinite; a truth value.
    IsInfinite,
}

/// An operation on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`; integers wrap.
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`; integers: towards zero.
    Divide,
    /// Integers: quotient rounded down (indices use this one).
    FloorDivide,
    /// Remainder with the divisor's sign (`a - b * floor(a / b)`).
    Modulo,
    /// Remainder with the dividend's sign (C's `%` and `fmod`).
    Remainder,
    /// The smaller; NaN where either is NaN.
    Minimum,
    /// The larger; NaN where either is NaN.
    Maximum,
    /// `a` to the power of `b`.
    Power,
    /// `a == b`; a truth value.
    Equal,
    /// `a < b`; a truth value.
    Less,
    /// `a <= b`; a truth value.
    LessEqual,
    /// Logical or bitwise and.
    And,
    /// Logical or bitwise or.
    Or,
    /// Logical or bitwise exclusive or.
    Xor,
    /// `a << b`
    ShiftLeft,
    /// `a >> b`
    ShiftRight,
}

impl BinaryOp {
    /// Whether the result is a truth value whatever the operands.
    pub const fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessEqual)
    }
}

/// A scalar expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// An index or another `i64`.
    Integer(i64),
    /// A constant of the given type (whole numbers of integer types must fit `f64` exactly).
    Constant(f64, DataType),
    /// A loop variable or block iterator; `i64`.
    Var(VarId),
    /// An element of a buffer.
    Load(BufferId, Vec<Expr>),
    /// An operation on one value.
    Unary(UnaryOp, Box<Expr>),
    /// An operation on two values of one type.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `if condition { then } else { otherwise }`. Only the chosen side is evaluated, so a load
    /// that the condition guards may be out of bounds otherwise.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Conversion as ONNX `Cast` does it: floats to integers towards zero, saturating.
    Cast(DataType, Box<Expr>),
}

impl Expr {
    /// `op(self)`
    pub fn unary(self, op: UnaryOp) -> Expr {
        Expr::Unary(op, Box::new(self))
    }

    /// `op(self, other)`
    pub fn binary(self, op: BinaryOp, other: Expr) -> Expr {
        Expr::Binary(op, Box::new(self), Box::new(other))
    }

    /// The smaller of the two.
    pub fn minimum(self, other: Expr) -> Expr {
        self.binary(BinaryOp::Minimum, other)
    }

    /// The larger of the two.
    pub fn maximum(self, other: Expr) -> Expr {
        self.binary(BinaryOp::Maximum, other)
    }

    /// Quotient rounded down, of integers.
    pub fn floor_divide(self, other: Expr) -> Expr {
        self.binary(BinaryOp::FloorDivide, other)
    }

    /// Remainder of [`Expr::floor_divide`].
    pub fn modulo(self, other: Expr) -> Expr {
        self.binary(BinaryOp::Modulo, other)
    }

    /// `self < other`
    pub fn less(self, other: Expr) -> Expr {
        self.binary(BinaryOp::Less, other)
    }

    /// `self <= other`
    pub fn less_equal(self, other: Expr) -> Expr {
        self.binary(BinaryOp::LessEqual, other)
    }

    /// `self == other`
    pub fn equal(self, other: Expr) -> Expr {
        self.binary(BinaryOp::Equal, other)
    }

    /// `self && other`
    pub fn and(self, other: Expr) -> Expr {
        self.binary(BinaryOp::And, other)
    }

    /// `if self { then } else { otherwise }`
    pub fn select(self, then: Expr, otherwise: Expr) -> Expr {
        Expr::Select(Box::new(self), Box::new(then), Box::new(otherwise))
    }

    /// Conversion to `dtype`.
    pub fn cast(self, dtype: DataType) -> Expr {
        Expr::Cast(dtype, Box::new(self))
    }

    /// The value of an integer literal.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Expr::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The element type, given the buffers of `program`.
    pub fn dtype(&self, program: &Program) -> DataType {
        match self {
            Expr::Integer(_) | Expr::Var(_) => DataType::I64,
            Expr::Constant(_, dtype) | Expr::Cast(dtype, _) => *dtype,
            Expr::Load(buffer, _) => program.buffers[*buffer].dtype,
            Expr::Unary(UnaryOp::IsNan | UnaryOp::IsInfinite, _) => DataType::Bool,
            Expr::Unary(_, operand) => operand.dtype(program),
            Expr::Binary(op, _, _) if op.is_comparison() => DataType::Bool,
            Expr::Binary(_, left, _) => left.dtype(program),
            Expr::Select(_, then, _) => then.dtype(program),
        }
    }

    /// The direct operands; indices, for a load.
    pub fn operands(&self) -> Vec<&Expr> {
        match self {
            Expr::Integer(_) | Expr::Constant(..) | Expr::Var(_) => vec![],
            Expr::Load(_, indices) => indices.iter().collect(),
            Expr::Unary(_, operand) | Expr::Cast(_, operand) => vec![operand],
            Expr::Binary(_, left, right) => vec![left, right],
            Expr::Select(condition, then, otherwise) => vec![condition, then, otherwise],
        }
    }

    /// The expression with each direct operand replaced by `change` of it.
    pub fn map_operands(&self, change: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
        match self {
            Expr::Integer(_) | Expr::Constant(..) | Expr::Var(_) => self.clone(),
            Expr::Load(buffer, indices) => {
                Expr::Load(*buffer, indices.iter().map(change).collect())
            }
            Expr::Unary(op, operand) => Expr::Unary(*op, Box::new(change(operand))),
            Expr::Cast(dtype, operand) => Expr::Cast(*dtype, Box::new(change(operand))),
            Expr::Binary(op, left, right) => {
                Expr::Binary(*op, Box::new(change(left)), Box::new(change(right)))
            }
            Expr::Select(condition, then, otherwise) => Expr::Select(
                Box::new(change(condition)),
                Box::new(change(then)),
                Box::new(change(otherwise)),
            ),
        }
    }

    /// Replaces variables: those for which `replace` gives an expression.
    pub fn substitute(&self, replace: &dyn Fn(VarId) -> Option<Expr>) -> Expr {
        match self {
            Expr::Var(var) => replace(*var).unwrap_or_else(|| self.clone()),
            _ => self.map_operands(&mut |operand| operand.substitute(replace)),
        }
    }

    /// Calls `visit` on the expression and everything below it, outermost first.
    pub fn visit(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        self.operands().into_iter().for_each(|operand| operand.visit(visit));
    }

    /// Whether `var` occurs.
    pub fn mentions(&self, var: VarId) -> bool {
        let mut found = false;
        self.visit(&mut |expr| found |= matches!(expr, Expr::Var(other) if *other == var));
        found
    }
}

impl From<i64> for Expr {
    fn from(value: i64) -> Expr {
        Expr::Integer(value)
    }
}

impl From<i32> for Expr {
    fn from(value: i32) -> Expr {
        Expr::Integer(i64::from(value))
    }
}

impl From<usize> for Expr {
    fn from(value: usize) -> Expr {
        Expr::Integer(value as i64)
    }
}

impl From<VarId> for Expr {
    fn from(var: VarId) -> Expr {
        Expr::Var(var)
    }
}

macro_rules! arithmetic {
    ($($operator:ident, $method:ident => $op:ident);* $(;)?) => {$(
        impl<T: Into<Expr>> std::ops::$operator<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                self.binary(BinaryOp::$op, other.into())
            }
        }
    )*};
}

arithmetic!(Add, add => Add; Sub, sub => Subtract; Mul, mul => Multiply; Div, div => Divide);
