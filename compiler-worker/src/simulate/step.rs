//! One step on virtual threads: a discrete-event simulation of the runtime's claiming of tasks.
//!
//! The amounts that are claimed and taken over come from the functions that the runtime itself uses
//! (`hone_runtime::claim`). The thread that is first in virtual time acts first.

use hone_runtime::claim;

/// What threads do to each other, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// A thread's, to hand a step to one worker.
    pub post: f64,
    /// From handing over to the worker's first claim.
    pub start: f64,
    /// A thread's, to see that one worker is done.
    pub settle: f64,
    /// To claim tasks of the thread's own range, and to call the kernel.
    pub claim: f64,
    /// To look at another thread's range; taking from it costs as much again.
    pub look: f64,
}

impl Costs {
    /// Threads that cost nothing.
    pub const NONE: Self = Self { post: 0.0, start: 0.0, settle: 0.0, claim: 0.0, look: 0.0 };
}

/// How long each task of a step takes on one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTimes {
    tasks: u64,
    /// Nanoseconds before the start of each part and, at the end, of all.
    bounds: Vec<f64>,
}

impl TaskTimes {
    /// `tasks` tasks that were timed in contiguous parts: part `i` has the tasks `tasks * i / parts` to
    /// `tasks * (i + 1) / parts`. Tasks of one part are taken to be equal. The times are scaled so that
    /// they sum to `total` nanoseconds.
    pub fn new(tasks: u64, parts: &[f64], total: f64) -> Self {
        let sum: f64 = parts.iter().sum();
        let even = [1.0];
        let (parts, sum) = if sum > 0.0 { (parts, sum) } else { (&even[..], 1.0) };
        let mut bounds = vec![0.0];
        let mut before = 0.0;
        for part in parts {
            before += part;
            bounds.push(before * total / sum);
        }
        Self { tasks, bounds }
    }

    /// Number of tasks.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Nanoseconds of all tasks.
    pub fn total(&self) -> f64 {
        self.bounds.last().copied().unwrap_or(0.0)
    }

    /// Nanoseconds of the tasks `begin..end`.
    fn between(&self, begin: u32, end: u32) -> f64 {
        self.before(end) - self.before(begin)
    }

    /// Nanoseconds of all tasks before one, within its part in proportion.
    fn before(&self, task: u32) -> f64 {
        let parts = self.bounds.len() as u64 - 1;
        let task = u64::from(task);
        if self.tasks == 0 || task >= self.tasks {
            return if task == 0 { 0.0 } else { self.total() };
        }
        let begin = |part: u64| self.tasks * part / parts;
        // The last part that begins at or before the task.
        let mut part = (task * parts / self.tasks).min(parts - 1);
        while part + 1 < parts && begin(part + 1) <= task {
            part += 1;
        }
        let (first, last) = (begin(part), begin(part + 1));
        let (low, high) = (self.bounds[part as usize], self.bounds[part as usize + 1]);
        low + (high - low) * (task - first) as f64 / (last - first).max(1) as f64
    }
}

/// A virtual thread.
struct Thread {
    /// When it acts next.
    now: f64,
    /// Tasks that it has not claimed.
    range: (u32, u32),
    /// Whether it has found nothing to do.
    done: bool,
}

/// Nanoseconds until the caller sees the step done on `threads` threads.
pub fn simulate(times: &TaskTimes, threads: usize, grain: u32, costs: Costs) -> f64 {
    let tasks = u32::try_from(times.tasks()).unwrap_or(u32::MAX);
    if threads <= 1 {
        return times.total();
    }
    let starts = starts(threads as u32, costs);
    let part = |index: usize| claim::part(tasks, index as u32, threads as u32);
    let thread =
        |(index, now): (usize, &f64)| Thread { now: *now, range: part(index), done: false };
    let mut running: Vec<Thread> = starts.iter().enumerate().map(thread).collect();
    for (index, thread) in running.iter_mut().enumerate() {
        thread.now += costs.post * claim::below(index as u32, threads as u32).len() as f64;
    }
    while let Some(index) = first(&running) {
        act(&mut running, index, times, grain, costs);
    }
    end(&running, &starts, costs)
}

/// When each thread gets the step, handed down the runtime's tree.
fn starts(threads: u32, costs: Costs) -> Vec<f64> {
    let mut starts = vec![0.0; threads as usize];
    for index in 0..threads {
        for (place, below) in claim::below(index, threads).enumerate() {
            starts[below as usize] =
                starts[index as usize] + costs.post * (place + 1) as f64 + costs.start;
        }
    }
    starts
}

/// When the caller sees the step done, awaited up the tree.
fn end(running: &[Thread], starts: &[f64], costs: Costs) -> f64 {
    let mut ends: Vec<f64> = running.iter().map(|thread| thread.now).collect();
    for index in (0..running.len()).rev() {
        for below in claim::below(index as u32, running.len() as u32) {
            let below = below as usize;
            // A worker that has not begun when nothing is left is not waited for.
            let awaited = if starts[below] > ends[index] { 0.0 } else { ends[below] };
            ends[index] = ends[index].max(awaited) + costs.settle;
        }
    }
    ends.first().copied().unwrap_or(0.0)
}

/// The thread that acts next: the first in time.
fn first(running: &[Thread]) -> Option<usize> {
    let active = running.iter().enumerate().filter(|(_, thread)| !thread.done);
    active.min_by(|(_, a), (_, b)| a.now.total_cmp(&b.now)).map(|(index, _)| index)
}

/// One claim of a thread, after it has taken over tasks where it had none.
fn act(running: &mut [Thread], index: usize, times: &TaskTimes, grain: u32, costs: Costs) {
    let threads = running.len();
    for distance in 0..threads {
        let victim = (index + distance) % threads;
        running[index].now += if distance > 0 { costs.look } else { 0.0 };
        let (begin, end) = running[victim].range;
        if begin < end {
            if distance > 0 {
                let cut = end - claim::stolen(end - begin, grain);
                running[victim].range = (begin, cut);
                running[index].range = (cut, end);
                running[index].now += costs.look;
            }
            let (begin, end) = running[index].range;
            let next = begin + claim::claimed(end - begin, grain);
            running[index].range = (next, end);
            running[index].now += costs.claim + times.between(begin, next);
            return;
        }
    }
    running[index].done = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(tasks: u64, each: f64) -> TaskTimes {
        TaskTimes::new(tasks, &[1.0], tasks as f64 * each)
    }

    #[test]
    fn equal_tasks_take_their_part_of_the_time() {
        for threads in [1, 2, 4, 64] {
            let time = simulate(&equal(256, 1000.0), threads, 1, Costs::NONE);
            assert_eq!(time, 256_000.0 / threads as f64, "{threads} threads");
        }
    }

    #[test]
    fn tasks_that_do_not_divide_cost_one_task_more() {
        let time = simulate(&equal(16, 1000.0), 24, 1, Costs::NONE);
        assert_eq!(time, 1000.0);
        let time = simulate(&equal(65, 1000.0), 64, 1, Costs::NONE);
        assert_eq!(time, 2000.0);
    }

    /// All the work is in the second half: the first thread takes over half of it.
    #[test]
    fn unequal_tasks_are_taken_over() {
        let parts: Vec<f64> = (0..100).map(|i| if i < 50 { 1.0 } else { 99.0 }).collect();
        let times = TaskTimes::new(100, &parts, 100_000.0);
        let time = simulate(&times, 2, 1, Costs::NONE);
        assert!((50_000.0..=54_000.0).contains(&time), "{time}");
    }

    #[test]
    fn a_step_takes_at_least_its_longest_task_and_what_threads_cost() {
        let times = TaskTimes::new(4, &[1.0, 1.0, 7.0, 1.0], 10_000.0);
        assert_eq!(simulate(&times, 4, 1, Costs::NONE), 7000.0);
        let costs = Costs { post: 100.0, start: 50.0, settle: 10.0, claim: 5.0, look: 20.0 };
        let time = simulate(&equal(2, 1000.0), 2, 1, costs);
        // Caller: post, claim, task. Worker: start of its task 50 later.
        assert!(time >= 100.0 + 50.0 + 1000.0 + 10.0, "{time}");
        assert!(time <= 100.0 + 50.0 + 1000.0 + 10.0 + 5.0 + 2.0 * 20.0, "{time}");
    }

    /// Threads that look for tasks at the same time do not take the last ones from each other for ever.
    #[test]
    fn every_simulation_ends() {
        let costs = Costs { post: 60.0, start: 100.0, settle: 40.0, claim: 20.0, look: 50.0 };
        for threads in 2..70 {
            for tasks in [1, 2, 3, 16, 63, 65, 1000] {
                let each = 37.0 * (1 + threads % 5) as f64;
                let time = simulate(&equal(tasks, each), threads, 1, costs);
                assert!(time >= each && time <= tasks as f64 * (each + 20.0) + 1e5, "{time}");
            }
        }
    }

    #[test]
    fn a_late_worker_is_not_waited_for() {
        let costs = Costs { start: 1e9, ..Costs::NONE };
        assert_eq!(simulate(&equal(8, 1000.0), 2, 1, costs), 8000.0);
    }

    #[test]
    fn times_between_tasks_follow_the_parts() {
        let times = TaskTimes::new(10, &[1.0, 3.0], 40.0);
        assert_eq!(times.between(0, 5), 10.0);
        assert_eq!(times.between(5, 10), 30.0);
        assert_eq!(times.between(4, 6), 8.0);
        // More parts than tasks: some parts have none.
        let times = TaskTimes::new(2, &[0.0, 1.0, 0.0, 3.0], 40.0);
        assert_eq!((times.between(0, 1), times.between(1, 2)), (10.0, 30.0));
    }
}
