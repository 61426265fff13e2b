//! Tuning as a part of compiling, where the request asks for it.

use std::time::Duration;

use hone_artifact::request::{Compile, Input, LONGEST_SEARCH, TuningRequest};
use hone_driver::Target;

use super::search::cost_model_or_usual;
use super::{Machine, Outcome, Worker};
use crate::compiler::{self, Model};
use crate::failure::Result;
use crate::storage::Destination;
use crate::tune::run_log;
use crate::tune::{Interrupt, NOISE, Session, Settings, Summary};

/// Seconds of measuring for each batch of candidates.
const SECONDS: f64 = 0.3;

impl Worker<'_> {
    /// Takes over what a tuning run found, where the request names its log; a note for the report.
    pub(super) fn take_records(&self, request: &Compile) -> Result<Option<String>> {
        let Some(log) = &request.tuning.records else { return Ok(None) };
        let place = Destination::open(&log.uri, log.credentials.as_deref(), self.access)?;
        let segments = run_log::take(
            &place,
            &self.cache.records_folder(),
            self.access.limit,
            "spec.tuning.records",
        )?;
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
        if policy == "Never" {
            return Ok(());
        }
        let mut sizes = compiler::requests_of_sizes(model, &request.inputs)?;
        let known = |inputs: &Vec<Input>| Summary::read(&folder, model, inputs, target).is_some();
        if policy == "IfNotCached" {
            sizes.retain(|inputs| !known(inputs));
        }
        if sizes.is_empty() {
            return Ok(());
        }
        if !Machine::of(&hone_driver::manifest_target(target)).is_here() {
            let note = "this machine cannot run it: not tuned".to_owned();
            outcome.details.notes.push(note);
            return Ok(());
        }
        self.progress.stage("tune");
        // Each of the sizes gets an equal share.
        let share = sizes.len();
        let trials = max_trials.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let trials = trials.map(|most| most.div_ceil(share));
        let budget = max_seconds.map(Duration::from_secs);
        let budget = budget.or(trials.is_none().then_some(LONGEST_SEARCH));
        let settings = Settings {
            trials,
            budget: budget.map(|budget| budget / share as u32),
            earlier: Duration::ZERO,
            goal: None,
            patience: None,
            threads: self.options.threads,
            seed: 1,
            strategy: "learned".to_owned(),
            cost_model: cost_model_or_usual(request.tuning.cost_model.as_ref()),
            seconds: SECONDS,
            timeout: None,
            noise: NOISE,
            warm: true,
            whole: false,
        };
        for inputs in &sizes {
            self.tune_size(model, inputs, target, settings.clone())?;
        }
        Ok(())
    }

    fn tune_size(
        &self,
        model: &Model,
        inputs: &[Input],
        target: &Target,
        settings: Settings,
    ) -> Result<()> {
        let session = Session {
            model,
            inputs,
            target,
            board: None,
            cache: self.cache,
            earlier: &[],
            fleet: None,
            elsewhere: false,
            settings,
            interrupt: Interrupt::default(),
            tell: &|_, _| {},
        };
        session.run()?;
        Ok(())
    }
}
