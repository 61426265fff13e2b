//! The rounds of a search: which program is next, which candidates of it, and what is learned from what they were measured to take.
//!
//! Where there are more devices than programs, several rounds of a program are proposed at once: they are measured side by
//! side, and the strategy's work is done once for all of them. No program gets more before all of these are back.

use std::collections::BTreeMap;
use std::time::Instant;

use hone_artifact::exit_code::Reason;
use hone_search::{
    Allocator, COST_MODELS, Candidate, Class, CostModel, Log, Progress, Random, Sample, Trial,
    cost_model,
};

use super::confirm::Confirm;
use super::devices::{Devices, Done, Round};
use super::outcome::Outcome;
use super::revisions::{Pending, Revisions};
use super::searched::{Searched, expected, propose};
use super::session::{BATCH, LEAST_GAIN, Session, WORTH, total};
use super::store;
use crate::failure::{Failure, Result};

/// Decisions of other tasks that a task's first round tries, as many of records, and as many of other compilers.
pub(super) const SEEDS: usize = 4;
/// Rounds of one program that are proposed at once, at most: what is proposed together is not learned from each other.
const TOGETHER: usize = 16;
/// Samples up to which the model learns from every round.
const FEW_SAMPLES: usize = 1500;
/// Beyond them, what is new as a share of all samples when it learns again, and the fewest and the most samples that are.
const NEW_SHARE: usize = 32;
const NEW_SAMPLES: [usize; 2] = [4 * BATCH, 32 * BATCH];

/// What a search writes to, when it began, and what the network decides with and has decided.
pub(super) type Keeping<'a> = (&'a mut Log, Instant, &'a Confirm<'a>, &'a mut Revisions);

/// What is learned of candidates.
struct Learned<'a> {
    model: Box<dyn CostModel>,
    samples: &'a mut Vec<Sample>,
    /// Samples that the model has learned from.
    learned: usize,
}

impl Learned<'_> {
    /// Learns from the samples, where enough of them are new.
    fn refresh(&mut self) {
        let (count, new) = (self.samples.len(), self.samples.len() - self.learned);
        let [least, most] = NEW_SAMPLES;
        if new > 0 && (count < FEW_SAMPLES || new >= (count / NEW_SHARE).clamp(least, most)) {
            self.model.learn(self.samples);
            self.learned = count;
        }
    }
}

impl Session<'_> {
    /// Asks for rounds, and learns from those that are done, until the search ends. Where there is one device a round
    /// is asked for when the one before is learned from.
    ///
    /// # Errors
    /// A cost model that is not known, records that cannot be written, no device that measures.
    pub(super) fn rounds<'env>(
        &self,
        searched: &mut [Searched],
        samples: &mut Vec<Sample>,
        devices: &mut Devices<'_, 'env>,
        (log, begin, confirm, revisions): Keeping<'env>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut random = Random::new(self.settings.seed);
        let model = cost_model(&self.settings.cost_model).ok_or_else(|| {
            let known = COST_MODELS.map(|(name, _)| name).join(", ");
            let message =
                format!("no cost model is named '{}': there are {known}", self.settings.cost_model);
            Failure::new(Reason::Usage, message)
        })?;
        let mut learned = Learned { model, samples, learned: 0 };
        let mut under_way = UnderWay::default();
        let mut pending: Option<Pending<'_>> = None;
        outcome.untuned = searched.iter().map(|own| own.progress.weight).sum();
        self.progress(searched, outcome, begin);
        loop {
            devices.admit();
            if devices.slots() == 0 && under_way.rounds == 0 {
                devices.wait()?;
            }
            if let Some(made) = pending.take_if(|own| own.is_made()) {
                self.take_revision(searched, revisions, made.join(), log, outcome)?;
                self.progress(searched, outcome, begin);
            }
            let mut due = pending.is_none() && self.is_due(revisions, searched, outcome);
            if due {
                pending = self.revise_beside(searched, revisions, confirm, devices, outcome);
                due = pending.is_none();
            }
            let asked = match due || under_way.rounds >= devices.slots() {
                true => Asked::Nothing(None),
                false => {
                    self.ask(searched, &mut learned, devices, &mut random, outcome, &mut under_way)?
                }
            };
            let mut done = match asked {
                // What was measured meanwhile is learned from before more is asked for.
                Asked::Rounds => devices.ready()?,
                Asked::Nothing(_) if under_way.rounds > 0 => Some(devices.next()?),
                Asked::Nothing(_) if due => {
                    let decided = self.revise(searched, revisions, confirm, outcome);
                    self.take_revision(searched, revisions, decided, log, outcome)?;
                    self.progress(searched, outcome, begin);
                    None
                }
                Asked::Nothing(why) => {
                    if let Some(last) = pending.take() {
                        self.take_revision(searched, revisions, last.join(), log, outcome)?;
                    }
                    outcome.ended = why.unwrap_or("more trials are expected to gain nothing");
                    return Ok(());
                }
            };
            while let Some(round) = done {
                under_way.end(&round.round);
                self.take_up(searched, learned.samples, round, log, outcome)?;
                self.progress(searched, outcome, begin);
                done = devices.ready()?;
            }
        }
    }

    /// Tells how far the search is.
    fn progress(&self, searched: &[Searched], outcome: &mut Outcome, begin: Instant) {
        outcome.curve.push((outcome.trials, expected(searched)));
        outcome.seconds = begin.elapsed().as_secs_f64();
        (self.tell)(outcome, self.used(outcome));
    }

    /// Asks for rounds of the program that is next.
    fn ask(
        &self,
        searched: &mut [Searched],
        learned: &mut Learned<'_>,
        devices: &Devices<'_, '_>,
        random: &mut Random,
        outcome: &mut Outcome,
        under_way: &mut UnderWay,
    ) -> Result<Asked> {
        let asked = self.done(outcome) + under_way.candidates;
        if let Some(why) = self.ends(outcome, asked, expected(searched)) {
            return Ok(Asked::Nothing(Some(why)));
        }
        let progress: Vec<Progress> = searched
            .iter()
            .enumerate()
            .map(|(index, searched)| Progress {
                exhausted: searched.progress.exhausted || under_way.has(index),
                ..searched.progress.clone()
            })
            .collect();
        // Who says after how many trials in vain the search ends has judged that for themselves.
        let least =
            if self.settings.patience.is_some() { 0.0 } else { LEAST_GAIN * total(searched) };
        let Some(index) = Allocator.next(&progress, least) else {
            return Ok(Asked::Nothing(None));
        };
        let proposing = Instant::now();
        learned.refresh();
        let most = BATCH * rounds_together(devices.slots(), searched);
        let count = self.settings.trials.map_or(most, |trials| most.min(trials - asked));
        let seeds = self.seeds(searched, index);
        let proposed = propose(&mut searched[index], &*learned.model, seeds, count, random);
        outcome.proposing += proposing.elapsed().as_secs_f64();
        searched[index].progress.exhausted |= proposed.is_empty();
        for proposed in proposed.chunks(BATCH).map(<[Candidate]>::to_vec) {
            let trials = self.trials(&searched[index], &proposed, self.settings.seconds);
            let round = Round { index, proposed, trials };
            under_way.begin(&round);
            devices.give(round)?;
        }
        Ok(Asked::Rounds)
    }

    /// Writes down what became of a round's candidates.
    fn take_up(
        &self,
        searched: &mut [Searched],
        samples: &mut Vec<Sample>,
        done: Done,
        log: &mut Log,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let least = LEAST_GAIN * total(searched);
        let own = &mut searched[done.round.index];
        outcome.noisy += usize::from(done.noisy);
        for (candidate, measured) in done.round.proposed.into_iter().zip(done.measured) {
            let record = self.record((&own.task.digest, &own.task.nodes), &candidate, &measured);
            log.append(&record).map_err(store::failed)?;
            let ratio = measured.ratio.map_or(f64::INFINITY, |own| own.0);
            if measured.class != Class::Ok {
                *outcome.failed.entry(format!("{:?}", measured.class)).or_default() += 1;
            }
            let (features, task) = (candidate.features.clone(), own.task.digest.clone());
            samples.push(Sample { features, ratio, task });
            let gain = own.add(candidate, ratio);
            outcome.note_gain(gain >= least);
            outcome.trials += 1;
        }
        own.close_round();
        Ok(())
    }

    /// What other compilers chose, what was fastest in records of others, and decisions that won in other tasks, for a task's
    /// first round.
    fn seeds(&self, searched: &[Searched], place: usize) -> Vec<Candidate> {
        let own = &searched[place];
        if !own.progress.best.is_empty() || self.settings.strategy != "learned" {
            return Vec::new();
        }
        let mut others: Vec<&Trial> = searched.iter().filter_map(Searched::best).collect();
        others.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let fits = |own: &&&Trial| own.ratio < WORTH;
        let seeds = others.iter().filter(fits).take(SEEDS).filter_map(|trial| {
            own.space.with_choices(&trial.candidate.template, &trial.candidate.choices()).ok()
        });
        own.starts.iter().cloned().chain(seeds).collect()
    }
}

/// What became of asking for more.
enum Asked {
    /// A program was asked for, which may have had no candidate any more.
    Rounds,
    /// None is to be asked for now; why none ever is again, where that is so.
    Nothing(Option<&'static str>),
}

/// Rounds of one program to propose at once, so that devices that take so many rounds have all something to do.
fn rounds_together(slots: usize, searched: &[Searched]) -> usize {
    let programs = searched.iter().filter(|own| !own.progress.exhausted).count();
    (slots / programs.max(1)).clamp(1, TOGETHER)
}

/// The rounds that devices have.
#[derive(Default)]
struct UnderWay {
    rounds: usize,
    candidates: usize,
    /// How many of them each program has.
    programs: BTreeMap<usize, usize>,
}

impl UnderWay {
    /// Whether a program has any.
    fn has(&self, index: usize) -> bool {
        self.programs.contains_key(&index)
    }

    fn begin(&mut self, round: &Round) {
        self.rounds += 1;
        self.candidates += round.proposed.len();
        *self.programs.entry(round.index).or_default() += 1;
    }

    fn end(&mut self, round: &Round) {
        self.rounds -= 1;
        self.candidates -= round.proposed.len();
        if let Some(left) = self.programs.get_mut(&round.index) {
            *left -= 1;
        }
        self.programs.retain(|_, left| *left > 0);
    }
}
