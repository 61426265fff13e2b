//! A step that runs in waves, divided among threads.

use std::ffi::c_void;

use super::Context;
use crate::gang::Gang;
use crate::plan::{Call, Waves};
use crate::pool::Entry;
use crate::seat::Job;

impl Context {
    /// The threads on which a step in waves runs: no more than it is worth, and than this run has.
    pub(super) fn threads_of(&self, waves: &Waves, entry: &Entry<'_>) -> usize {
        let threads = waves.threads.min(self.claimed.len() + 1);
        if threads > 1 { threads.min(entry.share()) } else { 1 }
    }

    /// Runs a step in waves.
    ///
    /// # Safety
    /// As for `step`. `waves` are the call's, and as many seats are claimed as there are threads beside this one.
    pub(super) unsafe fn waves(&self, call: &Call, waves: &Waves, threads: usize) {
        let shares = &self.shares[..threads];
        shares.iter().for_each(|share| share.reset());
        let gang = Gang {
            kernel: call.kernel,
            buffers: self.table.as_ptr().wrapping_add(call.first),
            waves: waves.waves,
            parts: waves.parts,
            shares,
        };
        let ranges = &self.ranges[..threads];
        for (index, range) in ranges.iter().enumerate() {
            range.fill((index as u32, index as u32 + 1));
        }
        let team = self.team();
        let job = Job {
            kernel: run,
            buffers: (&raw const gang).cast(),
            ranges: ranges.as_ptr(),
            team: &raw const team,
            threads: threads as u32,
            index: 0,
            grain: 1,
        };
        // SAFETY: the caller's promise; the gang, the ranges and the team stay until this returns.
        unsafe { job.run() };
    }
}

/// A kernel whose buffers are a [`Gang`]; a task is a thread of it.
///
/// # Safety
/// As for [`Gang::run`].
unsafe extern "C" fn run(gang: *const *mut c_void, begin: i64, end: i64, scratch: *mut c_void) {
    // SAFETY: the caller's promise.
    let gang = unsafe { &*gang.cast::<Gang<'_>>() };
    for thread in begin..end {
        // SAFETY: as above; whoever runs the task of a thread that did not come finds all waves complete.
        unsafe { gang.run(thread as usize, scratch) };
    }
}
