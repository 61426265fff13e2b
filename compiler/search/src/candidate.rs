//! Candidates of a task, and how others are made of them.

use crate::Random;
use crate::features::{Features, features};
use hone_machine::Machine;
use hone_schedule::ScheduleError;
use hone_tensor::Program;
use hone_tune::{Choice, Decision, Plain, Preferred, Randomly, Replay, Source};
use std::collections::HashSet;

/// A schedule that may be measured.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Name of the template.
    pub template: String,
    /// Its decisions, with the other values that each could have had.
    pub decisions: Vec<Decision>,
    /// Features of the scheduled program.
    pub features: Features,
    /// Equal for candidates whose schedules are the same steps.
    pub identity: [u8; 32],
}

impl Candidate {
    /// The decisions as records keep them.
    pub fn choices(&self) -> Vec<Choice> {
        self.decisions.iter().map(Decision::choice).collect()
    }
}

/// A candidate that was measured: its time as a ratio to that of the schedule without tuning, measured
/// beside it. Infinite for one that failed.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The candidate.
    pub candidate: Candidate,
    /// Time over the untuned schedule's.
    pub ratio: f64,
}

/// All candidates of one task.
#[derive(Clone, Debug)]
pub struct Space {
    plain: Plain,
    machine: Machine,
    templates: Vec<&'static str>,
}

impl Space {
    /// The space of a plain program; `None` where no template takes it.
    pub fn new(program: Program, machine: Machine) -> Option<Self> {
        let plain = Plain::for_search(program).ok()?;
        let templates = plain.alternatives(&machine);
        (!templates.is_empty()).then_some(Self { plain, machine, templates })
    }

    /// The plain program.
    pub fn program(&self) -> &Program {
        self.plain.program()
    }

    /// Numbers of f32 in a vector of the target.
    pub(crate) fn lanes(&self) -> usize {
        self.machine.lanes
    }

    /// Names of the templates that take it; the first is taken without tuning.
    pub fn templates(&self) -> &[&'static str] {
        &self.templates
    }

    /// The candidate that a source of decisions gives.
    ///
    /// # Errors
    /// What the template refuses: some decisions are incompatible.
    pub fn candidate(
        &self,
        template: &str,
        source: &mut dyn Source,
    ) -> Result<Candidate, ScheduleError> {
        let scheduled = self.plain.schedule_as(&self.machine, template, source)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(scheduled.template.as_bytes());
        hasher.update(scheduled.schedule.trace().to_string().as_bytes());
        Ok(Candidate {
            template: scheduled.template.to_owned(),
            features: features(scheduled.schedule.program(), &self.machine),
            decisions: scheduled.decisions,
            identity: *hasher.finalize().as_bytes(),
        })
    }

    /// What is compiled without tuning.
    ///
    /// # Errors
    /// As for [`Space::candidate`]; not for programs that [`Space::new`] took.
    pub fn untuned(&self) -> Result<Candidate, ScheduleError> {
        self.candidate(self.templates.first().copied().unwrap_or_default(), &mut Preferred)
    }

    /// The candidate with these decisions; those that are missing are the analytic model's.
    ///
    /// # Errors
    /// As for [`Space::candidate`].
    pub fn with_choices(
        &self,
        template: &str,
        choices: &[Choice],
    ) -> Result<Candidate, ScheduleError> {
        self.candidate(template, &mut Replay::new(choices))
    }

    /// A random candidate. The template that is taken without tuning counts as half of all.
    pub fn random(&self, random: &mut Random) -> Option<Candidate> {
        let template = match random.below(2) {
            0 => self.templates.first().copied(),
            _ => random.pick(&self.templates).copied(),
        }?;
        let mut source = Randomly { below: |count| random.below(count) };
        self.candidate(template, &mut source).ok()
    }

    /// A neighbour: one decision, sometimes two, with another value, near ones rather than far ones.
    pub fn mutation(&self, of: &Candidate, random: &mut Random) -> Option<Candidate> {
        let mut choices = of.choices();
        for _ in 0..1 + usize::from(random.below(3) == 0) {
            let index = random.below(of.decisions.len());
            let decision = of.decisions.get(index)?;
            let count = decision.candidates.len();
            let other = match random.below(2) {
                0 if random.below(2) == 0 => (decision.chosen + 1) % count,
                0 => (decision.chosen + count - 1) % count,
                _ => random.below(count),
            };
            choices[index].1 = decision.candidates[other];
        }
        self.with_choices(&of.template, &choices).ok()
    }

    /// A candidate whose decisions are those of one parent or the other; of one parent's where the
    /// templates differ.
    pub fn crossover(
        &self,
        one: &Candidate,
        other: &Candidate,
        random: &mut Random,
    ) -> Option<Candidate> {
        let mut choices = one.choices();
        if one.template == other.template {
            let others = other.choices();
            for choice in &mut choices {
                let found = others.iter().find(|other| other.0 == choice.0);
                if let Some(found) = found.filter(|_| random.below(2) == 0) {
                    choice.1 = found.1;
                }
            }
        }
        self.with_choices(&one.template, &choices).ok()
    }

    /// All candidates that differ in one decision, from its preferred neighbours outwards.
    pub fn neighbours(&self, of: &Candidate) -> Vec<Candidate> {
        let mut all = Vec::new();
        for (index, decision) in of.decisions.iter().enumerate() {
            for (number, value) in decision.candidates.iter().enumerate() {
                if number != decision.chosen {
                    let mut choices = of.choices();
                    choices[index].1 = *value;
                    all.extend(self.with_choices(&of.template, &choices).ok());
                }
            }
        }
        all
    }
}

/// Keeps of some candidates those that are new, each once.
pub(crate) fn fresh(
    candidates: impl IntoIterator<Item = Candidate>,
    known: &mut HashSet<[u8; 32]>,
) -> Vec<Candidate> {
    candidates.into_iter().filter(|candidate| known.insert(candidate.identity)).collect()
}
