//! One file per operator or family, joined by the list.
//!
//! An import function reads a node's attributes and inputs, asks the builder for operators of ours,
//! and returns the outputs. What changed between versions of an operator is decided inside by
//! `node.opset`. To add one: a function in a file here, and a line in the list.

mod activation;
pub(super) mod attention;
mod columns;
mod constant;
mod convolution;
pub(super) mod counted;
mod decided;
mod dependent;
mod einsum;
mod elementwise;
mod few_bits;
mod fourier;
mod images;
pub(super) mod indexing;
mod losses;
mod maps;
mod matrix;
mod microsoft;
mod microsoft_attention;
mod microsoft_quantized;
mod ml;
mod movement;
mod normalization;
mod pool;
mod quantization;
mod random;
mod recurrent;
mod reduction;
mod resize;
mod resize_decided;
mod sampling;
mod sequence;
mod sequences;
mod shape;
mod shaping;
mod signal;
mod softmax;
mod strings;
mod svm;
mod text;
mod tokens;
mod training;
mod trees;
pub(super) mod window;

pub(super) use normalization::softmax_of;
pub(super) use text::count_part;

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
    /// With the graphs that it holds.
    FlexAttention,
    /// With a graph for each item.
    SequenceMap,
    /// As the derivative of a value of the graph around it.
    Gradient,
}

use Import::{Binary, Function, Unary};

const MICROSOFT: &str = "com.microsoft";
const CLASSICAL: &str = "ai.onnx.ml";
const TRAINING: &str = "ai.onnx.preview.training";

/// What an operator does with operands of types that are carried in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NarrowRole {
    /// It reads their values itself, or only their shapes.
    Reads,
    /// It moves elements; its outputs are of its inputs' type.
    Moves,
    /// It is not for them.
    None,
}

/// What `operator` does with them.
pub(super) fn narrow_role(operator: &str) -> NarrowRole {
    match operator {
        "Cast"
        | "CastLike"
        | "QuantizeLinear"
        | "DequantizeLinear"
        | "GatherBlockQuantized"
        | "Shape"
        | "Size" => NarrowRole::Reads,
        "Concat" | "Expand" | "Flatten" | "Gather" | "GatherElements" | "GatherND" | "Identity"
        | "Reshape" | "Slice" | "Split" | "Squeeze" | "Tile" | "Transpose" | "Unsqueeze" => {
            NarrowRole::Moves
        }
        _ if takes_sequences(operator) => NarrowRole::Reads,
        _ => NarrowRole::None,
    }
}

/// What `operator` does with strings.
pub(super) fn text_role(operator: &str) -> NarrowRole {
    match operator {
        "CastLike" | "CategoryMapper" | "Equal" | "LabelEncoder" | "OneHotEncoder"
        | "RegexFullMatch" | "Scan" | "StringConcat" | "StringNormalizer" | "StringSplit"
        | "TfIdfVectorizer" | "Tokenizer" => NarrowRole::Reads,
        "ArrayFeatureExtractor"
        | "Compress"
        | "CenterCropPad"
        | "DepthToSpace"
        | "Scatter"
        | "ScatterElements"
        | "ScatterND"
        | "SpaceToDepth"
        | "Where" => NarrowRole::Moves,
        "QuantizeLinear" | "DequantizeLinear" => NarrowRole::None,
        _ => narrow_role(operator),
    }
}

/// Whether an operator takes sequences of tensors, or maps.
pub(super) fn takes_sequences(operator: &str) -> bool {
    ["Sequence", "Optional"].iter().any(|part| operator.contains(part))
        || matches!(operator, "CastMap" | "DictVectorizer" | "Identity" | "Loop")
}

/// The list: operator set, operator, how it is imported.
pub(super) const OPERATORS: &[(&str, &str, Import)] = &[
    ("", "Abs", Unary(U::Abs)),
    ("", "Acos", Unary(U::Acos)),
    ("", "Acosh", Unary(U::Acosh)),
    ("", "Add", Binary(B::Add)),
    ("", "AffineGrid", Function(sampling::affine_grid)),
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
    ("", "Bernoulli", Function(random::bernoulli)),
    ("", "BitCast", Function(elementwise::bit_cast)),
    ("", "BitShift", Function(elementwise::bit_shift)),
    ("", "BitwiseAnd", Binary(B::BitAnd)),
    ("", "BitwiseNot", Unary(U::BitNot)),
    ("", "BitwiseOr", Binary(B::BitOr)),
    ("", "BitwiseXor", Binary(B::BitXor)),
    ("", "BlackmanWindow", Function(signal::window)),
    ("", "Cast", Function(elementwise::cast)),
    ("", "CastLike", Function(elementwise::cast)),
    ("", "CausalConvWithState", Function(sequence::causal_convolution)),
    ("", "Ceil", Unary(U::Ceil)),
    ("", "Celu", Function(activation::celu)),
    ("", "CenterCropPad", Function(shaping::center_crop_pad)),
    ("", "Clip", Function(elementwise::clip)),
    ("", "Compress", Function(dependent::compress)),
    ("", "Col2Im", Function(columns::columns_to_image)),
    ("", "Concat", Function(movement::concat)),
    ("", "Constant", Function(constant::constant)),
    ("", "ConcatFromSequence", Function(sequences::join)),
    ("", "ConstantOfShape", Function(constant::constant_of_shape)),
    ("", "Conv", Function(convolution::convolution)),
    ("", "ConvInteger", Function(quantization::convolve_integers)),
    ("", "ConvTranspose", Function(convolution::transposed)),
    ("", "Cos", Unary(U::Cos)),
    ("", "Cosh", Unary(U::Cosh)),
    ("", "CumProd", Function(movement::cumulative)),
    ("", "CumSum", Function(movement::cumulative)),
    ("", "DFT", Function(signal::dft)),
    ("", "DeformConv", Function(sampling::deformable)),
    ("", "DepthToSpace", Function(movement::depth_to_space)),
    ("", "DequantizeLinear", Function(quantization::dequantize)),
    ("", "Det", Function(shaping::determinant)),
    ("", "Div", Binary(B::Divide)),
    ("", "Dropout", Function(random::dropout)),
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
    ("", "GridSample", Function(sampling::grid_sample)),
    ("", "GroupNormalization", Function(normalization::group)),
    ("", "HammingWindow", Function(signal::window)),
    ("", "HannWindow", Function(signal::window)),
    ("", "HardSigmoid", Function(activation::hard_sigmoid)),
    ("", "HardSwish", Function(activation::hard_swish)),
    ("", "Hardmax", Function(softmax::softmax)),
    ("", "Identity", Function(shape::identity)),
    ("", "If", Import::If),
    ("", "ImageDecoder", Function(images::decode)),
    ("", "InstanceNormalization", Function(normalization::instance)),
    ("", "IsInf", Function(elementwise::is_infinite)),
    ("", "IsNaN", Unary(U::IsNan)),
    ("", "LRN", Function(normalization::local_response)),
    ("", "LSTM", Function(recurrent::lstm)),
    ("", "LayerNormalization", Function(normalization::layer)),
    ("", "LeakyRelu", Function(activation::leaky_relu)),
    ("", "Less", Binary(B::Less)),
    ("", "LessOrEqual", Binary(B::LessEqual)),
    ("", "LinearAttention", Function(sequence::linear_attention)),
    ("", "Log", Unary(U::Log)),
    ("", "LogSoftmax", Function(softmax::softmax)),
    ("", "Loop", Import::Loop),
    ("", "LpNormalization", Function(normalization::lp)),
    ("", "LpPool", Function(pool::lp)),
    ("", "MatMul", Function(matrix::matmul)),
    ("", "MatMulInteger", Function(matrix::matmul_integer)),
    ("", "Max", Function(elementwise::variadic)),
    ("", "MaxPool", Function(pool::maximum)),
    ("", "MaxUnpool", Function(shaping::unpool)),
    ("", "Mean", Function(elementwise::variadic)),
    ("", "MeanVarianceNormalization", Function(normalization::mean_variance)),
    ("", "MelWeightMatrix", Function(signal::mel_weights)),
    ("", "Min", Function(elementwise::variadic)),
    ("", "Mish", Function(activation::mish)),
    ("", "Mod", Function(elementwise::modulo)),
    ("", "Mul", Binary(B::Multiply)),
    ("", "Multinomial", Function(random::multinomial)),
    ("", "Neg", Unary(U::Negate)),
    ("", "NegativeLogLikelihoodLoss", Function(losses::negative_log_likelihood)),
    ("", "NonMaxSuppression", Function(dependent::non_max_suppression)),
    ("", "NonZero", Function(dependent::non_zero)),
    ("", "Not", Unary(U::Not)),
    ("", "OneHot", Function(indexing::one_hot)),
    ("", "Optional", Function(sequences::optional)),
    ("", "OptionalGetElement", Function(sequences::element)),
    ("", "OptionalHasElement", Function(sequences::has_element)),
    ("", "Or", Binary(B::Or)),
    ("", "PRelu", Binary(B::LeakyMultiply)),
    ("", "Pad", Function(movement::pad)),
    ("", "Pow", Function(elementwise::pow)),
    ("", "QLinearConv", Function(quantization::convolve)),
    ("", "QLinearMatMul", Function(quantization::matmul)),
    ("", "QuantizeLinear", Function(quantization::quantize)),
    ("", "RMSNormalization", Function(normalization::root_mean_square)),
    ("", "RNN", Function(recurrent::rnn)),
    ("", "RandomNormal", Function(random::random)),
    ("", "RandomNormalLike", Function(random::random)),
    ("", "RandomUniform", Function(random::random)),
    ("", "RandomUniformLike", Function(random::random)),
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
    ("", "RegexFullMatch", Function(strings::full_match)),
    ("", "Relu", Unary(U::Relu)),
    ("", "Reshape", Function(shape::reshape)),
    ("", "Resize", Function(resize::resize)),
    ("", "ReverseSequence", Function(sequence::reverse)),
    ("", "RoiAlign", Function(sampling::roi_align)),
    ("", "RotaryEmbedding", Function(attention::rotary)),
    ("", "Round", Unary(U::Round)),
    ("", "Scan", Import::Scan),
    ("", "STFT", Function(signal::stft)),
    ("", "Scatter", Function(indexing::scatter_elements)),
    ("", "ScatterElements", Function(indexing::scatter_elements)),
    ("", "ScatterND", Function(indexing::scatter_nd)),
    ("", "Selu", Function(activation::selu)),
    ("", "SequenceAt", Function(sequences::at)),
    ("", "SequenceConstruct", Function(sequences::construct)),
    ("", "SequenceEmpty", Function(sequences::construct)),
    ("", "SequenceErase", Function(sequences::erase)),
    ("", "SequenceInsert", Function(sequences::insert)),
    ("", "SequenceLength", Function(sequences::length)),
    ("", "SequenceMap", Import::SequenceMap),
    ("", "Shape", Function(shape::shape)),
    ("", "Shrink", Function(activation::shrink)),
    ("", "Sigmoid", Unary(U::Sigmoid)),
    ("", "Sign", Unary(U::Sign)),
    // onnxruntime writes it in ONNX's own operator set.
    ("", "SimplifiedLayerNormalization", Function(microsoft::root_mean_square)),
    ("", "Sin", Unary(U::Sin)),
    ("", "Sinh", Unary(U::Sinh)),
    ("", "Size", Function(shape::size)),
    ("", "Slice", Function(movement::slice)),
    ("", "Softmax", Function(softmax::softmax)),
    ("", "SoftmaxCrossEntropyLoss", Function(losses::softmax_cross_entropy)),
    ("", "Softplus", Function(activation::softplus)),
    ("", "Softsign", Function(activation::softsign)),
    ("", "SpaceToDepth", Function(movement::space_to_depth)),
    ("", "Split", Function(movement::split)),
    ("", "SplitToSequence", Function(sequences::split)),
    ("", "Sqrt", Unary(U::Sqrt)),
    ("", "Squeeze", Function(shape::squeeze)),
    ("", "StringConcat", Function(strings::concat)),
    ("", "StringNormalizer", Function(strings::normalize)),
    ("", "StringSplit", Function(strings::split)),
    ("", "Sub", Binary(B::Subtract)),
    ("", "Sum", Function(elementwise::variadic)),
    ("", "SwiGLU", Function(activation::gated_swish)),
    ("", "Swish", Function(activation::swish)),
    ("", "Tan", Unary(U::Tan)),
    ("", "Tanh", Unary(U::Tanh)),
    ("", "TensorScatter", Function(sequence::tensor_scatter)),
    ("", "TfIdfVectorizer", Function(text::count_sequences)),
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
    (CLASSICAL, "ArrayFeatureExtractor", Function(ml::extract)),
    (CLASSICAL, "Binarizer", Function(ml::binarize)),
    (CLASSICAL, "CastMap", Function(maps::cast)),
    (CLASSICAL, "CategoryMapper", Function(strings::map_categories)),
    (CLASSICAL, "DictVectorizer", Function(maps::vectorize)),
    (CLASSICAL, "FeatureVectorizer", Function(ml::vectorize)),
    (CLASSICAL, "Imputer", Function(ml::impute)),
    (CLASSICAL, "LabelEncoder", Function(ml::label)),
    (CLASSICAL, "LinearClassifier", Function(ml::linear_classifier)),
    (CLASSICAL, "LinearRegressor", Function(ml::linear_regressor)),
    (CLASSICAL, "Normalizer", Function(ml::normalize)),
    (CLASSICAL, "OneHotEncoder", Function(ml::one_hot)),
    (CLASSICAL, "SVMClassifier", Function(svm::svm_classifier)),
    (CLASSICAL, "SVMRegressor", Function(svm::svm_regressor)),
    (CLASSICAL, "Scaler", Function(ml::scale)),
    (CLASSICAL, "TreeEnsemble", Function(trees::ensemble)),
    (CLASSICAL, "TreeEnsembleClassifier", Function(trees::classifier)),
    (CLASSICAL, "TreeEnsembleRegressor", Function(trees::regressor)),
    (CLASSICAL, "ZipMap", Function(ml::zip_maps)),
    ("ai.onnx.preview", "FlexAttention", Import::FlexAttention),
    (TRAINING, "Adagrad", Function(training::adagrad)),
    (TRAINING, "Adam", Function(training::adam)),
    (TRAINING, "Gradient", Import::Gradient),
    (TRAINING, "Momentum", Function(training::momentum)),
    (MICROSOFT, "Attention", Function(microsoft_attention::attention)),
    (MICROSOFT, "BiasAdd", Function(microsoft::bias_add)),
    (MICROSOFT, "BiasGelu", Function(microsoft::bias_gelu)),
    (MICROSOFT, "BiasSplitGelu", Function(microsoft::bias_split_gelu)),
    (MICROSOFT, "DequantizeLinear", Function(quantization::dequantize)),
    (MICROSOFT, "DynamicQuantizeLSTM", Function(microsoft_quantized::dynamic_lstm)),
    (MICROSOFT, "DynamicQuantizeMatMul", Function(microsoft_quantized::dynamic_matmul)),
    (MICROSOFT, "EmbedLayerNormalization", Function(microsoft::embed)),
    (MICROSOFT, "ExpandDims", Function(microsoft::expand_dimensions)),
    (MICROSOFT, "FastGelu", Function(activation::fast_gelu)),
    (MICROSOFT, "FusedConv", Function(microsoft::convolve)),
    (MICROSOFT, "FusedGemm", Function(microsoft::gemm)),
    (MICROSOFT, "FusedMatMul", Function(microsoft::matmul)),
    (MICROSOFT, "GatherBlockQuantized", Function(few_bits::gather_blocks)),
    (MICROSOFT, "Gelu", Function(activation::gelu)),
    (MICROSOFT, "GroupQueryAttention", Function(microsoft_attention::group_query)),
    (MICROSOFT, "LayerNormalization", Function(normalization::layer)),
    (MICROSOFT, "MatMulBnb4", Function(few_bits::matmul_bnb4)),
    (MICROSOFT, "MatMulIntegerToFloat", Function(microsoft_quantized::matmul_to_float)),
    (MICROSOFT, "MatMulNBits", Function(few_bits::matmul_bits)),
    (MICROSOFT, "MultiHeadAttention", Function(microsoft_attention::multi_head)),
    (MICROSOFT, "NhwcMaxPool", Function(microsoft_quantized::largest_of_windows)),
    (MICROSOFT, "QAttention", Function(microsoft_attention::quantized)),
    (MICROSOFT, "QEmbedLayerNormalization", Function(microsoft::embed_quantized)),
    (MICROSOFT, "QGemm", Function(microsoft_quantized::gemm)),
    (MICROSOFT, "QLinearAdd", Function(microsoft_quantized::binary)),
    (MICROSOFT, "QLinearAveragePool", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearConcat", Function(microsoft_quantized::concat)),
    (MICROSOFT, "QLinearConv", Function(microsoft_quantized::convolve)),
    (MICROSOFT, "QLinearGlobalAveragePool", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearLeakyRelu", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearMul", Function(microsoft_quantized::binary)),
    (MICROSOFT, "QLinearReduceMean", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearSigmoid", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearSoftmax", Function(microsoft_quantized::unary)),
    (MICROSOFT, "QLinearWhere", Function(microsoft_quantized::select)),
    (MICROSOFT, "QuantizeLinear", Function(quantization::quantize)),
    (MICROSOFT, "QuickGelu", Function(microsoft::quick_gelu)),
    (MICROSOFT, "RotaryEmbedding", Function(microsoft_attention::rotary_embedding)),
    (MICROSOFT, "SkipLayerNormalization", Function(normalization::skip_layer)),
    (MICROSOFT, "SkipSimplifiedLayerNormalization", Function(microsoft::skip_root_mean_square)),
    (MICROSOFT, "Tokenizer", Function(tokens::tokenize)),
    (MICROSOFT, "TransposeMatMul", Function(microsoft::matmul)),
    (MICROSOFT, "Trilu", Function(movement::trilu)),
];

/// How `operator` of operator set `domain` is imported, where it is supported.
pub(super) fn find(domain: &str, operator: &str) -> Option<Import> {
    let found = OPERATORS.iter().find(|(set, name, _)| *set == domain && *name == operator);
    found.map(|(_, _, import)| *import)
}
