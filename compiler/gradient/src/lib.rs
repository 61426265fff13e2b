//! Derivatives of values of a graph, as more nodes of the same graph: reverse mode automatic differentiation.
//!
//! Beginning at the value that is differentiated, the walk goes back over the nodes that it depends on, and hands each node
//! the *adjoints* of its outputs: what the result changes by for a change of them. The node's rule adds nodes that compute
//! from these what each input contributes; contributions of several readers are added up. (A. Griewank and A. Walther,
//! "Evaluating Derivatives", 2008, chapter 3.)
//!
//! What is added is made of the operators that every graph is made of. So passes, fusion and code generation need to know
//! nothing of derivatives, and a derivative can be differentiated again.
//!
//! Always holds:
//! - nodes are only added, behind all others; nothing that was there changes;
//! - a derivative has the type of the value that it is taken by;
//! - only floats have derivatives: nothing passes through integers and truth values;
//! - nothing recurses over nodes, and the walk takes time in proportion to the nodes that it passes.
//!
//! A rule is a file's or a few lines of one in `rules/`, joined by the list in `rules.rs`. What is not in the list is refused
//! by its name where a derivative would have to pass it.

mod error;
mod nodes;
mod rules;
mod substitute;
mod walk;

pub use error::{GradientError, RuleError};
pub use rules::DIFFERENTIABLE;
pub use substitute::substitute;
pub use walk::{gradients, pull_back};

/// The examples of the page run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/gradients.md")]
struct Page;
