//! Every rule against central differences, in `f64` on the reference results, at seeded points that are no kinks.
#![allow(clippy::unwrap_used)]

mod case;
mod convolutions;
mod elementwise;
mod indexing;
mod normalizations;
mod products;
mod reductions;
mod shapes;
mod walk;
