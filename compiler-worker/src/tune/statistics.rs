//! How much faster one is than another whose runs took turns with its own.

/// Median of the ratios of times, run by run, and its 95 % confidence interval: the order statistics between
/// which the median lies with that probability, whatever the distribution (a binomial bound).
pub fn paired(ours: &[u64], theirs: &[u64]) -> (f64, (f64, f64)) {
    let pairs = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> =
        pairs.map(|(ours, theirs)| (*ours).max(1) as f64 / (*theirs).max(1) as f64).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let count = ratios.len();
    if count == 0 {
        return (1.0, (0.0, f64::INFINITY));
    }
    let half = 0.98 * (count as f64).sqrt();
    let below = ((count as f64 / 2.0 - half).floor().max(0.0)) as usize;
    let above = ((count as f64 / 2.0 + half).ceil() as usize).min(count - 1);
    let median = (ratios[(count - 1) / 2] + ratios[count / 2]) / 2.0;
    (median, (ratios[below], ratios[above]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_both_does_not_count() {
        // The machine is twice as slow in every other run.
        let theirs: Vec<u64> = (0..100).map(|run| 1000 * (1 + run % 2) + run % 7).collect();
        let ours: Vec<u64> = theirs.iter().map(|time| time * 9 / 10).collect();
        let (ratio, (low, high)) = paired(&ours, &theirs);
        assert!((ratio - 0.9).abs() < 0.01 && low <= ratio && ratio <= high && high < 0.92);
    }

    #[test]
    fn few_runs_are_not_sure() {
        assert_eq!(paired(&[], &[]).1.1, f64::INFINITY);
        let (_, (low, high)) = paired(&[1, 9, 5], &[5, 5, 5]);
        assert!(low < 1.0 && high > 1.0);
    }
}
