//! How far a search is: what a pod posts to the operator meanwhile, and the tuning curve that is kept.
//!
//! Always true: a post says how things stand and adds nothing up, so any of them may be lost; the termination message
//! and the log are what counts at the end. The operator is told no more than [`LARGEST`] bytes at a time.

use serde::{Deserialize, Serialize};

/// Environment variable of a worker: the URL that it posts to. Without it nothing is posted.
pub const ENDPOINT_VARIABLE: &str = "HONE_PROGRESS_ENDPOINT";
/// Environment variable of a worker: the file with the token that it posts with.
pub const TOKEN_VARIABLE: &str = "HONE_PROGRESS_TOKEN_FILE";
/// The audience of that token, which gives no rights in the cluster.
pub const AUDIENCE: &str = "hone.dev/progress";
/// The path that the operator serves.
pub const PATH: &str = "/progress";
/// Largest post, in bytes.
pub const LARGEST: usize = 1024;

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
}

impl Progress {
    /// The progress that a post tells; `None` where it is none.
    pub fn from_post(bytes: &[u8]) -> Option<Self> {
        let whole = (bytes.len() <= LARGEST).then_some(bytes)?;
        let progress: Self = serde_json::from_slice(whole).ok()?;
        // JSON has no other numbers that are no share.
        (0.0..=1.0).contains(&progress.used).then_some(progress)
    }
}

/// Most points of a curve.
const POINTS: usize = 200;

/// A tuning curve: its first point, and those at which less was expected than before. It has no more than 200 points,
/// however long the search is: of more, those in between are thinned out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(Vec<CurvePoint>);

/// A point of a [`Curve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Candidates until then.
    pub trials: u64,
    /// Nanoseconds that a run of the network was expected to take then.
    pub expected: u64,
}

impl Curve {
    /// Adds what is expected after so many trials.
    pub fn add(&mut self, trials: u64, expected: u64) {
        if self.0.last().is_some_and(|last| last.expected <= expected) {
            return;
        }
        self.0.push(CurvePoint { trials, expected });
        if self.0.len() > POINTS {
            let last = self.0.len() - 1;
            let mut index = 0..;
            self.0.retain(|_| index.next().is_none_or(|at| at % 2 == 0 || at == last));
        }
    }

    /// Its points, in the order of trials.
    pub fn points(&self) -> &[CurvePoint] {
        &self.0
    }

    /// Whether it has no points.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(u64, u64)> for Curve {
    /// Of trials and what was expected after them.
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(points: T) -> Self {
        let mut curve = Self::default();
        points.into_iter().for_each(|(trials, expected)| curve.add(trials, expected));
        curve
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_curve_falls_and_is_bounded() {
        let curve: Curve = [(0, 9), (16, 9), (32, 7), (48, 8), (64, 5)].into_iter().collect();
        let points = curve.points().iter().map(|point| (point.trials, point.expected));
        assert_eq!(points.collect::<Vec<_>>(), [(0, 9), (32, 7), (64, 5)]);
        let long: Curve = (0..100_000).map(|trial| (trial, 1_000_000 - trial)).collect();
        let points = long.points();
        assert!(points.len() <= POINTS && points.len() > POINTS / 4, "{}", points.len());
        assert_eq!((points[0].trials, points[points.len() - 1].trials), (0, 99_999));
        assert!(points.is_sorted_by(|a, b| a.trials < b.trials && a.expected > b.expected));
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(
            text,
            r#"[{"trials":0,"expected":9},{"trials":32,"expected":7},{"trials":64,"expected":5}]"#
        );
    }

    #[test]
    fn a_post_is_small_and_whole_and_its_share_is_one() {
        let most = Progress {
            measured: u64::MAX,
            failed: u64::MAX,
            used: 1.0 / 3.0,
            expected: u64::MAX,
            untuned: u64::MAX,
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
        let long = format!("{}{}", text.replace("USED", "1"), " ".repeat(LARGEST));
        assert_eq!(Progress::from_post(long.as_bytes()), None);
    }
}
