//! How the threads of a step divide its tasks: every thread starts with a contiguous part of them, and
//! one that has finished takes over tasks from another (work stealing).
//!
//! A thread claims tasks from the front of its own range, a quarter of what is left at a time, so that
//! it makes few kernel calls, walks neighbouring tasks (which read the same operands) in order, and
//! leaves the rest for others to take. A thread without tasks looks at the ranges of the threads after
//! it and takes the back half of the first that has any; it continues with that as its own range, which
//! others may take from in turn. So a worker that has not begun (asleep, or off its processor) delays
//! nothing, and threads of different speed end together, within one claim.
//!
//! A range is one word, changed by compare-and-swap only, and a claim succeeds only against the word's
//! present value. Each task is therefore claimed exactly once, whatever the order in which threads look.
//! Nothing allocates and nothing waits. Tasks are independent, so results do not depend on which thread
//! computed what. The scheme is that of Blumofe and Leiserson, "Scheduling Multithreaded Computations by
//! Work Stealing" (1999), with ranges of tasks in place of queues of them.
//!
//! The functions that decide how much is taken are public: `hone bench --simulate-threads` runs them on
//! virtual threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most tasks that a step on several threads may have: both ends of a range lie in one word.
pub const MAX_TASKS: u64 = u32::MAX as u64;

/// A claim is this fraction of what its range has left. With 4, the last claim of a thread is a small
/// part of a step, and a range of 256 tasks takes some 20 kernel calls.
const CLAIM_FRACTION: u32 = 4;

/// A claim has at least this fraction of the tasks that are worth a thread of their own, so that the
/// cost of claiming (some 0.1 µs where a line moves between processors) stays below a tenth of the work.
const GRAIN_FRACTION: u64 = 4;

/// Threads that one thread hands a step to. Four posts take about as long as one takes to arrive.
const FAN_OUT: u32 = 4;

/// The threads of a step that thread `index` hands it to, and awaits: a tree whose root is thread 0, the
/// caller. Those below a thread have higher numbers than it.
pub fn below(index: u32, threads: u32) -> Range<u32> {
    let first = index.saturating_mul(FAN_OUT).saturating_add(1);
    first.min(threads)..first.saturating_add(FAN_OUT).min(threads)
}

/// The `index`-th of `parts` contiguous parts of `tasks`; sizes differ by one at most.
pub fn part(tasks: u32, index: u32, parts: u32) -> (u32, u32) {
    let (each, rest) = (tasks / parts, tasks % parts);
    let begin = index * each + index.min(rest);
    (begin, begin + each + u32::from(index < rest))
}

/// Fewest tasks of a claim in a step of which so many are worth a thread.
pub fn grain(min_tasks_per_thread: u64) -> u32 {
    let grain = min_tasks_per_thread / GRAIN_FRACTION;
    u32::try_from(grain).unwrap_or(u32::MAX).max(1)
}

/// Tasks that a thread claims from the front of its range, of which `left` are left.
pub fn claimed(left: u32, grain: u32) -> u32 {
    (left / CLAIM_FRACTION).max(grain).min(left)
}

/// Tasks that a thread without any takes from the back of another's range: half of what is `left`, and
/// all of it where half is less than a claim.
pub fn stolen(left: u32, grain: u32) -> u32 {
    if left <= grain { left } else { left.div_ceil(2) }
}

/// The tasks that one thread of a step has not claimed yet. A cache line pair of its own, so that claims
/// of different threads do not disturb each other.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct TaskRange(AtomicU64);

/// Both ends in a word: the end above, the begin below.
fn pack(begin: u32, end: u32) -> u64 {
    u64::from(end) << 32 | u64::from(begin)
}

fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

// The seats' words order everything that tasks read and write, and the ranges' first values, between the
// caller and the workers. Ranges order nothing but themselves: relaxed accesses suffice.
impl TaskRange {
    /// Gives the range its tasks. Only where nobody can take from it: between steps, or by its thread
    /// while it is empty.
    pub(crate) fn fill(&self, (begin, end): (u32, u32)) {
        self.0.store(pack(begin, end), Ordering::Relaxed);
    }

    /// Whether no task is left.
    pub(crate) fn is_empty(&self) -> bool {
        let (begin, end) = unpack(self.0.load(Ordering::Relaxed));
        begin >= end
    }

    /// Takes tasks from the front, as [`claimed`] says; none where the range is empty.
    fn claim(&self, grain: u32) -> Option<(u32, u32)> {
        self.take(|begin, end| {
            let next = begin + claimed(end - begin, grain);
            ((begin, next), (next, end))
        })
    }

    /// Takes tasks from the back, as [`stolen`] says; none where the range is empty.
    fn steal(&self, grain: u32) -> Option<(u32, u32)> {
        self.take(|begin, end| {
            let cut = end - stolen(end - begin, grain);
            ((cut, end), (begin, cut))
        })
    }

    /// Divides a range that is not empty into what is taken and what is left.
    fn take(&self, divide: impl Fn(u32, u32) -> ((u32, u32), (u32, u32))) -> Option<(u32, u32)> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (begin, end) = unpack(word);
            if begin >= end {
                return None;
            }
            let (taken, (begin, end)) = divide(begin, end);
            let left = pack(begin, end);
            match self.0.compare_exchange_weak(word, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(now) => word = now,
            }
        }
    }
}

/// The next tasks for thread `index`: its own, or another's; none where no range has any left. Tasks
/// that another thread has claimed or is taking over are left to it.
pub(crate) fn next(ranges: &[TaskRange], index: usize, grain: u32) -> Option<(u32, u32)> {
    let (before, rest) = ranges.split_at_checked(index)?;
    let (range, after) = rest.split_first()?;
    if let Some(tasks) = range.claim(grain) {
        return Some(tasks);
    }
    let (begin, end) = after.iter().chain(before).find_map(|other| other.steal(grain))?;
    // Only what this thread does not begin at once can be taken over in turn: otherwise two threads could
    // take the last task from each other for ever.
    let next = begin + claimed(end - begin, grain);
    range.fill((next, end));
    Some((begin, next))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    fn ranges(tasks: u32, threads: u32) -> Vec<TaskRange> {
        let ranges: Vec<TaskRange> = (0..threads).map(|_| TaskRange::default()).collect();
        for (index, range) in ranges.iter().enumerate() {
            range.fill(part(tasks, index as u32, threads));
        }
        ranges
    }

    #[test]
    fn parts_are_contiguous_and_even() {
        for tasks in [0, 1, 2, 7, 64, u32::MAX] {
            for threads in [1, 2, 3, 64] {
                let parts: Vec<_> = (0..threads).map(|i| part(tasks, i, threads)).collect();
                assert_eq!((parts[0].0, parts[parts.len() - 1].1), (0, tasks));
                assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
                let sizes = || parts.iter().map(|(begin, end)| end - begin);
                assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            }
        }
    }

    /// Every thread but the caller is below exactly one other.
    #[test]
    fn the_threads_form_a_tree() {
        for threads in [1, 2, 5, 6, 12, 64, 256] {
            let all: Vec<u32> = (0..threads).flat_map(|index| below(index, threads)).collect();
            assert_eq!(all, (1..threads).collect::<Vec<_>>());
            assert!((0..threads).all(|index| below(index, threads).all(|below| below > index)));
        }
    }

    #[test]
    fn amounts_are_never_none_of_some_nor_more_than_is_left() {
        for grain in [1, 3, 100, u32::MAX] {
            for left in [1, 2, 3, 5, 99, 100, 101, 4096, u32::MAX] {
                for amount in [claimed(left, grain), stolen(left, grain)] {
                    assert!((1..=left).contains(&amount), "{amount} of {left}, grain {grain}");
                    assert!(amount >= grain.min(left) || amount >= left / 2);
                }
            }
        }
        assert_eq!(grain(0), 1);
        assert_eq!(grain(u64::MAX), u32::MAX);
    }

    /// One thread alone does what the others were given, its own tasks first and in order.
    #[test]
    fn a_thread_takes_over_all_that_nobody_else_does() {
        for grain in [1, 2, 7, 1000] {
            let ranges = ranges(100, 4);
            let mut seen = [0; 100];
            let mut order = Vec::new();
            while let Some((begin, end)) = next(&ranges, 1, grain) {
                order.push(begin);
                (begin..end).for_each(|task| seen[task as usize] += 1);
            }
            assert_eq!(seen, [1; 100], "grain {grain}");
            let front: Vec<u32> = order.iter().copied().filter(|b| (25..50).contains(b)).collect();
            assert_eq!(order[..front.len()], front, "its own part comes first");
            assert!(front.is_sorted());
        }
    }

    /// Threads of very different speed, so that they take from each other all the time and whole ranges
    /// move on more than once.
    #[test]
    fn every_task_is_claimed_once_while_threads_take_from_each_other() {
        const THREADS: u32 = 6;
        const TASKS: u32 = 5000;
        let counts: Vec<AtomicU32> = (0..TASKS).map(|_| AtomicU32::new(0)).collect();
        for round in 0..60u32 {
            let ranges = ranges(TASKS, THREADS);
            let start = Barrier::new(THREADS as usize);
            thread::scope(|scope| {
                for index in 0..THREADS as usize {
                    let (ranges, counts, start) = (&ranges, &counts, &start);
                    scope.spawn(move || {
                        start.wait();
                        while let Some((begin, end)) = next(ranges, index, 1 + round % 3) {
                            for task in begin..end {
                                counts[task as usize].fetch_add(1, Ordering::Relaxed);
                            }
                            if (index as u32 + round).is_multiple_of(3) {
                                thread::yield_now();
                            }
                        }
                    });
                }
            });
            let once = counts.iter().all(|count| count.swap(0, Ordering::Relaxed) == 1);
            assert!(once, "round {round}");
        }
    }

    /// All that two threads can do with one range, one after the other in every order: the words are the
    /// whole state, so this covers every interleaving of claims and steals.
    #[test]
    fn every_interleaving_of_claims_and_steals_covers_a_range_once() {
        fn explore(begin: u32, end: u32, taken: u32, grain: u32) {
            let range = TaskRange::default();
            for from_front in [true, false] {
                range.fill((begin, end));
                let got = if from_front { range.claim(grain) } else { range.steal(grain) };
                let Some((first, last)) = got else {
                    assert_eq!((begin, taken), (end, u32::MAX >> 20));
                    continue;
                };
                let mask = |tasks: std::ops::Range<u32>| tasks.fold(0u32, |m, t| m | 1 << t);
                assert_eq!(taken & mask(first..last), 0, "claimed twice");
                let (begin, end) = unpack(range.0.load(Ordering::Relaxed));
                explore(begin, end, taken | mask(first..last), grain);
            }
        }
        for grain in [1, 2, 5] {
            explore(0, 12, 0, grain);
        }
    }
}
