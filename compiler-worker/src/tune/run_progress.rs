//! How far a run is, over all its workers: what lies beside the segments of its log.

use hone_artifact::progress::Curve;
use hone_artifact::report::TuningReport;
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunProgress {
    /// Counters, the best, and the last segment.
    #[serde(flatten)]
    pub report: TuningReport,
    /// Where the time went.
    #[serde(flatten)]
    pub spent: Spent,
    /// Nanoseconds that a run of the network was expected to take before the search, as its first worker measured it.
    #[serde(default)]
    pub untuned: u64,
    /// The tuning curve.
    #[serde(default)]
    pub curve: Curve,
}

/// Seconds of searching, over all workers of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// All of it.
    pub seconds: f64,
    /// In which code of candidates was made on the machine that searches.
    #[serde(default)]
    pub building: f64,
    /// In which they were executed there.
    #[serde(default)]
    pub executing: f64,
    /// In which candidates were proposed and the cost model learned.
    #[serde(default)]
    pub proposing: f64,
}

impl RunProgress {
    /// A round of a worker is over, which has come as far as `outcome`; the workers before it spent `earlier`. The
    /// counters of the report are those after the round.
    pub fn note(&mut self, outcome: &Outcome, earlier: &Spent) {
        self.spent = Spent {
            seconds: earlier.seconds.max(0.0) + outcome.seconds,
            building: earlier.building + outcome.building,
            executing: earlier.executing + outcome.executing,
            proposing: earlier.proposing + outcome.proposing,
        };
        let Some((_, expected)) = outcome.curve.last().filter(|_| outcome.untuned > 0.0) else {
            return;
        };
        if self.untuned == 0 {
            self.untuned = outcome.untuned as u64;
        }
        // Each worker measures anew what the network takes without tuning; the curve is in times of the first one.
        let expected = expected / outcome.untuned * self.untuned as f64;
        let (measured, failed) = outcome.logged;
        self.curve.add((measured + failed + outcome.trials) as u64, expected as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_on_with_the_next_worker() {
        let mut progress = RunProgress::default();
        let first = Outcome {
            trials: 16,
            seconds: 2.0,
            building: 1.5,
            untuned: 1000.0,
            curve: vec![(0, 1000.0), (16, 900.0)],
            ..Outcome::default()
        };
        progress.note(
            &Outcome { curve: vec![(0, 1000.0)], trials: 0, ..first.clone() },
            &Spent::default(),
        );
        progress.note(&first, &Spent::default());
        // The next one finds the machine half as fast.
        let earlier = progress.spent.clone();
        let next = Outcome { untuned: 2000.0, logged: (15, 1), curve: vec![(16, 1600.0)], ..first };
        progress.note(&next, &earlier);
        let points: Vec<(u64, u64)> =
            progress.curve.points().iter().map(|own| (own.trials, own.expected)).collect();
        assert_eq!(points, [(0, 1000), (16, 900), (32, 800)]);
        assert_eq!((progress.spent.seconds, progress.spent.building), (4.0, 3.0));
    }
}
