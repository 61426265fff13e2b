//! Strategies: which candidates of a task to measure next. A new one is a file here and a line in the list.

mod annealing;
mod genetic;
mod grid;
mod learned;
mod random;

use crate::Random;
use crate::candidate::{Candidate, Space, Trial};
use crate::model::CostModel;
use std::collections::HashSet;

/// Proposes candidates.
pub trait Strategy {
    /// Up to `count` candidates that are not among `known`, most promising first; fewer where it knows no
    /// more. `trials` are those of the task so far, the untuned schedule among them.
    fn propose(&mut self, task: &Task<'_>, count: usize, random: &mut Random) -> Vec<Candidate>;
}

/// What a strategy proposes from.
pub struct Task<'a> {
    /// The task's candidates.
    pub space: &'a Space,
    /// Its trials so far.
    pub trials: &'a [Trial],
    /// Identities of what was proposed before.
    pub known: &'a HashSet<[u8; 32]>,
    /// The cost model, as far as it has learned.
    pub model: &'a dyn CostModel,
}

impl Task<'_> {
    /// The trials from the fastest on, failed ones left out.
    fn fastest(&self, count: usize) -> Vec<&Trial> {
        let mut sorted: Vec<&Trial> =
            self.trials.iter().filter(|trial| trial.ratio.is_finite()).collect();
        sorted.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        sorted.truncate(count);
        sorted
    }
}

type Make = fn() -> Box<dyn Strategy>;

/// The strategies by name, the best first.
pub const STRATEGIES: [(&str, Make); 5] = [
    ("learned", || Box::new(learned::Evolution)),
    ("genetic", || Box::new(genetic::Genetic)),
    ("annealing", || Box::new(annealing::Annealing::default())),
    ("random", || Box::new(random::RandomSearch)),
    ("grid", || Box::new(grid::Grid::default())),
];

/// The strategy of a name.
pub fn strategy(name: &str) -> Option<Box<dyn Strategy>> {
    STRATEGIES.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}
