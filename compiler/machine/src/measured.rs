//! What was measured of this machine, or is reported by its operating system.

/// Measured and reported properties of this machine, for one core.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `f32` multiply-adds, in 10^9 operations (two each) a second.
    pub f32_gflops: f64,
    /// 8-bit integer dot products (VNNI), in 10^9 operations (two for each product) a second.
    pub int8_gops: Option<f64>,
    /// bfloat16 dot products, in 10^9 operations a second.
    pub bf16_gflops: Option<f64>,
    /// Data caches, innermost first.
    pub caches: Vec<Cache>,
    /// Bytes that one core reads from memory, in 10^9 a second.
    pub memory_gbytes: f64,
}

/// A data cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// Size in bytes.
    pub bytes: u64,
}
