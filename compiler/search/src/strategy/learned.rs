//! Evolution judged by the cost model: many generations are bred from the fastest trials and from random
//! candidates, the model picks whom to keep, and only the best of all are measured. Some of what is measured
//! is random (ε-greedy), and once trials are many, single decisions of the fastest are tried out
//! (coordinate descent).

use super::{Strategy, Task};
use crate::Random;
use crate::candidate::{Candidate, fresh};
use std::collections::HashSet;

pub(super) struct Evolution;

/// Candidates of a generation, at least; as many as are proposed where these are more.
const POPULATION: usize = 48;
/// Generations of a round.
const GENERATIONS: usize = 3;
/// Measured trials among the parents.
const ELITE: usize = 12;
/// One of so many proposals is random.
const EXPLORE: usize = 8;
/// Trials of a task after which neighbours of the fastest are proposed, too.
const DESCEND: usize = 24;

impl Strategy for Evolution {
    fn propose(&mut self, task: &Task<'_>, count: usize, random: &mut Random) -> Vec<Candidate> {
        let mut known = task.known.clone();
        let explored = (count / EXPLORE).max(1).min(count);
        let mut found = best_of(
            task,
            self.bred(task, POPULATION.max(count), random),
            &mut known,
            count - explored,
        );
        for _ in 0..10 * explored {
            if found.len() >= count {
                break;
            }
            found.extend(fresh(task.space.random(random), &mut known));
        }
        found
    }
}

impl Evolution {
    /// All candidates of some generations of `population` candidates.
    fn bred(&self, task: &Task<'_>, population: usize, random: &mut Random) -> Vec<Candidate> {
        let space = task.space;
        let mut parents: Vec<Candidate> =
            task.fastest(ELITE).into_iter().map(|trial| trial.candidate.clone()).collect();
        let mut all = Vec::new();
        if let Some(first) = parents.first().filter(|_| task.trials.len() >= DESCEND) {
            all.extend(space.neighbours(first));
        }
        let fill = population.saturating_sub(2 * parents.len()) / 2;
        parents.extend((0..fill).filter_map(|_| space.random(random)));
        for _ in 0..GENERATIONS {
            let mut children = Vec::with_capacity(population);
            for _ in 0..population {
                let (Some(one), Some(other)) = (random.pick(&parents), random.pick(&parents))
                else {
                    return all;
                };
                children.extend(match random.below(3) {
                    0 => space
                        .crossover(one, other, random)
                        .and_then(|child| space.mutation(&child, random)),
                    _ => space.mutation(one, random),
                });
            }
            all.extend(parents.iter().cloned());
            all.extend(children.iter().cloned());
            parents.extend(children);
            let mut kept = HashSet::new();
            parents = best_of(task, parents, &mut kept, population / 2);
        }
        all
    }
}

/// The `count` candidates with the highest scores that are not known yet.
fn best_of(
    task: &Task<'_>,
    candidates: Vec<Candidate>,
    known: &mut HashSet<[u8; 32]>,
    count: usize,
) -> Vec<Candidate> {
    let mut scored: Vec<(f64, Candidate)> = candidates
        .into_iter()
        .map(|candidate| (task.model.score(&candidate.features), candidate))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.identity.cmp(&b.1.identity)));
    let mut found = Vec::with_capacity(count);
    for (_, candidate) in scored {
        if found.len() == count {
            break;
        }
        if known.insert(candidate.identity) {
            found.push(candidate);
        }
    }
    found
}
