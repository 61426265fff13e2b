//! Reducing a model on which `hone compile` fails to a small one on which it fails alike, for a report.
//!
//! `attempt` compiles a candidate in a process of its own, and `outcome` is how that ended and when two endings are alike;
//! `trials` holds the smallest candidate so far and tries others; `minimize` is delta debugging over any list; `subgraph`
//! makes candidates of some nodes of a graph, and `cleaned` leaves out what nothing reads; `value_types` knows the types of
//! inner values, which become inputs; `steps` are the kinds of reduction, in the order in which `reduction` takes them;
//! `fixed_sizes` fixes open dimensions before them, `anonymous` takes names and weights away after them.

mod anonymous;
mod attempt;
mod cleaned;
mod fixed_sizes;
mod minimize;
mod outcome;
mod reduction;
mod seeded;
mod steps;
mod stored;
mod subgraph;
mod trials;
mod value_types;

pub use attempt::{Attempts, Flags};
pub use reduction::{Reduced, Settings, reduce};
pub use value_types::tell as tell_value_types;
