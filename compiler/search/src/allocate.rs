//! Which task gets the next trials: the one whose gain in the whole network is expected to be the largest,
//! by the gradient of the network's time (L. Zheng and others, "Ansor", 2020, section 6).

/// How far a task is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Nanoseconds of a network's run that the untuned schedule of the task takes in all its uses.
    pub weight: f64,
    /// Time of the best candidate over the untuned one's after each round.
    pub best: Vec<f64>,
    /// Trials so far.
    pub trials: usize,
    /// Whether no strategy knows a candidate that is new.
    pub exhausted: bool,
}

/// Chooses tasks. Equal progress gives equal choices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// Fraction of a task's time that a first round is expected to gain.
const FIRST_GAIN: f64 = 0.10;
/// Rounds that the slope of the past is taken over.
const WINDOW: usize = 3;
/// Fraction of the expected gain that comes from the past; the rest comes from how few trials there were.
const PAST: f64 = 0.3;

impl Allocator {
    /// The task to try next; `None` where the best expected gain of a round is below `minimum` nanoseconds of
    /// the network's time, or nothing is left to try.
    pub fn next(&self, tasks: &[Progress], minimum: f64) -> Option<usize> {
        let gains = tasks.iter().map(expected_gain);
        let best = gains.enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        (best.1 > minimum).then_some(best.0)
    }
}

/// Nanoseconds of the network's time that one more round of a task is expected to gain.
pub(crate) fn expected_gain(task: &Progress) -> f64 {
    if task.exhausted {
        return 0.0;
    }
    let rounds = task.best.len();
    let Some(now) = task.best.last() else { return task.weight * FIRST_GAIN };
    let before = task.best[rounds.saturating_sub(WINDOW + 1)];
    let slope = (before - now).max(0.0) / rounds.min(WINDOW) as f64;
    // Without a gain in the past, rounds are worth less the more there were.
    let ahead = FIRST_GAIN * now / (rounds * rounds) as f64;
    task.weight * (PAST * slope + (1.0 - PAST) * ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(weight: f64, best: &[f64]) -> Progress {
        Progress { weight, best: best.to_vec(), trials: 8 * best.len(), exhausted: false }
    }

    #[test]
    fn heavy_tasks_come_first_and_then_those_that_still_gain() {
        let next = |tasks: &[Progress]| Allocator.next(tasks, 0.0);
        assert_eq!(next(&[task(1.0, &[]), task(5.0, &[])]), Some(1));
        assert_eq!(next(&[task(4.0, &[]), task(5.0, &[1.0, 1.0, 1.0])]), Some(0));
        let gaining = task(1.0, &[1.0, 0.9, 0.8]);
        let stuck = task(1.0, &[0.8, 0.8, 0.8]);
        assert_eq!(next(&[stuck, gaining]), Some(1));
    }

    #[test]
    fn small_gains_end_the_search() {
        let tasks = [task(100.0, &[1.0; 30]), Progress { exhausted: true, ..task(9e9, &[]) }];
        assert_eq!(Allocator.next(&tasks, 0.1), None);
        assert_eq!(Allocator.next(&tasks, 0.0), Some(0));
        assert_eq!(Allocator.next(&[], 0.0), None);
    }
}
