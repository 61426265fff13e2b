//! A worker's seat: the one word and the one job through which a run and a worker talk.
//!
//! Word and job share a cache line, so that handing over a job moves one line. A seat is claimed by one
//! run at a time. The threads of a step form a tree: each hands the step to a few others before it begins,
//! and awaits them when no task is left, so that hand-over and barrier take the depth of the tree and not
//! one thread after another. The word then goes
//!
//! - `IDLE` → `POSTED` by the thread above, after it wrote the job, → `TAKEN` by the worker, → `IDLE` by the
//!   worker when it is done, and so are those below it;
//! - `POSTED` → `IDLE` by the thread above where it finds no task left and the worker not there yet (asleep,
//!   or off its processor): others have taken over its tasks ([`claim`]), and nobody was posted below it,
//!   so a busy machine costs little more than one thread does;
//! - `IDLE` → `SLEEPING` by a worker that has spun in vain, → `POSTED` (or `IDLE`, to warm it up) by the
//!   thread above, which then wakes it;
//! - `TAKEN` → `AWAITED` by the thread above where it has spun in vain and sleeps, → `IDLE` by the worker,
//!   which wakes it;
//! - → `EXIT` by the pool, when nobody claims seats any more.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::claim::{self, TaskRange};
use crate::futex;
use crate::library::Kernel;

const IDLE: u32 = 0;
const SLEEPING: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const AWAITED: u32 = 4;
const EXIT: u32 = 5;

/// Longest that a worker spins for its next job. Steps of a run follow each other within this; a worker
/// of an idle process has slept ever since.
const SPIN_MOST: Duration = Duration::from_micros(200);

/// Shortest, where spinning has proved to be in vain.
const SPIN_LEAST: Duration = Duration::from_micros(5);

/// Longest that a run spins for a worker before it sleeps. Kernels of a step end together unless the
/// worker was taken off its processor.
const AWAIT_MOST: Duration = Duration::from_micros(100);

/// Looks at the word between two looks at the clock, about a microsecond. A worker that spins takes a job
/// within this.
const LOOKS: u32 = 64;

/// Where the threads of a run have their seats and their scratch. Thread 0 is the caller, which has no seat.
pub(crate) struct Team {
    pub(crate) seats: *const [Arc<Seat>],
    /// Which of `seats` threads 1 and on have.
    pub(crate) claimed: *const [usize],
    pub(crate) scratch: *mut u8,
    /// Bytes from one thread's scratch to the next one's.
    pub(crate) scratch_stride: usize,
}

impl Team {
    /// # Safety
    /// The lists are alive.
    unsafe fn seat(&self, thread: u32) -> Option<&Seat> {
        // SAFETY: the caller's promise.
        let (seats, claimed) = unsafe { (&*self.seats, &*self.claimed) };
        let seat = claimed.get((thread as usize).wrapping_sub(1))?;
        seats.get(*seat).map(|seat| &**seat)
    }
}

/// One thread's part in a step. The thread that posts it settles it; what it points to stays until thread
/// 0 is done.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) kernel: Kernel,
    pub(crate) buffers: *const *mut c_void,
    /// The first of what each thread of the step has not begun; as many as there are threads.
    pub(crate) ranges: *const TaskRange,
    pub(crate) team: *const Team,
    pub(crate) threads: u32,
    /// Which thread of the step this is.
    pub(crate) index: u32,
    /// Fewest tasks of a claim.
    pub(crate) grain: u32,
}

impl Job {
    /// Hands the step on to the threads below, calls the kernel for tasks of this thread's range and then
    /// of others' until there are none, and sees the threads below done.
    ///
    /// # Safety
    /// The buffers must be what the kernel's step says. The team has a claimed seat and scratch for every
    /// thread, the ranges are filled with tasks that no other step's threads run, both outlive the call of
    /// thread 0, and no other thread runs this index.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the caller's promise.
        let (ranges, team) =
            unsafe { (slice::from_raw_parts(self.ranges, self.threads as usize), &*self.team) };
        let below = self.below(ranges);
        for index in below.clone() {
            // SAFETY: the caller's promise; only this thread posts to those below it.
            if let Some(seat) = unsafe { team.seat(index) } {
                // SAFETY: as above; it is settled at the end.
                unsafe { seat.post(Self { index, ..*self }) };
            }
        }
        let scratch = team.scratch.wrapping_add(self.index as usize * team.scratch_stride);
        while let Some((begin, end)) = claim::next(ranges, self.index as usize, self.grain) {
            // SAFETY: the caller's promise; only this thread has claimed these tasks.
            unsafe { (self.kernel)(self.buffers, begin.into(), end.into(), scratch.cast()) };
        }
        for index in below {
            // SAFETY: the caller's promise.
            if let Some(seat) = unsafe { team.seat(index) } {
                seat.settle();
            }
        }
    }

    /// The threads to hand the step to: none where this one comes so late that its tasks are gone.
    fn below(&self, ranges: &[TaskRange]) -> Range<u32> {
        match ranges.get(self.index as usize).is_none_or(TaskRange::is_empty) {
            true => 0..0,
            false => claim::below(self.index, self.threads),
        }
    }
}

/// See the module's documentation. 128 bytes keep the neighbour out of the prefetched pair of lines.
#[repr(align(128))]
pub(crate) struct Seat {
    word: AtomicU32,
    claimed: AtomicBool,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: the job is written only by the one thread above it in the run that claimed the seat, while the word
// is not POSTED, and read only by the worker while it is; the word's release and acquire order the two.
unsafe impl Sync for Seat {}
// SAFETY: as above; the pointers of a job are used only while its run waits for it.
unsafe impl Send for Seat {}

impl Seat {
    /// A seat whose worker has yet to come: [`Seat::wait`] waits for that.
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(TAKEN),
            claimed: AtomicBool::new(false),
            job: UnsafeCell::new(None),
        }
    }

    /// Takes the seat for a run; no where another run has it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::Acquire)
    }

    /// Gives it back.
    pub(crate) fn release(&self) {
        self.claimed.store(false, Ordering::Release);
    }

    /// Wakes a sleeping worker, so that it spins by the time the first job comes.
    pub(crate) fn warm_up(&self) {
        let asleep = self.word.load(Ordering::Relaxed) == SLEEPING;
        if asleep && self.word.swap(IDLE, Ordering::AcqRel) == SLEEPING {
            futex::wake(&self.word);
        }
    }

    /// Hands a job to the worker.
    ///
    /// # Safety
    /// The caller's run has claimed the seat, its last job is settled, and the promise of [`Job::run`] is
    /// kept. The caller runs the step's tasks itself until none is left to claim, and then settles this job
    /// before anything that it points to goes away or the ranges are filled again.
    pub(crate) unsafe fn post(&self, job: Job) {
        // SAFETY: the word is IDLE or SLEEPING, so the worker does not look at the job.
        unsafe { *self.job.get() = Some(job) };
        if self.word.swap(POSTED, Ordering::AcqRel) == SLEEPING {
            futex::wake(&self.word);
        }
    }

    /// Ends a posted job of which no task is left to claim: takes it back where the worker has not begun,
    /// else waits until it is done.
    pub(crate) fn settle(&self) {
        if look(|| self.is_free()) || self.step(POSTED, IDLE) {
            return;
        }
        self.wait();
    }

    /// Waits for a worker that has begun.
    pub(crate) fn wait(&self) {
        if spin(AWAIT_MOST, || self.is_free()) {
            return;
        }
        while !self.is_free() {
            self.step(TAKEN, AWAITED);
            futex::wait(&self.word, AWAITED);
        }
    }

    /// Whether nothing is posted or being done.
    fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) < POSTED
    }

    /// Makes the word `to` if it is `from`.
    fn step(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the worker. Only when no run claims the seat.
    pub(crate) fn dismiss(&self) {
        self.word.store(EXIT, Ordering::Release);
        futex::wake(&self.word);
    }

    /// The worker's life: does jobs until it is dismissed.
    pub(crate) fn work(&self) {
        self.finish();
        let mut patience = SPIN_MOST;
        loop {
            if spin(patience, || !self.is_free()) {
                patience = SPIN_MOST;
            } else {
                patience = (patience / 2).max(SPIN_LEAST);
                self.sleep();
            }
            if self.step(POSTED, TAKEN) {
                // SAFETY: POSTED says that the job is written, TAKEN keeps the run from it.
                if let Some(job) = unsafe { *self.job.get() } {
                    // SAFETY: the promise of `post`.
                    unsafe { job.run() };
                }
                self.finish();
            } else if self.word.load(Ordering::Acquire) == EXIT {
                return;
            } else {
                // Woken to be warm, or too late: a run is under way and its next job is near.
                patience = SPIN_MOST;
            }
        }
    }

    fn sleep(&self) {
        let slept = self.step(IDLE, SLEEPING);
        while slept && self.word.load(Ordering::Acquire) == SLEEPING {
            futex::wait(&self.word, SLEEPING);
        }
    }

    fn finish(&self) {
        if self.word.swap(IDLE, Ordering::AcqRel) == AWAITED {
            futex::wake(&self.word);
        }
    }
}

/// Looks for about a microsecond; gives whether it was done.
fn look(done: impl Fn() -> bool) -> bool {
    for _ in 0..LOOKS {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Looks until `done` or until `most` has passed; gives whether it was done.
fn spin(most: Duration, done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        if look(&done) {
            return true;
        }
        // The clock is read only by those that wait long.
        let now = Instant::now();
        if now.duration_since(*start.get_or_insert(now)) > most {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// A tree of three levels.
    const THREADS: usize = 12;
    const TASKS: u32 = 120;
    const SUM: u64 = (TASKS * (TASKS - 1) / 2) as u64;

    /// Adds every task's number to the sum that the first buffer is.
    unsafe extern "C" fn add(buffers: *const *mut c_void, begin: i64, end: i64, _: *mut c_void) {
        // SAFETY: the test below hands over one buffer, an atomic.
        let sum = unsafe { &*(*buffers).cast::<AtomicU64>() };
        sum.fetch_add((begin..end).sum::<i64>() as u64, Ordering::Relaxed);
    }

    /// The same, and some calls take as long as a worker that was taken off its processor.
    unsafe extern "C" fn add_slowly(b: *const *mut c_void, begin: i64, end: i64, s: *mut c_void) {
        if [15, 45, 110].iter().any(|task| (begin..end).contains(task)) {
            thread::sleep(AWAIT_MOST * 3);
        } else if (begin..end).contains(&20) {
            thread::yield_now();
        }
        // SAFETY: the caller's promise.
        unsafe { add(b, begin, end, s) };
    }

    /// A run of twelve threads, eleven of them workers.
    struct Run {
        seats: Vec<Arc<Seat>>,
        claimed: Vec<usize>,
        ranges: Vec<TaskRange>,
        sum: AtomicU64,
    }

    impl Run {
        fn new() -> Self {
            Self {
                seats: (1..THREADS).map(|_| Arc::new(Seat::new())).collect(),
                // Not in the order of the pool.
                claimed: (0..THREADS - 1).rev().collect(),
                ranges: (0..THREADS).map(|_| TaskRange::default()).collect(),
                sum: AtomicU64::new(0),
            }
        }

        /// One step on so many of the threads; gives the sum of all tasks' numbers.
        fn step(&self, kernel: Kernel, threads: usize) -> u64 {
            for (index, range) in self.ranges[..threads].iter().enumerate() {
                range.fill(claim::part(TASKS, index as u32, threads as u32));
            }
            let buffers = [(&raw const self.sum).cast_mut().cast::<c_void>()];
            let team = Team {
                seats: &raw const *self.seats,
                claimed: &raw const *self.claimed,
                scratch: std::ptr::null_mut(),
                scratch_stride: 0,
            };
            let job = Job {
                kernel,
                buffers: buffers.as_ptr(),
                ranges: self.ranges.as_ptr(),
                team: &raw const team,
                threads: threads as u32,
                index: 0,
                grain: 1,
            };
            // SAFETY: nobody else uses the seats, and what the job points to outlives the call.
            unsafe { job.run() };
            self.sum.swap(0, Ordering::Relaxed)
        }
    }

    /// Far more workers than cores, so that they are caught in every state: asleep, warmed up, too late
    /// for their job, at work, and awaited by a thread that sleeps.
    #[test]
    fn every_task_is_done_once_and_before_its_step_ends() {
        let run = Run::new();
        thread::scope(|scope| {
            for seat in &run.seats {
                scope.spawn(|| seat.work());
            }
            run.seats.iter().for_each(|seat| seat.wait());
            for round in 1..=3000usize {
                if round % 500 == 0 {
                    // Long enough for all to fall asleep.
                    thread::sleep(Duration::from_millis(5));
                    run.seats.iter().step_by(2).for_each(|seat| seat.warm_up());
                }
                let kernel = if round % 50 == 0 { add_slowly } else { add };
                let threads = 2 + round % (THREADS - 1);
                assert_eq!(run.step(kernel, threads), SUM, "round {round}");
                assert!(run.seats.iter().all(|seat| seat.is_free()), "round {round}");
            }
            run.seats.iter().for_each(|seat| seat.dismiss());
        });
    }

    /// No worker ever comes, as on a machine that is busy: the caller does all, and waits for nobody.
    #[test]
    fn a_step_needs_no_worker() {
        let run = Run::new();
        // As a worker that sits down would leave it.
        run.seats.iter().for_each(|seat| seat.finish());
        for _ in 0..3 {
            assert_eq!(run.step(add, THREADS), SUM);
        }
    }

    #[test]
    fn a_thread_that_comes_late_hands_nothing_on() {
        let run = Run::new();
        let job = |index: u32| Job {
            kernel: add,
            buffers: std::ptr::null(),
            ranges: run.ranges.as_ptr(),
            team: std::ptr::null(),
            threads: THREADS as u32,
            index,
            grain: 1,
        };
        assert!(job(0).below(&run.ranges).is_empty());
        run.ranges[0].fill((3, 4));
        assert_eq!(job(0).below(&run.ranges), 1..5);
        assert!(job(1).below(&run.ranges).is_empty());
    }

    #[test]
    fn a_job_moves_with_its_word_in_one_line() {
        assert!(size_of::<AtomicU32>() + 4 + size_of::<Option<Job>>() <= 64);
    }
}
