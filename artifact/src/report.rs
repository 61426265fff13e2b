//! The full report of one piece of work: measurements, correctness and provenance. It lies
//! beside the artifact, because nothing measured or dated may be inside of that.

use serde::{Deserialize, Deserializer, Serialize};

use crate::exit_code::{ErrorClass, Reason};
use crate::request::Subject;

/// The version that this code writes, and the newest that it reads.
pub const REPORT_VERSION: u32 = 1;

/// Whether `value` is a digest as reports have them: `sha256:` and 64 hexadecimal digits in lower case.
pub fn is_digest(value: &str) -> bool {
    let digits = value.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// What came out of compiling one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of this structure.
    pub version: u32,
    /// For whom.
    pub subject: Subject,
    /// The target's name in the spec.
    pub target: String,
    /// Version of the compiler.
    pub compiler: String,
    /// `sha256:` of the model's file; absent when it was never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_digest: Option<String>,
    /// What was stored; absent when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactReport>,
    /// `sha256:` of the description of the machine that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Time of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyReport>,
    /// Time of one run at each of the sizes that the artifact is for, the largest first; empty where it is for one.
    /// `latency` is that of the largest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizesReport>,
    /// The element type of its arithmetic, `f32` or the narrower one that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Error against the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<CorrectnessReport>,
    /// Why it was not held against the reference, where that was asked for and nothing here runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// Whether the artifact was there already.
    pub cache_hit: bool,
    /// Whether the digests of model and samples say all that the result depends on, so that equal work may take it.
    #[serde(default)]
    pub reusable: bool,
    /// Seconds from the start to the artifact.
    pub compile_seconds: f64,
    /// Digest of the tuning records that decided schedules, as in the artifact's manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<String>,
    /// Where a tuning run stands; absent where the work was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningReport>,
    /// When it ended, RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Why it failed; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
}

/// Where a tuning run stands, all its workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningReport {
    /// Candidates in the log that were timed.
    pub measured: u64,
    /// Candidates in the log that have no time: no code, too slow, wrong, or fatal to the measuring process.
    pub failed: u64,
    /// Number of the last segment that was written; absent where the log is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u64>,
    /// `sha256:` of that segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Median nanoseconds of a run with the schedules that are kept; absent until it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<u64>,
    /// Median nanoseconds of a run without tuning, measured in turn with `best`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untuned: Option<u64>,
    /// Programs whose schedule was tuned.
    #[serde(default)]
    pub winners: u64,
    /// Why the search ended, in words; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The stored artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactReport {
    /// Where it is.
    pub uri: String,
    /// `sha256:` of the file.
    pub digest: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Time of one run in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyReport {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<u64>,
    /// Lower end of the 95 % confidence interval of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_low: Option<u64>,
    /// Upper end of that interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_high: Option<u64>,
    /// Median of the untuned build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untuned: Option<u64>,
}

/// One of the sizes that an artifact is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizesReport {
    /// The sizes in words, such as `batch=4, seq=128`, cut to [`LONGEST_SIZES`] bytes.
    pub sizes: String,
    /// Time of one run; absent where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyReport>,
}

/// Most bytes of the sizes of a variant in a report.
pub const LONGEST_SIZES: usize = 64;

/// The sizes of variants in words, cut to what a report holds; nothing where there is one.
pub fn sizes(labels: &[String]) -> Vec<SizesReport> {
    let bounded = |text: &String| {
        let mut end = text.len().min(LONGEST_SIZES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        SizesReport { sizes: text[..end].to_owned(), latency: None }
    };
    if labels.len() > 1 { labels.iter().map(bounded).collect() } else { Vec::new() }
}

/// Error against the reference over all outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectnessReport {
    /// Largest absolute error; not a number where an output was not.
    #[serde(deserialize_with = "not_a_number_when_null")]
    pub max_abs: f64,
    /// Largest relative error; not a number where an output was not.
    #[serde(deserialize_with = "not_a_number_when_null")]
    pub max_rel: f64,
    /// Whether nothing is wrong: by kernels, by passes, and end to end where that counts.
    pub passed: bool,
    /// What ran the code: `native`, or an emulator and its version, such as `qemu-aarch64 7.2.22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<String>,
    /// Whether the errors above had to be within the tolerance. They are information for a model that rounds
    /// to integers, unless `maxRelativeError` bounds them.
    #[serde(default = "yes")]
    pub end_to_end_counts: bool,
    /// What checking kernel by kernel gave; absent where only whole runs were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelsReport>,
    /// The arithmetic in which the optimised graph was found to give the imported graph's answers, `f32` or
    /// `f64`; absent where it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<String>,
    /// Why the optimised graph's answers were not compared with the imported graph's, where nothing else was in the way; cut
    /// to some hundred bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes_unchecked: Option<String>,
    /// What was compared on: seeds, edge values, the user's samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<String>,
}

/// What checking every kernel on the reference's own values gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelsReport {
    /// Kernel calls checked: all that the artifact has.
    pub checked: u64,
    /// Elements compared, over all samples.
    pub elements: u64,
    /// The nodes of the kernel with the largest error relative to its bound, cut to some hundred bytes.
    pub worst: String,
    /// That error relative to its bound: 1 is as much as rounding explains.
    #[serde(deserialize_with = "not_a_number_when_null")]
    pub worst_error: f64,
    /// Elements that kernels gave an integer step off, where the reference lies between two steps.
    pub steps_off: u64,
    /// How near to the boundary between two steps it must lie for that, as a fraction of the scale of what
    /// is rounded.
    pub step_margin: f64,
}

fn yes() -> bool {
    true
}

/// JSON has no word for NaN and infinity: they are written as null.
fn not_a_number_when_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Why work failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureReport {
    /// One word.
    pub reason: Reason,
    /// Who has to act.
    pub class: ErrorClass,
    /// What failed, on which object, and what to do; the causes follow, joined by `: `.
    pub message: String,
    /// Where a reproducer was stored, for our bugs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproducer: Option<String>,
}

impl Report {
    /// An empty report: nothing done yet.
    pub fn new(subject: Subject, target: impl Into<String>, compiler: impl Into<String>) -> Self {
        Self {
            version: REPORT_VERSION,
            subject,
            target: target.into(),
            compiler: compiler.into(),
            model_digest: None,
            artifact: None,
            fingerprint: None,
            latency: None,
            sizes: Vec::new(),
            precision: None,
            correctness: None,
            unverified: None,
            cache_hit: false,
            reusable: false,
            compile_seconds: 0.0,
            records: None,
            tuning: None,
            finished: None,
            failure: None,
        }
    }

    /// Marks the report as failed.
    pub fn fail(mut self, reason: Reason, message: impl Into<String>) -> Self {
        self.failure = Some(FailureReport {
            reason,
            class: reason.class().unwrap_or(ErrorClass::Bug),
            message: message.into(),
            reproducer: None,
        });
        self
    }

    /// How the program that wrote the report must end.
    pub fn exit_code(&self) -> u8 {
        self.failure.as_ref().map_or(0, |f| f.reason.code())
    }
}

/// The name of the reports beside an artifact, from the artifact's name without its ending. Equal artifacts share a
/// file, but each compilation of a cluster measured for itself, so its reports carry its uid; there is none outside of
/// a cluster.
pub fn stem(artifact: &str, uid: &str) -> String {
    match uid {
        "" => artifact.to_owned(),
        uid => format!("{artifact}.{uid}"),
    }
}

/// The URI of the report for programs beside the artifact at `artifact`. The page for people has the same name with
/// `.html`.
pub fn uri_beside(artifact: &str, uid: &str) -> String {
    format!("{}.json", stem(artifact.strip_suffix(".hone").unwrap_or(artifact), uid))
}

#[cfg(test)]
mod tests {
    use super::uri_beside;

    #[test]
    fn reports_of_one_artifact_are_told_apart() {
        assert_eq!(uri_beside("s3://a/cpu-12.hone", "77"), "s3://a/cpu-12.77.json");
        assert_eq!(uri_beside("file:///a/cpu-12.hone", ""), "file:///a/cpu-12.json");
    }
}
