//! Random search: every decision is drawn uniformly.

use super::{Strategy, Task};
use crate::Random;
use crate::candidate::{Candidate, fresh};

pub(super) struct RandomSearch;

/// Draws for each candidate that is requested; a small space runs out.
const DRAWS: usize = 20;

impl Strategy for RandomSearch {
    fn propose(&mut self, task: &Task<'_>, count: usize, random: &mut Random) -> Vec<Candidate> {
        let mut known = task.known.clone();
        let mut found = Vec::new();
        for _ in 0..count * DRAWS {
            found.extend(fresh(task.space.random(random), &mut known));
            if found.len() == count {
                break;
            }
        }
        found
    }
}
