//! The same result as the status that the cluster shows.

use hone_artifact::report::{CorrectnessReport, Report, uri_beside};
use hone_crds::conditions::{self, State};
use hone_crds::model_compilation::{Goal, Metric};
use hone_crds::status::{
    Artifact, Cache, CorrectnessStatus, Failure, Latency, SizesStatus, Summary,
};
use hone_crds::{Decimal, Duration, ModelCompilationStatus, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::work::Outcome;

/// The status of all targets.
pub fn status(outcomes: &[Outcome], goals: &[Goal]) -> ModelCompilationStatus {
    let targets: Vec<TargetStatus> =
        outcomes.iter().map(|outcome| target(&outcome.report, goals)).collect();
    let failure = targets.iter().find_map(|target| target.failure.clone());
    let ready = targets.iter().filter(|target| target.phase == Phase::Succeeded).count();
    let phase = if failure.is_some() { Phase::Failed } else { Phase::Succeeded };
    let mut status = ModelCompilationStatus {
        phase,
        targets_ready: Some(format!("{ready}/{}", targets.len())),
        completion_time: Some(now()),
        failure,
        summary: Summary::of(&targets),
        ..ModelCompilationStatus::default()
    };
    set_conditions(&mut status, &targets);
    status.targets = targets;
    status
}

fn now() -> Time {
    Time(jiff::Timestamp::now())
}

fn target(report: &Report, goals: &[Goal]) -> TargetStatus {
    let failure = report.failure.as_ref().map(|failure| Failure {
        reason: failure.reason.as_str().to_owned(),
        message: conditions::bounded(&failure.message, 2048).to_owned(),
    });
    let failure = failure.or_else(|| {
        let missed = missed(report, goals)?;
        Some(Failure { reason: "GoalMissed".to_owned(), message: missed })
    });
    TargetStatus {
        name: report.target.clone(),
        phase: if failure.is_some() { Phase::Failed } else { Phase::Succeeded },
        artifact: report.artifact.as_ref().map(|artifact| Artifact {
            uri: artifact.uri.clone(),
            digest: artifact.digest.clone(),
            size_bytes: i64::try_from(artifact.size_bytes).unwrap_or(i64::MAX),
            checked: None,
            owned: None,
        }),
        report_uri: report
            .artifact
            .as_ref()
            .map(|artifact| uri_beside(&artifact.uri, &report.subject.uid)),
        model_digest: report.model_digest.clone(),
        fingerprint: report.fingerprint.clone(),
        latency: report.latency.as_ref().map(|latency| Latency {
            p50: Duration::from_nanos(latency.p50),
            p90: latency.p90.map(Duration::from_nanos),
            ci_low: latency.ci_low.map(Duration::from_nanos),
            ci_high: latency.ci_high.map(Duration::from_nanos),
            untuned: latency.untuned.map(Duration::from_nanos),
        }),
        sizes: report
            .sizes
            .iter()
            .map(|own| SizesStatus {
                sizes: own.sizes.clone(),
                p50: own.latency.as_ref().map(|latency| Duration::from_nanos(latency.p50)),
            })
            .collect(),
        precision: report.precision.clone(),
        correctness: report.correctness.as_ref().and_then(correctness),
        unverified: report.unverified.clone(),
        cache: Some(if report.cache_hit { Cache::Hit } else { Cache::Miss }),
        tuned: report.records.is_some(),
        compile_time: Some(Duration::from_nanos((report.compile_seconds * 1e3) as u64 * 1_000_000)),
        failure,
        ..TargetStatus::default()
    }
}

fn correctness(correctness: &CorrectnessReport) -> Option<CorrectnessStatus> {
    let kernels = correctness.kernels.as_ref();
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Some(CorrectnessStatus {
        max_abs: Decimal::from_f64(correctness.max_abs)?,
        max_rel: Decimal::from_f64(correctness.max_rel)?,
        passed: correctness.passed,
        kernels: kernels.map(|kernels| count(kernels.checked)),
        kernel_error: kernels.and_then(|kernels| Decimal::from_f64(kernels.worst_error)),
        steps_off: kernels.map(|kernels| count(kernels.steps_off)),
        passes_unchecked: correctness.passes_unchecked.clone(),
        executed_by: correctness.executed_by.clone(),
    })
}

/// The goals that a result misses, in words; `None` where it reaches all.
pub fn missed(report: &Report, goals: &[Goal]) -> Option<String> {
    let miss = |goal: &Goal| {
        let latency = report.latency.as_ref();
        let (name, value) = match goal.metric {
            Metric::LatencyP50 => ("latency-p50", latency.map(|latency| latency.p50)),
            Metric::LatencyP90 => ("latency-p90", latency.and_then(|latency| latency.p90)),
        };
        match value.map(Duration::from_nanos) {
            Some(value) if value <= goal.max => None,
            Some(value) => Some(format!("{name} is {value}, the goal is {}", goal.max)),
            None => Some(format!("{name} was not measured, the goal is {}", goal.max)),
        }
    };
    let missed: Vec<String> = goals.iter().filter_map(miss).collect();
    (!missed.is_empty()).then(|| format!("target '{}': {}", report.target, missed.join("; ")))
}

fn set_conditions(status: &mut ModelCompilationStatus, targets: &[TargetStatus]) {
    let succeeded = status.phase == Phase::Succeeded;
    let (reason, message) = match &status.failure {
        Some(failure) => (failure.reason.clone(), failure.message.clone()),
        None => ("Succeeded".to_owned(), "every target has its artifact".to_owned()),
    };
    let passed = |target: &TargetStatus| target.correctness.as_ref().map(|c| c.passed);
    let verified = match targets {
        targets if targets.iter().any(|target| passed(target) == Some(false)) => State::False,
        targets if targets.iter().all(|target| passed(target) == Some(true)) => State::True,
        _ => State::Unknown,
    };
    let time = now();
    for (kind, state) in [
        (conditions::READY, State::from(succeeded)),
        (conditions::RECONCILING, State::False),
        (conditions::STALLED, State::from(!succeeded)),
        (conditions::FINISHED, State::True),
        (conditions::SUCCEEDED, State::from(succeeded)),
        (conditions::VERIFIED, verified),
        (conditions::TUNED, State::from(targets.iter().all(|target| target.tuned))),
    ] {
        conditions::set(&mut status.conditions, kind, state, &reason, &message, None, &time);
    }
}
