//! What is known of an artifact beyond the contract's report.

use std::time::Duration;

use hone_artifact::report::Report;
use hone_artifact::{Part, Reader, Target, Variant};
use hone_driver::DataType;
use serde::{Deserialize, Serialize};

use super::estimate::Estimated;
use super::{Build, Outcome};
use crate::compiler::Recipe;
use crate::device::{Peaks, Roofline};
use crate::failure::{Failure, Result};
use crate::tune::Summary;

/// What people and programs look at beside the report. It lies in the same JSON, under `details`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// What the code is for.
    pub target: Target,
    /// Threads that were measured on.
    pub threads: usize,
    /// Every latency of the measurement, in nanoseconds and in order.
    pub latencies: Vec<u64>,
    /// Those of naive schedules, where they were asked for.
    pub naive_latencies: Vec<u64>,
    /// Each stage of the compiler, and its seconds.
    pub stages: Vec<(String, f64)>,
    /// Each step of a run.
    pub steps: Vec<StepDetail>,
    /// Bytes of packed weights.
    pub weights_bytes: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of machine code, as a shared object.
    pub code_bytes: u64,
    /// Output elements that were compared with the reference.
    pub elements_compared: u64,
    /// Largest error as a fraction of the largest magnitude in its output.
    #[serde(default)]
    pub max_fraction: f64,
    /// Names of nodes that stay in `f32`, where a narrower arithmetic would spoil the answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wide: Vec<String>,
    /// Why the arithmetic was chosen, where no device of the target was here to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated: Option<Estimated>,
    /// What the machine was measured to reach on those threads.
    pub peaks: Option<Peaks>,
    /// The last search for faster schedules of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Summary>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// One step of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepDetail {
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// Its kernel's symbol; `runtime` for what the runtime computes itself.
    pub kernel: String,
    /// Arithmetic operations.
    pub flops: u64,
    /// Distinct bytes read and written.
    pub bytes: u64,
    /// Median time; 0 where it was not measured.
    pub nanoseconds: u64,
}

impl StepDetail {
    /// Where the machine's roofline lies for it; none for what the runtime computes itself, whose work is not counted.
    pub fn roofline(&self, peaks: Option<&Peaks>) -> Option<Roofline> {
        let peaks = peaks.filter(|_| self.kernel != NO_KERNEL)?;
        Some(peaks.roofline(self.flops, self.bytes))
    }
}

impl Default for Details {
    fn default() -> Self {
        let target = Target {
            triple: String::new(),
            cpu: String::new(),
            features: Vec::new(),
            accelerator: None,
        };
        Self {
            target,
            threads: 0,
            latencies: Vec::new(),
            naive_latencies: Vec::new(),
            stages: Vec::new(),
            steps: Vec::new(),
            weights_bytes: 0,
            arena_bytes: 0,
            code_bytes: 0,
            elements_compared: 0,
            max_fraction: 0.0,
            wide: Vec::new(),
            estimated: None,
            peaks: None,
            tuning: None,
            notes: Vec::new(),
        }
    }
}

impl Details {
    /// Fills in what the artifact and the compiler say; the digest of the records that decided schedules.
    ///
    /// # Errors
    /// An artifact that cannot be read.
    pub fn describe(&mut self, build: &Build) -> Result<Option<String>> {
        let bytes = build.bytes()?;
        let reader = Reader::new(&bytes).map_err(|error| {
            let reason = hone_artifact::exit_code::Reason::InvalidArtifact;
            Failure::because(reason, "the compiled artifact cannot be read", error)
        })?;
        if let Some(variant) = reader.manifest().variants.first() {
            self.steps = steps(variant);
            self.target = variant.target.clone();
            self.weights_bytes = variant.weights_bytes;
            self.arena_bytes = variant.arena_bytes;
            self.code_bytes = reader.code(variant.code).map_or(0, |code| code.len() as u64);
        }
        if let Some(open) = &reader.manifest().open {
            let note = format!(
                "any size of '{}' is served: those that were not compiled are composed of compiled ones",
                open.name
            );
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let statistics = build.statistics.iter().flat_map(|statistics| &statistics.stages);
        self.stages =
            statistics.map(|(name, took)| (name.to_string(), took.as_secs_f64())).collect();
        Ok(reader.manifest().records_digest.clone())
    }

    /// Writes down how long each step took.
    pub fn step_times(&mut self, times: &[Duration]) {
        for (step, time) in self.steps.iter_mut().zip(times) {
            step.nanoseconds = time.as_nanos() as u64;
        }
    }

    /// Arithmetic operations of one run.
    pub fn flops(&self) -> u64 {
        self.steps.iter().map(|step| step.flops).sum()
    }

    /// Operations per second at a latency, as a share of the machine's peak on as many threads.
    pub fn share_of_peak(&self, nanoseconds: u64) -> Option<f64> {
        let peak = self.peaks.as_ref()?.flops;
        (nanoseconds > 0).then(|| self.flops() as f64 / (nanoseconds as f64 * 1e-9) / peak)
    }
}

/// The kernel of what the runtime computes itself, as [`StepDetail`] calls it.
const NO_KERNEL: &str = "runtime";

/// The steps of a variant, not measured, and behind them what the runtime computes itself.
pub fn steps(variant: &Variant) -> Vec<StepDetail> {
    let detail = |step: &hone_artifact::Step| StepDetail {
        nodes: step.nodes.clone(),
        kernel: step.kernel.clone(),
        flops: step.flops,
        bytes: step.bytes_read + step.bytes_written,
        nanoseconds: 0,
    };
    let of_runtime = |host: &hone_artifact::Host| StepDetail {
        nodes: vec![host.node.clone()],
        kernel: NO_KERNEL.to_owned(),
        bytes: host
            .inputs
            .iter()
            .flatten()
            .chain(&host.outputs)
            .filter_map(|own| own.of.bytes())
            .sum(),
        ..StepDetail::default()
    };
    let hosts = Part::hosts(&variant.program).into_iter().map(of_runtime);
    variant.steps.iter().map(detail).chain(hosts).collect()
}

/// What the cache keeps of an outcome, so that equal work answers at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredResult {
    report: Report,
    details: Details,
}

impl StoredResult {
    /// Of a finished examination.
    pub fn of(outcome: &Outcome) -> Self {
        Self { report: outcome.report.clone(), details: outcome.details.clone() }
    }

    /// How the artifact that was chosen then is made.
    pub fn recipe(&self) -> Recipe {
        let name = self.report.precision.as_deref();
        let precision = name.and_then(|name| name.parse().ok()).unwrap_or(DataType::F32);
        Recipe { wide: self.details.wide.clone(), ..Recipe::analytic(precision) }
    }

    /// Takes over what was found out then. For whom, what was stored and when is this call's own.
    pub fn fill(self, outcome: &mut Outcome) {
        let Report {
            fingerprint, latency, sizes, correctness, unverified, precision, records, ..
        } = self.report;
        let report = &mut outcome.report;
        report.fingerprint = fingerprint;
        report.latency = latency;
        report.sizes = sizes;
        report.correctness = correctness;
        report.unverified = unverified;
        report.precision = precision;
        report.records = records;
        outcome.details = self.details;
    }
}

/// Report and details as one JSON object; a reader of reports alone reads it too.
pub fn to_json(report: &Report, details: &Details) -> String {
    #[derive(Serialize)]
    struct Full<'a> {
        #[serde(flatten)]
        report: &'a Report,
        details: &'a Details,
    }
    // Plain data always has a JSON form.
    serde_json::to_string_pretty(&Full { report, details }).unwrap_or_default()
}
