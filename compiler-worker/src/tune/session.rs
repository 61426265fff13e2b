//! A search from its begin to its end: decisions about the graph, the programs, their rounds, and at the end the confirmation.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_driver::{DataType, Graph, Options, Prescription, Target, tuning_tasks};
use hone_search::{Candidate, Class, Kind, Log, Nest, Record, SCHEMA, Sample, Space, strategy};

use super::board::Board;
use super::confirm::Confirm;
use super::device::Device;
use super::devices::Devices;
use super::fleet::Fleet;
use super::graph::GraphSearch;
use super::interrupt::Interrupt;
use super::least::least;
use super::measuring::Measuring;
use super::outcome::Outcome;
use super::protocol::{Measured, Trials};
use super::revisions::Revisions;
use super::rounds::Keeping;
use super::searched::{Searched, prescription, task_outcome};
use super::settings::Settings;
use super::store::{self, Recorded, schedules_apart};
use super::summary::Summary;
use crate::cache::Cache;
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};

/// Candidates that are measured side by side.
pub const BATCH: usize = 16;
/// The search ends where a round is expected to gain less than this share of a run.
pub(super) const LEAST_GAIN: f64 = 1e-5;
/// A candidate must be surely this much faster alone to be tried in the network.
pub(super) const WORTH: f64 = 0.99;
/// Seconds of each comparison in the network, at most.
const IN_NETWORK: f64 = 8.0;
/// The same, by the seconds of a batch of candidates: who measures those in short measures the network in short.
const IN_NETWORK_BATCHES: f64 = 30.0;

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
        if let Some(fleet) = self.fleet {
            fleet.remove_leftovers();
        }
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
        let decided = self.contest(&searched, &so_far, &confirm).hold(&mut device)?;
        let kept = self.settle(&searched, decided, &mut log, &mut outcome)?;
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
            let own = Searched::new(task, (space, machine), strategy, weight, untuned);
            searched.push(own);
        }
        Ok(searched)
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
    pub(super) fn used(&self, outcome: &Outcome) -> f64 {
        let Settings { trials, budget, earlier, .. } = &self.settings;
        let (done, earlier) = (self.done(outcome) as f64, earlier.as_secs_f64());
        let trials = trials.map(|most| done / most.max(1) as f64);
        let time = budget
            .map(|left| (earlier + outcome.seconds) / (earlier + left.as_secs_f64()).max(1e-9));
        trials.into_iter().chain(time).fold(0.0, f64::max).min(1.0)
    }

    /// A trial of a program, given by its digest and the names of its nodes.
    pub(super) fn record(
        &self,
        (program, nodes): (&str, &str),
        candidate: &Candidate,
        measured: &Measured,
    ) -> Record {
        let round = |value: f32| (f64::from(value) * 1e3).round() as f32 / 1e3;
        let subject = (program, prescription(candidate));
        Record {
            class: measured.class,
            nanoseconds: measured.nanoseconds,
            ratio: measured.ratio.map(|own| own.0),
            interval: measured.ratio.map(|own| (own.1, own.2)),
            features: candidate.features.counts.iter().copied().map(round).collect(),
            nest: candidate.features.nest.clone(),
            cause: measured.cause.as_ref().map(|own| own.chars().take(300).collect()),
            ..self.blank(Kind::Trial, subject, nodes)
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

/// Nanoseconds of a run without tuning, as far as it is searched.
pub(super) fn total(searched: &[Searched]) -> f64 {
    searched.iter().map(|own| own.progress.weight).sum()
}
