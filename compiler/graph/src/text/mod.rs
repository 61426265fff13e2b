//! The text form of graphs, a statement a line. What is printed parses back to the same graph.
//!
//! ```text
//! %0 = input "x" f32[1, 4]
//! %1 = constant "w" f32[4, 2] pattern
//! %2 = matmul "product" (%0, %1) -> f32[1, 2]
//! %3 = if "branch" (%4, %2) -> f32[1, 2] {
//!   %0 = input "p" f32[1, 2]
//!   output "q" %0
//! } {
//!   ...
//! }
//! output "y" %2
//! extent of output 0 axis 1 is %5
//! interface {"inputs":[{"name":"x","form":"tensor"}],"outputs":[{"name":"y","form":{"sequence":1}}]}
//! ```
//!
//! A node without outputs begins with its operation, and no types follow: `require "shape" (%4) {"message":"..."}`.
//! Values are numbered in the order of their definitions. Behind an operation stand the name of its node, its
//! inputs (`none` for one that is left out), its attributes as JSON where it has any, its output types, and the
//! graphs inside of it. A value whose name is not that of its node, input or constant has it behind its number:
//! `%2 "logits" = ...`. The elements of a constant are a list in row-major order, `splat` and one element,
//! `pattern` (see below), or `bytes` and the little-endian bytes in hexadecimal. Behind `#` stands a comment.
//!
//! `pattern` is for cases: element `i` is `(31 i + i / 5) mod 7 - 3`, a small whole number, so that sums of
//! products are exact in every order.

mod constant;
mod parse;
mod print;

pub use parse::{ParseError, parse};
pub use print::Constants;
