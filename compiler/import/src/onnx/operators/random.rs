//! Operators that draw random numbers. A compiled model gives equal answers to equal inputs, so numbers are drawn when
//! compiling: by the Mersenne Twister from the attribute `seed`, as ONNX's reference implementation does, or without it
//! from a number made of the node's name. What is drawn is a constant of the model.

use super::constant::element;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, extents};
use hone_ops::{BinaryFunction as B, CumulativeSum, ReduceFunction as R, UnaryFunction as U};
use hone_types::{DataType, MersenneTwister, Tensor};

/// Most numbers that a node draws, and all nodes of a model.
const MOST: [usize; 2] = [1 << 24, 1 << 26];

/// The generator of a node.
fn generator(node: &mut Node) -> Result<MersenneTwister, NodeError> {
    let seed = match node.operator.as_str() {
        "Dropout" => node.int("seed")?.map(|seed| seed as u32),
        // A number of the float's value where it is whole, as in ONNX's reference.
        _ => node.float("seed")?.map(|seed| match (0.0..4_294_967_296.0).contains(&seed) {
            true => seed as u32,
            false => (seed.to_bits() ^ (seed.to_bits() >> 32)) as u32,
        }),
    };
    // The digest FNV-1a of the node's name and its outputs'.
    let names = format!("{} {:?}", node.name, node.output_names);
    let digest = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let named = names.bytes().fold(0x811c_9dc5, digest);
    Ok(MersenneTwister::new(seed.unwrap_or(named)))
}

/// So many numbers for a shape.
fn drawn(
    b: &mut Builder,
    shape: &[usize],
    mut draw: impl FnMut() -> f64,
) -> Result<Vec<f64>, NodeError> {
    let count = shape.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
    let [most, of_all] = MOST;
    let fits = |count: &usize| *count <= most && b.drawn.saturating_add(*count) <= of_all;
    let count = count.filter(fits).ok_or_else(|| {
        NodeError::unsupported(format!(
            "drawing numbers of shape {shape:?}, more than {most} in a node or {of_all} in a model,"
        ))
    })?;
    b.drawn += count;
    Ok((0..count).map(|_| draw()).collect())
}

/// `RandomNormal`, `RandomUniform` and their forms of an input's shape.
pub(super) fn random(builder: &mut Builder, node: &mut Node) -> Outputs {
    let like = if node.operator.ends_with("Like") { Some(node.input(0)?) } else { None };
    let shape = match like {
        Some(like) => builder.shape(like),
        None => extents(&node.ints("shape")?.unwrap_or_default(), "shape")?,
    };
    let dtype = match (node.int("dtype")?, like) {
        (Some(number), _) => element(number)?,
        (None, Some(like)) => builder.dtype(like),
        (None, None) => DataType::F32,
    };
    if !dtype.is_float() {
        return Err(NodeError::invalid(format!("{dtype} is no floating-point type")));
    }
    let mut random = generator(node)?;
    let numbers = if node.operator.starts_with("RandomNormal") {
        let (mean, scale) = (node.float_or("mean", 0.0)?, node.float_or("scale", 1.0)?);
        drawn(builder, &shape, || mean + scale * random.normal())?
    } else {
        let (low, high) = (node.float_or("low", 0.0)?, node.float_or("high", 1.0)?);
        drawn(builder, &shape, || low + (high - low) * random.unit())?
    };
    Ok(vec![builder.constant(Tensor::from_f64(dtype, shape, &numbers)?)])
}

/// Numbers from 0 to below 1 in a shape, `f64`.
fn units(b: &mut Builder, node: &mut Node, shape: &[usize]) -> Step {
    let mut random = generator(node)?;
    let numbers = drawn(b, shape, || random.unit())?;
    Ok(b.constant(Tensor::from_elements(shape, &numbers)?))
}

/// `Bernoulli`: 1 with the probability that the input says.
pub(super) fn bernoulli(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let dtype = match node.int("dtype")? {
        Some(number) => element(number)?,
        None => builder.dtype(x),
    };
    let shape = builder.shape(x);
    let draws = units(builder, node, &shape)?;
    let probability = builder.cast(x, DataType::F64)?;
    let hit = builder.binary(B::Less, draws, probability)?;
    Ok(vec![builder.cast(hit, dtype)?])
}

/// `Multinomial`: classes by the logarithms of their weights; each number drawn takes the class in whose part of the sum of
/// weights it falls.
pub(super) fn multinomial(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let samples = extents(&[node.int_or("sample_size", 1)?], "sample_size")?[0];
    let dtype = node.int("dtype")?.map_or(Ok(DataType::I32), element)?;
    let [rows, classes] = builder.shape(x)[..] else {
        return Err(NodeError::invalid("the input is no matrix of samples and classes"));
    };
    if !matches!(dtype, DataType::I32 | DataType::I64) || classes == 0 {
        return Err(NodeError::invalid(format!("{classes} classes, as {dtype}")));
    }
    let draws = units(builder, node, &[rows, samples, 1])?;
    let x = builder.cast(x, DataType::F64)?;
    let most = builder.reduce(R::Maximum, x, vec![1], true)?;
    let below = builder.subtract(x, most)?;
    let weights = builder.unary(U::Exp, below)?;
    let sums = builder.apply(
        CumulativeSum { axis: 1, exclusive: false, reverse: false, product: false, in_rows: false },
        &[weights],
    )?;
    let total = builder.narrow(sums, 1, classes - 1, 1)?;
    let total = builder.reshape(total, vec![rows, 1, 1])?;
    let sums = builder.reshape(sums, vec![rows, 1, classes])?;
    let reached = builder.multiply(draws, total)?;
    let passed = builder.binary(B::LessEqual, sums, reached)?;
    let passed = builder.cast(passed, DataType::I64)?;
    let class = builder.reduce(R::Sum, passed, vec![2], false)?;
    let class = builder.with_scalar(B::Minimum, class, (classes - 1) as f64)?;
    Ok(vec![builder.cast(class, dtype)?])
}

/// `Dropout`: nothing in inference. In training elements become zero with the probability `ratio`, and the others
/// are scaled so that sums stay as large.
pub(super) fn dropout(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let shape = builder.shape(x);
    let trains = node
        .optional(2)
        .filter(|operand| builder.tensor(*operand).is_none_or(|known| known.bytes().contains(&1)));
    let Some(trains) = trains else {
        node.ignore(&["ratio", "seed", "is_test"]);
        if !node.wants(1) {
            return Ok(vec![x]);
        }
        let kept = builder.constant(Tensor::scalar(true));
        return Ok(vec![x, builder.expand(kept, shape)?]);
    };
    let draws = units(builder, node, &shape)?;
    let ratio = match node.optional(1) {
        Some(ratio) => builder.cast(ratio, DataType::F64)?,
        None => builder.scalar(DataType::F64, 0.5)?,
    };
    let stays = builder.binary(B::GreaterEqual, draws, ratio)?;
    let left = builder.scalar_with(B::Subtract, 1.0, ratio)?;
    let scale = builder.scalar_with(B::Divide, 1.0, left)?;
    let scaled = scaled(builder, x, scale)?;
    let zero = builder.scalar(builder.dtype(x), 0.0)?;
    let dropped = builder.select(stays, scaled, zero)?;
    let y = builder.select(trains, dropped, x)?;
    let idle = builder.unary(U::Not, trains)?;
    Ok(vec![y, builder.binary(B::Or, stays, idle)?])
}

fn scaled(b: &mut Builder, x: Operand, scale: Operand) -> Step {
    let scale = b.cast(scale, b.dtype(x))?;
    b.multiply(x, scale)
}
