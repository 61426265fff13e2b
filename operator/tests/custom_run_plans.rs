//! Runs the cases of the planner of Tekton's CustomRuns in `tests/custom-run-plans`: what was observed, then what is
//! planned, step by step until nothing is left to do.
//!
//! A case is one YAML document with `observed` (and `config` where it differs), then a line `--- # plans` and the plans.
//! `HONE_UPDATE_EXPECT=1` rewrites these.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/cases.rs"]
mod cases;

use std::path::Path;

use hone_crds::status::{Artifact, Cache, Latency};
use hone_crds::tuning_run::{Best, Checkpoint, Trials};
use hone_crds::{
    Duration, ModelCompilationStatus, Phase, TargetStatus, TuningRun, TuningRunStatus,
};
use hone_operator::config::Config;
use hone_operator::custom_run::model::{Action, ChildView, Observed, Plan};
use hone_operator::custom_run::plan::plan;
use hone_operator::custom_run::reason::Reason;
use hone_operator::custom_run::results;
use serde::Deserialize;

const MARK: &str = "--- # plans\n";
/// A case that takes more steps than this does not come to rest.
const MOST_STEPS: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    config: Config,
    observed: Observed,
}

/// The state after the plan was carried out, and before anything else happens.
fn carry_out(mut observed: Observed, plan: &Plan) -> Observed {
    for action in &plan.actions {
        match action {
            Action::Create(child) => {
                assert!(observed.child.is_none(), "what is there is made again: {child:?}");
                observed.child = Some(ChildView {
                    owned: true,
                    suspended: false,
                    phase: Phase::Pending,
                    reason: String::new(),
                    message: String::new(),
                    failure: None,
                    results: Vec::new(),
                });
            }
            Action::Suspend(_) => {
                observed.child.as_mut().expect("what is there is suspended").suspended = true;
            }
        }
    }
    if let Some(status) = &plan.status {
        if status.attempts() > observed.object.status.attempts() {
            // The object of the next attempt has another name.
            observed.child = None;
        }
        observed.object.status = status.clone();
    }
    observed
}

/// The plans of a case until nothing is left to do.
fn plans(case: Case, path: &Path) -> Vec<Plan> {
    let (config, mut observed) = (case.config, case.observed);
    let mut plans: Vec<Plan> = Vec::new();
    loop {
        let planned = plan(&config, &observed);
        if planned.actions.is_empty() && planned.status.is_none() {
            return plans;
        }
        assert!(plans.len() < MOST_STEPS, "{}: comes to no rest: {planned:?}", path.display());
        observed = carry_out(observed, &planned);
        plans.push(planned);
    }
}

#[test]
fn cases_are_planned() {
    let update = std::env::var_os("HONE_UPDATE_EXPECT").is_some();
    let mut differing = Vec::new();
    for path in cases::files("custom-run-plans", 20) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (given, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let case: Case =
            serde_yaml::from_str(given).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // By way of JSON, whose form of an enum is a map, and without what a status lacks.
        let mut planned = serde_json::to_value(plans(case, &path)).unwrap();
        for plan in planned.as_array_mut().unwrap() {
            if let Some(status) = plan["status"].as_object_mut() {
                status.retain(|_, value| !value.is_null());
            }
        }
        let got = serde_yaml::to_string(&planned).unwrap();
        if update {
            std::fs::write(&path, format!("{given}{MARK}{got}")).unwrap();
        } else if got != expected {
            differing.push(format!("{}:\n{got}", path.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn the_page_explains_every_reason() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kubernetes/tekton.md");
    let page = std::fs::read_to_string(page).unwrap();
    for reason in Reason::ALL {
        let line = format!("| `{}` |", reason.as_str());
        assert!(page.contains(&line), "docs/kubernetes/tekton.md has no line {line}");
    }
}

fn target(name: &str) -> TargetStatus {
    TargetStatus {
        name: name.to_owned(),
        artifact: Some(Artifact {
            uri: format!("s3://artifacts/x/{name}.hone"),
            digest: "sha256:aa".to_owned(),
            size_bytes: 7,
            checked: None,
            owned: None,
        }),
        latency: Some(Latency { p50: Duration::from_nanos(1_310_000), ..Latency::default() }),
        cache: Some(Cache::Miss),
        ..TargetStatus::default()
    }
}

/// Names and values of results, and that the page explains each name.
fn texts(results: Vec<hone_operator::custom_run::resource::RunResult>) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kubernetes/tekton.md");
    let page = std::fs::read_to_string(page).unwrap();
    for result in &results {
        let name = result.name.rsplit('-').next().unwrap();
        assert!(page.contains(&format!("`{name}`")), "docs/kubernetes/tekton.md: no `{name}`");
    }
    results.into_iter().map(|own| format!("{}={}", own.name, own.value)).collect()
}

#[test]
fn results_are_what_the_status_says() {
    let mut status = ModelCompilationStatus {
        phase: Phase::Succeeded,
        targets: vec![target("amx")],
        ..ModelCompilationStatus::default()
    };
    let one = texts(results::of_compilation(&status));
    let first = ["artifact=s3://artifacts/x/amx.hone", "digest=sha256:aa", "size=7"];
    assert_eq!(one, [&first[..], &["latency=1.31ms", "cache=Miss"]].concat());
    status.targets.push(target("edge"));
    let two = texts(results::of_compilation(&status));
    assert!(two.starts_with(&one) && two.len() == 15, "{two:?}");
    assert!(two.contains(&"edge-artifact=s3://artifacts/x/edge.hone".to_owned()), "{two:?}");
    status.phase = Phase::Running;
    assert!(results::of_compilation(&status).is_empty());

    let run = TuningRun::from_yaml(
        "{apiVersion: hone.dev/v1alpha1, kind: TuningRun, metadata: {name: r}, spec: {model: {uri: 's3://m/x'}, \
         target: {arch: amd64}, pool: p, stop: {maxTrials: 9}, log: {uri: 's3://tuning/x'}}}",
    )
    .unwrap();
    let status = TuningRunStatus {
        phase: Phase::Succeeded,
        trials: Some(Trials { measured: 8, failed: 1 }),
        best: Some(Best { latency: Duration::from_nanos(2_000_000), untuned: None, programs: 3 }),
        checkpoint: Some(Checkpoint { segment: 2, digest: "sha256:bb".to_owned() }),
        ..TuningRunStatus::default()
    };
    let got = texts(results::of_tuning_run(&run.spec, &status));
    assert_eq!(got, ["log=s3://tuning/x", "checkpoint=sha256:bb", "latency=2ms", "trials=9"]);
}
