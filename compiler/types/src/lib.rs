//! What every stage must agree on: element types, tensor types, host tensors, handle tables, random numbers.
//!
//! Always holds:
//! - a [`TensorType`] has only known, non-negative dimensions; symbolic ones are bound at import;
//! - a [`Tensor`] has exactly `shape.product() * dtype.bytes()` bytes, row-major, innermost axis
//!   last, in the machine's little-endian order, wherever they lie.

mod data_type;
mod mersenne;
mod random;
mod storage;
mod table;
mod tensor;
mod tensor_type;
mod text;

pub use data_type::DataType;
pub use mersenne::MersenneTwister;
pub use random::Random;
pub use storage::Backing;
pub use table::{Id, Table};
pub use tensor::{Element, Tensor, TensorError};
pub use tensor_type::TensorType;
pub use text::{TextError, intern_text, text_of};
