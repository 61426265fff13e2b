//! One file per operator or family, joined by the list.
//!
//! An import function reads a node's attributes and inputs, asks the builder for operators of ours,
//! and returns the outputs. What changed between versions of an operator is decided inside by
//! `node.opset`. To add one: a function in a file here, and a line in the list.

mod activation;
mod attention;
mod constant;
mod convolution;
mod dependent;
mod einsum;
mod elementwise;
mod indexing;
mod matrix;
mod movement;
mod normalization;
mod pool;
mod quantization;
mod recurrent;
mod reduction;
mod resize;
mod shape;
mod softmax;
mod window;

use super::builder::Builder;
use super::node::{Node, Outputs};
use hone_ops::{BinaryFunction as B, UnaryFunction as U};

/// How an operator is imported.
#[derive(Clone, Copy)]
pub(super) enum Import {
    /// By a function of its own.
    Function(fn(&mut Builder, &mut Node) -> Outputs),
    /// As one of our functions of one value.
    Unary(U),
    /// As one of our functions of two values.
    Binary(B),
    /// As a node with graphs inside, or as one of its branches.
    If,
    /// As a node with a graph inside.
    Loop,
    /// The same.
    Scan,
}

use Import::{Binary, Function, Unary};

const MICROSOFT: &str = "com.microsoft";

/// The list: operator set, operator, how it is imported.
pub(super) const OPERATORS: &[(&str, &str, Import)] = &[
    ("", "Abs", Unary(U::Abs)),
    ("", "Acos", Unary(U::Acos)),
    ("", "Acosh", Unary(U::Acosh)),
    ("", "Add", Binary(B::Add)),
    ("", "And", Binary(B::And)),
    ("", "ArgMax", Function(reduction::arg_reduce)),
    ("", "ArgMin", Function(reduction::arg_reduce)),
    ("", "Asin", Unary(U::Asin)),
    ("", "Asinh", Unary(U::Asinh)),
    ("", "Atan", Unary(U::Atan)),
    ("", "Atanh", Unary(U::Atanh)),
    ("", "Attention", Function(attention::attention)),
    ("", "AveragePool", Function(pool::average)),
    ("", "BatchNormalization", Function(normalization::batch)),
    ("", "BitShift", Function(elementwise::bit_shift)),
    ("", "BitwiseAnd", Binary(B::BitAnd)),
    ("", "BitwiseNot", Unary(U::BitNot)),
    ("", "BitwiseOr", Binary(B::BitOr)),
    ("", "BitwiseXor", Binary(B::BitXor)),
    ("", "Cast", Function(elementwise::cast)),
    ("", "CastLike", Function(elementwise::cast)),
    ("", "Ceil", Unary(U::Ceil)),
    ("", "Celu", Function(activation::celu)),
    ("", "Clip", Function(elementwise::clip)),
    ("", "Compress", Function(dependent::compress)),
    ("", "Concat", Function(movement::concat)),
    ("", "Constant", Function(constant::constant)),
    ("", "ConstantOfShape", Function(constant::constant_of_shape)),
    ("", "Conv", Function(convolution::convolution)),
    ("", "ConvInteger", Function(quantization::convolve_integers)),
    ("", "ConvTranspose", Function(convolution::transposed)),
    ("", "Cos", Unary(U::Cos)),
    ("", "Cosh", Unary(U::Cosh)),
    ("", "CumSum", Function(movement::cumulative_sum)),
    ("", "DepthToSpace", Function(movement::depth_to_space)),
    ("", "DequantizeLinear", Function(quantization::dequantize)),
    ("", "Div", Binary(B::Divide)),
    ("", "Dropout", Function(shape::dropout)),
    ("", "DynamicQuantizeLinear", Function(quantization::quantize_dynamically)),
    ("", "Einsum", Function(einsum::einsum)),
    ("", "Elu", Function(activation::elu)),
    ("", "Equal", Binary(B::Equal)),
    ("", "Erf", Unary(U::Erf)),
    ("", "Exp", Unary(U::Exp)),
    ("", "Expand", Function(movement::expand)),
    ("", "EyeLike", Function(constant::eye_like)),
    ("", "Flatten", Function(shape::flatten)),
    ("", "Floor", Unary(U::Floor)),
    ("", "GRU", Function(recurrent::gru)),
    ("", "Gather", Function(indexing::gather)),
    ("", "GatherElements", Function(indexing::gather_elements)),
    ("", "GatherND", Function(indexing::gather_nd)),
    ("", "Gelu", Function(activation::gelu)),
    ("", "Gemm", Function(matrix::gemm)),
    ("", "GlobalAveragePool", Function(pool::global)),
    ("", "GlobalLpPool", Function(pool::global)),
    ("", "GlobalMaxPool", Function(pool::global)),
    ("", "Greater", Binary(B::Greater)),
    ("", "GreaterOrEqual", Binary(B::GreaterEqual)),
    ("", "GroupNormalization", Function(normalization::group)),
    ("", "HardSigmoid", Function(activation::hard_sigmoid)),
    ("", "HardSwish", Function(activation::hard_swish)),
    ("", "Hardmax", Function(softmax::softmax)),
    ("", "Identity", Function(shape::identity)),
    ("", "If", Import::If),
    ("", "InstanceNormalization", Function(normalization::instance)),
    ("", "IsInf", Function(elementwise::is_infinite)),
    ("", "IsNaN", Unary(U::IsNan)),
    ("", "LRN", Function(normalization::local_response)),
    ("", "LSTM", Function(recurrent::lstm)),
    ("", "LayerNormalization", Function(normalization::layer)),
    ("", "LeakyRelu", Function(activation::leaky_relu)),
    ("", "Less", Binary(B::Less)),
    ("", "LessOrEqual", Binary(B::LessEqual)),
    ("", "Log", Unary(U::Log)),
    ("", "LogSoftmax", Function(softmax::softmax)),
    ("", "Loop", Import::Loop),
    ("", "LpNormalization", Function(normalization::lp)),
    ("", "LpPool", Function(pool::lp)),
    ("", "MatMul", Function(matrix::matmul)),
    ("", "MatMulInteger", Function(matrix::matmul_integer)),
    ("", "Max", Function(elementwise::variadic)),
    ("", "MaxPool", Function(pool::maximum)),
    ("", "Mean", Function(elementwise::variadic)),
    ("", "MeanVarianceNormalization", Function(normalization::mean_variance)),
    ("", "Min", Function(elementwise::variadic)),
    ("", "Mish", Function(activation::mish)),
    ("", "Mod", Function(elementwise::modulo)),
    ("", "Mul", Binary(B::Multiply)),
    ("", "Neg", Unary(U::Negate)),
    ("", "NonMaxSuppression", Function(dependent::non_max_suppression)),
    ("", "NonZero", Function(dependent::non_zero)),
    ("", "Not", Unary(U::Not)),
    ("", "OneHot", Function(indexing::one_hot)),
    ("", "Or", Binary(B::Or)),
    ("", "PRelu", Binary(B::LeakyMultiply)),
    ("", "Pad", Function(movement::pad)),
    ("", "Pow", Function(elementwise::pow)),
    ("", "QLinearConv", Function(quantization::convolve)),
    ("", "QLinearMatMul", Function(quantization::matmul)),
    ("", "QuantizeLinear", Function(quantization::quantize)),
    ("", "RMSNormalization", Function(normalization::root_mean_square)),
    ("", "RNN", Function(recurrent::rnn)),
    ("", "Range", Function(constant::range)),
    ("", "Reciprocal", Unary(U::Reciprocal)),
    ("", "ReduceL1", Function(reduction::reduce)),
    ("", "ReduceL2", Function(reduction::reduce)),
    ("", "ReduceLogSum", Function(reduction::reduce)),
    ("", "ReduceLogSumExp", Function(reduction::reduce)),
    ("", "ReduceMax", Function(reduction::reduce)),
    ("", "ReduceMean", Function(reduction::reduce)),
    ("", "ReduceMin", Function(reduction::reduce)),
    ("", "ReduceProd", Function(reduction::reduce)),
    ("", "ReduceSum", Function(reduction::reduce)),
    ("", "ReduceSumSquare", Function(reduction::reduce)),
    ("", "Relu", Unary(U::Relu)),
    ("", "Reshape", Function(shape::reshape)),
    ("", "Resize", Function(resize::resize)),
    ("", "RotaryEmbedding", Function(attention::rotary)),
    ("", "Round", Unary(U::Round)),
    ("", "Scan", Import::Scan),
    ("", "Scatter", Function(indexing::scatter_elements)),
    ("", "ScatterElements", Function(indexing::scatter_elements)),
    ("", "ScatterND", Function(indexing::scatter_nd)),
    ("", "Selu", Function(activation::selu)),
    ("", "Shape", Function(shape::shape)),
    ("", "Shrink", Function(activation::shrink)),
    ("", "Sigmoid", Unary(U::Sigmoid)),
    ("", "Sign", Unary(U::Sign)),
    ("", "Sin", Unary(U::Sin)),
    ("", "Sinh", Unary(U::Sinh)),
    ("", "Size", Function(shape::size)),
    ("", "Slice", Function(movement::slice)),
    ("", "Softmax", Function(softmax::softmax)),
    ("", "Softplus", Function(activation::softplus)),
    ("", "Softsign", Function(activation::softsign)),
    ("", "SpaceToDepth", Function(movement::space_to_depth)),
    ("", "Split", Function(movement::split)),
    ("", "Sqrt", Unary(U::Sqrt)),
    ("", "Squeeze", Function(shape::squeeze)),
    ("", "Sub", Binary(B::Subtract)),
    ("", "Sum", Function(elementwise::variadic)),
    ("", "Swish", Function(activation::swish)),
    ("", "Tan", Unary(U::Tan)),
    ("", "Tanh", Unary(U::Tanh)),
    ("", "ThresholdedRelu", Function(activation::thresholded_relu)),
    ("", "Tile", Function(movement::tile)),
    ("", "TopK", Function(reduction::top_k)),
    ("", "Transpose", Function(movement::transpose)),
    ("", "Trilu", Function(movement::trilu)),
    ("", "Unique", Function(dependent::unique)),
    ("", "Unsqueeze", Function(shape::unsqueeze)),
    ("", "Upsample", Function(resize::upsample)),
    ("", "Where", Function(elementwise::select)),
    ("", "Xor", Binary(B::Xor)),
    (MICROSOFT, "FastGelu", Function(activation::fast_gelu)),
    (MICROSOFT, "Gelu", Function(activation::gelu)),
    (MICROSOFT, "LayerNormalization", Function(normalization::layer)),
    (MICROSOFT, "SkipLayerNormalization", Function(normalization::skip_layer)),
];

/// How `operator` of operator set `domain` is imported, where it is supported.
pub(super) fn find(domain: &str, operator: &str) -> Option<Import> {
    let found = OPERATORS.iter().find(|(set, name, _)| *set == domain && *name == operator);
    found.map(|(_, _, import)| *import)
}
