//! What a worker leaves in its pod's termination message: the report, cut to fit.
//!
//! A pod's message holds at most 4096 bytes, shared by its containers. The message is the
//! report's JSON without what the operator does not need, and with texts cut until it fits.
//! It must be the only thing written to the message's file.

use serde::{Deserialize, Serialize};

use crate::report::{
    ArtifactReport, CorrectnessReport, FailureReport, LatencyReport, Report, TuningReport,
};

/// Most bytes of a message. Below Kubernetes' 4096, to leave room for a runtime that counts otherwise.
pub const LIMIT_BYTES: usize = 4000;
/// Most bytes that say why a result is not verified.
pub const LONGEST_UNVERIFIED: usize = 256;
/// Where Kubernetes reads the message from, unless told otherwise.
pub const DEFAULT_PATH: &str = "/dev/termination-log";
/// The environment variable that names another place.
pub const PATH_VARIABLE: &str = "HONE_TERMINATION_LOG";
/// The version that this code writes, and the newest that it reads.
pub const TERMINATION_VERSION: u32 = 1;

/// What the operator reads of a finished worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    /// Version of this structure.
    pub version: u32,
    /// `sha256:` of the model's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_digest: Option<String>,
    /// What was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactReport>,
    /// `sha256:` of the description of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Time of one run, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyReport>,
    /// The sizes that it is for, with the median time of a run in nanoseconds, where that was measured; empty where it
    /// is for one, or where the message has no room for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<(String, Option<u64>)>,
    /// The element type of its arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Error against the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<CorrectnessReport>,
    /// Why it was not held against the reference, cut to [`LONGEST_UNVERIFIED`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// Whether the artifact was there already.
    #[serde(default)]
    pub cache_hit: bool,
    /// Whether the digests of model and samples say all that the result depends on, so that equal work may take it.
    #[serde(default)]
    pub reusable: bool,
    /// Whether tuning records decided schedules of it.
    #[serde(default)]
    pub tuned: bool,
    /// Seconds from the start to the artifact.
    #[serde(default)]
    pub compile_seconds: f64,
    /// Where a tuning run stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningReport>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TerminationError {
    /// The worker ended without one.
    #[error("the worker left no termination message: look at its log")]
    Empty,
    /// It is something else, such as the tail of a log.
    #[error("the worker's termination message is not ours: look at its log")]
    Malformed(#[source] serde_json::Error),
    /// It is newer than this program.
    #[error(
        "the worker's termination message has version {found}, this program reads up to {TERMINATION_VERSION}: use an operator as new as the worker image"
    )]
    Version {
        /// The version in the message.
        found: u32,
    },
}

impl From<&Report> for Termination {
    fn from(report: &Report) -> Self {
        Self {
            version: TERMINATION_VERSION,
            model_digest: report.model_digest.clone(),
            artifact: report.artifact.clone(),
            fingerprint: report.fingerprint.clone(),
            latency: report.latency.clone(),
            sizes: report
                .sizes
                .iter()
                .map(|own| (own.sizes.clone(), own.latency.as_ref().map(|latency| latency.p50)))
                .collect(),
            precision: report.precision.clone(),
            correctness: report.correctness.clone(),
            unverified: report.unverified.as_deref().map(|why| head(why).to_owned()),
            cache_hit: report.cache_hit,
            reusable: report.reusable,
            tuned: report.records.is_some(),
            compile_seconds: report.compile_seconds,
            tuning: report.tuning.clone(),
            failure: report.failure.clone(),
        }
    }
}

impl Termination {
    /// The message: JSON of at most [`LIMIT_BYTES`] bytes. Where it must be, the sizes are left out and the failure's
    /// message is cut; the rest is short by nature, unless a URI alone is longer than the limit.
    pub fn to_message(&self) -> String {
        let mut bounded = self.clone();
        loop {
            // Only a number that is not finite could fail, and serde_json writes those as null.
            let text = serde_json::to_string(&bounded).unwrap_or_default();
            if text.len() <= LIMIT_BYTES {
                return text;
            }
            let excess = text.len() - LIMIT_BYTES;
            if !bounded.sizes.is_empty() {
                bounded.sizes.clear();
                continue;
            }
            match &mut bounded.failure {
                Some(failure) if !failure.message.is_empty() => cut(&mut failure.message, excess),
                Some(failure) if failure.reproducer.is_some() => failure.reproducer = None,
                _ => return text,
            }
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`TerminationError`] when there is none, when it is not ours, or when it is too new.
    pub fn from_message(text: &str) -> Result<Self, TerminationError> {
        if text.trim().is_empty() {
            return Err(TerminationError::Empty);
        }
        let read: Self = serde_json::from_str(text.trim()).map_err(TerminationError::Malformed)?;
        if read.version > TERMINATION_VERSION {
            return Err(TerminationError::Version { found: read.version });
        }
        Ok(read)
    }
}

/// The first [`LONGEST_UNVERIFIED`] bytes of a text, to a whole character.
fn head(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_UNVERIFIED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Takes `excess` bytes, but never more than half, off the end of `text` and marks the cut; half,
/// because a byte may take several in JSON. Text that is all needed for the mark goes away.
fn cut(text: &mut String, excess: usize) {
    const MARK: &str = " [cut]";
    let mut end = text.len().saturating_sub(excess.min(text.len() / 2) + MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    if end > 0 {
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::exit_code::Reason;
    use crate::report::KernelsReport;
    use crate::request::Subject;

    /// As many sizes as there may be, with names as long as they may be, fit; where characters take more than a byte in
    /// JSON, they may not, and are left out.
    #[test]
    fn sizes_are_told_where_they_fit() {
        let latency = Some(LatencyReport { p50: 123_456_789, ..LatencyReport::default() });
        let names = [("batch".to_owned(), true), ("b".repeat(80), true), ("\"".repeat(80), false)];
        for (name, fits) in names {
            let labels: Vec<String> =
                (1..=32).map(|size| format!("{name}={size}, s=128")).collect();
            let mut report = Report::new(Subject::default(), "amx", "0.1.0");
            report.sizes = crate::report::sizes(&labels);
            report.sizes.iter_mut().for_each(|own| own.latency = latency.clone());
            let message = Termination::from(&report).to_message();
            assert!(message.len() <= LIMIT_BYTES, "{}", message.len());
            let read = Termination::from_message(&message).unwrap();
            assert_eq!(read.sizes.len(), if fits { 32 } else { 0 });
        }
        assert!(crate::report::sizes(&["batch=1".to_owned()]).is_empty());
    }

    #[test]
    fn a_long_failure_is_cut_to_fit() {
        for unit in ["x", "é", "\"", "\n"] {
            let report = Report::new(Subject::default(), "amx", "0.1.0")
                .fail(Reason::UnsupportedOperator, unit.repeat(20_000));
            let message = Termination::from(&report).to_message();
            assert!(message.len() <= LIMIT_BYTES, "{}", message.len());
            let read = Termination::from_message(&message).unwrap();
            let failure = read.failure.unwrap();
            assert_eq!(failure.reason, Reason::UnsupportedOperator);
            assert!(failure.message.ends_with("[cut]"));
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let termination = Termination {
            version: TERMINATION_VERSION,
            latency: Some(LatencyReport { p50: 1_310_000, ..LatencyReport::default() }),
            ..Termination::default()
        };
        let read = Termination::from_message(&termination.to_message()).unwrap();
        assert_eq!(read, termination);
    }

    #[test]
    fn what_was_verified_crosses() {
        let kernels = KernelsReport {
            checked: 57,
            worst: "x".repeat(96),
            steps_off: 3,
            ..KernelsReport::default()
        };
        let correctness = CorrectnessReport {
            kernels: Some(kernels),
            samples: vec!["y".repeat(96); 4],
            passes: Some("f64".to_owned()),
            ..CorrectnessReport::default()
        };
        let mut report = Report::new(Subject::default(), "amx", "0.1.0")
            .fail(Reason::CorrectnessBreach, "z".repeat(9000));
        report.correctness = Some(correctness.clone());
        let message = Termination::from(&report).to_message();
        assert!(message.len() <= LIMIT_BYTES, "{}", message.len());
        assert_eq!(Termination::from_message(&message).unwrap().correctness, Some(correctness));
        // A report of before says nothing of kernels, and every error counted.
        let old = r#"{"version":1,"correctness":{"maxAbs":1e-5,"maxRel":1e-4,"passed":true}}"#;
        let old = Termination::from_message(old).unwrap().correctness.unwrap();
        assert!(old.end_to_end_counts && old.kernels.is_none());
    }

    #[test]
    fn an_error_that_is_no_number_crosses() {
        let mut termination =
            Termination { version: TERMINATION_VERSION, ..Termination::default() };
        termination.correctness =
            Some(CorrectnessReport { max_abs: f64::INFINITY, ..CorrectnessReport::default() });
        let read = Termination::from_message(&termination.to_message()).unwrap();
        assert!(read.correctness.unwrap().max_abs.is_nan());
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert!(matches!(Termination::from_message(" \n"), Err(TerminationError::Empty)));
        assert!(matches!(
            Termination::from_message("panicked at"),
            Err(TerminationError::Malformed(_))
        ));
        assert!(matches!(
            Termination::from_message(r#"{"version": 9}"#),
            Err(TerminationError::Version { found: 9 })
        ));
    }
}
