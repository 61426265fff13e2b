//! A program of a network while it is searched for faster schedules.

use std::collections::HashSet;

use hone_driver::{Choice, Prescription, TuningTask};
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
    /// The fastest of them, by its index.
    fastest: Option<usize>,
    pub(super) known: HashSet<[u8; 32]>,
    /// Choices of trials in records that are not among `trials`: no candidate has them again.
    passed_over: HashSet<[u8; 32]>,
    pub(super) progress: Progress,
    pub(super) text: String,
    /// What other compilers chose for an equal computation, and what was fastest in records of others.
    pub(super) starts: Vec<Candidate>,
}

impl Searched {
    /// A program whose network takes `weight` nanoseconds for it without tuning, with that schedule as its first trial.
    pub(super) fn new(
        task: TuningTask,
        (space, machine): (Space, Machine),
        strategy: Box<dyn Strategy>,
        weight: f64,
        untuned: Candidate,
    ) -> Self {
        let progress = Progress { weight, best: Vec::new(), trials: 0, exhausted: false };
        let mut own = Self {
            text: task.program.to_string(),
            task,
            machine,
            space,
            strategy,
            trials: Vec::new(),
            fastest: None,
            known: HashSet::new(),
            passed_over: HashSet::new(),
            progress,
            starts: Vec::new(),
        };
        own.add(untuned, 1.0);
        own
    }

    pub(super) fn best(&self) -> Option<&Trial> {
        self.trials.get(self.fastest?)
    }

    /// Takes up a trial. Gives by how many nanoseconds it shortens the run that is expected.
    pub(super) fn add(&mut self, candidate: Candidate, ratio: f64) -> f64 {
        let before = self.best_ratio();
        self.known.insert(candidate.identity);
        let is_faster = self.best().is_none_or(|best| ratio.total_cmp(&best.ratio).is_lt());
        self.fastest = if is_faster { Some(self.trials.len()) } else { self.fastest };
        self.trials.push(Trial { candidate, ratio });
        self.count();
        self.progress.weight * (before - self.best_ratio())
    }

    /// Counts a trial of records without making its schedule again: one that is slow tells a search nothing but that it was
    /// measured. `false` where it was counted before.
    pub(super) fn pass_over(&mut self, template: &str, choices: &[Choice]) -> bool {
        let is_new = self.passed_over.insert(choices_key(template, choices));
        self.count();
        is_new
    }

    fn count(&mut self) {
        // The schedule without tuning is no trial.
        self.progress.trials = self.trials.len() + self.passed_over.len() - 1;
    }

    /// Whether records have a trial of a candidate that was passed over.
    fn was_passed_over(&self, candidate: &Candidate) -> bool {
        let key = || choices_key(&candidate.template, &candidate.choices());
        !self.passed_over.is_empty() && self.passed_over.contains(&key())
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
    proposed.retain(|candidate| !own.was_passed_over(candidate));
    proposed
}

/// Equal for equal decisions of a template.
fn choices_key(template: &str, choices: &[Choice]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(template.as_bytes());
    for Choice(decision, value) in choices {
        hasher.update(&[0]).update(decision.as_bytes()).update(&value.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_driver::ops::MatMul;
    use hone_driver::{DataType, Graph, Op, Options, Target, TensorType, tuning_tasks};
    use hone_search::{cost_model, strategy};

    /// The product of two matrices, of which nothing is known yet.
    fn product() -> Searched {
        let mut graph: Graph = Graph::new();
        let inputs = [("a", [48, 64]), ("b", [64, 96])].map(|(name, shape)| {
            Some(graph.add_input(name, TensorType::new(DataType::F32, shape)))
        });
        let product = graph.add_node("product", Op::from(MatMul {}), &inputs).unwrap()[0];
        graph.add_output("y", product);
        let options = Options::new(Target::host().unwrap());
        let (mut tasks, machine) = tuning_tasks(&graph, &options).unwrap();
        // A matrix is packed before.
        let task = tasks.pop().unwrap();
        let space = Space::new(task.program.clone(), machine).unwrap();
        let untuned = space.untuned().unwrap();
        Searched::new(task, (space, machine), strategy("random").unwrap(), 1.0, untuned)
    }

    fn proposed(own: &mut Searched) -> Vec<Candidate> {
        let model = cost_model("trees").unwrap();
        propose(own, &*model, Vec::new(), 16, &mut Random::new(7))
    }

    #[test]
    fn what_was_passed_over_is_counted_once_and_not_proposed_again() {
        let mut own = product();
        let first = proposed(&mut own);
        assert_eq!(first.len(), 16);
        for candidate in &first[..8] {
            assert!(own.pass_over(&candidate.template, &candidate.choices()));
            assert!(!own.pass_over(&candidate.template, &candidate.choices()));
        }
        assert_eq!(own.progress.trials, 8);
        // Equal random numbers propose the same ones, but for those that were passed over.
        let second = proposed(&mut own);
        let identities = |of: &[Candidate]| of.iter().map(|own| own.identity).collect::<Vec<_>>();
        assert_eq!(identities(&second), identities(&first[8..]));
    }

    #[test]
    fn the_fastest_trial_is_the_best() {
        let mut own = product();
        let candidates = proposed(&mut own);
        let ratios = [1.5, 0.8, f64::INFINITY, 0.9];
        let gains: Vec<f64> =
            candidates.into_iter().zip(ratios).map(|(new, ratio)| own.add(new, ratio)).collect();
        assert_eq!(gains, [0.0, 1.0 - 0.8, 0.0, 0.0]);
        assert_eq!((own.best().unwrap().ratio, own.progress.trials), (0.8, 4));
    }
}
