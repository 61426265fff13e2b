//! Gauges of what there is: compilations and tuning runs by phase, the oldest compilation that waits, the devices of each
//! pool.
//!
//! Counted from the caches of the leader every [`EVERY`], so that they cost the same however many changes there are, and
//! are right again after a restart.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::conditions::{self, READY};
use hone_crds::{DevicePool, ModelCompilation, Phase, TuningRun};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::context::Context;
use crate::metrics::{PhaseCount, PoolCount, RunCount};

/// How often they are counted.
const EVERY: Duration = Duration::from_secs(10);

/// Phases and whether work in them is to come to an end.
const PHASES: [(Phase, bool); 5] = [
    (Phase::Pending, true),
    (Phase::Running, true),
    (Phase::Suspended, false),
    (Phase::Succeeded, false),
    (Phase::Failed, false),
];

/// Counts for ever.
pub async fn count(context: Arc<Context>) {
    context.stores.synced().await;
    loop {
        let compilations = phases(&context.stores.compilations.all(), Timestamp::now());
        let pools: Vec<PoolCount> =
            context.stores.pools.all().iter().map(|pool| of(pool)).collect();
        let runs = context.stores.tuning_runs.all();
        context.metrics.present(&compilations, &self::runs(&runs), &pools);
        context.metrics.at_work(&at_work(&runs));
        tokio::time::sleep(EVERY).await;
    }
}

/// Compilations by phase.
pub fn phases(objects: &[Arc<ModelCompilation>], now: Timestamp) -> Vec<PhaseCount> {
    let of_phase = |phase: Phase, at_work: bool| {
        let own = objects.iter().filter(|object| {
            object.status.as_ref().map_or(Phase::Pending, |status| status.phase) == phase
        });
        let age = |object: &Arc<ModelCompilation>| {
            let start = object.status.as_ref().and_then(|status| status.start_time.as_ref());
            let start = start.or(object.metadata.creation_timestamp.as_ref())?;
            Some(now.duration_since(start.0).as_secs().max(0))
        };
        PhaseCount {
            phase,
            count: i64::try_from(own.clone().count()).unwrap_or(i64::MAX),
            oldest_seconds: at_work.then(|| own.filter_map(age).max().unwrap_or(0)),
        }
    };
    PHASES.iter().map(|(phase, at_work)| of_phase(*phase, *at_work)).collect()
}

/// Tuning runs by phase.
pub fn runs(objects: &[Arc<TuningRun>]) -> Vec<(Phase, i64)> {
    let phase =
        |run: &Arc<TuningRun>| run.status.as_ref().map_or(Phase::Pending, |status| status.phase);
    let count = |own: Phase| objects.iter().filter(|run| phase(run) == own).count();
    let counts = PHASES.iter().map(|(own, _)| (*own, count(*own)));
    counts.map(|(own, count)| (own, i64::try_from(count).unwrap_or(i64::MAX))).collect()
}

/// Tuning runs at work, and how far they are.
pub fn at_work(objects: &[Arc<TuningRun>]) -> Vec<RunCount> {
    let count = |run: &Arc<TuningRun>| {
        let status = run.status.as_ref().filter(|status| status.phase == Phase::Running)?;
        let trials = status.trials.clone().unwrap_or_default();
        Some(RunCount {
            namespace: run.namespace().unwrap_or_default(),
            name: run.name_any(),
            measured: trials.measured,
            failed: trials.failed,
            expected: status.progress.as_ref().map(|own| own.expected.to_std().as_secs_f64()),
        })
    };
    objects.iter().filter_map(count).collect()
}

fn of(pool: &DevicePool) -> PoolCount {
    let status = pool.status.as_ref();
    let capacity = status.and_then(|status| status.capacity.as_ref());
    PoolCount {
        name: pool.name_any(),
        ready: status.is_some_and(|status| conditions::is_true(&status.conditions, READY)),
        total: capacity.and_then(|capacity| capacity.total),
        held: capacity.map_or(0, |capacity| capacity.leased),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Metrics;
    use serde_json::json;

    fn compilation(name: &str, phase: &str, start: &str) -> Arc<ModelCompilation> {
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
                "metadata": {"name": name, "creationTimestamp": start},
                "spec": {"model": {"uri": "s3://m/x"}, "output": {"uri": "s3://a/x"}, "targets": []},
                "status": {"phase": phase, "startTime": start}
            }))
            .unwrap(),
        )
    }

    #[test]
    fn the_oldest_that_waits_is_told_and_what_is_gone_leaves_nothing() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let objects = [
            compilation("a", "Pending", "2026-01-01T00:00:00Z"),
            compilation("b", "Pending", "2026-01-01T00:59:00Z"),
            compilation("c", "Succeeded", "2025-01-01T00:00:00Z"),
        ];
        let metrics = Metrics::new().unwrap();
        let pool = PoolCount { name: "cpus".to_owned(), ready: true, total: Some(4), held: 3 };
        let run = json!({"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun",
            "metadata": {"name": "r"}, "spec": {"model": {"uri": "s3://m/x"}, "pool": "cpus",
            "target": {"arch": "amd64"}, "stop": {}, "log": {"uri": "s3://a/x"}}});
        let run: Arc<TuningRun> = Arc::new(serde_json::from_value(run).unwrap());
        metrics.present(&phases(&objects, now), &runs(&[run]), &[pool]);
        let searches = json!({"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun",
            "metadata": {"name": "s", "namespace": "team"}, "spec": {"model": {"uri": "s3://m/x"}, "pool": "cpus",
            "target": {"arch": "amd64"}, "stop": {}, "log": {"uri": "s3://a/x"}},
            "status": {"phase": "Running", "trials": {"measured": 7, "failed": 1},
                "progress": {"usedPercent": 3, "expected": "2ms", "untuned": "3ms"}}});
        let searches: Arc<TuningRun> = Arc::new(serde_json::from_value(searches).unwrap());
        metrics.at_work(&at_work(&[searches]));
        let text = metrics.text();
        for line in [
            "hone_compilations{phase=\"Pending\"} 2",
            "hone_compilations{phase=\"Running\"} 0",
            "hone_compilations_oldest_seconds{phase=\"Pending\"} 3600",
            "hone_tuning_runs{phase=\"Pending\"} 1",
            "hone_tuning_run_trials{name=\"s\",namespace=\"team\",result=\"measured\"} 7",
            "hone_tuning_run_trials{name=\"s\",namespace=\"team\",result=\"failed\"} 1",
            "hone_tuning_run_expected_seconds{name=\"s\",namespace=\"team\"} 0.002",
            "hone_tuning_runs{phase=\"Failed\"} 0",
            "hone_pool_devices{pool=\"cpus\",state=\"held\"} 3",
            "hone_pool_devices{pool=\"cpus\",state=\"total\"} 4",
            "hone_pool_ready{pool=\"cpus\"} 1",
        ] {
            assert!(text.contains(line), "missing {line} in {text}");
        }
        assert!(!text.contains("oldest_seconds{phase=\"Succeeded\"}"), "{text}");
        metrics.present(&phases(&[], now), &runs(&[]), &[]);
        metrics.at_work(&[]);
        let text = metrics.text();
        assert!(!text.contains("cpus") && !text.contains("hone_tuning_run_"), "{text}");
        assert!(text.contains("hone_tuning_runs{phase=\"Pending\"} 0"), "{text}");
        assert!(text.contains("hone_compilations_oldest_seconds{phase=\"Pending\"} 0"), "{text}");
    }
}
