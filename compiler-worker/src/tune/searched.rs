//! A program of a network while it is searched for faster schedules.

use std::collections::HashSet;

use hone_driver::{Prescription, TuningTask};
use hone_machine::Machine;
use hone_search::{Candidate, CostModel, Progress, Random, Space, Strategy, Task, Trial};

use super::outcome::TaskOutcome;
use super::protocol::Measured;

/// A program and everything that is known of it.
pub(super) struct Searched {
    pub(super) task: TuningTask,
    /// What is known of the target.
    pub(super) machine: Machine,
    pub(super) space: Space,
    pub(super) strategy: Box<dyn Strategy>,
    pub(super) trials: Vec<Trial>,
    pub(super) known: HashSet<[u8; 32]>,
    pub(super) progress: Progress,
    pub(super) text: String,
    /// What other compilers chose for an equal computation, and what was fastest in records of others.
    pub(super) starts: Vec<Candidate>,
}

impl Searched {
    pub(super) fn best(&self) -> Option<&Trial> {
        self.trials.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Takes up a trial. Gives by how many nanoseconds it shortens the run that is expected.
    pub(super) fn add(&mut self, candidate: Candidate, ratio: f64) -> f64 {
        let before = self.best_ratio();
        self.known.insert(candidate.identity);
        self.trials.push(Trial { candidate, ratio });
        self.progress.trials = self.trials.len() - 1;
        self.progress.weight * (before - self.best_ratio())
    }

    /// Time of the best schedule over that without tuning.
    fn best_ratio(&self) -> f64 {
        self.best().map_or(1.0, |own| own.ratio.min(1.0))
    }

    /// Time of a recorded schedule over that without tuning, as far as it was measured here; 1 for none.
    pub(super) fn ratio_of(&self, recorded: Option<&Prescription>) -> f64 {
        let known = recorded.and_then(|used| {
            let used = self.space.with_choices(&used.template, &used.choices).ok()?;
            self.trials.iter().find(|own| own.candidate.identity == used.identity)
        });
        known.map_or(1.0, |own| own.ratio.min(1.0))
    }

    /// A round is over.
    pub(super) fn close_round(&mut self) {
        self.progress.best.push(self.best_ratio());
    }
}

/// Candidates of the next round: `seeds` first, then what the strategy proposes.
pub(super) fn propose(
    own: &mut Searched,
    model: &dyn CostModel,
    seeds: Vec<Candidate>,
    count: usize,
    random: &mut Random,
) -> Vec<Candidate> {
    let mut known = own.known.clone();
    let mut proposed: Vec<Candidate> =
        seeds.into_iter().filter(|seed| known.insert(seed.identity)).take(count).collect();
    let task = Task { space: &own.space, trials: &own.trials, known: &known, model };
    let more = own.strategy.propose(&task, count - proposed.len(), random);
    proposed.extend(more);
    proposed
}

/// Median width of the candidates' confidence intervals, as a share of the ratio.
pub(super) fn spread(measured: &[Measured]) -> f64 {
    let ratios = measured.iter().filter_map(|own| own.ratio);
    let mut widths: Vec<f64> = ratios.map(|(ratio, low, high)| (high - low) / ratio).collect();
    widths.sort_unstable_by(f64::total_cmp);
    widths.get(widths.len() / 2).copied().unwrap_or_default()
}

pub(super) fn prescription(candidate: &Candidate) -> Prescription {
    Prescription { template: candidate.template.clone(), choices: candidate.choices() }
}

/// Nanoseconds that a run is expected to take with the best candidates.
pub(super) fn expected(searched: &[Searched]) -> f64 {
    let of = |own: &Searched| own.progress.weight * own.best_ratio();
    searched.iter().map(of).sum()
}

pub(super) fn task_outcome(own: &Searched) -> TaskOutcome {
    let best = own.best();
    TaskOutcome {
        nodes: own.task.nodes.clone(),
        program: own.task.digest.clone(),
        uses: own.task.uses,
        nanoseconds: own.progress.weight,
        trials: own.progress.trials,
        best: best.map_or(1.0, |own| own.ratio),
        template: best.map_or(String::new(), |own| own.candidate.template.clone()),
        won: false,
    }
}
