//! Data caches of one core, where no table has them.

/// Bytes of a line of a cache: 64 on all processors in the table of cores, and taken for those of others, too.
pub const LINE_BYTES: usize = 64;

/// Bytes of a first-level data cache, where the processor is not named: the least of the table of cores.
pub const TYPICAL_L1_BYTES: usize = 32 << 10;

/// Lines of one set of it.
pub(crate) const TYPICAL_L1_WAYS: usize = 8;

/// Bytes of second-level cache of one core, where the processor is not named: what servers with cores of the kind
/// Skylake have, and Zen 4. Cores of the table have a quarter to twice as many.
pub const TYPICAL_L2_BYTES: usize = 1 << 20;

/// Percent of the second-level cache that a panel may fill on cores where it was not measured.
pub(crate) const L2_PANEL_PERCENT: usize = 80;

/// Bytes in a cycle from the second-level cache: what Intel's optimization manual (2.6.4) gives as sustained for Ice
/// Lake.
pub const L2_BYTES_PER_CYCLE: f64 = 48.0;

/// Bytes in a cycle from behind the second-level cache: 64 in five cycles. Assumed; no measurement is recorded.
pub const BEYOND_L2_BYTES_PER_CYCLE: f64 = 12.8;
