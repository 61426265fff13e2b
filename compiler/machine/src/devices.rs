//! Devices of many lanes.

/// Lanes that execute together, at least: a warp of NVIDIA's; a wavefront of AMD's has 32 or 64.
pub const WARP_LANES: usize = 32;

/// Alignment in bytes of buffers that are parts of one allocation: the coarsest `CL_DEVICE_MEM_BASE_ADDR_ALIGN` of
/// current drivers, NVIDIA's 4,096 bits.
pub const DEVICE_BUFFER_ALIGNMENT: u64 = 512;
