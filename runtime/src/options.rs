//! How a model shall be loaded and run.

use std::time::Duration;

/// The defaults suit a server with one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most threads that a run may use, the caller's among them; 0 for all cores this process may use.
    /// More than there are cores is taken as that many.
    pub threads: usize,
    /// Which processors the pool's threads stay on.
    pub affinity: Affinity,
    /// What to ask 2 MiB pages for.
    pub huge_pages: HugePages,
    /// Whether to check every section's checksum. Without it a damaged artifact may compute garbage or
    /// crash; the step table is checked in any case.
    pub verify: bool,
    /// Number of the accelerator, among [`crate::accelerator::devices`]; see [`crate::accelerator::chosen_device`] for
    /// which is taken where absent.
    pub device: Option<usize>,
    /// How long a run waits for an accelerator: one that has not answered by then counts as lost.
    pub device_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 0,
            affinity: Affinity::None,
            huge_pages: HugePages::Arena,
            verify: true,
            device: None,
            device_timeout: Duration::from_secs(300),
        }
    }
}

/// Which processors the pool's threads stay on. The pool is one for the whole process: the model that
/// was loaded last decides. The caller's own thread is never moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Wherever the system puts them.
    #[default]
    None,
    /// The i-th worker on the i-th processor that the process may use, counted from 0; the 0-th is left
    /// to the caller.
    Pinned,
}

/// What to ask 2 MiB pages for. They save translation misses where large buffers are streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Nothing.
    None,
    /// The arena and scratch.
    #[default]
    Arena,
    /// The weights too: they are copied out of the file into memory of our own, which takes time at
    /// load and is not shared between processes.
    ArenaAndWeights,
}
