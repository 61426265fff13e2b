//! Why something has no derivative.

use hone_graph::{InferError, ValueId};
use hone_ops::OpError;
use hone_types::{TensorError, TensorType};
use thiserror::Error;

/// Why the nodes of a derivative could not be added.
#[derive(Debug, Error)]
pub enum GradientError {
    /// Only floats have derivatives.
    #[error("{value} is {tensor_type}; only floats have derivatives")]
    NotFloat {
        /// The value.
        value: ValueId,
        /// Its type.
        tensor_type: TensorType,
    },
    /// A seed or a value that stands for another one is of another type.
    #[error("{given} is {given_type}, and {value} is {value_type}")]
    OtherType {
        /// The value of the graph.
        value: ValueId,
        /// Its type.
        value_type: TensorType,
        /// What was given for it.
        given: ValueId,
        /// The type of that.
        given_type: TensorType,
    },
    /// A derivative would have to pass a node that has none.
    #[error("node '{node}' ({operation}) has no derivative")]
    Node {
        /// Name of the node.
        node: String,
        /// Its operation.
        operation: &'static str,
        /// Why.
        source: RuleError,
    },
}

/// Why a node has no derivative.
#[derive(Debug, Error)]
pub enum RuleError {
    /// There is no rule for the operator, or none for these attributes.
    #[error("there is no rule for {0}")]
    Missing(String),
    /// An input is left out that the operator needs.
    #[error("input {0} is missing")]
    Input(usize),
    /// A node of the derivative refuses its inputs.
    #[error("a node of the derivative refuses its inputs")]
    Infer(#[from] InferError),
    /// A constant of the derivative could not be made.
    #[error("a constant of the derivative is malformed")]
    Tensor(#[from] TensorError),
    /// A constant of the derivative could not be computed.
    #[error("a constant of the derivative could not be computed")]
    Constant(#[from] OpError),
    /// The simpler nodes that the operator is taken apart into have no derivative.
    #[error("what it is taken apart into has no derivative")]
    Parts(#[source] Box<GradientError>),
}
