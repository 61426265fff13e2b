//! What a core computes and moves in a nanosecond.
//!
//! Some of these figures say different things of the same: memory gives a core 10 bytes in a nanosecond where algorithms
//! are compared and 8 where tasks are made, and the outer caches give it 80, or, at the clock that is assumed here, 168
//! ([`crate::L2_BYTES_PER_CYCLE`]) and 45 ([`crate::BEYOND_L2_BYTES_PER_CYCLE`]) where tiles are chosen. Choices were
//! measured with each of them as it is, so none replaces another before it is measured, too.

/// Rates of one core that algorithms are compared by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// `f32` operations in a nanosecond; a fused multiply-add is two.
    pub flops_per_ns: f64,
    /// Bytes in a nanosecond that come from memory in order.
    pub memory_bytes_per_ns: f64,
    /// Bytes in a nanosecond between the outer caches and the core.
    pub cache_bytes_per_ns: f64,
}

impl Rates {
    /// Rates typical of a core that begins so many multiply-adds of vectors of `lanes` elements in a cycle.
    pub(crate) fn typical(lanes: usize, fma_per_cycle: usize) -> Self {
        let flops_per_cycle = 2 * fma_per_cycle * lanes;
        Self {
            flops_per_ns: flops_per_cycle as f64 * CYCLES_PER_NS,
            memory_bytes_per_ns: MEMORY_BYTES_PER_NS,
            cache_bytes_per_ns: CACHE_BYTES_PER_NS,
        }
    }
}

/// Cycles of a core in a nanosecond. Assumed: clocks change with the work, and a processor's name does not tell them.
const CYCLES_PER_NS: f64 = 3.5;

/// Bytes in a nanosecond that one core reads from memory in order. Assumed; `hone devices` measures it on a machine.
pub const MEMORY_BYTES_PER_NS: f64 = 10.0;

/// Bytes in a nanosecond between the outer caches and one core. Assumed; no measurement is recorded.
const CACHE_BYTES_PER_NS: f64 = 80.0;

/// Operations in a nanosecond on one core, whatever its vectors: a sixth of what AVX-512 and a third of what AVX2 cores
/// reach in products of matrices, and about what vectors of four reach. It only has to be right within a small factor.
pub const NOMINAL_OPERATIONS_PER_NS: u64 = 32;

/// Bytes in a nanosecond that one core streams from or to memory, whatever the core. It only has to be right within a
/// small factor.
pub const NOMINAL_BYTES_PER_NS: u64 = 8;

/// Bytes in a nanosecond that one core reads from its second-level cache, whatever the core. Recurrences of one row on Zen 4,
/// of which a step takes the time in which its weights come, read 66 to 80. It only has to be right within a small factor.
pub const NOMINAL_CACHE_BYTES_PER_NS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_follow_from_vectors_and_units() {
        assert_eq!(
            [4, 8, 16].map(|lanes| Rates::typical(lanes, 2).flops_per_ns),
            [56.0, 112.0, 224.0]
        );
        assert_eq!(Rates::typical(16, 1).flops_per_ns, 112.0);
    }
}
