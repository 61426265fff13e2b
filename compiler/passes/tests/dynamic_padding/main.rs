//! One graph for every size up to a bound: models built at each size are compared with what the padded graph computes, with
//! anything behind the size, and what cannot be padded is refused by name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod case;
mod networks;
mod operations;
mod past;
mod refused;
mod strided;
