//! Weights of few bits, whose blocks have a scale each: `MatMulNBits`, `GatherBlockQuantized`, and matrices that
//! `DequantizeLinear` makes of blocks of four bits.

use super::indexing::indices;
use super::microsoft_quantized::biased;
use super::quantization::spread;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::narrow::NarrowType;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{
    BinaryFunction as B, DequantizeBlocks, Gather, ReduceFunction, UnaryFunction as U, WeightBits,
};
use hone_types::{DataType, Tensor};

/// The accuracy from which on the left operand may be rounded to bytes.
const BYTES_SUFFICE: i64 = 4;

/// What the attributes say of the right operand, `[K, N]`.
#[derive(Clone, Copy)]
struct Form {
    depth: usize,
    columns: usize,
    bits: usize,
    /// Elements along K that share a scale, and how many such blocks a column has.
    block: usize,
    blocks: usize,
}

impl Form {
    fn read(node: &mut Node) -> Result<Self, NodeError> {
        let size = |node: &mut Node, name: &str| -> Result<usize, NodeError> {
            let number = node.int_or(name, 0)?;
            usize::try_from(number)
                .map_err(|_| NodeError::invalid(format!("{name} {number} is negative")))
        };
        let (depth, columns) = (size(node, "K")?, size(node, "N")?);
        let (bits, block) = (node.int_or("bits", 4)?, size(node, "block_size")?);
        let bits = usize::try_from(bits).ok().filter(|bits| [2, 4, 8].contains(bits));
        let bits = bits.ok_or_else(|| NodeError::unsupported("other than 2, 4 or 8 bits"))?;
        let blocks = depth.checked_div(block).map_or(0, |_| depth.div_ceil(block));
        Ok(Self { depth, columns, bits, block, blocks })
    }

    /// The bits of a weight that stays as it is stored.
    fn stored(&self) -> Option<WeightBits> {
        WeightBits::try_from(u8::try_from(self.bits).ok()?).ok()
    }
}

/// `MatMulNBits`: B is stored as `[N, blocks, bytes]`, some bits each, with a scale for each block and zero points
/// packed alike (in the middle of the range where left out).
pub(super) fn matmul_bits(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = Form::read(node)?;
    let accuracy = node.int_or("accuracy_level", 0)?;
    if node.optional(4).is_some() {
        return Err(NodeError::unsupported("g_idx of MatMulNBits"));
    }
    let (packed, scales) = (node.input(1)?, node.input(2)?);
    let bytes = form.block.saturating_mul(form.bits).div_ceil(8);
    if b.shape(packed) != [form.columns, form.blocks, bytes] {
        return Err(NodeError::invalid(format!(
            "{} does not hold {} by {} in blocks of {}",
            b.tensor_type(packed),
            form.columns,
            form.depth,
            form.block
        )));
    }
    let mut left = node.input(0)?;
    if accuracy >= BYTES_SUFFICE && form.stored().is_some() && form.depth.is_multiple_of(form.block)
    {
        left = rounded_to_bytes(b, left, form)?;
    }
    let zeros = node.optional(3);
    let weights = match stored(b, packed, scales, zeros, form)? {
        Some(weights) => weights,
        None => computed(b, b.dtype(left), [packed, scales], zeros, form)?,
    };
    let weights = b.cast(weights, b.dtype(left))?;
    let result = b.matmul(left, weights)?;
    Ok(vec![biased(b, result, node.optional(5))?])
}

/// The weights as one node that stays until it is known what becomes of it: bytes hold one or two of them.
fn stored(
    b: &mut Builder,
    packed: Operand,
    scales: Operand,
    zeros: Option<Operand>,
    form: Form,
) -> Result<Option<Operand>, NodeError> {
    let integral = zeros.is_none_or(|zeros| b.dtype(zeros) == DataType::U8);
    let known = [Some(packed), Some(scales), zeros].into_iter().flatten();
    let constant = known.into_iter().all(|operand| b.tensor(operand).is_some());
    let Some(bits) = form.stored().filter(|bits| form.block.is_multiple_of(bits.per_byte())) else {
        return Ok(None);
    };
    if !constant || !integral {
        return Ok(None);
    }
    let Form { columns, blocks, .. } = form;
    let zeros = match zeros {
        None => None,
        Some(zeros) => {
            let row = blocks.div_ceil(bits.per_byte());
            let zeros = b.reshape(zeros, vec![columns, 1, row])?;
            let zeros = unpacked(b, zeros, form.bits, blocks)?;
            Some(b.reshape(zeros, vec![columns, blocks])?)
        }
    };
    let scales = b.cast(scales, DataType::F32)?;
    let scales = b.reshape(scales, vec![columns, blocks])?;
    let inputs = [Some(packed), Some(scales), zeros];
    let count = if zeros.is_some() { 3 } else { 2 };
    let operator = DequantizeBlocks { depth: form.depth, bits };
    b.apply_optional(operator, &inputs[..count]).map(Some)
}

/// A constant matrix `[K, N]` of four bits with a scale, and perhaps a zero point, for each `block` rows of a column, as one
/// node that stays until it is known what becomes of it. `None` of anything else.
pub(super) fn dequantized_blocks(
    b: &mut Builder,
    x: Operand,
    (scale, zero): (Operand, Option<Operand>),
    block: usize,
) -> Result<Option<Operand>, NodeError> {
    let offset = match b.narrow_type(x) {
        Some(NarrowType::I4) => 8,
        Some(NarrowType::U4) => 0,
        _ => return Ok(None),
    };
    let [depth, columns] = b.shape(x)[..] else { return Ok(None) };
    // A block that is longer than the column ends with it: how long the model says that it is decides no room.
    let block = block.min(depth.next_multiple_of(2));
    if block < 2 || !block.is_multiple_of(2) || depth == 0 || columns == 0 {
        return Ok(None);
    }
    let blocks = depth.div_ceil(block);
    let scale = b.cast(scale, DataType::F32)?;
    let known = |operand: Operand, shape: &[usize]| -> Option<Vec<f64>> {
        b.tensor(operand).filter(|tensor| tensor.shape() == shape).map(Tensor::to_f64)
    };
    let (numbers, scales) = (known(x, &[depth, columns]), known(scale, &[blocks, columns]));
    let zeros = zero.map(|zero| known(zero, &[blocks, columns]));
    let (Some(numbers), Some(scales), None | Some(Some(_))) = (numbers, scales, &zeros) else {
        return Ok(None);
    };
    // By columns; of a signed number eight more is stored, and of its zero point.
    let mut bits = vec![0u8; columns * blocks * block / 2];
    for (index, number) in numbers.into_iter().enumerate() {
        let (k, column) = (index / columns, index % columns);
        let stored = (number as i64 + offset) as u8 & 15;
        bits[column * blocks * block / 2 + k / 2] |= stored << (4 * (k % 2));
    }
    let by_columns = |values: &[f64]| -> Vec<f64> {
        (0..columns * blocks).map(|n| values[n % blocks * columns + n / blocks]).collect()
    };
    let bits = Tensor::from_elements([columns, blocks, block / 2], &bits)?;
    let scales = Tensor::from_f64(DataType::F32, [columns, blocks], &by_columns(&scales))?;
    let (bits, scales) = (b.constant(bits), b.constant(scales));
    let operator = DequantizeBlocks { depth, bits: WeightBits::Four };
    let zeros: Vec<f64> = match zeros.flatten() {
        Some(zeros) => by_columns(&zeros).iter().map(|zero| zero + offset as f64).collect(),
        // The middle of the range, as where none is given.
        None if offset == 8 => {
            return b.apply(operator, &[bits, scales]).map(Some);
        }
        None => vec![0.0; columns * blocks],
    };
    let zeros = b.constant(Tensor::from_f64(DataType::U8, [columns, blocks], &zeros)?);
    b.apply(operator, &[bits, scales, zeros]).map(Some)
}

/// The weights by operators on elements.
fn computed(
    b: &mut Builder,
    to: DataType,
    [packed, scales]: [Operand; 2],
    zeros: Option<Operand>,
    form: Form,
) -> Step {
    let Form { depth, columns, bits, block, blocks } = form;
    let weights = unpacked(b, packed, bits, block)?;
    let scales = b.cast(scales, to)?;
    let scales = b.reshape(scales, vec![columns, blocks, 1])?;
    let zero = match zeros {
        None => b.scalar(to, f64::from(1u32 << (bits - 1)))?,
        Some(zeros) if b.dtype(zeros) == DataType::U8 => {
            let row = blocks.saturating_mul(bits).div_ceil(8);
            let zeros = b.reshape(zeros, vec![columns, 1, row])?;
            let zeros = unpacked(b, zeros, bits, blocks)?;
            let zeros = b.reshape(zeros, vec![columns, blocks, 1])?;
            b.cast(zeros, to)?
        }
        Some(zeros) => b.reshape(zeros, vec![columns, blocks, 1])?,
    };
    let weights = b.cast(weights, to)?;
    let weights = b.subtract(weights, zero)?;
    let weights = b.multiply(weights, scales)?;
    let weights = b.reshape(weights, vec![columns, blocks * block])?;
    let weights = b.narrow(weights, 1, 0, depth)?;
    b.transpose(weights, vec![1, 0])
}

/// `GatherBlockQuantized`: slices of integers whose blocks along the last axis have a scale each, as numbers. Integers of
/// fewer than 8 bits are of such a type, or lie packed in bytes along that axis, and their zero points likewise.
pub(super) fn gather_blocks(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let (data, places, scales) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (bits, block) = (node.int_or("bits", 4)?, node.int_or("block_size", 128)?);
    let rank = b.rank(data);
    let gathered = axis(node.int_or("gather_axis", 0)?, rank)?;
    let quantized = axis(node.int_or("quantize_axis", 1)?, rank)?;
    if gathered != 0 || quantized + 1 != rank || rank < 2 {
        return Err(NodeError::unsupported(
            "other axes than the first one gathered and the last one quantized",
        ));
    }
    let bits = usize::try_from(bits).ok().filter(|bits| [2, 4, 8].contains(bits));
    let bits = bits.ok_or_else(|| NodeError::unsupported("other than 2, 4 or 8 bits"))?;
    let block = usize::try_from(block).ok().filter(|block| *block > 0);
    let block = block.ok_or_else(|| NodeError::invalid("block_size is not positive"))?;
    let is_packed = b.narrow_type(data).is_none();
    let places = indices(b, places)?;
    let to = b.dtype(scales);
    // As numbers, `count` along the last axis.
    let numbers = |b: &mut Builder, of: Operand, count: Option<usize>| -> Step {
        let mut taken = b.apply(Gather { axis: 0 }, &[of, places])?;
        if is_packed && bits < 8 {
            let shape = b.shape(taken).to_vec();
            let (stored, outer) =
                shape.split_last().ok_or_else(|| NodeError::invalid("it has no axis"))?;
            let rows = outer.iter().product();
            let count = count.unwrap_or(stored.saturating_mul(8 / bits));
            let rows = b.reshape(taken, vec![rows, 1, *stored])?;
            let rows = unpacked(b, rows, bits, count)?;
            taken = b.reshape(rows, [outer, &[count]].concat())?;
        }
        b.cast(taken, to)
    };
    let taken = numbers(b, data, None)?;
    let shape = b.shape(taken).to_vec();
    let zero = match node.optional(3) {
        Some(zero) => {
            let blocks = b.shape(scales).last().copied();
            let zero = numbers(b, zero, blocks)?;
            spread(b, zero, &shape, -1, block)?
        }
        None if is_packed => b.scalar(to, f64::from(1u32 << (bits - 1)))?,
        None => b.scalar(to, 0.0)?,
    };
    let scales = b.apply(Gather { axis: 0 }, &[scales, places])?;
    let scales = spread(b, scales, &shape, -1, block)?;
    let centered = b.subtract(taken, zero)?;
    Ok(vec![b.multiply(centered, scales)?])
}

/// The left operand rounded to signed bytes, with a scale for each block: the largest magnitude of a block is 127.
fn rounded_to_bytes(b: &mut Builder, left: Operand, form: Form) -> Step {
    let (shape, dtype) = (b.shape(left).to_vec(), b.dtype(left));
    let Some((_, outer)) = shape.split_last() else { return Ok(left) };
    let left = b.cast(left, DataType::F32)?;
    let left = b.reshape(left, [outer, &[form.blocks, form.block]].concat())?;
    let magnitudes = b.unary(U::Abs, left)?;
    let most = b.reduce(ReduceFunction::Maximum, magnitudes, vec![outer.len() + 1], true)?;
    let scale = b.with_scalar(B::Multiply, most, 1.0 / 127.0)?;
    // A block of zeros has no range: any scale does.
    let none = b.with_scalar(B::Equal, most, 0.0)?;
    let one = b.scalar(DataType::F32, 1.0)?;
    let divisor = b.select(none, one, most)?;
    let factor = b.scalar_with(B::Divide, 127.0, divisor)?;
    let scaled = b.multiply(left, factor)?;
    let bytes = b.unary(U::Round, scaled)?;
    let bytes = b.cast(bytes, DataType::I8)?;
    let bytes = b.cast(bytes, DataType::F32)?;
    let numbers = b.multiply(bytes, scale)?;
    let numbers = b.reshape(numbers, shape)?;
    b.cast(numbers, dtype)
}

/// The first `count` numbers of `bits` each that the bytes along the last of three axes hold, lowest bits first.
fn unpacked(b: &mut Builder, packed: Operand, bits: usize, count: usize) -> Step {
    let shape = b.shape(packed);
    let each = 8 / bits;
    if each == 1 {
        return b.narrow(packed, 2, 0, count);
    }
    let shifts: Vec<u8> = (0..each).map(|place| 1u8 << (place * bits)).collect();
    let shifts = b.constant(Tensor::from_elements([each], &shifts)?);
    let column = b.reshape(packed, [&shape[..], &[1]].concat())?;
    let moved = b.divide(column, shifts)?;
    let low = b.with_scalar(B::Modulo, moved, f64::from(1u32 << bits))?;
    let flat = b.reshape(low, vec![shape[0], shape[1], shape[2] * each])?;
    b.narrow(flat, 2, 0, count)
}
