//! What one run at a time needs for itself: arena, scratch, the table of pointers, its seats.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use hone_artifact::BUFFER_ALIGNMENT;

use crate::LoadError;
use crate::memory::Region;
use crate::plan::{Call, Plan, reserve};
use crate::pool::{Entry, Pool};
use crate::profile::Profile;
use crate::seat::{Job, Seat};

/// See the module's documentation.
pub(crate) struct Context {
    table: Vec<*mut c_void>,
    /// Distance in bytes of one thread's scratch from the next one's.
    scratch_stride: usize,
    scratch: *mut u8,
    seats: Vec<Arc<Seat>>,
    /// Which of `seats` the run under way has claimed.
    claimed: Vec<usize>,
    pool: Arc<Pool>,
    /// Whether any step is worth a second thread.
    parallel: bool,
    _memory: Region,
    bytes: usize,
}

// SAFETY: the pointers lead into the context's own region and the plan's weights, which move with it.
unsafe impl Send for Context {}

impl Context {
    /// Reserves all that runs of `plan` need.
    pub(crate) fn new(
        plan: &Plan,
        pool: Arc<Pool>,
        seats: Vec<Arc<Seat>>,
    ) -> Result<Self, LoadError> {
        let variant = plan.variant();
        let threads = seats.len() as u64 + 1;
        // Two lines between neighbours, so that no thread's stores disturb the other's.
        let stride = variant.scratch_bytes_per_thread.next_multiple_of(2 * BUFFER_ALIGNMENT);
        let arena = variant.arena_bytes.next_multiple_of(BUFFER_ALIGNMENT);
        // The manifest's limits keep this sum within 64 bits.
        let bytes = usize::try_from(arena + stride * threads).unwrap_or(usize::MAX);
        let memory = reserve(bytes, plan.huge_pages, "the arena and scratch")?;
        Ok(Self {
            table: plan.table(memory.base()),
            scratch_stride: stride as usize,
            scratch: memory.base().wrapping_add(arena as usize),
            claimed: Vec::with_capacity(seats.len()),
            parallel: plan.calls.iter().any(|call| call.threads > 1),
            seats,
            pool,
            _memory: memory,
            bytes,
        })
    }

    /// Bytes reserved for arena and scratch.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Threads that a run may use at most.
    pub(crate) fn threads(&self) -> usize {
        self.seats.len() + 1
    }

    /// Pool and seats, for another context beside this one.
    pub(crate) fn crew(&self) -> (Arc<Pool>, Vec<Arc<Seat>>) {
        (self.pool.clone(), self.seats.clone())
    }

    /// Runs all steps. Allocates nothing.
    ///
    /// # Safety
    /// `plan` is the one this context was made for. The pointers are the model's inputs and outputs in
    /// order, each of its tensor's size and alignment, and nothing else touches them until the end.
    pub(crate) unsafe fn run(
        &mut self,
        plan: &Plan,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        profile: Option<&mut Profile>,
    ) {
        for patch in &plan.patches {
            let base = match patch.output {
                true => outputs[patch.index],
                false => inputs[patch.index].cast_mut(),
            };
            self.table[patch.entry] = base.wrapping_byte_add(patch.offset);
        }
        let pool = self.pool.clone();
        let entry = pool.enter();
        self.claim(&entry);
        match profile {
            None => {
                for call in &plan.calls {
                    // SAFETY: the manifest was validated against the sizes that the caller promises.
                    unsafe { self.step(call, &entry) };
                }
            }
            // SAFETY: as above.
            Some(profile) => unsafe { self.run_timed(plan, &entry, profile) },
        }
        for &index in &self.claimed {
            self.seats[index].release();
        }
    }

    /// # Safety
    /// As for `step`.
    unsafe fn run_timed(&self, plan: &Plan, entry: &Entry<'_>, profile: &mut Profile) {
        let start = Instant::now();
        let mut last = start;
        for (call, step) in plan.calls.iter().zip(&mut profile.steps) {
            // SAFETY: the caller's promise.
            step.threads = unsafe { self.step(call, entry) };
            let now = Instant::now();
            step.time = now - last;
            last = now;
        }
        profile.total = last - start;
    }

    /// Claims free seats, as many as this run may use, and wakes those who sleep on them.
    fn claim(&mut self, entry: &Entry<'_>) {
        self.claimed.clear();
        if !self.parallel || self.seats.is_empty() || !self.pool.is_alive() {
            return;
        }
        let most = entry.share() - 1;
        for (index, seat) in self.seats.iter().enumerate() {
            if self.claimed.len() < most && seat.claim() {
                seat.warm_up();
                self.claimed.push(index);
            }
        }
    }

    /// Runs one step on as many threads as it is worth and gives their number.
    ///
    /// # Safety
    /// The table is filled, and its buffers are what the step says.
    unsafe fn step(&self, call: &Call, entry: &Entry<'_>) -> usize {
        let buffers = self.table.as_ptr().wrapping_add(call.first);
        let mut threads = call.threads.min(self.claimed.len() + 1);
        if threads > 1 {
            threads = threads.min(entry.share());
        }
        let job = |index: usize| {
            let (begin, end) = share(call.tasks, index as i64, threads as i64);
            let scratch = self.scratch.wrapping_add(index * self.scratch_stride).cast();
            Job { kernel: call.kernel, buffers, begin, end, scratch }
        };
        for (number, &index) in self.claimed.iter().take(threads - 1).enumerate() {
            // SAFETY: the seat is claimed, the shares are disjoint, and it is settled below.
            unsafe { self.seats[index].post(job(number + 1)) };
        }
        // SAFETY: the caller's promise; share 0 is nobody else's.
        unsafe { job(0).run() };
        for &index in self.claimed.iter().take(threads - 1) {
            self.seats[index].settle();
        }
        threads
    }
}

/// The `index`-th of `parts` contiguous shares of `tasks`; sizes differ by one at most.
fn share(tasks: i64, index: i64, parts: i64) -> (i64, i64) {
    let (each, rest) = (tasks / parts, tasks % parts);
    let begin = index * each + index.min(rest);
    (begin, begin + each + i64::from(index < rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::share;

    #[test]
    fn shares_are_contiguous_and_even() {
        for tasks in [0, 1, 2, 7, 64, i64::MAX] {
            for parts in [1, 2, 3, 64] {
                let shares: Vec<_> = (0..parts).map(|i| share(tasks, i, parts)).collect();
                assert_eq!((shares[0].0, shares[shares.len() - 1].1), (0, tasks));
                assert!(shares.windows(2).all(|pair| pair[0].1 == pair[1].0));
                let sizes = || shares.iter().map(|(begin, end)| end - begin);
                assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            }
        }
    }
}
