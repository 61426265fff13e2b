//! What is counted. Names of the first three families are those of other operators, so that
//! existing dashboards show this one too.

use std::time::Duration;

use hone_artifact::exit_code;
use hone_crds::status::Cache;
use hone_crds::{ModelCompilationStatus, Phase};
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::children::reasons::Reason;

/// All metrics; a clone counts into the same.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    reconcile_total: IntCounterVec,
    reconcile_errors: IntCounterVec,
    reconcile_time: HistogramVec,
    active_workers: IntGaugeVec,
    max_concurrent: IntGaugeVec,
    queue_adds: IntCounterVec,
    queue_depth: IntGaugeVec,
    queue_duration: HistogramVec,
    queue_work: HistogramVec,
    queue_retries: IntCounterVec,
    requests: IntCounterVec,
    finished: IntCounterVec,
    wait: HistogramVec,
    compile: HistogramVec,
    latency: HistogramVec,
    cache_hits: IntCounter,
    jobs: IntCounter,
    cloud_events: IntCounterVec,
    leader: IntGaugeVec,
    compilations: IntGaugeVec,
    oldest: IntGaugeVec,
    runs: IntGaugeVec,
    run_trials: IntGaugeVec,
    run_expected: GaugeVec,
    pool_devices: IntGaugeVec,
    pool_ready: IntGaugeVec,
}

/// Compilations in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseCount {
    /// The phase.
    pub phase: Phase,
    /// How many there are.
    pub count: i64,
    /// Seconds since the work on the oldest was taken up, 0 where there is none; `None` for phases that are an end.
    pub oldest_seconds: Option<i64>,
}

/// How far a tuning run is that is at work.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Candidates that were timed.
    pub measured: i64,
    /// Candidates that have no time.
    pub failed: i64,
    /// Seconds that a run of the network is expected to take; `None` until the search tells.
    pub expected: Option<f64>,
}

/// Devices of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCount {
    /// Its name.
    pub name: String,
    /// Whether it takes workers.
    pub ready: bool,
    /// Workers that fit at once; `None` where only claims know.
    pub total: Option<i64>,
    /// Devices that are held.
    pub held: i64,
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        let made = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        let made = IntCounter::new(name, help)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let made = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    /// Gauges of numbers that are no whole ones.
    fn amounts(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        let made = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    /// `count` buckets from `start` seconds on, each `factor` times the one before.
    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        (start, factor, count): (f64, f64, usize),
    ) -> prometheus::Result<HistogramVec> {
        let buckets = prometheus::exponential_buckets(start, factor, count)?;
        let made = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }
}

/// From a millisecond to about two minutes.
const SHORT: (f64, f64, usize) = (0.001, 2.0, 18);
/// From a tenth of a second to about ten hours.
const LONG: (f64, f64, usize) = (0.1, 2.5, 15);
/// From ten microseconds to about eighty seconds.
const LATENCY: (f64, f64, usize) = (1e-5, 2.2, 21);

impl Metrics {
    /// Fresh metrics in a registry of their own.
    ///
    /// # Errors
    /// When two have one name, which a test rules out.
    pub fn new() -> prometheus::Result<Self> {
        let make = Maker(Registry::new());
        let controller: &[&str] = &["controller"];
        let queue: &[&str] = &["name", "controller"];
        let metrics = Self {
            reconcile_total: make.counters(
                "controller_runtime_reconcile_total",
                "Reconciles by controller and result.",
                &["controller", "result"],
            )?,
            reconcile_errors: make.counters(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed.",
                controller,
            )?,
            reconcile_time: make.histograms(
                "controller_runtime_reconcile_time_seconds",
                "Time of one reconcile.",
                controller,
                SHORT,
            )?,
            active_workers: make.gauges(
                "controller_runtime_active_workers",
                "Reconciles under way.",
                controller,
            )?,
            max_concurrent: make.gauges(
                "controller_runtime_max_concurrent_reconciles",
                "Most reconciles at once.",
                controller,
            )?,
            queue_adds: make.counters(
                "workqueue_adds_total",
                "Objects handed to a worker.",
                queue,
            )?,
            queue_depth: make.gauges("workqueue_depth", "Objects that wait.", queue)?,
            queue_duration: make.histograms(
                "workqueue_queue_duration_seconds",
                "Time from an event to the start of its reconcile.",
                queue,
                SHORT,
            )?,
            queue_work: make.histograms(
                "workqueue_work_duration_seconds",
                "Time of the work on one object.",
                queue,
                SHORT,
            )?,
            queue_retries: make.counters(
                "workqueue_retries_total",
                "Objects tried again.",
                queue,
            )?,
            requests: make.counters(
                "rest_client_requests_total",
                "Requests to the API server.",
                &["code", "method", "host"],
            )?,
            finished: make.counters(
                "hone_compilations_finished_total",
                "Compilations that ended, by phase and reason.",
                &["phase", "reason"],
            )?,
            wait: make.histograms(
                "hone_queue_wait_seconds",
                "Time that a compilation waited for a device.",
                &[],
                LONG,
            )?,
            compile: make.histograms(
                "hone_compile_seconds",
                "Time that a worker took for one target.",
                &[],
                LONG,
            )?,
            latency: make.histograms(
                "hone_artifact_latency_seconds",
                "Median latency of the artifacts made.",
                &["pool"],
                LATENCY,
            )?,
            cache_hits: make
                .counter("hone_cache_hits_total", "Targets whose result was there already.")?,
            jobs: make.counter("hone_jobs_created_total", "Jobs made.")?,
            cloud_events: make.counters(
                "hone_cloud_events_total",
                "CloudEvents by what became of them: delivered, refused by the webhook, or dropped.",
                &["result"],
            )?,
            leader: make.gauges(
                "leader_election_master_status",
                "Whether this replica leads.",
                &["name"],
            )?,
            compilations: make.gauges(
                "hone_compilations",
                "Compilations there are, by phase.",
                &["phase"],
            )?,
            oldest: make.gauges(
                "hone_compilations_oldest_seconds",
                "Age of the compilation that is in a phase for the longest, counted from when its work was taken up.",
                &["phase"],
            )?,
            runs: make.gauges("hone_tuning_runs", "Tuning runs there are, by phase.", &["phase"])?,
            run_trials: make.gauges(
                "hone_tuning_run_trials",
                "Candidates of a tuning run that is at work, by what became of them: measured or failed.",
                &["namespace", "name", "result"],
            )?,
            run_expected: make.amounts(
                "hone_tuning_run_expected_seconds",
                "Time of one run of the network that a tuning run at work expects of what it has found.",
                &["namespace", "name"],
            )?,
            pool_devices: make.gauges(
                "hone_pool_devices",
                "Devices of a pool: all of them, and those that are held.",
                &["pool", "state"],
            )?,
            pool_ready: make.gauges(
                "hone_pool_ready",
                "Whether a pool has a node that takes workers.",
                &["pool"],
            )?,
            registry: make.0,
        };
        metrics.begin();
        Ok(metrics)
    }

    /// Counters of failures begin at zero: Prometheus sees no increase in a series whose first value is one.
    fn begin(&self) {
        let worker = exit_code::Reason::all().filter(|reason| reason.class().is_some());
        let own = Reason::ALL.iter().filter(|reason| reason.is_hopeless()).map(|own| own.as_str());
        for reason in worker.map(exit_code::Reason::as_str).chain(own) {
            self.finished.with_label_values(&[Phase::Failed.as_str(), reason]).inc_by(0);
        }
        for result in ["delivered", "refused", "dropped"] {
            self.cloud_events.with_label_values(&[result]).inc_by(0);
        }
    }

    /// What became of a CloudEvent: `delivered`, `refused` or `dropped`.
    pub fn cloud_event(&self, result: &str) {
        self.cloud_events.with_label_values(&[result]).inc();
    }

    /// All of it in the text form of Prometheus; empty where that fails.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        if let Err(error) = encoded {
            tracing::warn!(%error, "metrics cannot be written");
        }
        String::from_utf8(text).unwrap_or_default()
    }

    /// A controller starts with this bound.
    pub fn controller(&self, controller: &str, concurrency: u16) {
        let gauge = self.max_concurrent.with_label_values(&[controller]);
        gauge.set(i64::from(concurrency));
    }

    /// A reconcile starts that was queued for `waited`; `depth` others of its kind still are.
    pub fn started(&self, controller: &str, waited: Duration, depth: usize) {
        self.active_workers.with_label_values(&[controller]).inc();
        let queue = [controller, controller];
        self.queue_adds.with_label_values(&queue).inc();
        self.queue_duration.with_label_values(&queue).observe(waited.as_secs_f64());
        self.queue_depth(controller, depth);
    }

    /// So many objects are queued.
    pub fn queue_depth(&self, controller: &str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth.with_label_values(&[controller, controller]).set(depth);
    }

    /// A reconcile ended, with `result` `success`, `requeue_after` or `error`.
    pub fn ended(&self, controller: &str, result: &str, took: Duration) {
        self.active_workers.with_label_values(&[controller]).dec();
        let total = self.reconcile_total.with_label_values(&[controller, result]);
        total.inc();
        let seconds = took.as_secs_f64();
        self.reconcile_time.with_label_values(&[controller]).observe(seconds);
        let queue = [controller, controller];
        self.queue_work.with_label_values(&queue).observe(seconds);
        if result == "error" {
            self.reconcile_errors.with_label_values(&[controller]).inc();
            self.queue_retries.with_label_values(&queue).inc();
        }
    }

    /// The API server answered.
    pub fn request(&self, code: &str, method: &str, host: &str) {
        self.requests.with_label_values(&[code, method, host]).inc();
    }

    /// A Job was made.
    pub fn jobs_created(&self) {
        self.jobs.inc();
    }

    /// Whether this replica leads.
    pub fn leads(&self, leads: bool) {
        let gauge = self.leader.with_label_values(&["hone-operator"]);
        gauge.set(i64::from(leads));
    }

    /// Tuning runs at work. What is at work no more since the last call leaves no number behind.
    pub fn at_work(&self, runs: &[RunCount]) {
        self.run_trials.reset();
        self.run_expected.reset();
        for run in runs {
            let (namespace, name) = (run.namespace.as_str(), run.name.as_str());
            for (result, count) in [("measured", run.measured), ("failed", run.failed)] {
                self.run_trials.with_label_values(&[namespace, name, result]).set(count);
            }
            if let Some(expected) = run.expected {
                self.run_expected.with_label_values(&[namespace, name]).set(expected);
            }
        }
    }

    /// What there is now: compilations by phase with the oldest of those at work, tuning runs by phase, and
    /// pools. What is gone since the
    /// last call leaves no number behind.
    pub fn present(&self, compilations: &[PhaseCount], runs: &[(Phase, i64)], pools: &[PoolCount]) {
        for (phase, count) in runs {
            self.runs.with_label_values(&[phase.as_str()]).set(*count);
        }
        for phase in compilations {
            self.compilations.with_label_values(&[phase.phase.as_str()]).set(phase.count);
            if let Some(oldest) = phase.oldest_seconds {
                self.oldest.with_label_values(&[phase.phase.as_str()]).set(oldest);
            }
        }
        self.pool_devices.reset();
        self.pool_ready.reset();
        for pool in pools {
            self.pool_ready.with_label_values(&[&pool.name]).set(i64::from(pool.ready));
            self.pool_devices.with_label_values(&[pool.name.as_str(), "held"]).set(pool.held);
            if let Some(total) = pool.total {
                self.pool_devices.with_label_values(&[pool.name.as_str(), "total"]).set(total);
            }
        }
    }

    /// A compilation's status changed.
    pub fn transition(
        &self,
        before: Option<&ModelCompilationStatus>,
        now: &ModelCompilationStatus,
    ) {
        let was = before.map(|status| status.phase);
        if was == Some(now.phase) {
            return;
        }
        // One that waited in vain waited longest.
        let late = Reason::PendingDeadlineExceeded.as_str();
        let in_vain = now.failure.as_ref().is_some_and(|failure| failure.reason == late);
        if (now.phase == Phase::Running || in_vain)
            && let Some(start) = &now.start_time
        {
            let waited = jiff::Timestamp::now().duration_since(start.0).as_secs_f64();
            let empty: [&str; 0] = [];
            self.wait.with_label_values(&empty).observe(waited);
        }
        if now.phase.has_ended() {
            let reason = now.failure.as_ref().map_or("", |f| f.reason.as_str());
            let finished = self.finished.with_label_values(&[now.phase.as_str(), reason]);
            finished.inc();
            now.targets.iter().for_each(|target| self.target(target));
        }
    }

    fn target(&self, target: &hone_crds::TargetStatus) {
        if target.cache == Some(Cache::Hit) {
            self.cache_hits.inc();
        }
        if let Some(time) = target.compile_time {
            let empty: [&str; 0] = [];
            let histogram = self.compile.with_label_values(&empty);
            histogram.observe(time.to_std().as_secs_f64());
        }
        if let Some(latency) = &target.latency {
            let pool = target.pool.as_deref().unwrap_or_default();
            let histogram = self.latency.with_label_values(&[pool]);
            histogram.observe(latency.p50.to_std().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_those_of_existing_dashboards() {
        let metrics = Metrics::new().unwrap();
        metrics.controller("modelcompilation", 16);
        metrics.started("modelcompilation", Duration::from_millis(3), 1);
        metrics.ended("modelcompilation", "error", Duration::from_millis(5));
        metrics.request("200", "PATCH", "localhost");
        let text = metrics.text();
        for line in [
            r#"controller_runtime_reconcile_total{controller="modelcompilation",result="error"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="modelcompilation"} 1"#,
            r#"workqueue_adds_total{controller="modelcompilation",name="modelcompilation"} 1"#,
            r#"hone_compilations_finished_total{phase="Failed",reason="CorrectnessBreach"} 0"#,
            r#"hone_compilations_finished_total{phase="Failed",reason="JobInvalid"} 0"#,
            r#"rest_client_requests_total{code="200",host="localhost",method="PATCH"} 1"#,
        ] {
            assert!(text.contains(line), "missing {line} in {text}");
        }
    }
}
