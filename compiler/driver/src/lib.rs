//! The only room that sees every stage: order, options and dumps; no algorithms. The whole path is
//! in `pipeline`.

mod artifact;
mod error;
mod kernels;
mod options;
mod pipeline;
mod schedule;
mod steps;
mod storage;

pub use artifact::manifest_target;
pub use error::CompileError;
pub use hone_codegen::{CodegenError, Machine, Target, disassemble, probe};
pub use hone_graph::Port;
pub use hone_import::{ImportError, ImportOptions, InputBinding, NodeError, import};
pub use hone_lower::LowerError;
pub use hone_ops::{EvaluateError, Graph, evaluate};
pub use hone_passes::{PassError, nudge, rounds_inside};
pub use hone_types::{DataType, Tensor, TensorType};
pub use kernels::{CompiledKernels, KernelInfo};
pub use options::{Options, SchedulePolicy};
pub use pipeline::{Compiled, Statistics, compile, compile_graph, narrow_nodes, prepare};
