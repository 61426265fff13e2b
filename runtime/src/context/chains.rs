//! Two chains of steps at the same time, each on one thread: steps that run in order and cannot be divided.

use std::ffi::c_void;

use super::Context;
use crate::plan::Call;
use crate::pool::Entry;
use crate::seat::Job;

impl Context {
    /// Runs steps, those that may run at the same time so where a second thread is at hand.
    ///
    /// # Safety
    /// As for `step`, of all of them.
    pub(super) unsafe fn calls(&self, mut calls: &[Call], entry: &Entry<'_>) {
        while let [call, rest @ ..] = calls {
            let together = call.beside.filter(|_| !self.claimed.is_empty() && entry.share() > 1);
            let chains = together.and_then(|[first, second]| {
                let (chain, behind) = calls.split_at_checked(first)?;
                let (other, rest) = behind.split_at_checked(second)?;
                Some(([chain, other], rest))
            });
            calls = match chains {
                // SAFETY: the manifest was validated: the chains are apart.
                Some((chains, rest)) => unsafe {
                    self.chains(chains);
                    rest
                },
                // SAFETY: the caller's promise.
                None => unsafe {
                    self.step(call, entry);
                    rest
                },
            };
        }
    }

    /// Runs two chains of steps at the same time.
    ///
    /// # Safety
    /// As for `step`. A seat is claimed, and no step of one chain touches what one of the other writes.
    unsafe fn chains(&self, calls: [&[Call]; 2]) {
        let chains = Chains { calls, table: self.table.as_ptr() };
        let ranges = &self.ranges[..2];
        for (index, range) in ranges.iter().enumerate() {
            range.fill((index as u32, index as u32 + 1));
        }
        let team = self.team();
        let job = Job {
            kernel: run,
            buffers: (&raw const chains).cast(),
            ranges: ranges.as_ptr(),
            team: &raw const team,
            threads: 2,
            index: 0,
            grain: 1,
        };
        // SAFETY: the caller's promise; the chains, the ranges and the team stay until this returns.
        unsafe { job.run() };
    }
}

/// What both threads are told; task 0 is the first chain, task 1 the second.
struct Chains<'a> {
    calls: [&'a [Call]; 2],
    /// The context's table of pointers.
    table: *const *mut c_void,
}

/// A kernel whose buffers are [`Chains`].
///
/// # Safety
/// `chains` points to one whose calls may run, those of one chain at the same time as those of the other, and `scratch` to
/// memory of this thread for any of them.
unsafe extern "C" fn run(chains: *const *mut c_void, begin: i64, end: i64, scratch: *mut c_void) {
    // SAFETY: the caller's promise.
    let chains = unsafe { &*chains.cast::<Chains<'_>>() };
    let tasks = (begin as usize).min(2)..(end as usize).min(2);
    for call in chains.calls[tasks].iter().copied().flatten() {
        let buffers = chains.table.wrapping_add(call.first);
        // SAFETY: as above.
        unsafe { (call.kernel)(buffers, 0, call.tasks, scratch) };
    }
}
