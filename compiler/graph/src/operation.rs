//! What a graph asks of the operations in its nodes.

use crate::Graph;
use hone_types::TensorType;
use std::fmt::Debug;
use thiserror::Error;

/// Why an operation refuses its inputs: what is wrong, in words that name the input or attribute.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct InferError(pub String);

impl InferError {
    /// A refusal with the given words.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// An operation of a node: a name, attributes, and a shape rule.
pub trait Operation: Debug {
    /// The name in the text form, in snake case, such as `convolution`.
    fn name(&self) -> &'static str;

    /// The attributes as a JSON object (or null where there are none), as the text form shows them.
    fn attributes(&self) -> serde_json::Value;

    /// The operation called `name` with `attributes` (as [`Operation::attributes`] gives them) and with the graphs
    /// inside of it; the reverse of the text form.
    ///
    /// # Errors
    /// A name, attributes or a number of graphs that no operation has.
    fn from_text(
        name: &str,
        attributes: serde_json::Value,
        regions: Vec<Graph<Self>>,
    ) -> Result<Self, InferError>
    where
        Self: Sized;

    /// Types of the outputs, from the types of the inputs; `None` is an optional input left out.
    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError>;

    /// The graphs inside of the operation, such as the branches of a condition or the body of a loop. Such a
    /// region reads nothing but its own inputs: what it needs of the graph around it is an input of the node.
    fn regions(&self) -> Vec<&Graph<Self>>
    where
        Self: Sized,
    {
        Vec::new()
    }
}
