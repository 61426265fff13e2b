//! What the program `hone` is made of, as a library, so that tests and chores call the same functions.
//! See ARCHITECTURE.md and docs/cli.md.

mod binding;
mod cache;
pub mod commands;
pub mod compare;
pub mod compiler;
mod device;
mod dimensions;
pub mod failure;
mod images;
pub mod inputs;
mod maps;
mod measure;
mod npz;
pub mod random;
mod reduce;
mod show;
mod simulate;
mod spec;
mod storage;
mod target;
mod texts;
mod traces;
pub mod tune;
pub mod verify;
pub mod work;
