//! What people look at in a cluster: the program `kubectl-hone`.
//!
//! `cluster` connects; `page` is the page that `hone ui` serves, over the state that watches keep; `commands` are the
//! words of the plugin, one a file; `reports` fetches what workers stored.
//!
//! Invariants: nothing is decided here and nothing is written but the annotation that asks for a retry. Whatever comes
//! from objects is text: it reaches a terminal through [`text::plain`] and the page through `textContent` alone.

pub mod cluster;
pub mod commands;
pub mod error;
pub mod page;
pub mod reports;
pub mod text;

pub use error::ConsoleError;
