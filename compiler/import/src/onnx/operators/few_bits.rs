//! Weights of few bits, whose blocks have a scale each: `MatMulNBits`, `MatMulBnb4`, `GatherBlockQuantized`, and matrices that
//! `DequantizeLinear` makes of blocks of integers.

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

    /// The bits in which a weight stays: two bits are kept in four.
    fn stored(&self) -> WeightBits {
        match self.bits {
            8 => WeightBits::Eight,
            _ => WeightBits::Four,
        }
    }

    /// Whether blocks end with bytes, as they are kept, and as they come.
    fn has_whole_bytes(&self) -> bool {
        self.block.is_multiple_of(8 / self.bits)
    }
}

/// `MatMulNBits`: B is stored as `[N, blocks, bytes]`, some bits each, with a scale for each block and zero points
/// packed alike (in the middle of the range where left out).
pub(super) fn matmul_bits(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let form = Form::read(node)?;
    let accuracy = node.int_or("accuracy_level", 0)?;
    if node.int_or("weight_prepacked", 0)? != 0 {
        return Err(NodeError::unsupported("weights that are packed for one kind of processor"));
    }
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
    if accuracy >= BYTES_SUFFICE && form.depth.is_multiple_of(form.block) {
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

/// The weights as one node that stays until it is known what becomes of it: bytes hold one or two of them. `None` where a
/// run decides them, or zero points are no integers.
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
    if !constant || !integral || !form.has_whole_bytes() {
        return Ok(None);
    }
    let Form { columns, blocks, .. } = form;
    let packed = match b.tensor(packed).filter(|_| form.bits == 2) {
        Some(twos) => {
            let fours = fours_of_twos(twos, zeros.is_none())?;
            b.constant(fours)
        }
        None => packed,
    };
    let zeros = match zeros {
        None => None,
        Some(zeros) => {
            let row = blocks.div_ceil(8 / form.bits);
            let zeros = b.reshape(zeros, vec![columns, 1, row])?;
            let zeros = unpacked(b, zeros, form.bits, blocks)?;
            Some(b.reshape(zeros, vec![columns, blocks])?)
        }
    };
    let scales = b.cast(scales, DataType::F32)?;
    let scales = b.reshape(scales, vec![columns, blocks])?;
    let inputs = [Some(packed), Some(scales), zeros];
    let count = if zeros.is_some() { 3 } else { 2 };
    let operator = DequantizeBlocks { depth: form.depth, bits: form.stored() };
    b.apply_optional(operator, &inputs[..count]).map(Some)
}

/// Numbers of two bits, four in a byte, in four bits each. Around the `middle` of their range they are put around the
/// middle of that of four bits, which is their zero point where none is given.
fn fours_of_twos(twos: &Tensor, middle: bool) -> Result<Tensor, NodeError> {
    let moved = if middle { 8 - 2 } else { 0 };
    let four = |byte: u8, place: u8| (byte >> (2 * place) & 3) + moved;
    let pair = |byte: u8, place: u8| four(byte, place) | four(byte, place + 1) << 4;
    let bytes = twos.bytes().iter().flat_map(|byte| [pair(*byte, 0), pair(*byte, 2)]);
    let bytes: Vec<u8> = bytes.collect();
    let mut shape = twos.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last *= 2;
    }
    Ok(Tensor::from_elements(shape, &bytes)?)
}

/// How integers of a type are kept as numbers without a sign.
struct Kept {
    bits: WeightBits,
    /// What is added to an integer, and to its zero point.
    moved: u8,
}

impl Kept {
    fn of(b: &Builder, x: Operand) -> Option<Self> {
        let (bits, moved) = match (b.narrow_type(x), b.dtype(x)) {
            (Some(NarrowType::I4 | NarrowType::I2), _) => (WeightBits::Four, 8),
            (Some(NarrowType::U4 | NarrowType::U2), _) => (WeightBits::Four, 0),
            (None, DataType::I8) => (WeightBits::Eight, 128),
            (None, DataType::U8) => (WeightBits::Eight, 0),
            _ => return None,
        };
        Some(Self { bits, moved })
    }

    /// A number of an integer that is carried in a byte.
    fn number(&self, byte: u8) -> u8 {
        byte.wrapping_add(self.moved)
    }
}

/// A constant matrix of integers of up to eight bits with a scale, and perhaps a zero point, for each `block` of them along
/// `along`, as one node that stays until it is known what becomes of it. `None` of anything else.
pub(super) fn dequantized_blocks(
    b: &mut Builder,
    x: Operand,
    (scale, zero): (Operand, Option<Operand>),
    (along, block): (i64, usize),
) -> Result<Option<Operand>, NodeError> {
    let (&[rows, width], Some(kept)) = (&b.shape(x)[..], Kept::of(b, x)) else { return Ok(None) };
    let along = axis(along, 2)?;
    // What is summed by a product with it, or with it transposed, runs along the axis.
    let (depth, columns) = if along == 0 { (rows, width) } else { (width, rows) };
    let each = kept.bits.per_byte();
    // A block that is longer than the column ends with it: how long the model says that it is decides no room.
    let block = block.min(depth.next_multiple_of(2));
    if block < 2 || !block.is_multiple_of(each) || depth == 0 || columns == 0 {
        return Ok(None);
    }
    let blocks = depth.div_ceil(block);
    let of_blocks = if along == 0 { [blocks, columns] } else { [columns, blocks] };
    let scale = b.cast(scale, DataType::F32)?;
    let known = |operand: Operand| b.tensor(operand).filter(|of| of.shape() == of_blocks);
    let zeros = zero.map(|zero| b.tensor(zero).filter(|of| of.shape() == of_blocks));
    let (Some(numbers), Some(scales), None | Some(Some(_))) = (b.tensor(x), known(scale), &zeros)
    else {
        return Ok(None);
    };
    // By columns: where in the matrix, or among the blocks, an element of a column lies.
    let place = |column: usize, within: usize, count: usize| match along {
        0 => within * columns + column,
        _ => column * count + within,
    };
    let by_columns = |bytes: &[u8]| -> Vec<u8> {
        let places = (0..columns * blocks).map(|n| place(n / blocks, n % blocks, blocks));
        places.map(|at| kept.number(bytes[at])).collect()
    };
    let row = blocks * block / each;
    let (mut bits, stored) = (vec![0u8; columns * row], numbers.bytes());
    for (column, own) in bits.chunks_mut(row).enumerate() {
        for k in 0..depth {
            let number = kept.number(stored[place(column, k, depth)]);
            own[k / each] |= number << (8 / each * (k % each));
        }
    }
    let floats = scales.to_f64();
    let floats = (0..columns * blocks).map(|n| floats[place(n / blocks, n % blocks, blocks)]);
    let scales = Tensor::from_f64(DataType::F32, [columns, blocks], &floats.collect::<Vec<_>>())?;
    let zeros = match zeros.flatten() {
        Some(zeros) => Some(by_columns(zeros.bytes())),
        // That of signed numbers is the middle of the range, as where none is given.
        None => (kept.moved == 0).then(|| vec![0; columns * blocks]),
    };
    let zeros = zeros.map(|zeros| Tensor::from_elements([columns, blocks], &zeros)).transpose()?;
    let bits = Tensor::from_elements([columns, blocks, block / each], &bits)?;
    let inputs = [Some(bits), Some(scales), zeros];
    let inputs: Vec<Operand> = inputs.into_iter().flatten().map(|of| b.constant(of)).collect();
    let matrix = b.apply(DequantizeBlocks { depth, bits: kept.bits }, &inputs)?;
    if along == 0 {
        return Ok(Some(matrix));
    }
    b.transpose(matrix, vec![1, 0]).map(Some)
}

/// What the four bits of `MatMulBnb4` stand for, the largest magnitude of a block being one: floats of four bits with a bias
/// of 3 over their largest (`quant_type` 0), and `NormalFloat`, whose numbers are quantiles of a normal distribution (1).
/// Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs" (2023), and bitsandbytes, which prints these digits.
const BNB4_NUMBERS: [[f32; 16]; 2] = {
    let (least, sixth, third) = (0.0625 / 12.0, 1.0 / 6.0, 1.0 / 3.0);
    [
        [
            0.0,
            least,
            2.0 * third,
            1.0,
            third,
            0.5,
            sixth,
            0.25,
            0.0,
            -least,
            -2.0 * third,
            -1.0,
            -third,
            -0.5,
            -sixth,
            -0.25,
        ],
        [
            -1.0,
            -0.696_192_8,
            -0.525_073_05,
            -0.394_917_5,
            -0.284_441_38,
            -0.184_773_43,
            -0.091_050_036,
            0.0,
            0.079_580_3,
            0.160_930_2,
            0.246_112_3,
            0.337_915_24,
            0.440_709_83,
            0.562_617,
            0.722_956_84,
            1.0,
        ],
    ]
};

/// `MatMulBnb4`: the columns of B, `[K, N]`, lie one behind the other, two numbers in a byte, the first in its upper half. A
/// block of them, which may begin within a column, has a largest magnitude.
pub(super) fn matmul_bnb4(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let mut size = |name: &str| -> Result<usize, NodeError> {
        let number = node.int_or(name, 0)?;
        usize::try_from(number)
            .map_err(|_| NodeError::invalid(format!("{name} {number} is negative")))
    };
    let (depth, columns, block) = (size("K")?, size("N")?, size("block_size")?);
    let kind = size("quant_type")?;
    let numbers = BNB4_NUMBERS.get(kind);
    let numbers = numbers.ok_or_else(|| NodeError::invalid("quant_type is neither 0 nor 1"))?;
    if !node.flag("transB", true)? {
        return Err(NodeError::unsupported("transB of 0"));
    }
    // How gradients are computed.
    node.ignore(&["training_mode"]);
    let (left, packed, magnitudes) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let count = depth.saturating_mul(columns);
    let blocks = count.checked_div(block).map_or(0, |_| count.div_ceil(block));
    let elements = |of: Operand| b.tensor_type(of).elements();
    if blocks == 0 || elements(packed) != count.div_ceil(2) || elements(magnitudes) != blocks {
        let message = format!("{count} numbers in blocks of {block} are not what it stores");
        return Err(NodeError::invalid(message));
    }
    let to = b.dtype(left);
    let packed = b.reshape(packed, vec![count.div_ceil(2), 1])?;
    let high = b.with_scalar(B::Divide, packed, 16.0)?;
    let low = b.with_scalar(B::Modulo, packed, 16.0)?;
    let places = b.concat(&[high, low], 1)?;
    let places = b.cast(places, DataType::I64)?;
    let table = b.constant(Tensor::from_elements([16], numbers)?);
    let weights = b.apply(Gather { axis: 0 }, &[table, places])?;
    let weights = b.reshape(weights, vec![count.next_multiple_of(2)])?;
    let weights = b.narrow(weights, 0, 0, count)?;
    let scales = b.cast(magnitudes, DataType::F32)?;
    let scales = b.reshape(scales, vec![blocks])?;
    let scales = spread(b, scales, &[count], 0, block)?;
    let weights = b.multiply(weights, scales)?;
    let weights = b.reshape(weights, vec![columns, depth])?;
    let weights = b.transpose(weights, vec![1, 0])?;
    let weights = b.cast(weights, to)?;
    Ok(vec![b.matmul(left, weights)?])
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
