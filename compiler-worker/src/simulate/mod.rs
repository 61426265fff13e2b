//! What an artifact's run would take on other numbers of threads than were measured: a simulation from
//! times on one thread. It is no measurement, and everything it shows says so.
//!
//! Measured: the time of each step on one thread, and how that is spread over its tasks. Simulated: how
//! the runtime divides the tasks ([`step`]). Assumed: what threads cost each other, and the bandwidth of
//! memory that they have in common. Left out: clocks that fall when many cores work, caches that are
//! shared or grow with the number of cores, more than one memory node.

mod step;

use serde::Serialize;

pub use step::{Costs, TaskTimes};

/// What the simulation takes for granted of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assumptions {
    /// What threads cost each other, in nanoseconds.
    pub costs: Costs,
    /// Bytes that all threads together move to and from memory in a nanosecond.
    pub bytes_per_nanosecond: f64,
}

/// A step as it was measured on one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    /// Of its tasks.
    pub times: TaskTimes,
    /// Fewest tasks worth a thread.
    pub min_tasks_per_thread: u64,
    /// Distinct bytes that it reads and writes.
    pub bytes: u64,
}

/// Nanoseconds beyond an even division of the work, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// Steps on one thread: of one task, or not worth a second thread.
    pub serial: f64,
    /// Steps that are worth some threads, but not all.
    pub too_few_tasks: f64,
    /// Threads without work while others finish theirs.
    pub tail: f64,
    /// Handing over, claiming and awaiting.
    pub threads: f64,
    /// Waiting for memory that all threads share.
    pub bandwidth: f64,
}

impl Lost {
    /// Names for tables, and the values.
    pub fn causes(&self) -> [(&'static str, f64); 5] {
        [
            ("serial steps", self.serial),
            ("too few tasks", self.too_few_tasks),
            ("tail", self.tail),
            ("hand-over", self.threads),
            ("bandwidth", self.bandwidth),
        ]
    }

    fn total(&self) -> f64 {
        self.causes().iter().map(|(_, lost)| lost).sum()
    }

    fn add(&mut self, other: &Self) {
        self.serial += other.serial;
        self.too_few_tasks += other.too_few_tasks;
        self.tail += other.tail;
        self.threads += other.threads;
        self.bandwidth += other.bandwidth;
    }
}

/// One number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prediction {
    /// Threads.
    pub threads: usize,
    /// Predicted time of a run in nanoseconds.
    pub nanoseconds: f64,
    /// The time on one thread over this one.
    pub speed_up: f64,
    /// Where the rest of the threads' time goes, summed over the steps.
    pub lost: Lost,
    /// Predicted nanoseconds of each step.
    pub steps: Vec<f64>,
    /// What each step loses, in nanoseconds.
    pub steps_lost: Vec<f64>,
}

/// A run of `steps` on `threads` threads.
pub fn predict(steps: &[StepTimes], threads: usize, assumptions: &Assumptions) -> Prediction {
    let threads = threads.max(1);
    let mut lost = Lost::default();
    let (mut times, mut steps_lost) = (Vec::new(), Vec::new());
    for step in steps {
        let (time, own) = predict_step(step, threads, assumptions);
        times.push(time);
        steps_lost.push(own.total());
        lost.add(&own);
    }
    let nanoseconds: f64 = times.iter().sum();
    let single: f64 = steps.iter().map(|step| step.times.total()).sum();
    let speed_up = if nanoseconds > 0.0 { single / nanoseconds } else { 1.0 };
    Prediction { threads, nanoseconds, speed_up, lost, steps: times, steps_lost }
}

/// The step's time, and what of it is beyond an even division over `threads`.
fn predict_step(step: &StepTimes, threads: usize, assumptions: &Assumptions) -> (f64, Lost) {
    let StepTimes { times, min_tasks_per_thread: least, bytes } = step;
    let worth = (times.tasks() / least.max(&1)).clamp(1, threads as u64) as usize;
    let grain = hone_runtime::claim::grain(*least);
    let (even, divided) = (times.total() / threads as f64, times.total() / worth as f64);
    let free = step::simulate(times, worth, grain, Costs::NONE);
    let costly = step::simulate(times, worth, grain, assumptions.costs);
    // One thread was measured with the memory it has.
    let memory = if worth > 1 { *bytes as f64 / assumptions.bytes_per_nanosecond } else { 0.0 };
    let time = costly.max(memory.min(times.total()));
    let few = divided - even;
    let lost = Lost {
        serial: if worth == 1 { few } else { 0.0 },
        too_few_tasks: if worth == 1 { 0.0 } else { few },
        tail: free - divided,
        threads: costly - free,
        bandwidth: time - costly,
    };
    (time, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUMPTIONS: Assumptions = Assumptions {
        costs: Costs { post: 60.0, start: 100.0, settle: 40.0, claim: 20.0, look: 50.0 },
        bytes_per_nanosecond: 100.0,
    };

    fn step(tasks: u64, total: f64, least: u64, bytes: u64) -> StepTimes {
        let times = TaskTimes::new(tasks, &[1.0], total);
        StepTimes { times, min_tasks_per_thread: least, bytes }
    }

    /// 1 ms that divides, 0.1 ms that does not, and 10 µs of too little work.
    fn table() -> Vec<StepTimes> {
        vec![step(256, 1e6, 1, 0), step(1, 1e5, 1, 0), step(64, 1e4, 64, 0)]
    }

    #[test]
    fn one_thread_takes_what_was_measured() {
        let one = predict(&table(), 1, &ASSUMPTIONS);
        assert_eq!((one.nanoseconds, one.speed_up, one.lost), (1.11e6, 1.0, Lost::default()));
    }

    #[test]
    fn two_threads_halve_what_divides() {
        let two = predict(&table(), 2, &ASSUMPTIONS);
        assert!((610_000.0..611_500.0).contains(&two.nanoseconds), "{two:?}");
        assert_eq!(two.lost.serial, 55_000.0);
        assert_eq!(two.lost.too_few_tasks, 0.0);
        assert!(two.lost.threads > 0.0 && two.lost.threads < 1000.0);
    }

    #[test]
    fn every_nanosecond_is_accounted_for() {
        for threads in [1, 2, 3, 7, 24, 64] {
            let table = [table(), vec![step(10, 1e6, 1, 1 << 20), step(999, 1e7, 5, 1 << 29)]];
            let run = predict(&table.concat(), threads, &ASSUMPTIONS);
            let single: f64 = table.concat().iter().map(|step| step.times.total()).sum();
            let sum = single / threads as f64 + run.lost.total();
            assert!((sum - run.nanoseconds).abs() < 1e-6 * single, "{threads}: {run:?}");
            // Costs move the moments of claims, which can by chance fall better.
            let gain = -0.01 * run.nanoseconds;
            assert!(run.lost.causes().iter().all(|(_, lost)| *lost >= gain), "{run:?}");
        }
    }

    #[test]
    fn memory_that_all_share_bounds_a_step() {
        let table = [step(256, 1e6, 1, 50_000_000)];
        let run = predict(&table, 64, &ASSUMPTIONS);
        assert_eq!(run.nanoseconds, 5e5);
        assert!(run.lost.bandwidth > 4e5);
    }

    #[test]
    fn few_tasks_leave_threads_idle() {
        let run = predict(&[step(16, 1.6e6, 1, 0)], 64, &ASSUMPTIONS);
        assert!(run.nanoseconds >= 1e5 && run.speed_up <= 16.0);
        assert!((run.lost.too_few_tasks - 75_000.0).abs() < 1.0, "{run:?}");
    }
}
