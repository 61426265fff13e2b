//! Grid search: all combinations of decisions in order, the last decision changing fastest.

use super::{Strategy, Task};
use crate::Random;
use crate::candidate::{Candidate, fresh};

#[derive(Default)]
pub(super) struct Grid {
    /// The combination to try next, as a number whose digits are the decisions.
    next: usize,
}

/// Combinations tried for each candidate that is requested: many give one schedule.
const TRIES: usize = 50;

impl Strategy for Grid {
    fn propose(&mut self, task: &Task<'_>, count: usize, _: &mut Random) -> Vec<Candidate> {
        let Ok(untuned) = task.space.untuned() else { return Vec::new() };
        let mut known = task.known.clone();
        let mut found = Vec::new();
        for _ in 0..count * TRIES {
            let mut rest = self.next;
            self.next += 1;
            let mut choices = untuned.choices();
            for (choice, decision) in choices.iter_mut().zip(&untuned.decisions).rev() {
                let count = decision.candidates.len();
                choice.1 = decision.candidates[rest % count];
                rest /= count;
            }
            if rest > 0 {
                break;
            }
            let candidate = task.space.with_choices(&untuned.template, &choices);
            found.extend(fresh(candidate.ok(), &mut known));
            if found.len() == count {
                break;
            }
        }
        found
    }
}
