//! What one run at a time needs for itself: arena, scratch, the table of pointers, its seats.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hone_artifact::BUFFER_ALIGNMENT;

use crate::LoadError;
use crate::claim::{self, TaskRange};
use crate::memory::Region;
use crate::plan::{Call, Plan, reserve};
use crate::pool::{Entry, Pool};
use crate::profile::{Profile, StepProfile};
use crate::seat::{Job, Seat, Team};

/// See the module's documentation.
pub(crate) struct Context {
    table: Vec<*mut c_void>,
    /// Distance in bytes of one thread's scratch from the next one's.
    scratch_stride: usize,
    scratch: *mut u8,
    seats: Vec<Arc<Seat>>,
    /// Which of `seats` the run under way has claimed.
    claimed: Vec<usize>,
    /// What each thread of the step under way has not begun.
    ranges: Vec<TaskRange>,
    pool: Arc<Pool>,
    /// Whether any step is worth a second thread.
    parallel: bool,
    memory: Region,
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
            ranges: (0..=seats.len()).map(|_| TaskRange::default()).collect(),
            parallel: plan.calls.iter().any(|call| call.threads > 1),
            seats,
            pool,
            memory,
            bytes,
        })
    }

    /// The first byte of the arena.
    pub(crate) fn arena(&self) -> *mut u8 {
        self.memory.base()
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
        self.patch(plan, inputs, outputs);
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

    /// Runs some of the steps. The first of them finds in its buffers what was put there before.
    ///
    /// # Safety
    /// As for `run`, for the inputs and outputs that these steps touch; the others may be anything.
    pub(crate) unsafe fn run_calls(
        &mut self,
        plan: &Plan,
        calls: Range<usize>,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
    ) {
        self.patch(plan, inputs, outputs);
        let pool = self.pool.clone();
        let entry = pool.enter();
        self.claim(&entry);
        for call in &plan.calls[calls] {
            // SAFETY: the manifest was validated against the sizes that the caller promises.
            unsafe { self.step(call, &entry) };
        }
        for &index in &self.claimed {
            self.seats[index].release();
        }
    }

    /// Sets the pointers that change from run to run.
    fn patch(&mut self, plan: &Plan, inputs: &[*const c_void], outputs: &[*mut c_void]) {
        for patch in &plan.patches {
            let base = match patch.output {
                true => outputs[patch.index],
                false => inputs[patch.index].cast_mut(),
            };
            self.table[patch.entry] = base.wrapping_byte_add(patch.offset);
        }
    }

    /// # Safety
    /// As for `step`.
    unsafe fn run_timed(&self, plan: &Plan, entry: &Entry<'_>, profile: &mut Profile) {
        let start = Instant::now();
        let mut last = start;
        for (index, call) in plan.calls.iter().enumerate() {
            let parts = profile.parts_mut(index);
            let threads = match parts.is_empty() {
                // SAFETY: the caller's promise.
                true => unsafe { self.step(call, entry) },
                // SAFETY: as above.
                false => unsafe { self.step_in_parts(call, parts) },
            };
            let now = Instant::now();
            if let Some(step) = profile.steps.get_mut(index) {
                *step = StepProfile { time: now - last, threads };
            }
            last = now;
        }
        profile.total = last - start;
    }

    /// Runs one step on this thread in as many calls as there are `times`, and writes down how long each
    /// took.
    ///
    /// # Safety
    /// As for `step`.
    unsafe fn step_in_parts(&self, call: &Call, times: &mut [Duration]) -> usize {
        let buffers = self.table.as_ptr().wrapping_add(call.first);
        let parts = times.len() as i128;
        let bound = |part: usize| (i128::from(call.tasks) * part as i128 / parts) as i64;
        for (part, time) in times.iter_mut().enumerate() {
            let start = Instant::now();
            let (begin, end) = (bound(part), bound(part + 1));
            if begin < end {
                // SAFETY: the caller's promise.
                unsafe { (call.kernel)(buffers, begin, end, self.scratch.cast()) };
            }
            *time = start.elapsed();
        }
        1
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
        if threads == 1 {
            // SAFETY: the caller's promise.
            unsafe { (call.kernel)(buffers, 0, call.tasks, self.scratch.cast()) };
            return 1;
        }
        let ranges = &self.ranges[..threads];
        for (index, range) in ranges.iter().enumerate() {
            range.fill(claim::part(call.tasks as u32, index as u32, threads as u32));
        }
        let team = Team {
            seats: &raw const *self.seats,
            claimed: &raw const *self.claimed,
            scratch: self.scratch,
            scratch_stride: self.scratch_stride,
        };
        let job = Job {
            kernel: call.kernel,
            buffers,
            ranges: ranges.as_ptr(),
            team: &raw const team,
            threads: threads as u32,
            index: 0,
            grain: call.grain,
        };
        // SAFETY: the caller's promise. As many seats are claimed as there are threads beside this one, and
        // the ranges were filled just now; both stay until this returns.
        unsafe { job.run() };
        threads
    }
}
