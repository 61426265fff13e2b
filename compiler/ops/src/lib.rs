//! One file per operator (or family of operators of one shape): attributes, shape rule, reference
//! result, tensor expression, fusion class.
//!
//! The reference results are the oracle of every later stage: plain loops, sums in `f64`. The tensor
//! expression defines the same result as a loop program; it says nothing of loop order or machine.
//! To add an operator: a file here, a line in the list below, a case in `tests/cases/`.

mod arg_reduce;
mod attention;
mod attention_tensors;
mod batch_normalization;
mod binary;
mod bit_cast;
mod cast;
mod column_parts;
mod concat;
mod conditional;
mod convolution;
mod convolution_transpose;
mod cumulative_rows;
mod cumulative_sum;
mod dependent;
mod dequantize_blocks;
mod dot_products;
mod expand;
mod express;
mod folding;
mod gather;
mod gather_elements;
mod gather_nd;
mod group_normalization;
mod gru;
mod image_decoder;
mod interleave;
mod iteration;
mod join;
mod layer_normalization;
mod local_response_normalization;
mod lp_normalization;
mod lstm;
mod maps;
mod matmul;
mod moments;
mod ngrams;
mod number;
mod one_hot;
mod operator;
mod packed_block_matmul;
mod packed_convolution;
mod packed_depthwise;
mod packed_matmul;
mod packed_pool;
mod packing;
mod pad;
mod phases;
mod planes;
mod pool;
mod recurrence;
mod recurrent;
mod recurrent_nodes;
mod recurrent_reference;
mod recurrent_rounding;
mod reduce;
mod reference;
mod require;
mod reshape;
mod resize;
mod resize_axis;
mod rnn;
mod scatter;
mod select;
mod serde_forms;
mod shape;
mod slice;
mod softmax;
mod strided;
mod sums;
mod text;
mod text_pattern;
mod text_scanner;
mod text_tokens;
mod tile;
mod top_k;
mod top_k_nodes;
mod transpose;
mod trilu;
mod unary;
mod winograd;
mod winograd_input;
mod winograd_multiply;
mod winograd_output;

pub use arg_reduce::ArgReduce;
pub use attention::{Attention, AttentionPart, EmptyRows, ScoreStep};
pub use batch_normalization::BatchNormalization;
pub use binary::{Binary, BinaryFunction, broadcast_indices, broadcast_shapes};
pub use bit_cast::BitCast;
pub use cast::Cast;
pub use concat::Concat;
pub use conditional::If;
pub use convolution::{Convolution, Window};
pub use convolution_transpose::ConvolutionTranspose;
pub use cumulative_sum::CumulativeSum;
pub use dependent::{Compress, NonMaxSuppression, NonZero, Unique};
pub use dequantize_blocks::{DequantizeBlocks, WeightBits};
pub use dot_products::DotProducts;
pub use expand::Expand;
pub use folding::{FoldingBudget, FoldingLimits, fold};
pub use gather::Gather;
pub use gather_elements::GatherElements;
pub use gather_nd::GatherNd;
pub use group_normalization::{GroupNormalization, InstanceNormalization};
pub use gru::Gru;
pub use hone_images::{PixelFormat, Size as ImageSize, sample as sample_image};
pub use image_decoder::ImageDecoder;
pub use interleave::{interleave, interleave_by, products_of};
pub use iteration::{LONGEST_EVALUATION, Loop, LoopWalk};
pub use join::Join;
pub use layer_normalization::LayerNormalization;
pub use local_response_normalization::LocalResponseNormalization;
pub use lp_normalization::LpNormalization;
pub use lstm::Lstm;
pub use maps::{Map, MapFunction};
pub use matmul::MatMul;
pub use ngrams::NGrams;
pub use one_hot::OneHot;
pub use operator::{FusionClass, Graph, Op, OpError, Operator, node_flops};
pub use packed_block_matmul::PackedBlockMatMul;
pub use packed_convolution::{GroupInputs, PackedConvolution};
pub use packed_depthwise::PackedDepthwise;
pub use packed_matmul::PackedMatMul;
pub use packed_pool::PackedPool;
pub use packing::{Pack, Unpack};
pub use pad::{Pad, PadMode};
pub use pool::{Pool, PoolKind};
pub use recurrence::{Recurrence, StepNode};
pub use recurrent::{Activation, Direction};
pub use reduce::{Reduce, ReduceFunction};
pub use reference::{EvaluateError, Evaluation, evaluate};
pub use require::Require;
pub use reshape::Reshape;
pub use resize::{CoordinateMode, NearestRounding, Resize, ResizeMode};
pub use rnn::Rnn;
pub use scatter::{ScatterElements, ScatterNd, ScatterReduction};
pub use select::Select;
pub use shape::LARGEST_BUFFER;
pub use slice::Slice;
pub use softmax::Softmax;
pub use text::{CaseRule, Letters, NumberType, Text, TextFunction};
pub use text_pattern::{TextAutomaton, text_automaton};
pub use text_scanner::{ScanTable, TextScanner, text_scanner};
pub use text_tokens::{TokenRule, Tokens};
pub use tile::Tile;
pub use top_k::TopK;
pub use transpose::Transpose;
pub use trilu::Trilu;
pub use unary::{Unary, UnaryFunction};
pub use winograd::{WINOGRAD_TILES, winograd_weights};
pub use winograd_input::WinogradInput;
pub use winograd_multiply::WinogradMultiply;
pub use winograd_output::WinogradOutput;

operator::operators! {
    ArgReduce,
    Attention,
    BatchNormalization,
    Binary,
    BitCast,
    Cast,
    Compress,
    Concat,
    Convolution,
    ConvolutionTranspose,
    CumulativeSum,
    DequantizeBlocks,
    DotProducts,
    Expand,
    Gather,
    GatherElements,
    GatherNd,
    GroupNormalization,
    Gru,
    ImageDecoder,
    InstanceNormalization,
    Join,
    LayerNormalization,
    LocalResponseNormalization,
    LpNormalization,
    Lstm,
    Map,
    MatMul,
    NGrams,
    NonMaxSuppression,
    NonZero,
    OneHot,
    Pack,
    PackedBlockMatMul,
    PackedConvolution,
    PackedDepthwise,
    PackedMatMul,
    PackedPool,
    Pad,
    Pool,
    Recurrence,
    Reduce,
    Require,
    Reshape,
    Resize,
    Rnn,
    ScatterElements,
    ScatterNd,
    Select,
    Slice,
    Softmax,
    Text,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Unary,
    Unique,
    Unpack,
    WinogradInput,
    WinogradMultiply,
    WinogradOutput,
}
