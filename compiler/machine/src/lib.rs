//! What is known of hardware, named or measured: the figures that choices of tiles, algorithms, layouts and tasks
//! depend on. It uses no other room, so that every choice can ask it.
//!
//! Always holds:
//! - a figure stands here once, with its source or the measurement that it is from; where neither is recorded, its
//!   documentation says that it is assumed;
//! - nothing here is measured while compiling: equal targets give equal figures. [`Measured`] is only shown to people.
//!
//! What a processor's instruction set gives, such as the number of its vector registers, is read off LLVM's table by
//! whoever makes a [`Machine`]. What operators cost in comparison with each other, and what they allow themselves of a
//! cache, stands with the choice that is made by it.

mod caches;
mod cores;
mod devices;
mod machine;
mod measured;
mod rates;
mod threads;
mod units;

pub use caches::{
    BEYOND_L2_BYTES_PER_CYCLE, L2_BYTES_PER_CYCLE, LINE_BYTES, TYPICAL_L1_BYTES, TYPICAL_L2_BYTES,
};
pub use devices::{
    DEVICE_BUFFER_ALIGNMENT, Device, LANES_THAT_FILL, LAUNCH_NANOSECONDS, MULTIPROCESSORS,
    PRODUCT_CYCLES, PRODUCTS_REACHED, ROUND_CYCLES, WARP_LANES, WARPGROUP_PRODUCT_CYCLES,
};
pub use machine::{MIN_TILE_ROWS, Machine, TILE_ROW_BYTES};
pub use measured::{Cache, Measured};
pub use rates::{
    MEMORY_BYTES_PER_NS, NOMINAL_BYTES_PER_NS, NOMINAL_CACHE_BYTES_PER_NS,
    NOMINAL_OPERATIONS_PER_NS, Rates,
};
pub use threads::{CORES_THAT_FILL_MEMORY, HANDOVER_NANOSECONDS, WAVE_THREAD_NANOSECONDS};
pub use units::{ISSUE_CONTENTION, LOADS_REACHED, MISSING_CHAIN, SPARE_CHAINS};
