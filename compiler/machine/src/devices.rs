//! Devices of many lanes.

/// Lanes that execute together, at least: a warp of NVIDIA's; a wavefront of AMD's has 32 or 64.
pub const WARP_LANES: usize = 32;

/// Alignment in bytes of buffers that are parts of one allocation: the coarsest `CL_DEVICE_MEM_BASE_ADDR_ALIGN` of
/// current drivers, NVIDIA's 4,096 bits.
pub const DEVICE_BUFFER_ALIGNMENT: u64 = 512;

/// Multiprocessors of a device of NVIDIA's, each of which computes blocks of its own: those of an A100 (NVIDIA A100 Tensor Core
/// GPU Architecture, 2020). Assumed of every device: which tiles a product has follows from it.
pub const MULTIPROCESSORS: usize = 108;

/// Cycles in which one of a multiprocessor's four tensor cores multiplies 16 x 16 by 16 x 8 numbers of 16 bits: 256
/// multiply-adds each, as an A100's (same source).
pub const PRODUCT_CYCLES: usize = 8;

/// Cycles of a round of products but for the products: waiting, addresses, reads of matrices. Assumed, measured nowhere.
pub const ROUND_CYCLES: usize = 100;
