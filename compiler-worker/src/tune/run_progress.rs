//! How far a run is, over all its workers: what lies beside the segments of its log.

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
    /// Nanoseconds that a run of the network was expected to take before the search, as its first worker measured it. Its
    /// name in the file differs from that of the report's field, which lies beside it.
    #[serde(rename = "expectedUntuned", default)]
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

/// Most points of a curve.
const POINTS: usize = 200;

/// A tuning curve, as trials and the nanoseconds that a run of the network was expected to take then: the first point,
/// those at which it was less than before, and the last. It has no more than 200 points, however long the search is: of
/// more, those in between are thinned out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(Vec<(u64, u64)>);

impl Curve {
    /// Adds what is expected after so many trials; the curve stays at what it was where that is more.
    fn add(&mut self, trials: u64, expected: u64) {
        let expected = self.0.last().map_or(expected, |last| last.1.min(expected));
        if let [.., before, last] = &mut self.0[..]
            && before.1 == expected
        {
            last.0 = trials;
            return;
        }
        self.0.push((trials, expected));
        if self.0.len() > POINTS {
            let last = self.0.len() - 1;
            let mut index = 0..;
            self.0.retain(|_| index.next().is_none_or(|at| at % 2 == 0 || at == last));
        }
    }
}

impl RunProgress {
    /// What the bytes of a file say; nothing where they say nothing, which is no reason to lose the run.
    pub fn read(bytes: &[u8]) -> Self {
        let mut read: Self = serde_json::from_slice(bytes).unwrap_or_default();
        // Earlier versions called the expected time as the report calls the measured one, which is there with `best` alone.
        if read.untuned == 0 && read.report.best.is_none() {
            read.untuned = read.report.untuned.take().unwrap_or(0);
        }
        read
    }

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
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn curve(points: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
        let mut curve = Curve::default();
        points.into_iter().for_each(|(trials, expected)| curve.add(trials, expected));
        curve.0
    }

    #[test]
    fn a_curve_falls_and_is_bounded() {
        let some = curve([(0, 9), (16, 9), (32, 7), (48, 8), (64, 8), (80, 5)]);
        assert_eq!(some, [(0, 9), (16, 9), (32, 7), (64, 7), (80, 5)]);
        let long = curve((0..100_000).map(|trial| (trial, 1_000_000 - trial)));
        assert!(long.len() <= POINTS && long.len() > POINTS / 4, "{}", long.len());
        assert_eq!((long[0].0, long[long.len() - 1].0), (0, 99_999));
        assert!(long.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
    }

    #[test]
    fn measured_and_expected_times_are_read_apart() {
        let report = TuningReport { best: Some(8), untuned: Some(9), ..TuningReport::default() };
        let progress = RunProgress { report, untuned: 10, ..RunProgress::default() };
        let bytes = serde_json::to_vec(&progress).unwrap();
        assert_eq!(RunProgress::read(&bytes), progress);
        // As earlier versions wrote it before anything was measured.
        let text = String::from_utf8(serde_json::to_vec(&RunProgress::default()).unwrap()).unwrap();
        let earlier =
            RunProgress::read(text.replace("expectedUntuned\":0", "untuned\":10").as_bytes());
        assert_eq!((earlier.untuned, earlier.report.untuned), (10, None));
    }

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
        assert_eq!(progress.curve.0, [(0, 1000), (16, 900), (32, 800)]);
        assert_eq!((progress.spent.seconds, progress.spent.building), (4.0, 3.0));
    }
}
