//! Matrix product by weights of four or eight bits that share a scale in blocks, which are packed for it when compiling.

use crate::column_parts::{columns_at_a_time, in_parts};
use crate::dequantize_blocks::{WeightBits, high, low, zero};
use crate::express::{input, only_output};
use crate::matmul::MatMul;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr, Intrinsic};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `y[.., m, j] = sum over b of s[j, b] * t[m, b] * (sum over l of a[.., m, b, l] * (bits[j, b, l] - zero[j, b]))`.
///
/// Inputs: a `[.., M, B, L]`, floats or signed bytes; the bits of the weights, `u8[ceil(N / n), B, Q, n, r]`, whose byte at
/// `q` and `i` of a column holds the weight at `r q + i` of a block, or of four bits those at `2 r q + i` and, in the upper
/// half, `2 r q + r + i` (`r` is 4 where a is of bytes and 1 where it is of floats); their scales `[ceil(N / n), B, n]`; the
/// scales t of a, `[.., M, B]`, where it is of bytes; and zero points of the weights, `u8` as the scales are, in the middle
/// of the range where they are left out. The result, of the type of the scales, is `[.., M, N]`.
///
/// The sums over a block are integers where a is of bytes. So are its zero points' part: what is subtracted is the zero
/// point times the sum of the block of a.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackedBlockMatMul {
    /// Columns of the result, N.
    pub columns: usize,
    /// Bits of a weight.
    pub bits: WeightBits,
}

/// The operands' extents.
struct Extents {
    /// Blocks of columns, and columns in each.
    panels: [usize; 2],
    blocks: usize,
    /// Bytes of a column in a block: `Q` and `r`.
    bytes: [usize; 2],
    /// Bits of a weight.
    weight: WeightBits,
}

impl Extents {
    fn of(bits: &TensorType, weight: WeightBits) -> Option<Self> {
        match bits.shape[..] {
            [panels, blocks, steps, width, run] if width > 0 && run > 0 => {
                Some(Self { panels: [panels, width], blocks, bytes: [steps, run], weight })
            }
            _ => None,
        }
    }

    fn length(&self) -> usize {
        self.weight.per_byte() * self.bytes[0] * self.bytes[1]
    }
}

/// Most elements of a block whose products with signed bytes have a sum of 32 bits.
fn longest_block(weight: WeightBits) -> usize {
    i32::MAX as usize / (usize::from(weight.most()) * usize::from(i8::MIN.unsigned_abs()))
}

impl PackedBlockMatMul {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_block_matmul";

    /// Bytes of a column that lie side by side where the left operand is of type `left`: as many as an instruction for
    /// bytes reads in a lane, one for floats.
    pub fn run(left: DataType) -> usize {
        match left {
            DataType::I8 => Intrinsic::DOT_I8_U4.depth() as usize,
            _ => 1,
        }
    }

    /// Packs bytes of weights, as [`crate::DequantizeBlocks`] takes them, for panels of `width` columns and a left operand of
    /// type `left`. `None` where a block does not fill whole runs, or its sums of bytes may not fit 32 bits.
    pub fn pack_bits(
        bits: &Tensor,
        weight: WeightBits,
        width: usize,
        left: DataType,
    ) -> Option<Tensor> {
        let [columns, blocks, each] = bits.shape()[..] else { return None };
        let run = Self::run(left);
        if bits.dtype() != DataType::U8 || each == 0 || width == 0 || !each.is_multiple_of(run) {
            return None;
        }
        let length = weight.per_byte().saturating_mul(each);
        if left == DataType::I8 && length > longest_block(weight) {
            return None;
        }
        let (panels, bytes, per_byte) = (columns.div_ceil(width), bits.bytes(), weight.per_byte());
        let mut packed = vec![0u8; panels * blocks * each * width];
        for (column, row) in bytes.chunks(blocks * each).enumerate() {
            let number = |k: usize| weight.number(row, k);
            for block in 0..blocks {
                for step in 0..each / run {
                    for place in 0..run {
                        let k = per_byte * (block * each + run * step) + place;
                        let panel = (column / width * blocks + block) * (each / run) + step;
                        let to = (panel * width + column % width) * run + place;
                        packed[to] = match weight {
                            WeightBits::Four => number(k) | number(k + run) << 4,
                            WeightBits::Eight => number(k),
                        };
                    }
                }
            }
        }
        let shape = vec![panels, blocks, each / run, width, run];
        Tensor::from_bytes(TensorType::new(DataType::U8, shape), packed).ok()
    }

    /// Packs what is there once for each block, `[N, B]`, for panels of `width` columns: `[ceil(N / n), B, n]`.
    ///
    /// # Errors
    /// What is no matrix.
    pub fn pack_blocks(values: &Tensor, width: usize) -> Result<Tensor, OpError> {
        let [columns, blocks] = values.shape()[..] else {
            return Err(OpError::Value(format!("{} is no matrix", values.tensor_type())));
        };
        let size = values.dtype().bytes();
        let panels = columns.div_ceil(width.max(1));
        let mut packed = vec![0u8; panels * blocks * width * size];
        for (index, value) in values.bytes().chunks(size).enumerate() {
            let (column, block) = (index / blocks, index % blocks);
            let to = (column / width * blocks + block) * width + column % width;
            packed[to * size..][..size].copy_from_slice(value);
        }
        let shape = vec![panels, blocks, width];
        Ok(Tensor::from_bytes(TensorType::new(values.dtype(), shape), packed)?)
    }
}

/// Packed weights, for the reference.
struct Weights<'a> {
    extents: Extents,
    bits: &'a [u8],
    scales: Vec<f64>,
    zeros: Option<&'a [u8]>,
}

impl Weights<'_> {
    fn number(&self, k: usize, column: usize) -> f64 {
        let Extents { panels: [_, width], blocks, bytes: [steps, run], weight } = self.extents;
        let length = self.extents.length();
        let (block, within) = (k / length, k % length);
        let taken = weight.per_byte() * run;
        let (step, place) = (within / taken, within % taken);
        let panel = column / width * blocks + block;
        let shared = panel * width + column % width;
        let byte = self.bits[((panel * steps + step) * width + column % width) * run + place % run];
        let number = weight.number(&[byte], place / run);
        let zero = self.zeros.map_or(weight.middle(), |zeros| zeros[shared]);
        (f64::from(number) - f64::from(zero)) * self.scales[shared]
    }
}

impl Operator for PackedBlockMatMul {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let [a, bits, scales] =
            [0, 1, 2].map(|place| required::<TensorType>(Self::NAME, inputs, place));
        let (a, bits, scales) = (a?, bits?, scales?);
        let optional = |place: usize| inputs.get(place).copied().flatten();
        let (a_scales, zeros) = (optional(3), optional(4));
        let refuse = || Err(InferError::new(format!("operands {a}, {bits} and {scales} differ")));
        let Some(extents) = Extents::of(bits, self.bits).filter(|_| bits.dtype == DataType::U8)
        else {
            return refuse();
        };
        let [outer @ .., blocks, length] = &a.shape[..] else { return refuse() };
        let per_block = [extents.panels[0], extents.blocks, extents.panels[1]];
        let left_scales = TensorType::new(scales.dtype, [outer, &[*blocks]].concat());
        let fits = !outer.is_empty()
            && matches!(scales.dtype, DataType::F32 | DataType::F64)
            && [*blocks, *length] == [extents.blocks, extents.length()]
            && extents.bytes[1] == Self::run(a.dtype)
            && self.columns.div_ceil(extents.panels[1]) == extents.panels[0]
            && scales.shape == per_block
            && zeros.is_none_or(|own| own.dtype == DataType::U8 && own.shape == per_block);
        let typed = match a.dtype {
            DataType::I8 => a_scales == Some(&left_scales),
            other => other == scales.dtype && a_scales.is_none(),
        };
        if !fits || !typed {
            return refuse();
        }
        Ok(vec![bounded(scales.dtype, [outer, &[self.columns]].concat())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (a, bits) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let scales = required(Self::NAME, inputs, 2)?;
        let extents = Extents::of(bits.tensor_type(), self.bits)
            .ok_or_else(|| OpError::Value(format!("{} is not packed", bits.tensor_type())))?;
        let (length, depth) = (extents.length(), extents.blocks * extents.length());
        let weights = Weights {
            extents,
            bits: bits.bytes(),
            scales: scales.to_f64(),
            zeros: inputs.get(4).copied().flatten().map(Tensor::bytes),
        };
        let mut left = a.to_f64();
        if let Some(a_scales) = inputs.get(3).copied().flatten() {
            let scaled = left.chunks_mut(length.max(1)).zip(a_scales.to_f64());
            scaled.for_each(|(block, scale)| block.iter_mut().for_each(|own| *own *= scale));
        }
        let rows = left.len().checked_div(depth).unwrap_or(0);
        let left = Tensor::from_f64(DataType::F64, [rows, depth], &left)?;
        let outer = &a.shape()[..a.shape().len() - 2];
        let output = TensorType::new(scales.dtype(), [outer, &[self.columns]].concat());
        let columns_of = |columns: Range<usize>| -> Result<Tensor, OpError> {
            let width = columns.len();
            let right: Vec<f64> = (0..depth)
                .flat_map(|k| columns.clone().map(move |column| (k, column)))
                .map(|(k, column)| weights.number(k, column))
                .collect();
            let right = Tensor::from_f64(DataType::F64, [depth, width], &right)?;
            let product = MatMul {}.reference(&[Some(&left), Some(&right)])?.remove(0);
            Ok(Tensor::from_f64(scales.dtype(), [rows, width], &product.to_f64())?)
        };
        Ok(vec![in_parts(&output, columns_at_a_time(depth, 1), columns_of)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let [a, bits, scales] = [input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?];
        let (a_scales, zeros) = (input(inputs, 3), input(inputs, 4));
        let output = only_output(self, builder, inputs)?;
        let a_type = builder.tensor_type(a);
        let extents = Extents::of(&builder.tensor_type(bits), self.bits)?;
        let [panels, width] = extents.panels;
        let [steps, run] = extents.bytes;
        let rows = &a_type.shape[..a_type.rank() - 2];
        // Sums of a block are of bytes in 32 bits, or of floats.
        let sum = if a_type.dtype == DataType::I8 { DataType::I32 } else { output.dtype };
        let element = move |outer: &[Expr], block: &Expr, within: Expr| {
            let value = Expr::Load(a, [outer, &[block.clone(), within]].concat());
            if sum == a_type.dtype { value } else { value.cast(sum) }
        };
        let of_blocks = TensorType::new(sum, [rows, &[extents.blocks]].concat());
        let lefts = builder.reduce(
            "block_sums",
            &of_blocks,
            &[extents.length()],
            Combiner::Sum,
            |to, l| {
                let (outer, block) = to.split_at(rows.len());
                element(outer, &block[0], l[0].clone())
            },
        );
        let products = TensorType::new(sum, [rows, &[panels, extents.blocks, width]].concat());
        let depth = if run == 1 { vec![steps] } else { vec![steps, run] };
        let products =
            builder.reduce("block_products", &products, &depth, Combiner::Sum, |point, k| {
                let (outer, at) = point.split_at(rows.len());
                let place = k.get(1).cloned().unwrap_or(Expr::Integer(0));
                let byte = [&at[..2], &[k[0].clone(), at[2].clone(), place.clone()]].concat();
                let byte = Expr::Load(bits, byte);
                let first = k[0].clone() * (self.bits.per_byte() * run) + place;
                if self.bits == WeightBits::Eight {
                    return element(outer, &at[1], first) * byte.cast(sum);
                }
                let second = first.clone() + run;
                element(outer, &at[1], first) * low(byte.clone()).cast(sum)
                    + element(outer, &at[1], second) * high(byte).cast(sum)
            });
        let scaled = TensorType::new(output.dtype, [rows, &[panels, width]].concat());
        let sums =
            builder.reduce("matmul", &scaled, &[extents.blocks], Combiner::Sum, |point, block| {
                let (outer, at) = point.split_at(rows.len());
                let shared = vec![at[0].clone(), block[0].clone(), at[1].clone()];
                let row = [outer, &block[..1]].concat();
                let product = [outer, &[at[0].clone(), block[0].clone(), at[1].clone()]].concat();
                let zero = zero(zeros, shared.clone(), self.bits, sum);
                let product = Expr::Load(products, product) - zero * Expr::Load(lefts, row.clone());
                let product =
                    if sum == output.dtype { product } else { product.cast(output.dtype) };
                let scaled = product * Expr::Load(scales, shared);
                match a_scales {
                    Some(a_scales) => scaled * Expr::Load(a_scales, row),
                    None => scaled,
                }
            });
        Some(vec![builder.map("unblock", &output, |point| {
            let (outer, column) = point.split_at(rows.len());
            let at = |index: Expr| [outer, &[index]].concat();
            let mut read = at(column[0].clone().floor_divide(width.into()));
            read.push(column[0].clone().modulo(width.into()));
            Expr::Load(sums, read)
        })])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let a = inputs.first().copied().flatten();
        let depth: usize = a.map_or(0, |a| a.shape.iter().rev().take(2).product());
        outputs.iter().map(|output| 2 * output.elements() as u64 * depth as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_whose_sums_may_overflow_are_not_packed() {
        let packed = |each: usize, weight, left| {
            let of = TensorType::new(DataType::U8, [1, 1, each]);
            let bits = Tensor::from_bytes(of, vec![u8::MAX; each]).ok();
            bits.and_then(|bits| PackedBlockMatMul::pack_bits(&bits, weight, 1, left)).is_some()
        };
        // 255 * 128 * 65,793 is the last that fits; runs are of four bytes.
        assert!(packed(65_792, WeightBits::Eight, DataType::I8));
        assert!(!packed(65_796, WeightBits::Eight, DataType::I8));
        assert!(packed(65_796, WeightBits::Eight, DataType::F32));
        assert!(packed(65_796, WeightBits::Four, DataType::I8));
    }
}
