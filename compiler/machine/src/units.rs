//! The units of a core that add, multiply and load.

/// Fused multiply-adds that a core starts in a cycle, where its units take whole vectors: every core of the table has
/// two units.
pub(crate) const FMA_PER_CYCLE: usize = 2;

/// Cycles of a fused multiply-add, where the processor is not named: those of most cores of the table.
pub(crate) const TYPICAL_FMA_LATENCY: usize = 4;

/// Vector loads that a core starts in a cycle, where its units take whole vectors.
pub(crate) const LOADS_PER_CYCLE: usize = 2;

/// Chains of dependent multiply-adds that keep the units busy, as a multiple of those that the latency alone requires:
/// one that waits for a load or an issue slot is made up for only where others are ready. Measured on Zen 5 with data
/// in the first-level cache, of the peak, vectors of 32 and 64 bytes: 8 chains 91 and 90 %, 10 chains 94 and 95 %, 12
/// chains 99 and 98 %; the latency requires 8.
pub const SPARE_CHAINS: f64 = 1.5;

/// Cycles lost for each cycle's worth of chains that is missing; by the same measurement.
pub const MISSING_CHAIN: f64 = 0.2;

/// The share of the loads of a cycle that inner loops reach. Measured on Granite Rapids for a convolution whose tile has 16
/// rows of one vector, so that 16 multiply-adds take 17 loads: 10.8 cycles, where two loads in a cycle would take 8.5. The
/// same tile with five points of its window side by side, whose rows share their loads, takes 8.5.
pub const LOADS_REACHED: f64 = 0.8;

/// Loads and multiply-adds compete for issue slots: of the cycles that the smaller of them takes, the fraction that the
/// larger does not hide. Assumed; no measurement is recorded.
pub const ISSUE_CONTENTION: f64 = 0.1;
