//! Waves: parts of a kernel's work of which each may read what all parts of the wave before have written, such as the
//! units of a recurrence's step. The threads of a step run them together, with a barrier between two waves.
//!
//! The parts are divided among the threads once: a thread runs the same ones in every wave, so that what only these
//! read, such as a part of the weights, stays in its core's cache. A thread's parts are one *share*. A share counts in one
//! word the waves that have been begun there, and in another one those that have ended. Who runs a share of a wave counts up
//! the first by compare-and-swap, so one thread alone does, and the second at the end. A wave is complete where all
//! shares have ended it: that is the barrier. Each word has cache lines of its own. The first is touched by its thread alone
//! as long as that is there, so beginning costs nothing; the second moves to each other thread once in a wave.
//!
//! A thread prefers its own share. One whose thread is silent (asleep, or off its processor) is taken over by whoever
//! finds it so after a microsecond or two, and at once in later waves until its thread is seen again. So a run needs no
//! thread but its first, and threads that share one core lose the switches between them alone. What a thread has begun
//! nobody else can end: the others spin for a while, then give their processor away, and at last sleep for short times.
//!
//! What is computed does not depend on who computes it, so results are the same for every number of threads. Barriers by a
//! flag for each thread are those of Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors" (1991), here without rounds: each thread has to know in any case which share to take over.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::claim;
use crate::futex;
use crate::library::Kernel;

/// Most waves of a kernel: words count them, and one more.
pub(crate) const MAX_WAVES: u32 = u32::MAX - 1;

/// Looks at a share of another thread before the processor is told that this one spins. Shares end together, and what
/// an instruction that waits takes is as long as a line takes from one core to another.
const LOOKS_AT_ONCE: u32 = 64;

/// Looks at a share before it is taken over where nobody has begun it, a microsecond or two: a thread that is there begins
/// its share within a tenth of that.
const LOOKS_UNBEGUN: u32 = 128;

/// Looks at a share that another thread runs before the processor is given away, some 50 µs: shares end together,
/// unless a thread was taken off its processor.
const LOOKS_RUNNING: u32 = 1024;

/// Times that the processor is given away before sleeping: some 100 µs where nobody else wants it.
const YIELDS: u32 = 256;

/// Shares in a row that a thread takes over before it gives its processor away for once.
const SHARES_BETWEEN_YIELDS: u32 = 8;

/// How long to sleep at a time.
const SLEEP: Duration = Duration::from_micros(100);

/// A number in two cache lines of its own, so that no prefetched pair is shared.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Count(AtomicU32);

/// How far the parts of one thread are; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Waves that have been begun.
    begun: Count,
    /// Waves that have ended.
    ended: Count,
}

impl Share {
    /// Begins at the first wave. Only where no thread runs any.
    pub(crate) fn reset(&self) {
        self.begun.0.store(0, Ordering::Relaxed);
        self.ended.0.store(0, Ordering::Relaxed);
    }

    /// Takes the share of a wave where nobody has begun it.
    fn begin(&self, wave: u32) -> bool {
        self.begun.0.compare_exchange(wave, wave + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn end(&self, wave: u32) {
        self.ended.0.store(wave + 1, Ordering::Release);
    }

    /// The number of waves that have ended; what these have stored is seen.
    fn ended(&self) -> u32 {
        self.ended.0.load(Ordering::Acquire)
    }
}

/// What the threads of a step run in waves.
pub(crate) struct Gang<'a> {
    /// `kernel(buffers, 1 + w * parts + begin, 1 + w * parts + end, scratch)` runs the parts `begin..end` of wave `w`.
    pub(crate) kernel: Kernel,
    pub(crate) buffers: *const *mut c_void,
    /// At most [`MAX_WAVES`].
    pub(crate) waves: u32,
    /// Parts of a wave.
    pub(crate) parts: u32,
    /// One for each thread, reset.
    pub(crate) shares: &'a [Share],
}

impl Gang<'_> {
    /// Runs waves as thread number `own` until all are complete.
    ///
    /// # Safety
    /// The buffers are what the kernel's step says, and nothing but the threads of this gang touches them meanwhile.
    /// `scratch` is memory of this thread alone, as large as the step says.
    pub(crate) unsafe fn run(&self, own: usize, scratch: *mut c_void) {
        // One who comes late begins where the others are.
        let mut wave = self.shares.iter().map(Share::ended).min().unwrap_or(self.waves);
        // Shares in a row of other threads that were taken over.
        let mut silent = 0u32;
        while wave < self.waves {
            for share in (own..self.shares.len()).chain(0..own) {
                let at_once = share == own || silent > 0;
                // SAFETY: the caller's promise; what the waves before have stored was waited for.
                let is_taken = unsafe { self.complete(share, wave, at_once, scratch) };
                if share != own {
                    silent = if is_taken { silent.saturating_add(1) } else { 0 };
                }
            }
            if silent > 0 && silent.is_multiple_of(SHARES_BETWEEN_YIELDS) {
                // The thread may wait for this one's processor: threads in real time are moved to another one only then.
                thread::yield_now();
            }
            wave += 1;
        }
    }

    /// Runs a share of a wave, or waits until another thread has; gives whether this one did. The share is begun where
    /// nobody has begun it: `at_once`, or after a while.
    ///
    /// # Safety
    /// As for `run`; the wave before is complete.
    unsafe fn complete(
        &self,
        share: usize,
        wave: u32,
        at_once: bool,
        scratch: *mut c_void,
    ) -> bool {
        let own = &self.shares[share];
        let mut looks = if at_once { LOOKS_UNBEGUN - 1 } else { 0 };
        while own.ended() <= wave {
            looks = looks.saturating_add(1);
            // Once begun it stays so: one try is enough.
            if looks == LOOKS_UNBEGUN && own.begin(wave) {
                // SAFETY: the caller's promise; this thread alone has begun the share of this wave.
                unsafe { self.call(share, wave, scratch) };
                own.end(wave);
                return true;
            }
            match looks {
                ..LOOKS_AT_ONCE => {}
                LOOKS_AT_ONCE..LOOKS_RUNNING => std::hint::spin_loop(),
                _ if looks < LOOKS_RUNNING + YIELDS => thread::yield_now(),
                // Nobody wakes: the word is looked at again when the time is over.
                _ => futex::wait_for(&own.ended.0, wave, SLEEP),
            }
        }
        false
    }

    /// # Safety
    /// As for `run`; this thread has begun the share of the wave.
    unsafe fn call(&self, share: usize, wave: u32, scratch: *mut c_void) {
        let (begin, end) = claim::part(self.parts, share as u32, self.shares.len() as u32);
        if begin < end {
            let first = 1 + i64::from(wave) * i64::from(self.parts);
            let (begin, end) = (first + i64::from(begin), first + i64::from(end));
            // SAFETY: the caller's promise.
            unsafe { (self.kernel)(self.buffers, begin, end, scratch) };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::atomic::AtomicU64;

    use super::*;

    const PARTS: usize = 24;
    const WAVES: usize = 400;

    /// Sums of two waves, and how often each part of each wave was run.
    struct Work {
        /// What parts have written, of even waves and of odd ones.
        sums: [[AtomicU64; PARTS]; 2],
        runs: Vec<AtomicU32>,
        /// Whether some calls are taken off their processor.
        is_slow: bool,
    }

    impl Work {
        fn new(is_slow: bool) -> Self {
            let zeros = || std::array::from_fn(|part| AtomicU64::new(part as u64));
            let runs = (0..WAVES * PARTS).map(|_| AtomicU32::new(0)).collect();
            Self { sums: [zeros(), zeros()], runs, is_slow }
        }

        /// The sums that follow from those of the wave before.
        fn expected() -> [u64; PARTS] {
            let mut sums: [u64; PARTS] = std::array::from_fn(|part| part as u64);
            for _ in 0..WAVES {
                let all = sums.iter().fold(0u64, |all, own| all.wrapping_mul(3).wrapping_add(*own));
                sums = std::array::from_fn(|part| all.wrapping_mul(part as u64 + 1));
            }
            sums
        }
    }

    /// Each part reads what all parts of the wave before have written, without any order of its own.
    unsafe extern "C" fn step(buffers: *const *mut c_void, begin: i64, end: i64, _: *mut c_void) {
        // SAFETY: the tests below hand over one buffer, the work.
        let work = unsafe { &*(*buffers).cast::<Work>() };
        for task in begin - 1..end - 1 {
            let (wave, part) = (task as usize / PARTS, task as usize % PARTS);
            if work.is_slow && (task % 997 == 0 || task % 1009 == 0) {
                thread::sleep(Duration::from_micros(500));
            }
            let before = &work.sums[1 - wave % 2];
            let all = before.iter().fold(0u64, |all, own| {
                all.wrapping_mul(3).wrapping_add(own.load(Ordering::Relaxed))
            });
            let new = all.wrapping_mul(part as u64 + 1);
            work.sums[wave % 2][part].store(new, Ordering::Relaxed);
            work.runs[task as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check(work: &Work) {
        let sums: Vec<u64> =
            work.sums[(WAVES - 1) % 2].iter().map(|own| own.load(Ordering::Relaxed)).collect();
        assert_eq!(sums, Work::expected());
        assert!(work.runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    }

    fn run(threads: usize, present: &[usize], is_slow: bool) {
        let work = Work::new(is_slow);
        let buffers = [(&raw const work).cast_mut().cast::<c_void>()];
        let shares: Vec<Share> = (0..threads).map(|_| Share::default()).collect();
        let (table, shares) = (buffers.as_ptr() as usize, &shares[..]);
        thread::scope(|scope| {
            for own in present.iter().copied() {
                scope.spawn(move || {
                    let gang = Gang {
                        kernel: step,
                        buffers: table as *const *mut c_void,
                        waves: WAVES as u32,
                        parts: PARTS as u32,
                        shares,
                    };
                    if own % 5 == 4 {
                        thread::sleep(Duration::from_millis(2));
                    }
                    // SAFETY: the work and the table outlive the threads.
                    unsafe { gang.run(own, std::ptr::null_mut()) };
                });
            }
        });
        check(&work);
    }

    #[test]
    fn waves_follow_each_other_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8, PARTS, PARTS + 3] {
            let present: Vec<usize> = (0..threads).collect();
            run(threads, &present, false);
        }
    }

    /// Far more threads than cores, of which some come late and some sleep within a part.
    #[test]
    fn threads_that_are_silent_or_slow_are_waited_for_or_replaced() {
        let present: Vec<usize> = (0..16).collect();
        run(16, &present, true);
        run(3, &[0, 1, 2], true);
    }

    /// The caller alone does all, and so does any other thread.
    #[test]
    fn waves_need_no_thread_but_one() {
        run(6, &[0], false);
        run(6, &[5], false);
        run(6, &[1, 4], true);
    }

    #[test]
    fn a_gang_of_no_waves_ends() {
        let shares = [Share::default(), Share::default()];
        let buffers = std::ptr::null();
        let gang = Gang { kernel: step, buffers, waves: 0, parts: 4, shares: &shares };
        // SAFETY: no part is run.
        unsafe { gang.run(1, std::ptr::null_mut()) };
    }
}
