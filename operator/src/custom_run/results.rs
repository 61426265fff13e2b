//! What a run says in `status.results`, in the words of the object's status; only what there is.

use hone_crds::tuning_run::TuningRunSpec;
use hone_crds::{ModelCompilationStatus, Phase, TargetStatus, TuningRunStatus};

use super::resource::RunResult;

/// Results of a compilation that has succeeded: those of the first target, and where there are several those of each
/// under `TARGET-`.
pub fn of_compilation(status: &ModelCompilationStatus) -> Vec<RunResult> {
    if status.phase != Phase::Succeeded {
        return Vec::new();
    }
    let first = status.targets.first().map(|target| of_target(target, ""));
    let several = status.targets.iter().filter(|_| status.targets.len() > 1);
    let each = several.flat_map(|target| of_target(target, &format!("{}-", target.name)));
    first.into_iter().flatten().chain(each).collect()
}

/// Results of a tuning run that has succeeded.
pub fn of_tuning_run(spec: &TuningRunSpec, status: &TuningRunStatus) -> Vec<RunResult> {
    if status.phase != Phase::Succeeded {
        return Vec::new();
    }
    let best = status.best.as_ref();
    let trials = status.trials.as_ref();
    let all = [
        ("log", Some(spec.log.uri.clone())),
        ("checkpoint", status.checkpoint.as_ref().map(|own| own.digest.clone())),
        ("latency", best.map(|best| best.latency.to_string())),
        ("untuned", best.and_then(|best| best.untuned).map(|time| time.to_string())),
        ("trials", trials.map(|trials| (trials.measured + trials.failed).to_string())),
        ("ended", status.ended.clone()),
    ];
    named(all, "")
}

fn of_target(target: &TargetStatus, prefix: &str) -> Vec<RunResult> {
    let artifact = target.artifact.as_ref();
    let latency = target.latency.as_ref();
    let all = [
        ("artifact", artifact.map(|own| own.uri.clone())),
        ("digest", artifact.map(|own| own.digest.clone())),
        ("size", artifact.map(|own| own.size_bytes.to_string())),
        ("report", target.report_uri.clone()),
        ("latency", latency.map(|own| own.p50.to_string())),
        ("untuned", latency.and_then(|own| own.untuned).map(|time| time.to_string())),
        ("pool", target.pool.clone()),
        ("precision", target.precision.clone()),
        ("cache", target.cache.map(|cache| format!("{cache:?}"))),
    ];
    named(all, prefix)
}

fn named<const N: usize>(all: [(&str, Option<String>); N], prefix: &str) -> Vec<RunResult> {
    let all = all.into_iter();
    let result =
        |(name, value): (&str, String)| RunResult { name: format!("{prefix}{name}"), value };
    all.filter_map(|(name, value)| Some(result((name, value?)))).collect()
}
