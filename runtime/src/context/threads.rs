//! How many of its threads a plan's runs use: as many as it may, or fewer where runs on fewer are faster.
//!
//! What a second thread costs is not known before: where every step reads what both threads wrote before it, that depends on how fast
//! lines move between the two cores, which differs from machine to machine, and on a virtual one from hour to hour. So
//! short runs are timed: some on all threads, then some on half as many, and so on while that is faster. The number with
//! the least median is kept for some thousand runs and is looked for again then. Runs that take long are left on all
//! threads. The answers are the same bytes in any case: tasks are independent of each other.

use std::time::Duration;

/// Runs on one number of threads that are timed. The median of so many stands two that were disturbed.
const TIMED: usize = 5;

/// Runs on a number of threads before those that are timed: they wake workers, and move lines to where they are read.
const UNTIMED: usize = 2;

/// Runs until numbers of threads are compared again. The comparison is a hundredth of them.
const KEPT: u32 = 1_500;

/// Runs that take longer stay on all threads: what threads cost each other is a small part of them.
const LONGEST: Duration = Duration::from_millis(10);

/// By how much, in hundredths, fewer threads must be faster to be taken.
const GAIN: u64 = 5;

/// See the module's documentation. Nothing of it allocates.
#[derive(Debug)]
pub(super) struct Threads {
    /// Most threads that any step is worth and the model may use.
    most: usize,
    /// The size that the runs are of; another one begins anew.
    size: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Runs on `threads` are timed; so many have been, with those that do not count.
    Comparing { threads: usize, runs: usize, times: [u64; TIMED], best: Option<(usize, u64)> },
    /// So many more runs use this number of threads.
    Kept { threads: usize, runs: u32 },
    /// All runs use all threads.
    All,
}

impl State {
    fn comparing(threads: usize, best: Option<(usize, u64)>) -> Self {
        Self::Comparing { threads, runs: 0, times: [0; TIMED], best }
    }
}

impl Threads {
    /// For runs on `most` threads at most.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = if most > 1 { State::comparing(most, None) } else { State::All };
        Self { most, size: 0, state }
    }

    /// Threads that the next run uses.
    pub(super) fn chosen(&self) -> usize {
        match self.state {
            State::Comparing { threads, .. } | State::Kept { threads, .. } => threads,
            State::All => self.most,
        }
    }

    /// Begins a run at a size; whether it is to be timed. Runs at different sizes are not compared.
    pub(super) fn begin(&mut self, size: u64) -> bool {
        if self.size != size {
            *self = Self { size, ..Self::new(self.most) };
        }
        if let State::Kept { runs, .. } = &mut self.state {
            match runs.checked_sub(1) {
                Some(left) => *runs = left,
                None => self.state = State::comparing(self.most, None),
            }
        }
        matches!(self.state, State::Comparing { .. })
    }

    /// Ends a run that was to be timed.
    pub(super) fn note(&mut self, time: Duration) {
        let State::Comparing { threads, runs, times, best } = &mut self.state else { return };
        let (threads, best) = (*threads, *best);
        *runs += 1;
        if let Some(index) = runs.checked_sub(UNTIMED + 1) {
            times[index] = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        }
        if *runs < UNTIMED + TIMED {
            return;
        }
        times.sort_unstable();
        let median = times[TIMED / 2];
        self.state = match best {
            Some((more, before)) if before <= median.saturating_add(median / 100 * GAIN) => {
                State::Kept { threads: more, runs: KEPT }
            }
            None if Duration::from_nanos(median) > LONGEST => State::All,
            _ if threads == 1 => State::Kept { threads, runs: KEPT },
            _ => State::comparing(threads / 2, Some((threads, median))),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many runs, each of which takes what `time` says of its threads in microseconds; how many used each
    /// number of them.
    fn runs(own: &mut Threads, count: usize, time: impl Fn(usize) -> u64) -> [usize; 9] {
        let mut used = [0; 9];
        for _ in 0..count {
            let timed = own.begin(own.size);
            used[own.chosen()] += 1;
            if timed {
                own.note(Duration::from_micros(time(own.chosen())));
            }
        }
        used
    }

    const COMPARED: usize = UNTIMED + TIMED;

    #[test]
    fn all_threads_are_used_where_they_are_faster_or_as_fast() {
        for one in [1000, 101, 100, 96] {
            let mut own = Threads::new(2);
            let used = runs(&mut own, 1000, |threads| if threads == 1 { one } else { 100 });
            assert_eq!((used[1], used[2]), (COMPARED, 1000 - COMPARED), "{one}");
        }
    }

    #[test]
    fn fewer_are_used_where_they_are_faster_until_that_changes() {
        let mut own = Threads::new(8);
        let used = runs(&mut own, 1000, |threads| [0, 90, 60, 0, 50, 0, 0, 0, 99][threads]);
        assert_eq!((used[8], used[2], used[1]), (COMPARED, COMPARED, 0));
        assert_eq!(own.chosen(), 4);
        // From now on one thread alone is fast.
        runs(&mut own, 2 * KEPT as usize, |threads| 10 * threads as u64);
        assert_eq!(own.chosen(), 1);
    }

    #[test]
    fn long_runs_stay_on_all_threads() {
        let mut own = Threads::new(4);
        let used = runs(&mut own, 100, |threads| 11_000 * threads as u64);
        assert_eq!(used[4], 100);
    }

    #[test]
    fn runs_at_other_sizes_are_not_compared() {
        let mut own = Threads::new(2);
        for size in 0..100 {
            assert!(own.begin(size % 3));
            assert_eq!(own.chosen(), 2);
            own.note(Duration::from_micros(100));
        }
    }

    #[test]
    fn one_thread_is_never_timed() {
        assert!(!Threads::new(1).begin(0));
        assert!(!Threads::new(0).begin(0));
    }

    #[test]
    fn two_disturbed_runs_do_not_decide() {
        let mut own = Threads::new(2);
        for run in 0..COMPARED {
            assert!(own.begin(0));
            own.note(Duration::from_micros(if run % 3 == 2 { 5000 } else { 50 }));
        }
        runs(&mut own, COMPARED, |_| 80);
        assert_eq!(own.chosen(), 2);
    }
}
