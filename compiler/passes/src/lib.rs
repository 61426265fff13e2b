//! Graph to equivalent graph, one file per pass, and what is decided about a graph without changing
//! it: which nodes become one kernel. A pass reads a graph and builds a new one; nodes that nothing
//! needs are dropped on the way.

mod alive_index;
mod attention;
mod attention_operands;
mod byte_convolution;
mod decompose;
mod dilation;
mod extend_precision;
mod filler;
mod fold;
mod fold_batch_norm;
mod free_list;
mod free_nodes;
mod fuse;
mod groups;
mod integer_products;
mod layout;
mod layout_between;
mod memory_plan;
mod merge_groups;
mod narrow;
mod pack_matmul;
mod packed_normalization;
mod packed_operands;
mod quantized;
mod reciprocals;
mod regions;
mod rewrite;
mod separate_outputs;
mod shift_bytes;
mod simplify;
mod windows;
mod winograd;

pub use attention::fuse_attention;
pub use decompose::decompose;
pub use extend_precision::extend_precision;
pub use fold::fold_constants;
pub use fold_batch_norm::fold_batch_norm;
pub use fuse::{Group, fuse};
pub use integer_products::multiply_bytes;
pub use layout::{LayoutOptions, choose_layouts};
pub use memory_plan::{Lifetime, MemoryPlan, plan_memory};
pub use narrow::narrow;
pub use pack_matmul::pack_matmul_operands;
pub use quantized::multiply_quantized;
pub use reciprocals::divide_by_multiplying;
pub use regions::over_regions;
pub use rewrite::{PassError, Rewriter};
pub use separate_outputs::separate_outputs;
pub use shift_bytes::shift_signed_bytes;
pub use simplify::simplify;
pub use windows::separate_taps;
pub use winograd::MachineRates;
