//! Element-wise functions of two values, with NumPy's broadcasting.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use hone_graph::InferError;
use hone_tensor::{BinaryOp, BufferId, Builder, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[i] = function(left[i], right[i])`; shapes broadcast against one another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Binary {
    /// The function.
    pub function: BinaryFunction,
}

/// A function of two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryFunction {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`; integers towards zero.
    Divide,
    /// `a` to the power of `b`
    Power,
    /// The smaller.
    Minimum,
    /// The larger.
    Maximum,
    /// Remainder with the divisor's sign.
    Modulo,
    /// Remainder with the dividend's sign.
    Remainder,
    /// `a == b`
    Equal,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// Logical and.
    And,
    /// Logical or.
    Or,
    /// Logical exclusive or.
    Xor,
    /// `a` where `a >= 0`, else `a * b` (PRelu).
    LeakyMultiply,
    /// And of each bit, of integers.
    BitAnd,
    /// Or of each bit, of integers.
    BitOr,
    /// Exclusive or of each bit, of integers.
    BitXor,
}

use BinaryFunction as F;

impl BinaryFunction {
    fn is_predicate(self) -> bool {
        matches!(
            self,
            F::Equal
                | F::Less
                | F::LessEqual
                | F::Greater
                | F::GreaterEqual
                | F::And
                | F::Or
                | F::Xor
        )
    }

    /// The function's value, in `f64`.
    pub fn evaluate(self, a: f64, b: f64, dtype: DataType) -> f64 {
        let truth = |holds: bool| f64::from(u8::from(holds));
        let either_nan = a.is_nan() || b.is_nan();
        match self {
            F::Add => a + b,
            F::Subtract => a - b,
            F::Multiply => a * b,
            F::Divide if dtype.is_float() => a / b,
            F::Divide => {
                if b == 0.0 {
                    0.0
                } else {
                    (a / b).trunc()
                }
            }
            F::Power => a.powf(b),
            F::Minimum => {
                if either_nan {
                    f64::NAN
                } else {
                    a.min(b)
                }
            }
            F::Maximum => {
                if either_nan {
                    f64::NAN
                } else {
                    a.max(b)
                }
            }
            F::Modulo if b == 0.0 && !dtype.is_float() => 0.0,
            F::Modulo => {
                let rest = a % b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
            }
            F::Remainder if b == 0.0 && !dtype.is_float() => 0.0,
            F::Remainder => a % b,
            F::Equal => truth(a == b),
            F::Less => truth(a < b),
            F::LessEqual => truth(a <= b),
            F::Greater => truth(a > b),
            F::GreaterEqual => truth(a >= b),
            F::And => truth(a != 0.0 && b != 0.0),
            F::Or => truth(a != 0.0 || b != 0.0),
            F::Xor => truth((a != 0.0) != (b != 0.0)),
            F::LeakyMultiply => {
                if a < 0.0 {
                    a * b
                } else {
                    a
                }
            }
            F::BitAnd | F::BitOr | F::BitXor => self.evaluate_integers(a as i64, b as i64) as f64,
        }
    }

    /// The function's value on 64-bit integers, which `f64` does not hold exactly.
    fn evaluate_integers(self, a: i64, b: i64) -> i64 {
        match self {
            F::Add => a.wrapping_add(b),
            F::Subtract => a.wrapping_sub(b),
            F::Multiply => a.wrapping_mul(b),
            F::Divide => a.checked_div(b).unwrap_or(0),
            F::Modulo => {
                let rest = a.checked_rem(b).unwrap_or(0);
                if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
            }
            F::Remainder => a.checked_rem(b).unwrap_or(0),
            F::Minimum => a.min(b),
            F::Maximum => a.max(b),
            F::Equal => (a == b).into(),
            F::Less => (a < b).into(),
            F::LessEqual => (a <= b).into(),
            F::Greater => (a > b).into(),
            F::GreaterEqual => (a >= b).into(),
            F::BitAnd => a & b,
            F::BitOr => a | b,
            F::BitXor => a ^ b,
            F::Power | F::And | F::Or | F::Xor | F::LeakyMultiply => {
                self.evaluate(a as f64, b as f64, DataType::I64) as i64
            }
        }
    }

    /// The function applied to `a` and `b` of type `dtype`.
    pub fn expression(self, a: Expr, b: Expr, dtype: DataType) -> Expr {
        let op = match self {
            F::Add => BinaryOp::Add,
            F::Subtract => BinaryOp::Subtract,
            F::Multiply => BinaryOp::Multiply,
            F::Divide => BinaryOp::Divide,
            F::Power => BinaryOp::Power,
            F::Minimum => BinaryOp::Minimum,
            F::Maximum => BinaryOp::Maximum,
            F::Modulo => BinaryOp::Modulo,
            F::Remainder => BinaryOp::Remainder,
            F::Equal => BinaryOp::Equal,
            F::Less => BinaryOp::Less,
            F::LessEqual => BinaryOp::LessEqual,
            F::Greater => return b.less(a),
            F::GreaterEqual => return b.less_equal(a),
            F::And | F::BitAnd => BinaryOp::And,
            F::Or | F::BitOr => BinaryOp::Or,
            F::Xor | F::BitXor => BinaryOp::Xor,
            F::LeakyMultiply => {
                let negative = a.clone().less(Expr::Constant(0.0, dtype));
                return negative.select(a.clone() * b, a);
            }
        };
        a.binary(op, b)
    }
}

impl Binary {
    /// Name in text forms.
    pub const NAME: &'static str = "binary";

    /// The operator of `function`.
    pub fn new(function: BinaryFunction) -> Self {
        Self { function }
    }
}

impl Operator for Binary {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if left.dtype != right.dtype {
            return Err(InferError::new(format!("operands differ in type: {left} and {right}")));
        }
        let is_bitwise = matches!(self.function, F::BitAnd | F::BitOr | F::BitXor);
        if is_bitwise && !left.dtype.is_integer() {
            return Err(InferError::new(format!("{left} has no bits to combine")));
        }
        let shape = broadcast_shapes(&left.shape, &right.shape)
            .ok_or_else(|| InferError::new(format!("{left} and {right} do not broadcast")))?;
        let dtype = if self.function.is_predicate() { DataType::Bool } else { left.dtype };
        Ok(vec![crate::shape::bounded(dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = self.infer(&[Some(left.tensor_type()), Some(right.tensor_type())])?.remove(0);
        let pairs = broadcast_pairs(left.shape(), right.shape(), &output.shape);
        if matches!(left.dtype(), DataType::I64 | DataType::U64) {
            let (a, b) = (left.to_i64(), right.to_i64());
            let values: Vec<i64> =
                pairs.map(|(i, j)| self.function.evaluate_integers(a[i], b[j])).collect();
            return Ok(vec![from_i64(&output, &values)?]);
        }
        let (a, b) = (left.to_f64(), right.to_f64());
        let dtype = left.dtype();
        let values: Vec<f64> =
            pairs.map(|(i, j)| self.function.evaluate(a[i], b[j], dtype)).collect();
        Ok(vec![wrapped(&output, &values)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (left, right) = (inputs.first().copied().flatten()?, inputs.get(1).copied().flatten()?);
        let types = (builder.tensor_type(left), builder.tensor_type(right));
        let output = self.infer(&[Some(&types.0), Some(&types.1)]).ok()?.remove(0);
        let name = format!("{:?}", self.function).to_lowercase();
        Some(vec![builder.map(&name, &output, |indices| {
            let a = Expr::Load(left, broadcast_indices(indices, &types.0.shape));
            let b = Expr::Load(right, broadcast_indices(indices, &types.1.shape));
            self.function.expression(a, b, types.0.dtype)
        })])
    }
}

/// The shape both broadcast to, by NumPy's rule; `None` where they do not.
pub fn broadcast_shapes(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let extent = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |own| shape[own])
    };
    (0..rank)
        .map(|axis| match (extent(left, axis), extent(right, axis)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}

/// The indices at which a tensor of `shape` is read for output point `indices`.
pub fn broadcast_indices(indices: &[Expr], shape: &[usize]) -> Vec<Expr> {
    let skipped = indices.len() - shape.len();
    let own = indices[skipped..].iter().zip(shape);
    own.map(|(index, extent)| if *extent == 1 { Expr::Integer(0) } else { index.clone() }).collect()
}

/// Flat places in both operands for each output element, row-major.
fn broadcast_pairs(
    left: &[usize],
    right: &[usize],
    output: &[usize],
) -> impl std::iter::Iterator<Item = (usize, usize)> {
    let strides = [broadcast_strides(left, output.len()), broadcast_strides(right, output.len())];
    let shape = output.to_vec();
    let elements: usize = shape.iter().product();
    (0..elements).map(move |flat| {
        let (mut rest, mut places) = (flat, [0, 0]);
        for axis in (0..shape.len()).rev() {
            let index = rest % shape[axis];
            rest /= shape[axis];
            places[0] += index * strides[0][axis];
            places[1] += index * strides[1][axis];
        }
        (places[0], places[1])
    })
}

/// Strides in elements over the axes of a broadcast output; 0 where the axis repeats.
fn broadcast_strides(shape: &[usize], rank: usize) -> Vec<usize> {
    let own = TensorType::new(DataType::Bool, shape).strides();
    let skipped = rank - shape.len();
    let mut strides = vec![0; skipped];
    strides.extend(
        own.iter().zip(shape).map(|(stride, extent)| if *extent == 1 { 0 } else { *stride }),
    );
    strides
}

/// Integers of fewer than 64 bits wrap around as the machine's do.
fn wrapped(output: &TensorType, values: &[f64]) -> Result<Tensor, OpError> {
    if !output.dtype.is_integer() {
        return Ok(Tensor::from_f64(output.dtype, output.shape.clone(), values)?);
    }
    let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
    from_i64(output, &values)
}

/// A tensor of integers or truth values from the low bits of `values`.
fn from_i64(output: &TensorType, values: &[i64]) -> Result<Tensor, OpError> {
    let width = output.dtype.bytes();
    let bytes = values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width));
    Ok(Tensor::from_bytes(output.clone(), bytes.collect())?)
}
