//! Tuning of a target whose artifact is published: a tuning run searches, and a worker compiles once more with what won, as
//! [`super::revised`] says.
//!
//! Whatever becomes of that, the artifact stays until a better one is there: a search that fails is told of in
//! `status.targets[].tuning` and the `Tuned` condition, and fails nothing else.

use hone_artifact::exit_code;
use hone_artifact::request::LONGEST_SEARCH;
use hone_crds::common::Platform;
use hone_crds::model_compilation::TuningPolicy;
use hone_crds::status::{Failure, ObjectRef, TargetTuning};
use hone_crds::tuning_run::{Best, Search, Stop, TuningRunSpec, WarmStart};
use hone_crds::{Duration, Phase, TargetStatus};

use super::Planner;
use crate::children::ended::failure;
use crate::children::events::EventPlan;
use crate::children::names::RETRY_ANNOTATION;
use crate::children::reasons::Reason;
use crate::model_compilation::model::{Action, RunPlan};
use crate::model_compilation::plan::Draft;
use crate::model_compilation::{digest, request};

impl Planner<'_> {
    /// The target, whose own work stands as `status` says, with its tuning brought a step on.
    pub(super) fn tuned(&self, status: TargetStatus, draft: &mut Draft) -> TargetStatus {
        if !self.wants_tuning() {
            let run = status.tuning_run_ref.clone().filter(|_| status.tuned);
            return TargetStatus { tuning: None, tuning_run_ref: run, ..status };
        }
        if status.phase != Phase::Succeeded {
            return status;
        }
        let observed = self.context.observed;
        let object = &observed.object;
        let name = digest::run_name(object, self.target);
        draft.wanted_runs.push(name.clone());
        let asked = digest::tuning_digest(object);
        let before = status.tuning.clone();
        let before = before.filter(|own| own.spec_digest.as_ref() == Some(&asked));
        if before.as_ref().is_some_and(|own| own.phase.has_ended()) {
            return status;
        }
        let Stop { max_trials, max_duration, .. } = self.search_ends();
        let begun = before.as_ref().and_then(|own| own.start_time.clone());
        let known = status.tuning.clone().unwrap_or_default();
        let tuning = TargetTuning {
            spec_digest: Some(asked),
            max_trials,
            max_duration,
            start_time: begun.or_else(|| Some(observed.now.clone())),
            phase: Phase::default(),
            failure: None,
            retry: None,
            ..known
        };
        let run = Some(ObjectRef { name: name.clone() });
        let status = TargetStatus { tuning_run_ref: run, ..status };
        let (status, mut tuning) = self.search(&name, status, (before.as_ref(), tuning), draft);
        if tuning.phase.has_ended() {
            tuning.compiling = None;
        }
        let phase = match tuning.phase {
            Phase::Succeeded | Phase::Failed => Phase::Succeeded,
            Phase::Suspended => Phase::Suspended,
            Phase::Pending | Phase::Running => Phase::Running,
        };
        let status = TargetStatus { phase, tuning: Some(tuning), ..status };
        let run = observed.runs.iter().find(|run| run.name == name);
        let best = run.and_then(|run| run.best.as_ref());
        let event = event(&status, before.is_none(), best, &name);
        draft.actions.extend(event.map(Action::Event));
        status
    }

    fn wants_tuning(&self) -> bool {
        let tuning = self.context.observed.object.spec.tuning.as_ref();
        self.context.refusal.is_none() && tuning.is_some_and(|t| t.policy != TuningPolicy::Never)
    }

    /// Brings the run on, and what follows from its end. The tuning is given as it stood for what is asked for now, if
    /// that was known, and as it is known in any case.
    fn search(
        &self,
        name: &str,
        status: TargetStatus,
        (before, known): (Option<&TargetTuning>, TargetTuning),
        draft: &mut Draft,
    ) -> (TargetStatus, TargetTuning) {
        let observed = self.context.observed;
        let at = |phase, failure| TargetTuning { phase, failure, ..known.clone() };
        if let Some(refusal) = observed.refusals.get(name) {
            let why = format!("the API server refuses TuningRun '{name}': {}", refusal.message);
            let why = failure(Reason::TuningRunRefused.as_str(), &why);
            return (status, at(Phase::Failed, Some(why)));
        }
        let tuning = match observed.runs.iter().find(|run| run.name == name) {
            None if observed.object.spec.suspend => at(Phase::Suspended, None),
            None if observed.namespace.terminating => at(Phase::Pending, None),
            None => match self.run_spec(&status) {
                Ok(spec) => {
                    draft.actions.push(self.run_plan(name, spec));
                    at(Phase::Pending, None)
                }
                Err(why) => at(Phase::Failed, Some(why)),
            },
            Some(run) if run.deleting => {
                draft.again(5);
                at(Phase::Pending, None)
            }
            // Its status would speak of the failure until it is looked at again. The next one goes on from its log.
            Some(run) if run.phase == Phase::Failed && run.retry.as_ref() != self.retry_mark() => {
                draft.actions.push(Action::DeleteRun(name.to_owned()));
                at(Phase::Pending, None)
            }
            Some(run) => {
                let wanted = self.with_bounds(run.spec.clone());
                if wanted != run.spec || run.retry.as_ref() != self.retry_mark() {
                    draft.actions.push(self.run_plan(name, wanted));
                    at(Phase::Pending, None)
                } else if run.phase == Phase::Succeeded {
                    return self.revise(run, status, (before, known), draft);
                } else {
                    let tuning = at(run.phase, run.failure.clone());
                    match run.phase {
                        Phase::Pending | Phase::Running => {
                            return self.improve(run, status, tuning, draft);
                        }
                        _ => tuning,
                    }
                }
            }
        };
        self.keep_compiling(&tuning, draft);
        (status, tuning)
    }

    fn retry_mark(&self) -> Option<&String> {
        let annotations = self.context.observed.object.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(RETRY_ANNOTATION))
    }

    fn run_plan(&self, name: &str, spec: TuningRunSpec) -> Action {
        let (name, target) = (name.to_owned(), self.target.name.clone());
        let retry = self.retry_mark().cloned();
        Action::ApplyRun(Box::new(RunPlan { name, target, spec, retry }))
    }

    /// What a new run is to do: search where the target was measured.
    fn run_spec(&self, status: &TargetStatus) -> Result<TuningRunSpec, Failure> {
        let observed = self.context.observed;
        let spec = &observed.object.spec;
        let name = status.pool.as_deref().unwrap_or_default();
        let Some(pool) = observed.pools.iter().find(|pool| pool.name == name) else {
            let why = format!(
                "pool '{name}', on which the target was measured, is gone: make it again, then set annotation hone.dev/retry"
            );
            return Err(failure(Reason::PoolNotFound.as_str(), &why));
        };
        let target = request::target_request(self.target, pool);
        if target.accelerator.is_some() {
            let why = "tuning for accelerators arrives in a later release: set spec.tuning.policy to Never";
            return Err(failure(exit_code::Reason::NotSupportedYet.as_str(), why));
        }
        let policy = spec.tuning.as_ref().map(|tuning| tuning.policy);
        let warm_start = match policy {
            Some(TuningPolicy::IfNotCached) => WarmStart::Namespace,
            _ => WarmStart::None,
        };
        let cost_model = spec.tuning.as_ref().and_then(|tuning| tuning.cost_model);
        let cost_model = cost_model.unwrap_or_default();
        let features = target.features;
        let run = TuningRunSpec {
            suspend: false,
            model: spec.model.clone(),
            inputs: (!spec.inputs.is_empty()).then(|| spec.inputs.clone()),
            target: Platform {
                os: target.os,
                arch: target.arch,
                cpu: target.cpu,
                features: (!features.is_empty()).then_some(features),
                accelerator: None,
            },
            pool: pool.name.clone(),
            parallel_devices: 1,
            search: Search { warm_start, cost_model, ..Search::default() },
            measure: hone_crds::tuning_run::Measure::default(),
            stop: Stop::default(),
            log: digest::tuning_log(&observed.object, self.target),
            limits: spec.limits.clone(),
            worker: None,
        };
        Ok(self.with_bounds(run))
    }

    /// A run's spec with what the compilation says now of all that may change. The rest stays, and so does the number of
    /// devices, which is the user's.
    fn with_bounds(&self, run: TuningRunSpec) -> TuningRunSpec {
        let spec = &self.context.observed.object.spec;
        let Stop { max_trials, max_duration, .. } = self.search_ends();
        TuningRunSpec {
            suspend: spec.suspend,
            stop: Stop { max_trials, max_duration, ..run.stop },
            limits: spec.limits.clone(),
            worker: spec.worker.clone(),
            ..run
        }
    }

    /// When the search that is asked for ends.
    pub(super) fn search_ends(&self) -> Stop {
        let tuning = self.context.observed.object.spec.tuning.clone().unwrap_or_default();
        let longest =
            tuning.max_trials.is_none().then(|| Duration::from_secs(LONGEST_SEARCH.as_secs()));
        let max_duration = tuning.max_duration.or(longest);
        Stop { max_trials: tuning.max_trials, max_duration, ..Stop::default() }
    }
}

/// The event for where the tuning of a target stands, which `begins` or was under way before, with what the run found.
fn event(status: &TargetStatus, begins: bool, best: Option<&Best>, run: &str) -> Option<EventPlan> {
    let tuning = status.tuning.as_ref()?;
    let latency = status.latency.as_ref();
    let time = latency.map_or_else(|| "not measured".to_owned(), |own| own.p50.to_string());
    let target = &status.name;
    match (tuning.phase, &tuning.failure) {
        (Phase::Failed, Some(why)) => {
            let note = format!("target '{target}' stays as it is: {}", why.message);
            Some(EventPlan::failure(&failure(&why.reason, &note)))
        }
        (Phase::Succeeded, _) => {
            let best = best.filter(|_| status.tuned);
            let note = match best.and_then(|best| Some((best.latency, best.untuned?))) {
                Some((tuned, untuned)) => format!(
                    "target '{target}': {time}; its run measured {tuned}, and {untuned} without tuning"
                ),
                None if status.tuned => format!("target '{target}': {time}"),
                None => format!("target '{target}': {time}; no schedule was faster"),
            };
            Some(EventPlan::of(Reason::Tuned, note))
        }
        (Phase::Pending | Phase::Running, _) if begins => {
            let note = format!(
                "target '{target}' is published, {time}; TuningRun '{run}' searches for faster schedules"
            );
            Some(EventPlan::of(Reason::Tuning, note))
        }
        _ => None,
    }
}
