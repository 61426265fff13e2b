//! Weights of four or eight bits that share a scale in blocks.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BinaryOp, BufferId, Builder, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `w[k, n] = (bits[n, k] - zero[n, k / L]) * scale[n, k / L]`, as ONNX Runtime's `MatMulNBits` stores the right operand
/// of a product: inputs are bytes `u8[N, B, L]`, or `u8[N, B, L / 2]` of numbers of four bits, each with an even `k` in its
/// lower half and the next one in the upper half; scales `[N, B]` and zero points `u8[N, B]`, which are in the middle of
/// the range where they are left out. The result is `[depth, N]` of the type of the scales.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DequantizeBlocks {
    /// Rows of the result, K: at most those that the blocks hold.
    pub depth: usize,
    /// Bits of a weight.
    pub bits: WeightBits,
}

/// Bits of a weight that is stored without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum WeightBits {
    /// Two in a byte, the first in its lower half.
    Four,
    /// One in a byte.
    Eight,
}

impl From<WeightBits> for u8 {
    fn from(bits: WeightBits) -> u8 {
        match bits {
            WeightBits::Four => 4,
            WeightBits::Eight => 8,
        }
    }
}

impl TryFrom<u8> for WeightBits {
    type Error = String;

    fn try_from(bits: u8) -> Result<Self, String> {
        match bits {
            4 => Ok(WeightBits::Four),
            8 => Ok(WeightBits::Eight),
            other => Err(format!("weights of {other} bits are not stored in blocks")),
        }
    }
}

impl WeightBits {
    /// Weights in a byte.
    pub fn per_byte(self) -> usize {
        match self {
            WeightBits::Four => 2,
            WeightBits::Eight => 1,
        }
    }

    /// The largest number that is stored.
    pub(crate) fn most(self) -> u8 {
        match self {
            WeightBits::Four => 15,
            WeightBits::Eight => u8::MAX,
        }
    }

    /// The zero point where none is given: the middle of the range.
    pub(crate) fn middle(self) -> u8 {
        match self {
            WeightBits::Four => 8,
            WeightBits::Eight => 128,
        }
    }

    /// The weight of some bytes with this index.
    pub(crate) fn number(self, bytes: &[u8], index: usize) -> u8 {
        match self {
            WeightBits::Four => bytes[index / 2] >> (4 * (index % 2)) & 15,
            WeightBits::Eight => bytes[index],
        }
    }
}

impl DequantizeBlocks {
    /// Name in text forms.
    pub const NAME: &'static str = "dequantize_blocks";
}

/// Columns, blocks and elements of a block that some bytes hold, with scales and zero points for them.
fn blocks(inputs: &[Option<&TensorType>], weight: WeightBits) -> Result<[usize; 3], InferError> {
    let name = DequantizeBlocks::NAME;
    let (bits, scales) = (required(name, inputs, 0)?, required(name, inputs, 1)?);
    let [columns, blocks, bytes] = bits.shape[..] else {
        return Err(InferError::new(format!("{bits} does not hold blocks")));
    };
    let shape = [columns, blocks];
    let zeros = inputs.get(2).copied().flatten();
    let fits = bits.dtype == DataType::U8
        && bytes > 0
        && scales.dtype.is_float()
        && scales.shape == shape
        && zeros.is_none_or(|zeros| zeros.dtype == DataType::U8 && zeros.shape == shape);
    match fits {
        true => Ok([columns, blocks, bytes.saturating_mul(weight.per_byte())]),
        false => Err(InferError::new(format!("scales or zero points do not fit {bits}"))),
    }
}

impl Operator for DequantizeBlocks {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let [columns, blocks, length] = blocks(inputs, self.bits)?;
        let scales = required(Self::NAME, inputs, 1)?;
        if self.depth.div_ceil(length) != blocks {
            let held = blocks.saturating_mul(length);
            return Err(InferError::new(format!("{} rows are not the {held} held", self.depth)));
        }
        Ok(vec![bounded(scales.dtype, [self.depth, columns])?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (bits, scales) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let zeros = inputs.get(2).copied().flatten().map(Tensor::bytes);
        let [columns, blocks, bytes] = bits.shape()[..] else {
            return Err(OpError::Value("the bytes have three axes".to_owned()));
        };
        let values = scales.to_f64();
        let mut weights = vec![0.0; self.depth * columns];
        let length = bytes * self.bits.per_byte();
        for (column, row) in bits.bytes().chunks(blocks * bytes).enumerate() {
            for k in 0..self.depth {
                let block = column * blocks + k / length;
                let number = self.bits.number(row, k);
                let zero = zeros.map_or(self.bits.middle(), |zeros| zeros[block]);
                weights[k * columns + column] =
                    (f64::from(number) - f64::from(zero)) * values[block];
            }
        }
        Ok(vec![Tensor::from_f64(scales.dtype(), [self.depth, columns], &weights)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (bits, scales) = (input(inputs, 0)?, input(inputs, 1)?);
        let zeros = input(inputs, 2);
        let output = only_output(self, builder, inputs)?;
        let each = self.bits.per_byte();
        let length = each * *builder.tensor_type(bits).shape.last()?;
        Some(vec![builder.map("dequantized", &output, |point| {
            let (k, column) = (point[0].clone(), point[1].clone());
            let block = k.clone().floor_divide(length.into());
            let within = k.clone().modulo(length.into()).floor_divide(each.into());
            let byte = Expr::Load(bits, vec![column.clone(), block.clone(), within]);
            let number = match self.bits {
                WeightBits::Eight => byte,
                WeightBits::Four => {
                    let is_low = k.modulo(2.into()).equal(0.into());
                    is_low.select(low(byte.clone()), high(byte))
                }
            };
            let at = vec![column.clone(), block.clone()];
            let zero = zero(zeros, at, self.bits, output.dtype);
            (number.cast(output.dtype) - zero) * Expr::Load(scales, vec![column, block])
        })])
    }
}

/// The number in the lower half of a byte.
pub(crate) fn low(byte: Expr) -> Expr {
    byte.binary(BinaryOp::And, Expr::Constant(15.0, DataType::U8))
}

/// The number in the upper half of a byte.
pub(crate) fn high(byte: Expr) -> Expr {
    byte.binary(BinaryOp::ShiftRight, Expr::Constant(4.0, DataType::U8))
}

/// A zero point as a number of type `dtype`.
pub(crate) fn zero(
    zeros: Option<BufferId>,
    at: Vec<Expr>,
    bits: WeightBits,
    dtype: DataType,
) -> Expr {
    match zeros {
        Some(zeros) => Expr::Load(zeros, at).cast(dtype),
        None => Expr::Constant(f64::from(bits.middle()), dtype),
    }
}
