//! Model files to graphs: the only room that knows foreign formats.
//!
//! [`import`] reads an ONNX file and gives a graph of our operators in which everything is static:
//! symbolic dimensions are bound by the caller, nodes out of order are sorted, and what a node needs to know at compile time (the
//! target of a reshape, the axes of a reduction) is computed while importing. Nothing is guessed:
//! what is not supported is an error that names the node.
//!
//! The bytes are not trusted. Counts and sizes are checked before anything is allocated for them,
//! and external data is read only from regular files inside the given folder.

mod error;
mod limits;
pub mod onnx;
mod propose;
pub use propose::propose as propose_shape;
mod signature;
mod sizes;
mod sums;

pub use error::{ImportError, NodeError, UnboundInput, UnsupportedOperator};
pub use hone_ops::FoldingLimits;
pub use limits::Limits;
pub use onnx::narrow::NarrowType;
pub use onnx::{import, import_shared, signature};
pub use signature::{Dimension, InputForm, KeyType, MOST_KEYS, PortSignature, Signature};
pub use sizes::{Combination, SizedBinding, SizesError, combinations};
pub use sums::{SizeSum, SummedDimension};

use hone_types::{Backing, DataType, Tensor};
use std::path::PathBuf;
use std::sync::Arc;

/// What the importer is told besides the file.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The folder in which tensors stored outside the file may lie; without one they are refused.
    pub folder: Option<PathBuf>,
    /// Shapes of inputs, where the model leaves them open.
    pub bindings: Vec<InputBinding>,
    /// Inputs that are sequences, and optional ones that are not there. A sequence that is not named here has as many
    /// tensors as `bindings` name, by `name[0]`, `name[1]` and so on; an optional input that is not named is there.
    pub forms: Vec<(String, InputForm)>,
    /// Values of inputs that are known when compiling: what is imported computes with them and has no
    /// such inputs. Of element type and shape as the model declares.
    pub constants: Vec<(String, Tensor)>,
    /// A size that is computed of integers that are inputs has room for a number of elements that the importer chooses, and
    /// a run that needs more is ended. Without it such a model is refused, with the inputs named, so that forms can be made
    /// for their values.
    pub inputs_have_room: bool,
    /// Sizes beyond which a model is refused.
    pub limits: Limits,
    /// What keeps the bytes of stored tensors, such as mapped files: it gets the memory of constants back that have been
    /// packed. Without it, tensors that are stored outside of the model's file are read into memory.
    pub backing: Option<Arc<dyn Backing>>,
}

/// The shape that an input shall have.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBinding {
    /// Name of the input.
    pub name: String,
    /// Extent of each axis.
    pub shape: Vec<usize>,
    /// Element type, checked against the model's.
    pub dtype: Option<DataType>,
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The model in our operators; all shapes are static.
    pub graph: hone_ops::Graph,
    /// Inputs and outputs as the file declares them.
    pub signature: Signature,
    /// What a person may want to know and that hinders nothing.
    pub warnings: Vec<String>,
}
