//! Tuning as a part of compiling, where the request asks for it.

use std::time::Duration;

use hone_artifact::request::{Compile, TuningRequest};
use hone_driver::Target;

use super::{Machine, Outcome, Worker};
use crate::compiler::Model;
use crate::failure::Result;
use crate::storage::Destination;
use crate::tune::run_log;
use crate::tune::{Interrupt, NOISE, Session, Settings, Summary};

/// Longest search where the request bounds neither trials nor time.
const LONGEST: Duration = Duration::from_secs(600);
/// Seconds of measuring for each batch of candidates.
const SECONDS: f64 = 0.3;

impl Worker<'_> {
    /// Takes over what a tuning run found, where the request names its log; a note for the report.
    pub(super) fn take_records(&self, request: &Compile) -> Result<Option<String>> {
        let Some(log) = &request.tuning.records else { return Ok(None) };
        let place = Destination::open(&log.uri, log.credentials.as_deref(), self.access)?;
        let segments = run_log::take(&place, &self.cache.records_folder(), self.access.limit)?;
        Ok(Some(format!("records of {segments} segments were taken from '{}'", log.uri)))
    }

    /// Searches for faster schedules where the request asks for it and they were not searched for before. What
    /// is found lies in the records, which the compilation then uses.
    pub(super) fn tune(
        &self,
        request: &Compile,
        model: &Model,
        target: &Target,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let TuningRequest { policy, max_trials, max_seconds, .. } = &request.tuning;
        let folder = self.cache.records_folder();
        let known = Summary::read(&folder, model, &request.inputs, target);
        if policy == "Never" || (policy == "IfNotCached" && known.is_some()) {
            return Ok(());
        }
        if !Machine::of(&hone_driver::manifest_target(target)).is_here() {
            let note = "this machine cannot run it: not tuned".to_owned();
            outcome.details.notes.push(note);
            return Ok(());
        }
        self.progress.stage("tune");
        let trials = max_trials.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let budget = max_seconds.map(Duration::from_secs);
        let settings = Settings {
            trials,
            budget: budget.or(trials.is_none().then_some(LONGEST)),
            goal: None,
            patience: None,
            threads: self.options.threads,
            seed: 1,
            strategy: "learned".to_owned(),
            seconds: SECONDS,
            timeout: None,
            noise: NOISE,
            warm: true,
            whole: false,
        };
        let session = Session {
            model,
            inputs: &request.inputs,
            target,
            cache: self.cache,
            settings,
            interrupt: Interrupt::default(),
            tell: &|_, _| {},
        };
        session.run()?;
        Ok(())
    }
}
