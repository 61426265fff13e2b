//! Runs the cases of the planner of tuning runs in `tests/run-plans`: what was observed, then what is planned.
//!
//! A case is one YAML document with `observed` (and `config` where it differs), then a line `--- # plan` and the plan.
//! `@JOB@` stands for the name of the run's Job, `@SESSION-1@` for that of its first session. `HONE_UPDATE_EXPECT=1` rewrites the plan. Two things are said of every
//! case besides: planning over the state that the plan leads to changes nothing, and what is written fits the schema.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/cases.rs"]
mod cases;

use std::path::Path;

use hone_crds::{TuningRun, generate, schema_check};
use hone_operator::children::jobs::JobView;
use hone_operator::children::steps::Action;
use hone_operator::config::Config;
use hone_operator::tuning_run::digest::{job_name, session_names};
use hone_operator::tuning_run::job;
use hone_operator::tuning_run::model::{Observed, Plan};
use hone_operator::tuning_run::plan::plan;
use serde::Deserialize;
use serde_json::Value;

const MARK: &str = "--- # plan\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    config: Config,
    observed: Observed,
}

/// The names of the Jobs of a case, and what they are called in it.
fn names(given: &str, path: &Path) -> Vec<(String, String)> {
    let object = read(given, path).observed.object;
    let sessions = session_names(&object).into_iter().enumerate();
    let mut names = vec![("@JOB@".to_owned(), job_name(&object))];
    names.extend(sessions.map(|(index, name)| (format!("@SESSION-{}@", index + 1), name)));
    names
}

/// A case with the names of its Jobs.
fn named(given: &str, path: &Path) -> Case {
    let names = names(given, path);
    let text = names.iter().fold(given.to_owned(), |text, (mark, name)| text.replace(mark, name));
    read(&text, path)
}

/// Reads a case as the API server would hand it on: with the schema's defaults.
fn read(text: &str, path: &Path) -> Case {
    let mut value: Value =
        serde_yaml::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let schema = generate::schema_of::<TuningRun>();
    let object = &mut value["observed"]["object"];
    *object = kube::core::cel::apply_defaults(&schema, object);
    let faults = schema_check::check(&schema["properties"]["spec"], &object["spec"], "spec");
    assert!(faults.is_empty(), "{}: {faults:?}", path.display());
    serde_json::from_value(value).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The state after the plan was carried out, and before anything else happens.
fn carry_out(mut observed: Observed, plan: &Plan) -> Observed {
    if let Some(status) = &plan.status {
        observed.object.status = Some(status.clone());
    }
    for action in &plan.actions {
        match action {
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
                let job = job.expect("a Job that is there is placed");
                job.slot = Some(placement.grant.slot.clone());
                observed.waits.remove(&placement.name);
            }
            Action::Event(_) => {}
            other => panic!("a run has no {other:?}"),
        }
    }
    observed
}

#[test]
fn plans() {
    let update = std::env::var_os("HONE_UPDATE_EXPECT").is_some();
    let mut differing = Vec::new();
    for path in cases::files("run-plans", 10) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (given, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let case = named(given, &path);
        let planned = plan(&case.config, &case.observed);
        check_schema(&planned, &path);
        let after = carry_out(case.observed.clone(), &planned);
        let again = plan(&case.config, &after);
        assert!(
            again.actions.is_empty() && again.status.is_none(),
            "{}: planning again changes something: {}",
            path.display(),
            serde_yaml::to_string(&again).unwrap()
        );
        // By way of JSON, whose form of an enum is a map.
        let planned = serde_json::to_value(&planned).unwrap();
        let got = serde_yaml::to_string(&planned).unwrap();
        let names = names(given, &path);
        let got = names.iter().fold(got, |got, (mark, name)| got.replace(name, mark));
        if update {
            std::fs::write(&path, format!("{given}{MARK}{got}")).unwrap();
        } else if got != expected {
            differing.push(format!("{}:\n{got}", path.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn check_schema(planned: &Plan, path: &Path) {
    let Some(status) = &planned.status else { return };
    let schema = generate::schema_of::<TuningRun>();
    let status = serde_json::to_value(status).unwrap();
    let faults = schema_check::check(&schema["properties"]["status"], &status, "status");
    assert!(faults.is_empty(), "{}: {faults:?}", path.display());
}

/// The pod is restricted, is told what the spec says, and has the Secrets of model and log and no other.
#[test]
fn the_manifest_of_a_run() {
    manifest_of_the_job_in("device-granted", "tune");
}

/// As that of the run, with the logs of others in the request, and their Secrets where these are there.
#[test]
fn the_manifest_of_a_warm_run() {
    manifest_of_the_job_in("starts-warm", "tune-warm");
}

/// As that of the run, and without the Secret of the model.
#[test]
fn the_manifest_of_a_session() {
    manifest_of_the_job_in("session-granted", "session");
}

#[test]
fn the_manifest_of_a_run_for_devices_outside_of_the_cluster() {
    manifest_of_the_job_in("external-starts", "tune-external");
}

fn manifest_of_the_job_in(case: &str, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let path = folder.join(format!("run-plans/{case}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let given = text.split_once(MARK).unwrap().0;
    let case = named(given, &path);
    let planned = plan(&case.config, &case.observed);
    let made = planned.actions.iter().find_map(|action| match action {
        Action::CreateJob(job) => Some(job),
        _ => None,
    });
    let manifest = job::manifest(&case.config, &case.observed.object, made.unwrap()).unwrap();
    let got = serde_yaml::to_string(&manifest).unwrap();
    let path = folder.join(format!("manifests/{name}.yaml"));
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    assert_eq!(got, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}
