//! The sizes that a model is compiled for: what a request says of its dimensions, and, of those of which it says nothing,
//! what the model allows.
//!
//! Of one dimension any size is served where the model maps over it (`proof.rs`), of one more every size up to a bound
//! (`padding.rs`, `witnesses.rs`). All others have sizes that are named. Who compiles asks [`resolve`] for the sizes, and
//! [`Resolved::import`] for the graphs and for what the artifact says of them.

mod axes;
mod demanded;
mod error;
mod padding;
mod proof;
mod resolve;
mod source;
mod witnesses;

pub use error::{BoundedDimension, DimensionError, NeededDimension, OpenDimensions, PaddingError};
pub use padding::{as_compiled, is_dynamic};
pub use resolve::{Resolved, combinations, resolve};
pub use source::Source;
