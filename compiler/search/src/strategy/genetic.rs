//! A genetic algorithm on measured trials alone: the fastest ones are crossed and mutated.

use super::{Strategy, Task};
use crate::Random;
use crate::candidate::{Candidate, fresh};

pub(super) struct Genetic;

/// Parents.
const ELITE: usize = 8;
/// Children for each candidate that is requested.
const TRIES: usize = 20;

impl Strategy for Genetic {
    fn propose(&mut self, task: &Task<'_>, count: usize, random: &mut Random) -> Vec<Candidate> {
        let parents = task.fastest(ELITE);
        let mut known = task.known.clone();
        let mut found = Vec::new();
        for _ in 0..count * TRIES {
            if found.len() == count {
                break;
            }
            let child = match (random.pick(&parents), random.below(8)) {
                (None, _) | (_, 0) => task.space.random(random),
                (Some(parent), number) if number < 4 => {
                    task.space.mutation(&parent.candidate, random)
                }
                (Some(one), _) => random.pick(&parents).and_then(|other| {
                    let child = task.space.crossover(&one.candidate, &other.candidate, random)?;
                    task.space.mutation(&child, random)
                }),
            };
            found.extend(fresh(child, &mut known));
        }
        found
    }
}
