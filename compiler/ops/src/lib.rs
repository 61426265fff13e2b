//! One file per operator (or family of operators of one shape): attributes, shape rule, reference
//! result, tensor expression, fusion class.
//!
//! The reference results are the oracle of every later stage: plain loops, sums in `f64`. The tensor
//! expression defines the same result as a loop program; it says nothing of loop order or machine.
//! To add an operator: a file here, a line in the list below, a case in `tests/models/`.

mod binary;
mod convolution;
mod operator;
mod packed_convolution;
mod packed_depthwise;
mod packing;
mod reference;
mod unary;

pub use binary::{Binary, BinaryFunction, broadcast_indices, broadcast_shapes};
pub use convolution::{Convolution, Window};
pub use operator::{FusionClass, Graph, Op, OpError, Operator};
pub use packed_convolution::PackedConvolution;
pub use packed_depthwise::PackedDepthwise;
pub use packing::{Pack, Unpack};
pub use reference::{EvaluateError, evaluate};
pub use unary::{Unary, UnaryFunction};

operator::operators! {
    Binary,
    Convolution,
    Pack,
    PackedConvolution,
    PackedDepthwise,
    Unary,
    Unpack,
}
