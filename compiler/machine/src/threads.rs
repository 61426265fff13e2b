//! What cores have in common, and what work for several of them costs.

/// Nanoseconds that handing a step to a worker thread and awaiting it costs at most, for each worker
/// (`cargo bench -p hone-runtime`). About 180 where no line has to cross between sockets, by the same benchmark:
/// simulations of more threads assume that.
pub const HANDOVER_NANOSECONDS: u64 = 500;

/// Nanoseconds of work that a thread should have between two barriers of a step in waves, so that it gains by them: some
/// times what a barrier costs.
pub const WAVE_THREAD_NANOSECONDS: u64 = 1200;

/// All cores of a machine together are taken to have as many times the bandwidth of one. Assumed: it depends on the
/// memory channels of a machine, which its processor's name does not tell.
pub const CORES_THAT_FILL_MEMORY: f64 = 8.0;
