//! Sizes beyond which a model is refused.

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
    /// Bytes of a constant that is computed while importing, where its inputs are smaller.
    pub folded_bytes: usize,
    /// Elementary operations of one computation done while importing.
    pub folded_operations: u64,
    /// Elementary operations of all computations done while importing.
    pub all_folded_operations: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 8 << 30,
            structure_bytes: 512 << 20,
            nodes: 1_000_000,
            rank: 32,
            tensor_bytes: 16 << 30,
            constant_bytes: 32 << 30,
            folded_bytes: 64 << 20,
            folded_operations: 1 << 28,
            all_folded_operations: 1 << 32,
        }
    }
}
