//! Operators of `com.microsoft` that onnxruntime's optimizer makes of others: fused element-wise functions, products,
//! convolutions, normalizations and embeddings.

use super::microsoft_quantized::real;
use super::{activation, convolution, normalization};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{
    BinaryFunction as B, Gather, LayerNormalization, ReduceFunction as R, UnaryFunction as U,
};
use hone_types::{DataType, Tensor};

/// `BiasGelu`: exact, of a sum.
pub(super) fn bias_gelu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let sum = builder.add(node.input(0)?, node.input(1)?)?;
    Ok(vec![activation::gelu_exact(builder, sum)?])
}

/// `QuickGelu`: `x * sigmoid(alpha * x)`.
pub(super) fn quick_gelu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, alpha) = (node.input(0)?, node.float_or("alpha", 1.702)?);
    let scaled = builder.with_scalar(B::Multiply, x, alpha)?;
    let gate = builder.unary(U::Sigmoid, scaled)?;
    Ok(vec![builder.multiply(x, gate)?])
}

/// `BiasSplitGelu`: half of a sum gates the other.
pub(super) fn bias_split_gelu(builder: &mut Builder, node: &mut Node) -> Outputs {
    let sum = builder.add(node.input(0)?, node.input(1)?)?;
    let last = builder.rank(sum).saturating_sub(1);
    let half = builder.shape(sum).last().copied().unwrap_or(0) / 2;
    let value = builder.narrow(sum, last, 0, half)?;
    let gate = builder.narrow(sum, last, half, half)?;
    let gate = activation::gelu_exact(builder, gate)?;
    Ok(vec![builder.multiply(value, gate)?])
}

/// `BiasAdd`: `x + bias + skip`.
pub(super) fn bias_add(builder: &mut Builder, node: &mut Node) -> Outputs {
    let sum = builder.add(node.input(0)?, node.input(1)?)?;
    Ok(vec![builder.add(sum, node.input(2)?)?])
}

/// `FusedMatMul` and `TransposeMatMul`: `alpha * A' * B'`, with the last two axes changed or, for batches, the first axis
/// of a matrix moved before its last.
pub(super) fn matmul(builder: &mut Builder, node: &mut Node) -> Outputs {
    let alpha = node.float_or("alpha", 1.0)?;
    let mut operands = Vec::new();
    for (place, name) in ["A", "B"].into_iter().enumerate() {
        let mut own = node.input(place)?;
        let rank = builder.rank(own);
        let batch = node.flag(&format!("transBatch{name}"), false)?;
        let turned = node.flag(&format!("trans{name}"), false)?;
        if batch && rank > 2 {
            // [rows, batch..., columns] to [batch..., rows, columns]
            let turn = (1..rank - 1).chain([0, rank - 1]).collect();
            own = builder.transpose(own, turn)?;
        }
        if turned && rank > 1 {
            let turn = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            own = builder.transpose(own, turn)?;
        }
        operands.push(own);
    }
    let product = builder.matmul(operands[0], operands[1])?;
    match alpha == 1.0 {
        true => Ok(vec![product]),
        false => Ok(vec![builder.with_scalar(B::Multiply, product, alpha)?]),
    }
}

/// The function that attributes `activation` and those of its parameters name.
fn activated(b: &mut Builder, node: &mut Node, x: Operand) -> Step {
    let name = node.string_or("activation", "")?;
    let given = node.floats("activation_params")?.unwrap_or_default();
    let alpha = node.float("activation_alpha")?;
    let beta = node.float("activation_beta")?;
    let gamma = node.float("activation_gamma")?;
    let parameter = |place: usize, named: Option<f64>, default: f64| {
        named.or(given.get(place).map(|own| f64::from(*own))).unwrap_or(default)
    };
    match name.as_str() {
        "" => Ok(x),
        "Relu" => b.unary(U::Relu, x),
        "Sigmoid" => b.unary(U::Sigmoid, x),
        "Tanh" => b.unary(U::Tanh, x),
        "LeakyRelu" => b.with_scalar(B::LeakyMultiply, x, parameter(0, alpha, 0.01)),
        "Clip" => {
            let above = b.with_scalar(B::Maximum, x, parameter(0, alpha, f64::from(f32::MIN)))?;
            b.with_scalar(B::Minimum, above, parameter(1, beta, f64::from(f32::MAX)))
        }
        "Elu" => activation::exponential_below_zero(b, x, parameter(0, alpha, 1.0), 1.0),
        "Softplus" => activation::log_one_plus_exp(b, x),
        "Softsign" => activation::softsign_of(b, x),
        "HardSigmoid" => {
            activation::hard_sigmoid_of(b, x, parameter(0, alpha, 0.2), parameter(1, beta, 0.5))
        }
        "Selu" => {
            let alpha = parameter(0, alpha, activation::SELU_ALPHA);
            activation::selu_of(b, x, alpha, parameter(1, gamma, activation::SELU_GAMMA))
        }
        "ThresholdedRelu" => activation::above_threshold(b, x, parameter(0, alpha, 1.0)),
        other => Err(NodeError::unsupported(format!("activation '{other}'"))),
    }
}

/// `FusedConv`: a convolution, a sum with the fourth input, a function.
pub(super) fn convolve(builder: &mut Builder, node: &mut Node) -> Outputs {
    let inputs = [node.optional(0), node.optional(1), node.optional(2)];
    let mut y = convolution::convolve(builder, node, inputs)?;
    if let Some(other) = node.optional(3) {
        y = builder.add(y, other)?;
    }
    Ok(vec![activated(builder, node, y)?])
}

/// `FusedGemm`.
pub(super) fn gemm(builder: &mut Builder, node: &mut Node) -> Outputs {
    let y = super::matrix::gemm(builder, node)?[0];
    Ok(vec![activated(builder, node, y)?])
}

/// `SimplifiedLayerNormalization`: by the root of the mean square.
pub(super) fn root_mean_square(builder: &mut Builder, node: &mut Node) -> Outputs {
    normalization::root_mean_square(builder, node)
}

/// `SkipSimplifiedLayerNormalization`: the same of a sum, which is the fourth output.
pub(super) fn skip_root_mean_square(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut sum = builder.add(node.input(0)?, node.input(1)?)?;
    if let Some(bias) = node.optional(3) {
        sum = builder.add(sum, bias)?;
    }
    if node.wants(1) || node.wants(2) {
        return Err(NodeError::unsupported("statistics of SkipSimplifiedLayerNormalization"));
    }
    node.inputs = vec![Some(sum), node.optional(2)];
    let y = normalization::root_mean_square(builder, node)?[0];
    Ok(if node.wants(3) { vec![y, y, y, sum] } else { vec![y] })
}

/// `EmbedLayerNormalization`: the sum of up to three embeddings, normalized; the second output counts the words of each
/// sample that a mask shows.
pub(super) fn embed(builder: &mut Builder, node: &mut Node) -> Outputs {
    let places = node.optional(8);
    embedded(builder, node, places, |b, node, input, index| {
        let table = node.input(input)?;
        match index {
            Some(index) => b.apply(Gather { axis: 0 }, &[table, index]),
            None => Ok(table),
        }
    })
}

/// `QEmbedLayerNormalization`: the tables, the scale and the bias are integers, each with one scale (from the ninth input
/// on) and zero point (from the fourteenth). Rows are gathered as integers.
pub(super) fn embed_quantized(builder: &mut Builder, node: &mut Node) -> Outputs {
    embedded(builder, node, None, |b, node, input, index| {
        let mut rows = node.input(input)?;
        if let Some(index) = index {
            rows = b.apply(Gather { axis: 0 }, &[rows, index])?;
        }
        real(b, rows, node.input(input + 6)?, node.optional(input + 11))
    })
}

/// The sum of embeddings, normalized. `read` gives the numbers of the table at an input, whole or its rows at an index; the
/// words are at the places `places`, where these are given.
fn embedded(
    b: &mut Builder,
    node: &mut Node,
    places: Option<Operand>,
    read: impl Fn(&mut Builder, &Node, usize, Option<Operand>) -> Step,
) -> Outputs {
    let epsilon = node.float_or("epsilon", 1e-12)?;
    node.ignore(&["mask_index_type"]);
    let words = node.input(0)?;
    let [batch, length] = <[usize; 2]>::try_from(b.shape(words))
        .map_err(|shape| NodeError::invalid(format!("words of shape {shape:?}")))?;
    let mut sum = read(b, node, 2, Some(words))?;
    let place = match places {
        Some(places) => read(b, node, 3, Some(places))?,
        None => {
            let all = read(b, node, 3, None)?;
            b.narrow(all, 0, 0, length)?
        }
    };
    sum = b.add(sum, place)?;
    if let (Some(segments), Some(_)) = (node.optional(1), node.optional(4)) {
        let segment = read(b, node, 4, Some(segments))?;
        sum = b.add(sum, segment)?;
    }
    let axis = axis(-1, b.rank(sum))?;
    let scale = node.optional(5).map(|_| read(b, node, 5, None)).transpose()?;
    let bias = node.optional(6).map(|_| read(b, node, 6, None)).transpose()?;
    let y = b.apply_optional(LayerNormalization { axis, epsilon }, &[Some(sum), scale, bias])?;
    let shown = match node.optional(7) {
        Some(mask) => {
            let mask = b.cast(mask, DataType::I32)?;
            b.reduce(R::Sum, mask, vec![1], false)?
        }
        None => {
            let none = b.scalar(DataType::I32, 0.0)?;
            b.expand(none, vec![batch])?
        }
    };
    Ok(vec![y, shown, sum])
}

/// `ExpandDims`: one more axis of extent 1.
pub(super) fn expand_dimensions(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let mut shape = builder.shape(x);
    let place = axis(builder.integer_of(node, 1)?, shape.len() + 1)?;
    shape.insert(place, 1);
    Ok(vec![builder.reshape(x, shape)?])
}

/// Which keys a mask of `com.microsoft` shows: `[batch, 1, 1 or queries, keys]`.
pub(super) fn shown(b: &mut Builder, mask: Operand, batch: usize, keys: usize) -> Step {
    let shape = b.shape(mask);
    match shape.as_slice() {
        // How many keys of each sample count.
        [own] if *own == batch => {
            let places: Vec<i64> = (0..keys as i64).collect();
            let places = b.constant(Tensor::from_elements([1, 1, 1, keys], &places)?);
            let lengths = b.cast(mask, DataType::I64)?;
            let lengths = b.reshape(lengths, vec![batch, 1, 1, 1])?;
            b.binary(B::Less, places, lengths)
        }
        [own, wide] if *own == batch && *wide == keys => {
            let counts = b.cast(mask, DataType::Bool)?;
            b.reshape(counts, vec![batch, 1, 1, keys])
        }
        [own, queries, wide] if *own == batch && *wide == keys => {
            let counts = b.cast(mask, DataType::Bool)?;
            b.reshape(counts, vec![batch, 1, *queries, keys])
        }
        [_, _, _, _] => b.cast(mask, DataType::Bool),
        other => Err(NodeError::unsupported(format!("a mask of shape {other:?}"))),
    }
}
