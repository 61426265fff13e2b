//! Why a model cannot be imported.

use crate::PortSignature;
use hone_graph::{InferError, VerifyError};
use hone_ops::OpError;
use hone_types::TensorError;
use std::fmt;
use thiserror::Error;

/// Why a model file cannot be imported: the object, what failed, what to do.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The bytes are no ONNX model.
    #[error("the file is not an ONNX model: {reason}; give the .onnx file itself")]
    NotOnnx {
        /// What shows it.
        reason: String,
    },
    /// The bytes end too early.
    #[error(
        "the file is cut short: at byte {offset} it announces {needed} bytes and holds {left}; fetch \
         it again"
    )]
    Truncated {
        /// Where in the file.
        offset: usize,
        /// Bytes announced.
        needed: u64,
        /// Bytes there are.
        left: usize,
    },
    /// The protobuf decoder refused the bytes.
    #[error("the file is not an ONNX model: it does not decode; export it again")]
    Decode(#[source] prost::DecodeError),
    /// A bound was passed.
    #[error("{what} is {actual}, the limit is {limit}; raise the limit if the model is trusted")]
    TooLarge {
        /// What was counted.
        what: String,
        /// What was found.
        actual: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The file uses a version that is not known.
    #[error("{what}; export the model with opset {oldest} to {newest}")]
    Version {
        /// The version found, and of what.
        what: String,
        /// Oldest supported opset.
        oldest: i64,
        /// Newest supported opset.
        newest: i64,
    },
    /// Inputs have dimensions that nothing binds.
    #[error("{}", unbound(.0))]
    Unbound(Vec<UnboundInput>),
    /// A binding does not fit the model.
    #[error("the shape given for input '{input}' does not fit: {reason}")]
    Binding {
        /// Name of the input.
        input: String,
        /// Why.
        reason: String,
    },
    /// An input or output is declared in a way that is not supported.
    #[error("{kind} '{name}': {reason}")]
    Port {
        /// `input` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A stored tensor is malformed.
    #[error("tensor '{name}': {reason}; export the model again")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor stored outside the file cannot be read.
    #[error("tensor '{name}' is stored in '{location}': {reason}")]
    External {
        /// Its name.
        name: String,
        /// Where it is said to lie.
        location: String,
        /// Why it is not read, and what to do.
        reason: String,
        /// What the system said.
        #[source]
        source: Option<std::io::Error>,
    },
    /// A name is defined twice.
    #[error("{what} '{name}' is defined twice; export the model again")]
    Duplicate {
        /// What kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A node reads what is not there.
    #[error(
        "{reader} reads '{value}', which is no input, no initializer and no output of a node; the \
         model is incomplete; export it again"
    )]
    Undefined {
        /// Who reads.
        reader: String,
        /// The name.
        value: String,
    },
    /// Nodes form a cycle.
    #[error("{}", cycle(.nodes))]
    Cycle {
        /// Their names, each before one that reads its results; the first reads those of the last.
        nodes: Vec<String>,
    },
    /// Operators that are not supported, all of them.
    #[error("{}", unsupported(.0))]
    Unsupported(Vec<UnsupportedOperator>),
    /// A node is refused.
    #[error("node '{node}' ({operator}, opset {opset})")]
    Node {
        /// Its name.
        node: String,
        /// Its operator, with the domain unless it is ONNX's own.
        operator: String,
        /// The version of the operator set.
        opset: i64,
        /// Why.
        #[source]
        source: NodeError,
    },
    /// The graph that was built does not hold together: a bug of the importer.
    #[error("the imported graph does not verify; report this with the model")]
    Verify(#[from] VerifyError),
}

/// Why a node is refused.
#[derive(Debug, Error)]
pub enum NodeError {
    /// Something is wrong with an attribute, an input or their combination.
    #[error("{0}")]
    Invalid(String),
    /// Valid ONNX that this importer does not support.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// An input must be known at compile time.
    #[error(
        "input '{input}' (number {place}) must be a constant: it decides a shape, and shapes are fixed \
         when compiling; export the model with fixed shapes, or with the shape of the result declared"
    )]
    NotConstant {
        /// Name of the value.
        input: String,
        /// Its place among the node's inputs, from 0.
        place: usize,
        /// Names of the model's inputs that it is computed from.
        decided_by: Vec<String>,
    },
    /// A size that is decided only when the model runs, elsewhere than in an output of the model.
    #[error(
        "the size of {what} is decided when the model runs, and this operator takes none of that kind"
    )]
    UndecidedSize {
        /// What reads it.
        what: String,
    },
    /// Branches whose results have no common form.
    #[error(
        "the results of its branches differ in rank, or in size along more than two axes; export the model with results \
         of the same rank"
    )]
    BranchesDiffer,
    /// A loop that may give any number of results.
    #[error(
        "nothing bounds how many values it collects; give its first input (the number of iterations) as a constant, or declare the shape of output number {output}"
    )]
    Unbounded {
        /// The output.
        output: usize,
    },
    /// An operator refuses the types of its inputs.
    #[error("its inputs do not fit: {0}")]
    Infer(InferError),
    /// A constant could not be computed.
    #[error("its constant result could not be computed")]
    Fold(#[from] OpError),
    /// A constant is malformed.
    #[error("a constant is malformed")]
    Tensor(#[from] TensorError),
    /// A value has no derivative.
    #[error("the derivative cannot be taken")]
    Gradient(#[source] Box<hone_gradient::GradientError>),
    /// Something around the node failed.
    #[error("its body could not be imported")]
    Inner(#[source] Box<ImportError>),
}

impl ImportError {
    /// Names of the model's inputs whose values decide what must be known when compiling, where this
    /// error is for the lack of them.
    pub fn decided_by(&self) -> Option<&[String]> {
        let Self::Node { source, .. } = self else { return None };
        match source {
            NodeError::NotConstant { decided_by, .. } => Some(decided_by),
            NodeError::Inner(inner) => inner.decided_by(),
            _ => None,
        }
    }
}

impl NodeError {
    /// Whether shapes do not fit one another, other than where something is missing here or the model breaks a rule of
    /// its format.
    pub(crate) fn is_misfit(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Infer(_) | Self::BranchesDiffer => true,
            Self::Inner(inner) => match &**inner {
                ImportError::Node { source, .. } => source.is_misfit(),
                _ => false,
            },
            _ => false,
        }
    }

    /// A refusal in words.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Valid, but not supported; `what` is a noun phrase.
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(what.into())
    }
}

impl From<InferError> for NodeError {
    fn from(error: InferError) -> Self {
        Self::Infer(error)
    }
}

impl From<ImportError> for NodeError {
    fn from(error: ImportError) -> Self {
        Self::Inner(Box::new(error))
    }
}

/// An operator that is not supported, where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedOperator {
    /// Name of the node.
    pub node: String,
    /// The operator set; empty for ONNX's own.
    pub domain: String,
    /// Name of the operator.
    pub operator: String,
    /// The version of the operator set.
    pub opset: i64,
}

impl fmt::Display for UnsupportedOperator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.domain.is_empty() { "" } else { "." };
        let Self { node, domain, operator, opset } = self;
        write!(formatter, "node '{node}' ({domain}{separator}{operator}, opset {opset})")
    }
}

/// An input with dimensions that nothing binds.
#[derive(Clone, Debug, PartialEq)]
pub struct UnboundInput {
    /// The input as declared.
    pub declared: PortSignature,
    /// Its open dimensions in words.
    pub open: Vec<String>,
    /// A shape that it could have: extents that its names and rank suggest, equal ones for equal names.
    pub proposed: Vec<usize>,
}

/// Unsupported operators shown in one message; more are counted.
const SHOWN: usize = 50;

fn unsupported(operators: &[UnsupportedOperator]) -> String {
    let mut kinds: Vec<&str> =
        operators.iter().map(|operator| operator.operator.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut message = format!("unsupported operators ({}):", kinds.join(", "));
    for operator in operators.iter().take(SHOWN) {
        message.push_str(&format!("\n  {operator}"));
    }
    if operators.len() > SHOWN {
        message.push_str(&format!("\n  and {} more nodes", operators.len() - SHOWN));
    }
    message.push_str("\nexport the model without them, or as functions of ONNX's own operators");
    message
}

fn cycle(nodes: &[String]) -> String {
    let mut shown: Vec<String> = nodes.iter().take(SHOWN).map(|node| format!("'{node}'")).collect();
    if nodes.len() > SHOWN {
        shown.push(format!("{} more", nodes.len() - SHOWN));
    }
    match &shown[..] {
        [one] => format!("node {one} reads its own result; export the model again"),
        _ => format!(
            "nodes {} form a cycle: each reads a result of the one before it, the first of the \
             last; export the model again",
            shown.join(", ")
        ),
    }
}

fn unbound(inputs: &[UnboundInput]) -> String {
    let mut message = String::from("dimensions are open: say how large they are\n");
    for input in inputs {
        let PortSignature { name, .. } = &input.declared;
        let open = input.open.join(", ");
        message.push_str(&format!("  input '{name}' is {}: {open}\n", input.declared));
    }
    let lines: Vec<String> = inputs.iter().map(binding_line).collect();
    message.push_str(&format!("for example, in the YAML file: inputs: [{}]", lines.join(", ")));
    message
}

/// One entry of `inputs`; names are quoted, since YAML reads some of them as something else.
fn binding_line(input: &UnboundInput) -> String {
    let name = input.declared.name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{{name: \"{name}\", shape: {:?}}}", input.proposed)
}
