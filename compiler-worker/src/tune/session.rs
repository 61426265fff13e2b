//! The loop of a search: which program next, which candidates of it, measure, learn, and at the end confirm.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_driver::{DataType, Graph, Options, Prescription, Target, tuning_tasks};
use hone_search::autotvm::starts;
use hone_search::{
    Allocator, COST_MODELS, Candidate, Class, CostModel, FEATURES, Features, Kind, Log, Nest,
    Progress, Random, Record, SCHEMA, Sample, Space, Transfer, Trial, cost_model, strategy,
};

use super::board::Board;
use super::confirm::Confirm;
use super::device::Device;
use super::devices::{Devices, Done, Round};
use super::fleet::Fleet;
use super::graph::GraphSearch;
use super::interrupt::Interrupt;
use super::least::least;
use super::measuring::Measuring;
use super::outcome::Outcome;
use super::protocol::{Measured, Trials};
use super::revisions::Revisions;
use super::searched::{Searched, expected, prescription, propose, task_outcome};
use super::settings::Settings;
use super::store::{self, Recorded, schedules_apart};
use super::summary::Summary;
use crate::cache::Cache;
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};

/// Candidates that are measured side by side.
pub const BATCH: usize = 16;
/// The search ends where a round is expected to gain less than this share of a run.
const LEAST_GAIN: f64 = 1e-5;
/// A candidate must be surely this much faster alone to be tried in the network.
pub(super) const WORTH: f64 = 0.99;
/// Seconds of each comparison in the network, at most.
const IN_NETWORK: f64 = 8.0;
/// The same, by the seconds of a batch of candidates: who measures those in short measures the network in short.
const IN_NETWORK_BATCHES: f64 = 30.0;
/// Decisions of other tasks that a task's first round tries, as many of records, and as many of other compilers.
const SEEDS: usize = 4;
/// Samples beyond which the model learns in every fourth round only.
const MANY_SAMPLES: usize = 1500;

/// What a search writes to, when it began, and what the network decides with and has decided.
type Keeping<'a> = (&'a mut Log, Instant, &'a Confirm<'a>, &'a mut Revisions);

/// One search.
pub struct Session<'a> {
    /// The model.
    pub model: &'a Model,
    /// Shapes of its inputs.
    pub inputs: &'a [Input],
    /// What code is made for; this machine, or the board.
    pub target: &'a Target,
    /// What candidates run on, where that is not this machine.
    pub board: Option<&'a Board>,
    /// Where records lie.
    pub cache: &'a Cache,
    /// How to search.
    pub settings: Settings,
    /// Records of other searches, besides those in the cache: learned from, and counted for no limit.
    pub earlier: &'a [Record],
    /// Sessions that measure, too.
    pub fleet: Option<&'a Fleet>,
    /// Whether they alone do.
    pub elsewhere: bool,
    /// Whether a person wants it to end.
    pub interrupt: Interrupt,
    /// Is told after each round: the outcome so far, and the share of the budget that is used up. While decisions about
    /// the graph are measured, before the first trial, the outcome is empty.
    pub tell: &'a dyn Fn(&Outcome, f64),
}

impl Session<'_> {
    /// Searches, confirms, and keeps what won.
    ///
    /// # Errors
    /// A model that cannot be compiled, records that cannot be written or that another run writes, a process that
    /// cannot be started.
    pub fn run(&self) -> Result<Outcome> {
        let folder = self.cache.records_folder();
        let records = store::read(&folder)?;
        let mut log = Log::open(&folder, &self.file_name()).map_err(store::failed)?;
        let mut device = self.device();
        device.reach()?;
        let machine = self.machine();
        let winners = store::winners_of(&records, self.target, &machine);
        let so_far: Recorded = Arc::new(winners.by_program);
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::io("a temporary folder cannot be made", error))?;
        let Self { model, inputs, target, .. } = *self;
        let confirm = Confirm { model, inputs, target, folder };
        let graph = compiler::reference(model, inputs)?;
        let begin = Instant::now();
        let decide = GraphSearch { session: self, confirm: &confirm, so_far: &so_far };
        let decided = decide.run(&graph, &records, &mut device, &mut log)?;
        let so_far = decided.records;
        let mut outcome = Outcome {
            decisions: decided.decisions,
            decision_rounds: decided.rounds,
            resumed: decided.resumed,
            ..Outcome::default()
        };
        let mut searched = self.tasks(&graph, (&confirm, &so_far), &mut device)?;
        let mut samples = self.take_over(&records, &machine, &mut searched, &mut outcome);
        let mut revisions = Revisions::new(&so_far, &searched);
        let from = (&mut log, begin, &confirm, &mut revisions);
        self.search(&mut searched, &mut samples, &mut device, from, &mut outcome)?;
        let so_far = revisions.kept;
        let kept =
            self.confirm(&searched, &so_far, &confirm, &mut device, &mut log, &mut outcome)?;
        // What was measured of the same schedules before is as good.
        if self.settings.whole && (outcome.whole.is_none() || kept != so_far) {
            let whole = confirm.against_untuned(&mut device, &kept, self.in_network() / 2.0)?;
            self.note_whole(&searched, &kept, whole, &mut outcome);
        }
        let folder = self.cache.records_folder();
        Summary::of(&outcome).keep(&folder, self.model, self.inputs, self.target)?;
        Ok(outcome)
    }

    /// What measures candidates; nothing runs yet.
    pub(super) fn device(&self) -> Measuring<'_> {
        let Settings { threads, timeout, .. } = self.settings;
        match self.fleet.filter(|_| self.elsewhere) {
            Some(fleet) => Measuring::elsewhere(fleet),
            None => {
                let device = Device::new((self.target, self.board), threads, timeout);
                Measuring::Here(Box::new(device))
            }
        }
    }

    /// What records call the kind of machine that measures. Where that is the sessions', one must have answered.
    pub(super) fn machine(&self) -> String {
        let sessions = self.fleet.filter(|_| self.elsewhere).and_then(Fleet::machine);
        sessions.map_or_else(|| store::measured_on(self.board), str::to_owned)
    }

    /// The file in the folder of records that the search writes.
    fn file_name(&self) -> String {
        match self.elsewhere {
            true => store::SESSIONS_FILE.to_owned(),
            false => store::file_name(&store::measured_on(self.board)),
        }
    }

    /// Candidates of a program as they are measured.
    pub(super) fn trials(&self, own: &Searched, candidates: &[Candidate], seconds: f64) -> Trials {
        let least = |of: &Candidate| least(&of.features, &own.machine, self.settings.threads);
        Trials {
            program: own.text.clone(),
            digest: own.task.digest.clone(),
            candidates: candidates.iter().map(prescription).collect(),
            seconds,
            least: candidates.iter().map(least).collect(),
        }
    }

    /// Seconds of each comparison in the network.
    pub(super) fn in_network(&self) -> f64 {
        IN_NETWORK.min(IN_NETWORK_BATCHES * self.settings.seconds)
    }

    /// The model's programs with their times in the network.
    fn tasks(
        &self,
        graph: &Graph,
        (confirm, so_far): (&Confirm<'_>, &Recorded),
        device: &mut Measuring<'_>,
    ) -> Result<Vec<Searched>> {
        let options = Recipe::analytic(DataType::F32).options(self.target);
        let options = Options { records: schedules_apart(so_far).1, ..options };
        let (tasks, machine) = tuning_tasks(graph, &options).map_err(|error| {
            let message = format!("model '{}' cannot be tuned", self.model.name);
            Failure::because(Reason::CompilerError, message, error)
        })?;
        let times = confirm.task_times(device, (&tasks, so_far), 2.0)?;
        let mut searched = Vec::new();
        for (task, weight) in tasks.into_iter().zip(times) {
            let Some(space) = Space::new(task.program.clone(), machine) else { continue };
            let Ok(untuned) = space.untuned() else { continue };
            let strategy = strategy(&self.settings.strategy).ok_or_else(|| {
                let message = format!("no strategy is named '{}'", self.settings.strategy);
                Failure::new(Reason::Usage, message)
            })?;
            let progress = Progress { weight, best: Vec::new(), trials: 0, exhausted: false };
            let (text, known) = (task.program.to_string(), HashSet::new());
            let trials = Vec::new();
            let starts = Vec::new();
            let mut own =
                Searched { task, machine, space, strategy, trials, known, progress, text, starts };
            own.add(untuned, 1.0);
            searched.push(own);
        }
        Ok(searched)
    }

    /// Takes up the trials of earlier calls; what the model learns from records, those of other networks too.
    fn take_over(
        &self,
        records: &[Record],
        machine: &str,
        searched: &mut [Searched],
        outcome: &mut Outcome,
    ) -> Vec<Sample> {
        let mut samples = Vec::new();
        if !self.settings.warm {
            return samples;
        }
        let target = store::target_key(self.target);
        let least = LEAST_GAIN * total(searched);
        let indices: BTreeMap<String, usize> = searched
            .iter()
            .enumerate()
            .map(|(index, searched)| (searched.task.digest.clone(), index))
            .collect();
        let earlier = self.earlier.iter().map(|record| (record, false));
        let every = earlier.chain(records.iter().map(|record| (record, true)));
        for (record, is_logged) in
            every.filter(|(record, _)| record.kind == Kind::Trial && record.target == target)
        {
            let ratio = record.ratio.unwrap_or(f64::INFINITY);
            let index = indices.get(&record.program);
            let space = index.map(|index| &searched[*index].space);
            let candidate =
                space.and_then(|own| own.with_choices(&record.template, &record.decisions).ok());
            if record.features.len() == FEATURES.len() {
                // Earlier versions kept no nest: where the candidate can be made again, it tells.
                let made = candidate.as_ref().filter(|_| record.nest.is_empty());
                let features = made.map_or_else(|| features_of(record), |own| own.features.clone());
                samples.push(Sample { features, ratio, task: record.program.clone() });
            }
            let Some(index) = index else { continue };
            match record.class {
                _ if !is_logged => {}
                Class::Ok => outcome.logged.0 += 1,
                _ => outcome.logged.1 += 1,
            }
            if record.machine != machine || record.threads != self.settings.threads {
                continue;
            }
            let own = &mut searched[*index];
            if let Some(candidate) = candidate.filter(|new| !own.known.contains(&new.identity)) {
                let gain = own.add(candidate, ratio);
                if is_logged {
                    outcome.note_gain(gain >= least);
                }
                outcome.resumed += 1;
            }
        }
        let transfer = Transfer::new(self.earlier.iter().chain(records));
        for own in searched.iter_mut() {
            own.starts = starts(records, &own.space, SEEDS);
            own.starts.extend(transfer.candidates(&own.space, &own.task.digest, SEEDS));
            for _ in 0..own.progress.trials.div_ceil(BATCH) {
                own.close_round();
            }
        }
        samples
    }

    fn search(
        &self,
        searched: &mut [Searched],
        samples: &mut Vec<Sample>,
        device: &mut Measuring<'_>,
        from: Keeping<'_>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let done = std::thread::scope(|scope| {
            let here = device.here();
            let mut devices = Devices::new(scope, here, self.fleet, self.settings.noise);
            let done = self.rounds(searched, samples, &mut devices, from, outcome);
            outcome.devices = devices.measured();
            done
        });
        (outcome.building, outcome.executing) = device.seconds();
        outcome.tasks = searched.iter().map(task_outcome).collect();
        if let Some(fleet) = self.fleet.filter(|_| !self.elsewhere) {
            fleet.clear();
        }
        done
    }

    /// Asks for rounds, and learns from those that are done, until the search ends. Where there is one device a round
    /// is asked for when the one before is learned from; else no program has two rounds under way.
    fn rounds(
        &self,
        searched: &mut [Searched],
        samples: &mut Vec<Sample>,
        devices: &mut Devices<'_, '_>,
        (log, begin, confirm, revisions): Keeping<'_>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut random = Random::new(self.settings.seed);
        let mut model = cost_model(&self.settings.cost_model).ok_or_else(|| {
            let known = COST_MODELS.map(|(name, _)| name).join(", ");
            let message =
                format!("no cost model is named '{}': there are {known}", self.settings.cost_model);
            Failure::new(Reason::Usage, message)
        })?;
        model.learn(samples);
        let mut under_way = UnderWay::default();
        let mut rounds = 0;
        outcome.untuned = searched.iter().map(|own| own.progress.weight).sum();
        self.progress(searched, outcome, begin);
        loop {
            devices.admit();
            if devices.slots() == 0 && under_way.rounds == 0 {
                devices.wait()?;
            }
            let due = self.is_due(revisions, searched, outcome);
            let why = match due {
                true => None,
                false => {
                    self.fill(searched, &*model, devices, &mut random, outcome, &mut under_way)?
                }
            };
            if due && under_way.rounds == 0 {
                self.revise(searched, revisions, confirm, log, outcome);
                self.progress(searched, outcome, begin);
                continue;
            }
            if under_way.rounds == 0 {
                outcome.ended = why.unwrap_or("more trials are expected to gain nothing");
                return Ok(());
            }
            let done = devices.next()?;
            under_way.end(&done.round);
            self.take_up(searched, samples, done, log, outcome)?;
            rounds += 1;
            let proposing = Instant::now();
            if samples.len() < MANY_SAMPLES || rounds % 4 == 0 {
                model.learn(samples);
            }
            outcome.proposing += proposing.elapsed().as_secs_f64();
            self.progress(searched, outcome, begin);
        }
    }

    /// Tells how far the search is.
    fn progress(&self, searched: &[Searched], outcome: &mut Outcome, begin: Instant) {
        outcome.curve.push((outcome.trials, expected(searched)));
        outcome.seconds = begin.elapsed().as_secs_f64();
        (self.tell)(outcome, self.used(outcome));
    }

    /// Asks for rounds until every device has enough to do; why no more are asked for at all, where that is so.
    fn fill(
        &self,
        searched: &mut [Searched],
        model: &dyn CostModel,
        devices: &Devices<'_, '_>,
        random: &mut Random,
        outcome: &mut Outcome,
        under_way: &mut UnderWay,
    ) -> Result<Option<&'static str>> {
        let least = LEAST_GAIN * total(searched);
        while under_way.rounds < devices.slots() {
            let asked = self.done(outcome) + under_way.candidates;
            if let Some(why) = self.ends(outcome, asked, expected(searched)) {
                return Ok(Some(why));
            }
            let progress: Vec<Progress> = searched
                .iter()
                .enumerate()
                .map(|(index, searched)| Progress {
                    exhausted: searched.progress.exhausted || under_way.programs.contains(&index),
                    ..searched.progress.clone()
                })
                .collect();
            let Some(index) = Allocator.next(&progress, least) else { return Ok(None) };
            let proposing = Instant::now();
            let left = self.settings.trials.map_or(BATCH, |most| most - asked);
            let seeds = self.seeds(searched, index);
            let own = &mut searched[index];
            let proposed = propose(own, model, seeds, BATCH.min(left), random);
            outcome.proposing += proposing.elapsed().as_secs_f64();
            if proposed.is_empty() {
                own.progress.exhausted = true;
                continue;
            }
            let trials = self.trials(&searched[index], &proposed, self.settings.seconds);
            let round = Round { index, proposed, trials };
            under_way.begin(&round);
            devices.give(round)?;
        }
        Ok(None)
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
            let record = self.record(own, &candidate, &measured);
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

    /// Why no more rounds are asked for, where that is so; `asked` trials are done or under way.
    pub(super) fn ends(
        &self,
        outcome: &Outcome,
        asked: usize,
        expected: f64,
    ) -> Option<&'static str> {
        let Settings { trials, budget, goal, patience, .. } = &self.settings;
        if self.interrupt.is_asked() {
            return Some("it was interrupted");
        }
        if goal.is_some_and(|goal| expected <= goal) {
            return Some("the goal is expected to be reached");
        }
        if trials.is_some_and(|most| asked >= most) {
            return Some("all trials are done");
        }
        if patience.is_some_and(|most| outcome.in_vain >= most) {
            return Some("the last trials brought nothing");
        }
        let is_over = budget.is_some_and(|budget| outcome.seconds >= budget.as_secs_f64());
        is_over.then_some("the time is over")
    }

    /// Trials that count against the most that are allowed.
    pub(super) fn done(&self, outcome: &Outcome) -> usize {
        let earlier = if self.settings.whole { outcome.logged.0 + outcome.logged.1 } else { 0 };
        earlier + outcome.trials
    }

    /// Share of the limits that is used up, from 0 to 1: of trials or of time, whichever is further.
    fn used(&self, outcome: &Outcome) -> f64 {
        let Settings { trials, budget, earlier, .. } = &self.settings;
        let (done, earlier) = (self.done(outcome) as f64, earlier.as_secs_f64());
        let trials = trials.map(|most| done / most.max(1) as f64);
        let time = budget
            .map(|left| (earlier + outcome.seconds) / (earlier + left.as_secs_f64()).max(1e-9));
        trials.into_iter().chain(time).fold(0.0, f64::max).min(1.0)
    }

    pub(super) fn record(
        &self,
        own: &Searched,
        candidate: &Candidate,
        measured: &Measured,
    ) -> Record {
        let round = |value: f32| (f64::from(value) * 1e3).round() as f32 / 1e3;
        let subject = (own.task.digest.as_str(), prescription(candidate));
        Record {
            class: measured.class,
            nanoseconds: measured.nanoseconds,
            ratio: measured.ratio.map(|own| own.0),
            interval: measured.ratio.map(|own| (own.1, own.2)),
            features: candidate.features.counts.iter().copied().map(round).collect(),
            nest: candidate.features.nest.clone(),
            cause: measured.cause.as_ref().map(|own| own.chars().take(300).collect()),
            ..self.blank(Kind::Trial, subject, &own.task.nodes)
        }
    }

    /// A record of this moment on this machine, without times.
    pub(super) fn blank(
        &self,
        kind: Kind,
        (program, Prescription { template, choices }): (&str, Prescription),
        nodes: &str,
    ) -> Record {
        Record {
            schema: SCHEMA,
            kind,
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |own| own.as_secs()),
            program: program.to_owned(),
            target: store::target_key(self.target),
            machine: self.machine(),
            threads: self.settings.threads,
            template,
            decisions: choices,
            class: Class::Ok,
            nanoseconds: None,
            ratio: None,
            interval: None,
            features: Vec::new(),
            nest: Nest::default(),
            nodes: nodes.chars().take(200).collect(),
            cause: None,
        }
    }
}

/// The rounds that devices have.
#[derive(Default)]
struct UnderWay {
    rounds: usize,
    candidates: usize,
    /// Which programs they are of.
    programs: HashSet<usize>,
}

impl UnderWay {
    fn begin(&mut self, round: &Round) {
        self.rounds += 1;
        self.candidates += round.proposed.len();
        self.programs.insert(round.index);
    }

    fn end(&mut self, round: &Round) {
        self.rounds -= 1;
        self.candidates -= round.proposed.len();
        self.programs.remove(&round.index);
    }
}

/// What a record keeps for cost models.
fn features_of(record: &Record) -> Features {
    Features { counts: record.features.clone(), nest: record.nest.clone() }
}

/// Nanoseconds of a run without tuning, as far as it is searched.
fn total(searched: &[Searched]) -> f64 {
    searched.iter().map(|own| own.progress.weight).sum()
}
