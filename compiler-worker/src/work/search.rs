//! A tuning run: a model and a log in, a longer log out.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hone_artifact::exit_code::Reason;
use hone_artifact::report::Report;
use hone_artifact::request::{Destination, External, StopRequest, Tune};
use hone_driver::Target;
use hone_search::{COST_MODELS, Record};

use super::{Machine, Worker};
use crate::compiler;
use crate::device;
use crate::failure::{Failure, Result};
use crate::storage;
use crate::tune::fleet::{self, Fleet, Search};
use crate::tune::run_log::{self, RunLog};
use crate::tune::{BATCH, Interrupt, NOISE, Outcome, Posts, Session, Settings, store};

/// Bytes of another run's log up to which it is learned from.
const MOST_OF_A_LOG: u64 = 256 << 20;

/// The log that a worker writes, for whoever has to end the worker.
pub type OpenLog = Mutex<Option<Arc<RunLog>>>;

impl Worker<'_> {
    /// Goes on with the run that the log holds, until one of the request's limits is reached. `open` holds the log as
    /// soon as it is open; `report` is filled in as far as it comes.
    ///
    /// # Errors
    /// Those of fetching and compiling; a target that is not this machine; what the log's store refuses; another
    /// writer of the log.
    pub fn search(&self, request: &Tune, open: &OpenLog, report: &Mutex<Report>) -> Result<()> {
        // Whether the log can be read is known before anything else is fetched.
        let credentials = request.log.credentials.as_deref();
        let place = storage::Destination::open(&request.log.uri, credentials, self.access)?;
        self.progress.stage("fetch");
        let model = self.fetch(&request.model)?;
        let elsewhere = request.external.is_some();
        let fingerprint = (!elsewhere).then(|| device::fingerprint(&device::Facts::here()));
        note(report, |report| {
            report.model_digest = Some(model.digest.clone());
            report.fingerprint = fingerprint;
        });
        let target = compiler::target(&request.target)?;
        if !elsewhere {
            refuse_elsewhere(&target)?;
        }
        let inputs = compiler::one_size(&model, &request.inputs, "a tuning run")?;
        let records = self.cache.records_folder();
        let log = RunLog::open(
            place,
            &records,
            &match elsewhere {
                true => store::SESSIONS_FILE.to_owned(),
                false => store::file_name(&store::machine_key()),
            },
            self.access.limit,
        )?;
        let log = Arc::new(log);
        if let Ok(mut open) = open.lock() {
            *open = Some(Arc::clone(&log));
        }
        self.progress.stage("tune");
        let (interrupt, failed) = (Interrupt::default(), RefCell::new(None));
        let posts = Posts::from_environment();
        let tell = |outcome: &Outcome, used: f64| {
            if outcome.curve.is_empty() {
                return;
            }
            if let Err(failure) = log.round(outcome) {
                failed.borrow_mut().get_or_insert(failure);
                interrupt.ask();
            }
            if let Some(posts) = &posts {
                posts.tell(outcome, used, &log.report());
            }
        };
        let settings = settings(request, self.options.threads, log.earlier())?;
        let fleet = self.sessions(request, &target, (&settings, &interrupt), posts.clone())?;
        let earlier = self.earlier(&request.warm_start)?;
        let session = Session {
            model: &model,
            inputs: &inputs,
            target: &target,
            board: None,
            cache: self.cache,
            earlier: &earlier,
            fleet: fleet.as_ref(),
            elsewhere,
            settings,
            interrupt: interrupt.clone(),
            tell: &tell,
        };
        let done = session.run();
        let done = match failed.take() {
            Some(failure) => Err(failure),
            None => done.and_then(|outcome| {
                if let Some(devices) = outcome.by_device() {
                    eprintln!("measured by {devices}");
                }
                log.finish(&outcome)
            }),
        };
        // Whatever ended it, what was measured is kept.
        let kept = log.flush();
        note(report, |report| {
            report.tuning = Some(log.report());
            let machine = fleet.as_ref().filter(|_| elsewhere).and_then(Fleet::machine);
            report.fingerprint = machine.map(str::to_owned).or(report.fingerprint.take());
        });
        self.progress.finish();
        done.and(kept)
    }

    /// The sessions that measure beside this machine, or alone; `posts` hears of the latter.
    fn sessions(
        &self,
        request: &Tune,
        target: &Target,
        (settings, interrupt): (&Settings, &Interrupt),
        posts: Option<Posts>,
    ) -> Result<Option<Fleet>> {
        let search = |machine| Search {
            threads: settings.threads,
            timeout: settings.timeout,
            interrupt: interrupt.clone(),
            drift: request.target.noise_budget.unwrap_or(fleet::DRIFT),
            ..Search::new(target, machine)
        };
        if let Some(external) = &request.external {
            let External { store, pool, wait_seconds } = external;
            let credentials = store.credentials.as_deref();
            let store = fleet::open_pool(&store.uri, pool, credentials, self.access)?;
            let patience = Duration::from_secs(*wait_seconds);
            let tell = posts.map(|posts| -> fleet::Tell {
                Box::new(move |sessions| posts.tell_sessions(sessions))
            });
            return Ok(Some(Fleet::new(store, Search { patience, ..search(None) }, tell)));
        }
        if !request.sessions {
            return Ok(None);
        }
        let store = fleet::open_in_log(&request.log, self.access)?;
        Ok(Some(Fleet::new(store, search(Some(store::machine_key())), None)))
    }

    /// The records of other runs' logs. A log that cannot be read is said and left out: the search does without.
    ///
    /// # Errors
    /// A folder that cannot be made or read.
    fn earlier(&self, logs: &[Destination]) -> Result<Vec<Record>> {
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::io("a temporary folder cannot be made", error))?;
        let limit = self.access.limit.min(MOST_OF_A_LOG);
        let mut records = Vec::new();
        for (index, log) in logs.iter().enumerate() {
            let folder = folder.path().join(index.to_string());
            let credentials = log.credentials.as_deref();
            let taken = storage::Destination::open(&log.uri, credentials, self.access)
                .and_then(|log| run_log::take(&log, &folder, limit, "spec.search.warmStart"));
            match taken {
                Ok(segments) => {
                    eprintln!("warm start: {segments} segments of '{}'", log.uri);
                    records.extend(store::read(&folder)?);
                }
                Err(failure) => {
                    eprintln!("warning: no warm start from '{}': {}", log.uri, failure.chain());
                }
            }
        }
        Ok(records)
    }
}

/// Changes a report that others may look at meanwhile.
fn note(report: &Mutex<Report>, change: impl FnOnce(&mut Report)) {
    if let Ok(mut report) = report.lock() {
        change(&mut report);
    }
}

/// Measuring is done here, so the code must be for here.
pub(super) fn refuse_elsewhere(target: &Target) -> Result<()> {
    if Machine::of(&hone_driver::manifest_target(target)).is_here() {
        return Ok(());
    }
    let message = format!(
        "this machine cannot run code for {} {}: name a pool whose nodes are the target, or correct spec.target",
        target.triple, target.cpu
    );
    Err(Failure::new(Reason::TargetMismatch, message))
}

/// The name of the cost model that a request asks for.
pub(super) fn cost_model_or_usual(asked: Option<&String>) -> String {
    asked.map_or(COST_MODELS[0].0, String::as_str).to_owned()
}

fn settings(request: &Tune, threads: usize, earlier: Duration) -> Result<Settings> {
    let number = |value: Option<u64>| value.map(|own| usize::try_from(own).unwrap_or(usize::MAX));
    let StopRequest { max_trials, max_seconds, no_improvement_trials, goal_nanoseconds } =
        request.stop;
    let measure = &request.measure;
    let is_time = |seconds: f64| seconds.is_finite() && (1e-4..=1e5).contains(&seconds);
    if !is_time(measure.seconds) || !is_time(measure.timeout_seconds) {
        let message =
            "the times of measuring are not between 100 µs and a day: correct spec.measure";
        return Err(Failure::new(Reason::InvalidSpec, message));
    }
    Ok(Settings {
        trials: number(max_trials),
        budget: max_seconds.map(|most| Duration::from_secs(most).saturating_sub(earlier)),
        earlier,
        goal: goal_nanoseconds.map(|goal| goal as f64),
        patience: number(no_improvement_trials),
        threads,
        seed: request.seed,
        strategy: request.strategy.clone(),
        cost_model: cost_model_or_usual(request.cost_model.as_ref()),
        // Candidates of a batch, and the schedule without tuning, take turns.
        seconds: measure.seconds * (BATCH + 1) as f64,
        timeout: Some(Duration::from_secs_f64(measure.timeout_seconds)),
        noise: measure.max_noise.unwrap_or(NOISE),
        warm: true,
        whole: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the API are names of the search.
    #[test]
    fn the_cost_model_of_a_request_is_taken() {
        use hone_crds::tuning_run::CostModel;
        for (model, index) in [(CostModel::Trees, 0), (CostModel::Neural, 1)] {
            let name = model.name().to_owned();
            assert_eq!(cost_model_or_usual(Some(&name)), COST_MODELS[index].0);
        }
        assert_eq!(cost_model_or_usual(None), CostModel::default().name());
    }
}
