//! What one run at a time needs for itself: arena, scratch, the table of pointers, its seats.

mod chains;
mod host;
mod threads;
mod waves;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hone_artifact::{BUFFER_ALIGNMENT, Texts};

use crate::claim::{self, TaskRange};
use crate::gang::Share;
use crate::memory::Region;
use crate::plan::{Call, Loaded, Plan, reserve};
use crate::pool::{Entry, Pool};
use crate::profile::{Profile, StepProfile};
use crate::program::{Loop, Part};
use crate::seat::{Job, Seat, Team};
use crate::{LoadError, RunError};
use threads::Threads;

/// What a run that is timed writes down.
struct Clock<'a> {
    profile: &'a mut Profile,
    start: Instant,
    /// When the last step ended.
    last: Instant,
}

impl<'a> Clock<'a> {
    fn start(profile: &'a mut Profile) -> Self {
        profile.clear();
        let start = Instant::now();
        Self { profile, start, last: start }
    }

    /// Writes down that a step has just ended, on so many threads.
    fn tick(
        &mut self,
        step: impl FnOnce(&mut Profile) -> Option<&mut StepProfile>,
        threads: usize,
    ) {
        let now = Instant::now();
        if let Some(step) = step(self.profile) {
            step.time += now - self.last;
            step.threads = step.threads.max(threads);
            step.runs += 1;
        }
        self.last = now;
    }
}

/// See the module's documentation.
pub(crate) struct Context {
    /// Pointers of the current plan.
    table: Vec<*mut c_void>,
    /// Those of the others, by their plans; that of the current one is empty.
    tables: Vec<Vec<*mut c_void>>,
    current: usize,
    /// Distance in bytes of one thread's scratch from the next one's.
    scratch_stride: usize,
    scratch: *mut u8,
    seats: Vec<Arc<Seat>>,
    /// Which of `seats` the run under way has claimed.
    claimed: Vec<usize>,
    /// What each thread of the step under way has not begun.
    ranges: Vec<TaskRange>,
    /// How far each thread of a step in waves is.
    shares: Vec<Share>,
    pool: Arc<Pool>,
    /// How many threads runs of each plan use.
    choices: Vec<Threads>,
    /// The size of the padded dimension that runs are of; 0 where there is none.
    size: u64,
    /// The strings that handles stand for.
    texts: Box<Texts>,
    memory: Region,
    bytes: usize,
}

// SAFETY: the pointers lead into the context's own region and the plan's weights, which move with it.
unsafe impl Send for Context {}

impl Context {
    /// Reserves all that runs of any of the plans need, one at a time; the first is the current one.
    pub(crate) fn new(
        loaded: &Loaded,
        pool: Arc<Pool>,
        seats: Vec<Arc<Seat>>,
    ) -> Result<Self, LoadError> {
        let variants = loaded.plans.iter().map(|plan| loaded.variant(plan));
        let threads = seats.len() as u64 + 1;
        let scratch =
            variants.clone().map(|variant| variant.scratch_bytes_per_thread).max().unwrap_or(0);
        // Two lines between neighbours, so that no thread's stores disturb the other's.
        let stride = scratch.next_multiple_of(2 * BUFFER_ALIGNMENT);
        let arena = variants.map(|variant| variant.arena_bytes).max().unwrap_or(0);
        let arena = arena.next_multiple_of(BUFFER_ALIGNMENT);
        // The manifest's limits keep this sum within 64 bits.
        let bytes = usize::try_from(arena + stride * threads).unwrap_or(usize::MAX);
        let memory = reserve(bytes, loaded.huge_pages, "the arena and scratch")?;
        let tables = loaded.plans.iter().map(|plan| loaded.table(plan, memory.base()));
        let mut tables: Vec<Vec<*mut c_void>> = tables.collect();
        let most = |plan: &Plan| plan.most_threads().min(seats.len() + 1);
        let choices = loaded.plans.iter().map(|plan| Threads::new(most(plan))).collect();
        Ok(Self {
            table: std::mem::take(&mut tables[0]),
            tables,
            current: 0,
            scratch_stride: stride as usize,
            scratch: memory.base().wrapping_add(arena as usize),
            claimed: Vec::with_capacity(seats.len()),
            ranges: (0..=seats.len()).map(|_| TaskRange::default()).collect(),
            shares: (0..=seats.len()).map(|_| Share::default()).collect(),
            texts: Box::new(loaded.texts.clone()),
            choices,
            size: 0,
            seats,
            pool,
            memory,
            bytes,
        })
    }

    /// Makes another plan the current one.
    pub(crate) fn select(&mut self, plan: usize) {
        std::mem::swap(&mut self.table, &mut self.tables[self.current]);
        std::mem::swap(&mut self.table, &mut self.tables[plan]);
        self.current = plan;
    }

    /// Says of which size of the padded dimension runs are from now on; 0 where there is none.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// The first byte of the arena.
    pub(crate) fn arena(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Bytes reserved for arena and scratch.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The strings that handles stand for.
    pub(crate) fn texts(&mut self) -> &mut Texts {
        &mut self.texts
    }

    /// The string that a handle stands for.
    pub(crate) fn text(&self, handle: u64) -> Option<&str> {
        self.texts.get(handle)
    }

    /// Threads that a run may use at most.
    pub(crate) fn threads(&self) -> usize {
        self.seats.len() + 1
    }

    /// Threads that the next run of the current plan uses where no other run is under way.
    pub(crate) fn chosen_threads(&self) -> usize {
        self.choices[self.current].chosen()
    }

    /// Pool and seats, for another context beside this one.
    pub(crate) fn crew(&self) -> (Arc<Pool>, Vec<Arc<Seat>>) {
        (self.pool.clone(), self.seats.clone())
    }

    /// Runs the program. Allocates nothing, unless it fails or has host functions.
    ///
    /// # Errors
    /// A loop that goes on beyond the room for what it collects, a host function that cannot be computed.
    ///
    /// # Safety
    /// `plan` is the current one. The pointers are the model's inputs and outputs in
    /// order, each of its tensor's size and alignment, and nothing else touches them until the end.
    pub(crate) unsafe fn run(
        &mut self,
        plan: &Plan,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        self.patch(plan, inputs, outputs);
        let pool = self.pool.clone();
        let entry = pool.enter();
        // What is profiled reads the clock after each step, which costs more than a run.
        let timed = profile.is_none() && self.choices[self.current].begin(self.size);
        let start = timed.then(Instant::now);
        self.claim(&entry, self.chosen_threads());
        let mut clock = profile.map(Clock::start);
        // SAFETY: the manifest was validated against the sizes that the caller promises.
        let done = unsafe { self.parts(plan, &plan.program, &entry, &mut clock) };
        if let Some(Clock { profile, start, last }) = clock {
            profile.total = last - start;
        }
        if let Some(start) = start {
            self.choices[self.current].note(start.elapsed());
        }
        for &index in &self.claimed {
            self.seats[index].release();
        }
        done
    }

    /// # Safety
    /// As for `step`, of all steps of the parts.
    unsafe fn parts(
        &mut self,
        plan: &Plan,
        parts: &[Part],
        entry: &Entry<'_>,
        clock: &mut Option<Clock<'_>>,
    ) -> Result<(), RunError> {
        for part in parts {
            match part {
                Part::Calls(range) => match clock {
                    // SAFETY: the caller's promise.
                    None => unsafe { self.calls(&plan.calls[range.clone()], entry) },
                    // SAFETY: as above.
                    Some(clock) => unsafe { self.run_timed(plan, range.clone(), entry, clock) },
                },
                Part::If { condition, then, otherwise } => {
                    // SAFETY: the manifest was validated: a byte lies there.
                    let holds = unsafe { self.holds(*condition) };
                    // SAFETY: the caller's promise.
                    unsafe {
                        self.parts(plan, if holds { then } else { otherwise }, entry, clock)?
                    };
                }
                // SAFETY: the caller's promise.
                Part::Loop(repeated) => unsafe { self.repeat(plan, repeated, entry, clock)? },
                Part::Host(host) => {
                    // SAFETY: as above.
                    unsafe { self.host(host)? };
                    if let Some(clock) = clock {
                        clock.tick(|profile| profile.hosts.get_mut(host.index), 1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a loop. The entries that it exchanges are as before at its end.
    ///
    /// # Safety
    /// As for `parts`; the buffers of the loop lie where the manifest says.
    unsafe fn repeat(
        &mut self,
        plan: &Plan,
        repeated: &Loop,
        entry: &Entry<'_>,
        clock: &mut Option<Clock<'_>>,
    ) -> Result<(), RunError> {
        // SAFETY: the manifest was validated, for this and for all that is read and written here.
        let trips = repeated.trips.map(|entry| unsafe { self.number(entry) }.max(0) as u64);
        let most = repeated.most.into_iter().chain(trips).min().unwrap_or(u64::MAX);
        // SAFETY: as above.
        let mut goes_on = repeated.condition.is_none_or(|entry| unsafe { self.holds(entry) });
        for carried in &repeated.carried {
            // SAFETY: as above.
            unsafe { self.copy(carried.initial, (carried.current, 0), carried.bytes) };
        }
        let mut count = 0;
        let mut done = Ok(());
        while goes_on && count < most {
            if repeated.capacity.is_some_and(|capacity| count >= capacity) {
                done = Err(RunError::Overrun { node: repeated.node.clone(), capacity: count });
                break;
            }
            // SAFETY: as above.
            unsafe { self.store(repeated.number, count as i64) };
            // SAFETY: the caller's promise.
            done = unsafe { self.parts(plan, &repeated.body, entry, clock) };
            if done.is_err() {
                break;
            }
            for collected in &repeated.collected {
                let index = match collected.reversed {
                    true => most - 1 - count,
                    false => count,
                };
                let target = (collected.all, index as usize * collected.bytes);
                // SAFETY: the place is below the capacity, for which there is room.
                unsafe { self.copy(collected.from, target, collected.bytes) };
            }
            // SAFETY: as above.
            goes_on = repeated.goes_on.is_none_or(|entry| unsafe { self.holds(entry) });
            self.exchange(repeated, count % 2 == 0);
            count += 1;
        }
        if done.is_ok() {
            for carried in &repeated.carried {
                // SAFETY: as above.
                unsafe { self.copy(carried.current, (carried.result, 0), carried.bytes) };
            }
            for collected in &repeated.collected {
                let rest = repeated.capacity.unwrap_or(count) - count;
                let offset = count as usize * collected.bytes;
                let behind = self.table[collected.all].wrapping_byte_add(offset).cast::<u8>();
                // SAFETY: as above.
                unsafe { behind.write_bytes(0, rest as usize * collected.bytes) };
            }
            // SAFETY: as above.
            unsafe { self.store(repeated.count, count as i64) };
        }
        if count % 2 == 1 {
            self.exchange(repeated, false);
        }
        done
    }

    /// Leads the entries of carried values to their other buffers: away from their own ones, or back.
    fn exchange(&mut self, repeated: &Loop, away: bool) {
        for (entry, apart) in &repeated.exchanges {
            let apart = if away { *apart } else { -*apart };
            self.table[*entry] = self.table[*entry].wrapping_byte_offset(apart);
        }
    }

    /// Whether the byte of an entry is not zero.
    ///
    /// # Safety
    /// The entry leads to a byte.
    unsafe fn holds(&self, entry: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *self.table[entry].cast::<u8>() != 0 }
    }

    /// # Safety
    /// The entry leads to a number of 64 bits.
    unsafe fn number(&self, entry: usize) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { self.table[entry].cast::<i64>().read_unaligned() }
    }

    /// # Safety
    /// The entry leads to room for a number of 64 bits.
    unsafe fn store(&self, entry: usize, number: i64) {
        // SAFETY: the caller's promise.
        unsafe { self.table[entry].cast::<i64>().write_unaligned(number) };
    }

    /// Copies what an entry leads to behind the first bytes of what another does.
    ///
    /// # Safety
    /// Both lead to so many bytes.
    unsafe fn copy(&self, from: usize, (to, offset): (usize, usize), bytes: usize) {
        let from = self.table[from].cast::<u8>().cast_const();
        let to = self.table[to].cast::<u8>().wrapping_add(offset);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(from, to, bytes) };
    }

    /// Extents of outputs after a run, in the manifest's order.
    ///
    /// # Safety
    /// `plan` is the current one, and a run has ended well whose outputs are still there.
    pub(crate) unsafe fn extents(&self, plan: &Plan) -> impl Iterator<Item = u64> {
        // SAFETY: the manifest was validated.
        plan.extents().map(|entry| unsafe { self.number(entry) }.max(0) as u64)
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
        self.claim(&entry, self.threads());
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
    unsafe fn run_timed(
        &self,
        plan: &Plan,
        range: Range<usize>,
        entry: &Entry<'_>,
        clock: &mut Clock<'_>,
    ) {
        for index in range {
            let call = &plan.calls[index];
            let parts = clock.profile.parts_mut(index);
            let threads = match parts.is_empty() {
                // SAFETY: the caller's promise.
                true => unsafe { self.step(call, entry) },
                // SAFETY: as above.
                false => unsafe { self.step_in_parts(call, parts) },
            };
            clock.tick(|profile| profile.steps.get_mut(index), threads);
        }
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
            *time += start.elapsed();
        }
        1
    }

    /// Claims free seats for a run on so many threads, as many as it may use, and wakes those who sleep on them.
    fn claim(&mut self, entry: &Entry<'_>, threads: usize) {
        self.claimed.clear();
        if threads < 2 || self.seats.is_empty() || !self.pool.is_alive() {
            return;
        }
        let most = entry.share().min(threads) - 1;
        for (index, seat) in self.seats.iter().enumerate() {
            if self.claimed.len() < most && seat.claim() {
                seat.warm_up();
                self.claimed.push(index);
            }
        }
    }

    /// Where this run's threads have their seats and their scratch.
    fn team(&self) -> Team {
        Team {
            seats: &raw const *self.seats,
            claimed: &raw const *self.claimed,
            scratch: self.scratch,
            scratch_stride: self.scratch_stride,
        }
    }

    /// Runs one step on as many threads as it is worth and gives their number.
    ///
    /// # Safety
    /// The table is filled, and its buffers are what the step says.
    unsafe fn step(&self, call: &Call, entry: &Entry<'_>) -> usize {
        if let Some(waves) = &call.waves {
            let threads = self.threads_of(waves, entry);
            if threads > 1 {
                // SAFETY: the caller's promise.
                unsafe { self.waves(call, waves, threads) };
                return threads;
            }
        }
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
        let team = self.team();
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
