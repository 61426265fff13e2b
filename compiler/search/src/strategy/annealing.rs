//! Simulated annealing on the cost model's scores, as AutoTVM does it: several walks through neighbours, a
//! step that is worse is taken the more seldom the longer the walk lasts.

use super::{Strategy, Task};
use crate::Random;
use crate::candidate::{Candidate, fresh};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Annealing {
    /// Where the walks ended.
    walkers: Vec<Candidate>,
}

/// Walks.
const WALKERS: usize = 12;
/// Steps of a walk in a round.
const STEPS: usize = 24;

impl Strategy for Annealing {
    fn propose(&mut self, task: &Task<'_>, count: usize, random: &mut Random) -> Vec<Candidate> {
        if self.walkers.is_empty() {
            self.walkers.extend(task.space.untuned().ok());
            let others = (0..4 * WALKERS).filter_map(|_| task.space.random(random));
            self.walkers.extend(others.take(WALKERS - 1));
        }
        let mut seen: HashMap<[u8; 32], (f64, Candidate)> = HashMap::new();
        for walker in &mut self.walkers {
            let mut score = task.model.score(&walker.features);
            for step in 0..STEPS {
                let temperature = 1.0 - step as f64 / STEPS as f64;
                let Some(next) = task.space.mutation(walker, random) else { continue };
                let other = task.model.score(&next.features);
                seen.insert(next.identity, (other, next.clone()));
                if other >= score || random.unit() < ((other - score) / temperature).exp() {
                    (*walker, score) = (next, other);
                }
            }
        }
        let mut found: Vec<(f64, Candidate)> = seen.into_values().collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.identity.cmp(&b.1.identity)));
        let mut known = task.known.clone();
        let mut found = fresh(found.into_iter().map(|(_, candidate)| candidate), &mut known);
        found.truncate(count);
        found
    }
}
