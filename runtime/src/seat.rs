//! A worker's seat: the one word and the one job through which a run and a worker talk.
//!
//! Word and job share a cache line, so that handing over a job moves one line. A seat is claimed by one
//! run at a time; the word then goes
//!
//! - `IDLE` → `POSTED` by the run, after it wrote the job, → `IDLE` by the worker, after it did it;
//! - `IDLE` → `SLEEPING` by a worker that has spun in vain, → `POSTED` (or `IDLE`, to warm it up) by the
//!   run, which then wakes it;
//! - `POSTED` → `AWAITED` by a run that has spun in vain and sleeps, → `IDLE` by the worker, which wakes it;
//! - → `EXIT` by the pool, when nobody claims seats any more.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::futex;
use crate::library::Kernel;

const IDLE: u32 = 0;
const SLEEPING: u32 = 1;
const POSTED: u32 = 2;
const AWAITED: u32 = 3;
const EXIT: u32 = 4;

/// Longest that a worker spins for its next job. Steps of a run follow each other within this; a worker
/// of an idle process has slept ever since.
const SPIN_MOST: Duration = Duration::from_micros(200);

/// Shortest, where spinning has proved to be in vain.
const SPIN_LEAST: Duration = Duration::from_micros(5);

/// Longest that a run spins for a worker before it sleeps. Kernels of a step end together unless the
/// worker was taken off its processor.
const AWAIT_MOST: Duration = Duration::from_micros(100);

/// Looks at the word between two looks at the clock.
const LOOKS: u32 = 64;

/// A range of a step's tasks for one thread.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) kernel: Kernel,
    pub(crate) buffers: *const *mut c_void,
    pub(crate) begin: i64,
    pub(crate) end: i64,
    pub(crate) scratch: *mut c_void,
}

impl Job {
    /// Calls the kernel.
    ///
    /// # Safety
    /// The buffers must be what the kernel's step says, and no other thread may run the same tasks.
    pub(crate) unsafe fn run(&self) {
        // SAFETY: the caller's promise.
        unsafe { (self.kernel)(self.buffers, self.begin, self.end, self.scratch) };
    }
}

/// See the module's documentation. 128 bytes keep the neighbour out of the prefetched pair of lines.
#[repr(align(128))]
pub(crate) struct Seat {
    word: AtomicU32,
    claimed: AtomicBool,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: the job is written only by the run that claimed the seat while the word is not POSTED, and read
// only by the worker while it is; the word's release and acquire order the two.
unsafe impl Sync for Seat {}
// SAFETY: as above; the pointers of a job are used only while its run waits for it.
unsafe impl Send for Seat {}

impl Seat {
    /// A seat whose worker has yet to come: [`Seat::wait`] waits for that.
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(POSTED),
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
    /// The caller has claimed the seat, has waited for the last job, keeps the promise of [`Job::run`],
    /// and waits for this job before anything that it points to goes away.
    pub(crate) unsafe fn post(&self, job: Job) {
        // SAFETY: the word is not POSTED, so the worker does not look at the job.
        unsafe { *self.job.get() = Some(job) };
        if self.word.swap(POSTED, Ordering::AcqRel) == SLEEPING {
            futex::wake(&self.word);
        }
    }

    /// Waits until the worker has done its job.
    pub(crate) fn wait(&self) {
        let done = || self.word.load(Ordering::Acquire) < POSTED;
        if spin(AWAIT_MOST, done) {
            return;
        }
        while !done() {
            let word =
                self.word
                    .compare_exchange(POSTED, AWAITED, Ordering::AcqRel, Ordering::Acquire);
            if !matches!(word, Err(IDLE | SLEEPING)) {
                futex::wait(&self.word, AWAITED);
            }
        }
    }

    /// Ends the worker. Only when no run claims the seat.
    pub(crate) fn dismiss(&self) {
        self.word.store(EXIT, Ordering::Release);
        futex::wake(&self.word);
    }

    /// The worker's life: does jobs until it is dismissed.
    pub(crate) fn work(&self) {
        let mut patience = SPIN_MOST;
        loop {
            if spin(patience, || self.word.load(Ordering::Acquire) >= POSTED) {
                patience = SPIN_MOST;
            } else {
                patience = (patience / 2).max(SPIN_LEAST);
                self.sleep();
            }
            match self.word.load(Ordering::Acquire) {
                EXIT => return,
                POSTED | AWAITED => self.serve(),
                // Woken to be warm: a run has begun and its jobs are near.
                _ => patience = SPIN_MOST,
            }
        }
    }

    fn sleep(&self) {
        let slept = self
            .word
            .compare_exchange(IDLE, SLEEPING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        while slept && self.word.load(Ordering::Acquire) == SLEEPING {
            futex::wait(&self.word, SLEEPING);
        }
    }

    fn serve(&self) {
        // SAFETY: the word is POSTED or AWAITED: the job is written and stays.
        if let Some(job) = unsafe { *self.job.get() } {
            // SAFETY: the promise of `post`.
            unsafe { job.run() };
        }
        if self.word.swap(IDLE, Ordering::AcqRel) == AWAITED {
            futex::wake(&self.word);
        }
    }
}

/// Looks until `done` or until `most` has passed; gives whether it was done.
fn spin(most: Duration, done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        // The clock is read only by those that wait long.
        let now = Instant::now();
        if now.duration_since(*start.get_or_insert(now)) > most {
            return false;
        }
    }
}
