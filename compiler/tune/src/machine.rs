//! What the analytic model knows of a machine.

/// Figures of a target that choices depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// `f32` elements in a vector register.
    pub lanes: usize,
    /// Vector registers.
    pub registers: usize,
    /// Fused multiply-adds that can start in one cycle.
    pub fma_per_cycle: usize,
    /// Cycles from the start of a fused multiply-add until its result can be used.
    pub fma_latency: usize,
    /// Vector loads that can start in one cycle.
    pub loads_per_cycle: usize,
    /// Bytes of first-level data cache.
    pub l1_bytes: usize,
    /// Bytes of second-level cache of one core.
    pub l2_bytes: usize,
}

impl Machine {
    /// Figures typical of a processor with `registers` vector registers of `vector_bytes` bytes.
    pub fn with_vectors(vector_bytes: usize, registers: usize) -> Self {
        Self {
            lanes: (vector_bytes / 4).max(1),
            registers,
            fma_per_cycle: 2,
            fma_latency: 4,
            loads_per_cycle: 2,
            l1_bytes: 32 << 10,
            l2_bytes: 1 << 20,
        }
    }
}
