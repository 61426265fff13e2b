//! Programs as text: printed for people, and parsed back to the same program.
//!
//! Buffers come first, then the loop tree with each block at its place, then what no longer stands in
//! the tree, so that handles keep their numbers:
//!
//! ```text
//! input 0 b0 "x": f32[4, 6]
//! output 1 b1 "sum": f32[4]
//!
//! for v2 "i0_loop" in 0..4 parallel {
//!   for v3 "r0_loop" in 0..6 {
//!     block0 "sum" (v0 "i0" < 4 = v2, reduce v1 "r0" < 6 = v3) {
//!       b1[v0] sum= b0[v0, v1] from 0.0:f32
//!     }
//!   }
//! }
//! unused v4 "spare"
//! ```
//!
//! Integers stand as they are, constants with their type; `//` and `%` round down, `rem` and `/` cut.

mod names;
mod parse;
mod print;

pub use parse::{ParseError, parse};
