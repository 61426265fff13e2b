//! Sizes beyond which a model is refused.

use hone_ops::{FoldingLimits, LARGEST_BUFFER};

/// Bounds on what an import may allocate and compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of the model file.
    pub file_bytes: usize,
    /// Bytes that the decoded file may take besides the raw data of its tensors, over twice the
    /// file's size.
    pub structure_bytes: usize,
    /// Nodes, counted after functions are taken apart.
    pub nodes: usize,
    /// Axes of a tensor.
    pub rank: usize,
    /// Bytes of any one tensor.
    pub tensor_bytes: usize,
    /// Bytes of all constants together, files beside the model included.
    pub constant_bytes: usize,
    /// What may be computed of constants while importing.
    pub folding: FoldingLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 8 << 30,
            structure_bytes: 512 << 20,
            nodes: 1_000_000,
            rank: 32,
            tensor_bytes: LARGEST_BUFFER,
            constant_bytes: 32 << 30,
            folding: FoldingLimits::default(),
        }
    }
}
