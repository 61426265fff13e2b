//! Runs the cases of the planner in `tests/plans`: what was observed, then what is planned.
//!
//! A case is one YAML document with `observed` (and `config` where it differs), then a line
//! `--- # plan` and the plan. `@JOB@`, `@SPEC@`, `@KEY@`, `@ADOPT@` and `@CLEAN@` stand for the first
//! target's Job name, spec digest and content key, and for the names of the Jobs that look for another's artifact and
//! that clean up; `@RUN@`, `@LOG@`, `@ASKED@` and `@TUNED@` for its tuning run, that run's log, the tuning digest, and
//! the Job that compiles with what the first run found.
//! `HONE_UPDATE_EXPECT=1` rewrites the plan. Two things are said of every case besides: planning
//! over the state that the plan leads to changes nothing, and what is written fits the schema.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/cases.rs"]
mod cases;

use std::path::Path;
use std::sync::LazyLock;

use hone_crds::{ModelCompilation, Phase, generate, schema_check};
use hone_operator::children::names::FINALIZER;
use hone_operator::config::Config;
use hone_operator::model_compilation::model::{Action, JobView, Observed, Plan, RunView};
use hone_operator::model_compilation::plan::plan;
use hone_operator::model_compilation::{deletion, digest};
use serde::Deserialize;
use serde_json::Value;

/// Of the resource; making it takes longer than a case does.
static SCHEMA: LazyLock<Value> = LazyLock::new(generate::schema_of::<ModelCompilation>);

const MARK: &str = "--- # plan\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    config: Config,
    observed: Observed,
}

/// What the placeholders of a case stand for.
fn names(case: &Case) -> [(&'static str, String); 9] {
    let object = &case.observed.object;
    let target = &object.spec.targets[0];
    let uris = deletion::uris(&case.observed);
    let own = object.status.iter().flat_map(|status| &status.targets);
    let results = case.observed.cached.values().chain(own);
    let mut cached = results.filter_map(|found| found.artifact.as_ref());
    let adopted = cached.next().map(|artifact| artifact.uri.clone()).unwrap_or_default();
    let checkpoint = case.observed.runs.first().and_then(|run| run.checkpoint.clone());
    let checkpoint = checkpoint.unwrap_or_default();
    let key = digest::content_key(&case.config, object, target, &case.observed.pools);
    [
        ("@JOB@", digest::job_name(object, target)),
        ("@SPEC@", digest::spec_digest(object, target)),
        ("@KEY@", key.unwrap_or_else(|| "none".to_owned())),
        ("@ADOPT@", digest::adoption_name(object, target, &adopted)),
        ("@CLEAN@", digest::cleanup_name(object, &uris)),
        ("@RUN@", digest::run_name(object, target)),
        ("@LOG@", digest::tuning_log(object, target).uri),
        ("@ASKED@", digest::tuning_digest(object)),
        ("@TUNED@", digest::revision_name(object, target, &checkpoint)),
    ]
}

/// Reads a case as the API server would hand it on: with the schema's defaults.
fn read(text: &str, path: &Path) -> Case {
    let mut value: Value =
        serde_yaml::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let schema = &*SCHEMA;
    let object = &mut value["observed"]["object"];
    *object = kube::core::cel::apply_defaults(schema, object);
    let faults = schema_check::check(&schema["properties"]["spec"], &object["spec"], "spec");
    assert!(faults.is_empty(), "{}: {faults:?}", path.display());
    serde_json::from_value(value).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The state after the plan was carried out, and before anything else happens.
fn carry_out(mut observed: Observed, plan: &Plan) -> Option<Observed> {
    if let Some(status) = &plan.status {
        observed.object.status = Some(status.clone());
    }
    let finalizers = observed.object.metadata.finalizers.get_or_insert_default();
    for action in &plan.actions {
        match action {
            Action::AddFinalizer => finalizers.push(FINALIZER.to_owned()),
            Action::RemoveFinalizer => finalizers.retain(|name| name != FINALIZER),
            Action::CreateJob(job) => observed.jobs.push(JobView {
                name: job.name.clone(),
                purpose: job.purpose,
                pool: job.pool.as_ref().map(|pool| pool.name.clone()),
                gated: job.gated,
                suspended: job.suspended,
                at_rest: job.suspended,
                slot: job.grant.as_ref().map(|grant| grant.slot.clone()),
                created: Some(observed.now.clone()),
                active_deadline_seconds: Some(job.bounds.active_deadline_seconds),
                backoff_limit: Some(job.bounds.backoff_limit),
                ..JobView::default()
            }),
            Action::DeleteJob(name) => {
                let job = observed.jobs.iter_mut().find(|job| job.name == *name);
                job.expect("a Job that is there is deleted").deleting = true;
            }
            Action::AdjustJob(bounds) => {
                let job = observed.jobs.iter_mut().find(|job| job.name == bounds.name);
                let job = job.expect("a Job that is there is changed");
                job.active_deadline_seconds = Some(bounds.active_deadline_seconds);
                job.backoff_limit = Some(bounds.backoff_limit);
            }
            Action::WakeJob(name) => {
                let job = observed.jobs.iter_mut().find(|job| job.name == *name);
                job.expect("a Job that is there is woken").woken = Some(observed.now.clone());
            }
            Action::RemovePod(pod) => {
                let lost = |job: &&mut JobView| job.lost.as_ref() == Some(pod);
                let job = observed.jobs.iter_mut().find(lost).expect("a pod that is there goes");
                // The Job controller makes another.
                (job.lost, job.active, job.terminating) = (None, 1, 0);
            }
            Action::PlaceJob(placement) => {
                let job = observed.jobs.iter_mut().find(|job| job.name == placement.name);
                job.expect("a Job that is there is placed").slot =
                    Some(placement.grant.slot.clone());
                observed.waits.remove(&placement.name);
            }
            Action::ApplyRun(run) => {
                observed.runs.retain(|other| other.name != run.name);
                observed.runs.push(RunView {
                    name: run.name.clone(),
                    deleting: false,
                    spec: run.spec.clone(),
                    retry: run.retry.clone(),
                    phase: Phase::Pending,
                    failure: None,
                    checkpoint: None,
                    best: None,
                });
            }
            Action::DeleteRun(name) => {
                let run = observed.runs.iter_mut().find(|run| run.name == *name);
                run.expect("a run that is there is deleted").deleting = true;
            }
            Action::DeleteSelf => return None,
            Action::Event(_) => {}
        }
    }
    Some(observed)
}

#[test]
fn plans() {
    let update = std::env::var_os("HONE_UPDATE_EXPECT").is_some();
    let mut differing = Vec::new();
    for path in cases::files("plans", 10) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (given, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let names = names(&read(given, &path));
        let mut text = given.to_owned();
        for (placeholder, name) in &names {
            text = text.replace(placeholder, name);
        }
        let case = read(&text, &path);
        let planned = plan(&case.config, &case.observed);
        check_schema(&planned, &path);
        check_stable(&case, &planned, &path);
        // By way of JSON, whose form of an enum is a map.
        let planned = serde_json::to_value(&planned).unwrap();
        let mut got = serde_yaml::to_string(&planned).unwrap();
        for (placeholder, name) in &names {
            got = got.replace(name.as_str(), placeholder);
        }
        if update {
            std::fs::write(&path, format!("{given}{MARK}{got}")).unwrap();
        } else if got != expected {
            differing.push(format!("{}:\n{got}", path.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn check_schema(planned: &Plan, path: &Path) {
    let Some(status) = &planned.status else {
        return;
    };
    let schema = &*SCHEMA;
    let status = serde_json::to_value(status).unwrap();
    let faults = schema_check::check(&schema["properties"]["status"], &status, "status");
    assert!(faults.is_empty(), "{}: {faults:?}", path.display());
}

fn check_stable(case: &Case, planned: &Plan, path: &Path) {
    let Some(after) = carry_out(case.observed.clone(), planned) else {
        return;
    };
    let again = plan(&case.config, &after);
    let makes = |action: &Action| matches!(action, Action::CreateJob(_) | Action::DeleteJob(_));
    if !planned.actions.iter().any(makes) {
        assert_eq!(again.requests, planned.requests, "{}", path.display());
    }
    assert!(
        again.actions.is_empty() && again.status.is_none(),
        "{}: planning again changes something: {}",
        path.display(),
        serde_yaml::to_string(&again).unwrap()
    );
}
