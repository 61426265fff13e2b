//! Reads a finished worker's report into a target's status.

use hone_artifact::MOST_SIZES;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::{LONGEST_SIZES, is_digest};
use hone_artifact::termination::Termination;
use hone_crds::status::{Artifact, Cache, CorrectnessStatus, Failure, Latency, SizesStatus};
use hone_crds::{Decimal, Duration, Phase, TargetStatus, conditions};

use super::model::{Ended, JobView};
use crate::children::bounds::bounded;
use crate::children::ended::{failure, reported, without_report};
use crate::children::reasons;

/// What is known of work that failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// How far from the reference it was, where that is why.
    pub correctness: Option<CorrectnessStatus>,
    /// The model that it failed on.
    pub model_digest: Option<String>,
}

/// Whether a status holds a result that stands, whatever the goals say of it.
pub fn is_complete(status: &TargetStatus) -> bool {
    let passed = status.correctness.as_ref().is_none_or(|c| c.passed);
    status.artifact.is_some() && passed
}

/// The result in what a worker left behind. `output` is the folder that the artifact must lie in.
///
/// # Errors
/// [`Failed`] when it failed, left no result, or left one that cannot be its own.
pub fn read(ended: &Ended, job: &JobView, output: &str) -> Result<TargetStatus, Box<Failed>> {
    let Some(report) = &ended.report else {
        return Err(Box::new(Failed {
            failure: without_report(ended, job),
            correctness: None,
            model_digest: None,
        }));
    };
    if let Some(why) = improper(report, output) {
        let message = format!("the worker's report is refused: {why}; please report this");
        return Err(Box::new(Failed {
            failure: failure(reasons::Reason::InvalidReport.as_str(), &message),
            correctness: None,
            model_digest: None,
        }));
    }
    let failed = |failure| {
        Box::new(Failed {
            failure,
            correctness: correctness(report),
            model_digest: report.model_digest.clone(),
        })
    };
    if let Some(why) = &report.failure {
        return Err(failed(reported(why, job)));
    }
    let Some(artifact) = &report.artifact else {
        let message = "the worker says that it succeeded but names no artifact: please report this";
        return Err(failed(failure(reasons::Reason::NoReport.as_str(), message)));
    };
    if report.correctness.as_ref().is_some_and(|c| !c.passed) {
        let message =
            "the answers are further from the reference than correctness.rtol and atol allow";
        return Err(failed(failure(Reason::CorrectnessBreach.as_str(), message)));
    }
    Ok(TargetStatus {
        phase: Phase::Succeeded,
        artifact: Some(Artifact {
            uri: artifact.uri.clone(),
            digest: artifact.digest.clone(),
            size_bytes: i64::try_from(artifact.size_bytes).unwrap_or(i64::MAX),
            checked: None,
            owned: None,
        }),
        model_digest: report.model_digest.clone(),
        fingerprint: report.fingerprint.clone(),
        latency: report.latency.as_ref().map(|latency| Latency {
            p50: Duration::from_nanos(latency.p50),
            p90: latency.p90.map(Duration::from_nanos),
            ci_low: latency.ci_low.map(Duration::from_nanos),
            ci_high: latency.ci_high.map(Duration::from_nanos),
            untuned: latency.untuned.map(Duration::from_nanos),
        }),
        sizes: sizes(report),
        precision: report.precision.clone(),
        correctness: correctness(report),
        unverified: report
            .unverified
            .as_ref()
            .map(|why| conditions::bounded(why, UNVERIFIED).to_owned()),
        cache: Some(if report.cache_hit { Cache::Hit } else { Cache::Miss }),
        tuned: report.tuned,
        compile_time: Some(seconds(report.compile_seconds)),
        ..TargetStatus::default()
    })
}

/// The sizes that the artifact serves.
fn sizes(report: &Termination) -> Vec<SizesStatus> {
    let size = |(sizes, p50): &(String, Option<u64>)| SizesStatus {
        sizes: sizes.clone(),
        p50: p50.map(Duration::from_nanos),
    };
    report.sizes.iter().map(size).collect()
}

/// What is wrong with the fields of a report, which come from a pod that a user's model ran in. Whatever the
/// schema of the status would refuse, or what would make another object's artifact look like this one's, is here.
fn improper(report: &Termination, output: &str) -> Option<String> {
    let digest = |name: &str, value: Option<&String>| {
        let is_digest = value.is_none_or(|value| is_digest(value));
        (!is_digest).then(|| format!("{name} is no SHA-256 digest"))
    };
    let artifact = report.artifact.as_ref();
    digest("modelDigest", report.model_digest.as_ref())
        .or_else(|| digest("fingerprint", report.fingerprint.as_ref()))
        .or_else(|| digest("artifact.digest", artifact.map(|artifact| &artifact.digest)))
        .or_else(|| {
            let long = report.precision.as_ref().is_some_and(|precision| precision.len() > 16);
            long.then(|| "precision is longer than 16 bytes".to_owned())
        })
        .or_else(|| {
            let long = report.sizes.iter().any(|own| own.0.len() > LONGEST_SIZES);
            let proper = !long && report.sizes.len() <= MOST_SIZES;
            (!proper).then(|| "sizes are more or longer than they may be".to_owned())
        })
        .or_else(|| {
            let found = report.correctness.as_ref()?;
            let texts =
                [("executedBy", &found.executed_by), ("passesUnchecked", &found.passes_unchecked)];
            let is_long = |text: &Option<String>| text.as_ref().is_some_and(|own| own.len() > 96);
            let (name, _) = texts.into_iter().find(|(_, text)| is_long(text))?;
            Some(format!("correctness.{name} is longer than 96 bytes"))
        })
        .or_else(|| artifact.and_then(|artifact| outside(&artifact.uri, output)))
}

/// Whether equal work has this result: whether the worker found nothing that the spec's digests do not cover.
pub fn is_reusable(ended: &Ended) -> bool {
    ended.report.as_ref().is_some_and(|report| report.reusable)
}

/// The artifact that a worker stored, where its report is proper.
pub fn stored(ended: &Ended, output: &str) -> Option<String> {
    let report = ended.report.as_ref().filter(|report| improper(report, output).is_none())?;
    report.artifact.as_ref().map(|artifact| artifact.uri.clone())
}

/// Most bytes of why a result is not verified.
const UNVERIFIED: usize = 256;

/// Most bytes of a URI in a status.
const URI: usize = 2048;

/// Why `uri` is no object directly in the folder `output`.
fn outside(uri: &str, output: &str) -> Option<String> {
    let folder = output.trim_end_matches('/');
    let name = uri.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    let is_inside = name.is_some_and(|name| {
        !name.is_empty() && !name.contains(['/', '?', '#', '%', '\\']) && name != ".."
    });
    let fits = uri.len() <= URI && !uri.contains(char::is_whitespace);
    // A local folder may be reached by another path inside the worker.
    let is_local = output.starts_with("file://") && uri.starts_with("file://");
    let is_fine = fits && (is_inside || is_local);
    (!is_fine).then(|| format!("its artifact '{}' does not lie in '{output}'", bounded(uri, 200)))
}

/// Seconds as a duration of whole milliseconds; nonsense counts as zero.
fn seconds(seconds: f64) -> Duration {
    let milliseconds = (seconds.clamp(0.0, 1e9) * 1e3).round();
    Duration::from_nanos(milliseconds as u64 * 1_000_000)
}

/// The error against the reference; what is not a number has no form in the API and is left out.
fn correctness(report: &Termination) -> Option<CorrectnessStatus> {
    let correctness = report.correctness.as_ref()?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::report::{ArtifactReport, CorrectnessReport};

    const OUTPUT: &str = "s3://artifacts/x";

    /// Whether a report's artifact may lie at `uri`.
    fn lies_inside(uri: &str, output: &str) -> bool {
        outside(uri, output).is_none()
    }

    #[test]
    fn artifacts_lie_directly_in_the_output_folder() {
        for uri in ["s3://artifacts/x/a.hone", "s3://artifacts/x/a", "s3://artifacts/x/..a"] {
            assert!(lies_inside(uri, OUTPUT) && lies_inside(uri, "s3://artifacts/x/"), "{uri}");
        }
        for uri in [
            "s3://artifacts/x",
            "s3://artifacts/x/",
            "s3://artifacts/xa",
            "s3://artifacts/y/a",
            "s3://artifacts/x/y/a",
            "s3://artifacts/x/..",
            "s3://artifacts/x/a?b",
            "s3://artifacts/x/a#b",
            "s3://artifacts/x/a%2fb",
            "s3://artifacts/x/a\\b",
            "s3://artifacts/x/a b",
            "s3://artifacts/x/a\n",
            "file:///artifacts/x/a",
        ] {
            assert!(!lies_inside(uri, OUTPUT), "{uri}");
        }
    }

    #[test]
    fn a_local_folder_may_have_another_path() {
        assert!(lies_inside("file:///mnt/a.hone", "file:///data"));
        assert!(!lies_inside("file:///mnt/a b", "file:///data"));
        assert!(!lies_inside("s3://b/a.hone", "file:///data"));
        assert!(!lies_inside("file:///mnt/a.hone", OUTPUT));
    }

    #[test]
    fn a_uri_is_as_long_as_a_status_allows() {
        let of = |bytes: usize| format!("{OUTPUT}/{}", "a".repeat(bytes - OUTPUT.len() - 1));
        assert!(lies_inside(&of(URI), OUTPUT) && !lies_inside(&of(URI + 1), OUTPUT));
    }

    #[test]
    fn fields_of_a_report_are_as_long_as_the_schema_allows() {
        let plain = Termination::default;
        let precision =
            |bytes: usize| Termination { precision: Some("p".repeat(bytes)), ..plain() };
        let sizes = |count: usize, bytes: usize| Termination {
            sizes: vec![("s".repeat(bytes), None); count],
            ..plain()
        };
        let executed_by = |bytes: usize| Termination {
            correctness: Some(CorrectnessReport {
                executed_by: Some("e".repeat(bytes)),
                ..CorrectnessReport::default()
            }),
            ..plain()
        };
        let unchecked = |bytes: usize| Termination {
            correctness: Some(CorrectnessReport {
                passes_unchecked: Some("p".repeat(bytes)),
                ..CorrectnessReport::default()
            }),
            ..plain()
        };
        let texts = [executed_by(96), unchecked(96)];
        let fitting = [plain(), precision(16), sizes(MOST_SIZES, LONGEST_SIZES)];
        for proper in fitting.into_iter().chain(texts) {
            assert_eq!(improper(&proper, OUTPUT), None);
        }
        for (report, word) in [
            (precision(17), "precision"),
            (sizes(MOST_SIZES + 1, 1), "sizes"),
            (sizes(1, LONGEST_SIZES + 1), "sizes"),
            (executed_by(97), "executedBy"),
            (unchecked(97), "passesUnchecked"),
        ] {
            let why = improper(&report, OUTPUT).unwrap_or_default();
            assert!(why.contains(word), "{word}: {why}");
        }
    }

    #[test]
    fn what_a_report_says_of_its_artifact_is_in_the_status() {
        let report = Termination {
            artifact: Some(ArtifactReport {
                uri: format!("{OUTPUT}/a"),
                digest: format!("sha256:{}", "0".repeat(64)),
                size_bytes: 7,
            }),
            sizes: vec![("batch=4".into(), Some(2_000_000)), ("batch=1".into(), None)],
            precision: Some("bf16".into()),
            tuned: true,
            ..Termination::default()
        };
        let ended = Ended { report: Some(report), ..Ended::default() };
        let status = read(&ended, &JobView::default(), OUTPUT).unwrap();
        let sizes = [("batch=4", Some(Duration::from_nanos(2_000_000))), ("batch=1", None)];
        let sizes = sizes.map(|(sizes, p50)| SizesStatus { sizes: sizes.into(), p50 });
        assert_eq!(status.sizes, sizes);
        assert_eq!((status.precision.as_deref(), status.tuned), (Some("bf16"), true));
        assert_eq!(status.artifact.map(|artifact| artifact.size_bytes), Some(7));
    }

    #[test]
    fn digests_of_a_report_are_digests() {
        let good = || Some(format!("sha256:{}", "0".repeat(64)));
        let bad = || Some(format!("sha256:{}", "0".repeat(63)));
        let artifact = |digest: Option<String>| ArtifactReport {
            uri: format!("{OUTPUT}/a"),
            digest: digest.unwrap_or_default(),
            size_bytes: 1,
        };
        let report = |model, fingerprint, digest| Termination {
            model_digest: model,
            fingerprint,
            artifact: Some(artifact(digest)),
            ..Termination::default()
        };
        assert_eq!(improper(&report(good(), good(), good()), OUTPUT), None);
        for (report, field) in [
            (report(bad(), good(), good()), "modelDigest"),
            (report(good(), bad(), good()), "fingerprint"),
            (report(good(), good(), bad()), "artifact.digest"),
        ] {
            let expected = format!("{field} is no SHA-256 digest");
            assert_eq!(improper(&report, OUTPUT), Some(expected));
        }
    }

    #[test]
    fn seconds_are_whole_milliseconds() {
        for (given, nanoseconds) in [
            (0.0, 0),
            (21.5, 21_500_000_000),
            (0.0014, 1_000_000),
            (0.0016, 2_000_000),
            (-1.0, 0),
            (f64::NAN, 0),
            (f64::INFINITY, 1_000_000_000_000_000_000),
        ] {
            assert_eq!(seconds(given), Duration::from_nanos(nanoseconds), "{given}");
        }
    }
}
