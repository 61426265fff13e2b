//! From latencies to a median that says how sure it is.

use hone_artifact::report::LatencyReport;

use crate::random::Random;

const RESAMPLES: usize = 1000;
/// Samples beyond this number are thinned out before resampling; the interval changes little.
const RESAMPLED: usize = 500;

/// What a list of latencies says, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95 % confidence interval of the median, by the bootstrap.
    pub interval: (u64, u64),
    /// How many there were.
    pub runs: usize,
}

impl Summary {
    /// As it stands in reports.
    pub fn report(&self, untuned: Option<u64>) -> LatencyReport {
        LatencyReport {
            p50: self.p50,
            p90: Some(self.p90),
            ci_low: Some(self.interval.0),
            ci_high: Some(self.interval.1),
            untuned,
        }
    }

    /// Width of the interval relative to the median: what a noise budget bounds.
    pub fn spread(&self) -> f64 {
        (self.interval.1 - self.interval.0) as f64 / self.p50.max(1) as f64
    }
}

/// Sums up latencies; `None` where there are none. Equal latencies give equal summaries.
pub fn summarize(latencies: &[u64]) -> Option<Summary> {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.first()?;
    let stride = sorted.len().div_ceil(RESAMPLED);
    let thinned: Vec<u64> = sorted.iter().copied().step_by(stride).collect();
    Some(Summary {
        p50: quantile(&sorted, 0.5),
        p90: quantile(&sorted, 0.9),
        interval: bootstrap(&thinned, sorted.len()),
        runs: sorted.len(),
    })
}

/// The value at a fraction of a sorted list.
fn quantile(sorted: &[u64], fraction: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * fraction).round() as usize]
}

/// The middle 95 % of the medians of resamples of `count` draws. The median of a resample is an order
/// statistic of draws of indices, so only indices are drawn.
fn bootstrap(sorted: &[u64], count: usize) -> (u64, u64) {
    let mut random = Random::new(0x600d_5eed);
    let draws = count.min(RESAMPLED);
    let mut medians: Vec<u64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| random.below(sorted.len());
            let mut drawn: Vec<usize> = (0..draws).map(draw).collect();
            let middle = drawn.len() / 2;
            let (_, median, _) = drawn.select_nth_unstable(middle);
            sorted[*median]
        })
        .collect();
    medians.sort_unstable();
    (quantile(&medians, 0.025), quantile(&medians, 0.975))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_more_runs() {
        let mut random = Random::new(1);
        let mut sample =
            |count| -> Vec<u64> { (0..count).map(|_| 1000 + random.below(1000) as u64).collect() };
        let few = summarize(&sample(20)).unwrap();
        let many = summarize(&sample(2000)).unwrap();
        for summary in [few, many] {
            assert!(summary.interval.0 <= summary.p50 && summary.p50 <= summary.interval.1);
            assert!(summary.p50 <= summary.p90);
        }
        assert!(many.spread() < few.spread());
        assert!((1450..1550).contains(&many.p50));
    }

    #[test]
    fn one_run_is_its_own_interval_and_none_has_no_summary() {
        assert_eq!(summarize(&[7]).unwrap().interval, (7, 7));
        assert_eq!(summarize(&[]), None);
    }
}
