//! What a pod posts to the operator while it searches: how far it is.
//!
//! Always true: a post says how things stand and adds nothing up, so any of them may be lost; the termination message
//! and the log are what counts at the end. The operator is told no more than [`LARGEST`] bytes at a time.

use serde::{Deserialize, Serialize};

use crate::report::TuningReport;

/// Environment variable of a worker: the URL that it posts to. Without it nothing is posted.
pub const ENDPOINT_VARIABLE: &str = "HONE_PROGRESS_ENDPOINT";
/// Environment variable of a worker: the file with the token that it posts with.
pub const TOKEN_VARIABLE: &str = "HONE_PROGRESS_TOKEN_FILE";
/// The audience of that token, which gives no rights in the cluster.
pub const AUDIENCE: &str = "hone.dev/progress";
/// The path that the operator serves.
pub const PATH: &str = "/progress";
/// Largest post, in bytes.
pub const LARGEST: usize = 8192;
/// Most sessions that a post names.
pub const MOST_SESSIONS: usize = 16;
/// Most letters of what a post says of a session.
pub const LONGEST_REASON: usize = 120;

/// How far a search is. Of posts of later versions a reader takes the fields that it knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Candidates of the run that were timed, over all its pods.
    pub measured: u64,
    /// Candidates of the run that have no time.
    pub failed: u64,
    /// The share of the run's limits that is used up, from 0 to 1: of trials or of time, whichever is further.
    pub used: f64,
    /// Nanoseconds that a run of the network is expected to take with the best candidates of each program, as they were
    /// measured alone.
    pub expected: u64,
    /// Nanoseconds that it was expected to take before the search.
    pub untuned: u64,
    /// What a compilation with the log would use now; absent where the network has not decided about anything yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The sessions that the search knows, up to [`MOST_SESSIONS`]; absent where it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionSeen>>,
}

/// A session that measures for a search, as the search sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSeen {
    /// Its name.
    pub name: String,
    /// The kind of machine in a word.
    pub kind: String,
    /// Seconds since it said last that it is there.
    pub seconds_ago: u64,
    /// Why it is not used, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<String>,
}

impl SessionSeen {
    /// Whether its words are such as a session has: they come from a pod that a user's model ran in.
    fn is_proper(&self) -> bool {
        let is_word = |text: &str| {
            let fits = |own: char| own.is_ascii_alphanumeric() || "-_.".contains(own);
            !text.is_empty() && text.len() <= 63 && text.chars().all(fits)
        };
        let short = |text: &String| text.chars().count() <= LONGEST_REASON;
        is_word(&self.name) && is_word(&self.kind) && self.aside.as_ref().is_none_or(short)
    }

    /// Whether it measures.
    pub fn answers(&self) -> bool {
        self.aside.is_none() && self.seconds_ago < LONGEST_SILENCE
    }
}

/// Seconds without a word of a session after which it does not answer.
pub const LONGEST_SILENCE: u64 = 15;

/// What the log holds for compilations, while the search goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Number of the last segment that was written.
    pub segment: u64,
    /// `sha256:` of that segment.
    pub digest: String,
    /// Median nanoseconds of a run with the schedules that are kept.
    pub best: u64,
    /// The same without tuning, measured in turn with `best`.
    pub untuned: u64,
    /// Programs whose schedule was tuned.
    pub winners: u64,
}

impl Revision {
    /// What the report of a run that is not over says of it.
    pub fn of(report: &TuningReport) -> Option<Self> {
        Some(Self {
            segment: report.segment?,
            digest: report.digest.clone()?,
            best: report.best?,
            untuned: report.untuned?,
            winners: report.winners,
        })
    }
}

impl Progress {
    /// The progress that a post tells; `None` where it is none.
    pub fn from_post(bytes: &[u8]) -> Option<Self> {
        let whole = (bytes.len() <= LARGEST).then_some(bytes)?;
        let progress: Self = serde_json::from_slice(whole).ok()?;
        let sessions = progress.sessions.as_deref().unwrap_or_default();
        let proper = sessions.len() <= MOST_SESSIONS && sessions.iter().all(SessionSeen::is_proper);
        ((0.0..=1.0).contains(&progress.used) && proper).then_some(progress)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn posts_that_are_too_long_or_whose_share_is_none_are_refused() {
        let session = SessionSeen {
            name: "n".repeat(63),
            kind: "k".repeat(63),
            seconds_ago: u64::MAX,
            aside: Some("é".repeat(LONGEST_REASON)),
        };
        let most = Progress {
            measured: u64::MAX,
            failed: u64::MAX,
            used: 1.0 / 3.0,
            expected: u64::MAX,
            untuned: u64::MAX,
            revision: Some(Revision {
                segment: u64::MAX,
                digest: format!("sha256:{}", "0".repeat(64)),
                best: u64::MAX,
                untuned: u64::MAX,
                winners: u64::MAX,
            }),
            sessions: Some(vec![session; MOST_SESSIONS]),
        };
        let post = serde_json::to_vec(&most).unwrap();
        assert_eq!(Progress::from_post(&post), Some(most));
        let text = r#"{"measured": 1, "failed": 0, "used": USED, "expected": 5, "untuned": 6, "later": true}"#;
        assert!(Progress::from_post(text.replace("USED", "1").as_bytes()).is_some());
        for wrong in ["1.5", "-0.1", "null", "\"1\"", "1e999"] {
            assert_eq!(
                Progress::from_post(text.replace("USED", wrong).as_bytes()),
                None,
                "{wrong}"
            );
        }
        for (name, kind) in [("", "k"), ("n", ""), ("a b", "k"), ("n", "<b>")] {
            let sessions = format!(
                r#""sessions": [{{"name": "{name}", "kind": "{kind}", "secondsAgo": 1}}], "later""#
            );
            let post = text.replace("USED", "1").replace("\"later\"", &sessions);
            assert_eq!(Progress::from_post(post.as_bytes()), None, "{post}");
        }
        let long = format!("{}{}", text.replace("USED", "1"), " ".repeat(LARGEST));
        assert_eq!(Progress::from_post(long.as_bytes()), None);
    }
}
