//! The model as plain data: values, nodes, a verifier, a text form.
//!
//! A [`Graph`] is in static single assignment form. Always holds (and [`Graph::verify`] checks):
//! - the node table is in topological order: a node's inputs are graph inputs, constants, or outputs
//!   of earlier nodes;
//! - every value has one definition and a full static type;
//! - a node's output types are those its operation infers from its input types;
//! - names of inputs are unique, and so are names of outputs;
//! - all of this holds of the graphs inside of operations ([`Operation::regions`]), which read nothing
//!   but their own inputs and constants; that they fit their node is a matter of the operation's types;
//! - an extent of an output that is decided at run time is a scalar of `i64`.
//!
//! A graph is generic over its operation type: this crate knows no operator. A pass reads one graph
//! and builds another; entries are never removed from a graph.

mod graph;
mod interface;
mod operation;
mod text;
mod verify;

pub use graph::{Definition, Graph, Node, NodeId, OutputExtent, Port, Value, ValueId};
pub use interface::{Interface, Member, MemberForm};
pub use operation::{InferError, Operation};
pub use text::{Constants, ParseError, parse};
pub use verify::VerifyError;
