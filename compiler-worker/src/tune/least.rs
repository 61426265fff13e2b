//! The time that no machine of a target can be faster than: an answer below it by a factor is no measurement.

use hone_machine::Machine;
use hone_search::{FEATURES, Features};

/// Cycles in a nanosecond that no processor reaches.
const MOST_CYCLES: f64 = 8.0;

/// Nanoseconds of a scheduled program at the peak of its target: as many instructions in each cycle as can start, and operands
/// that all lie in the first-level cache, on `threads` threads; 0 for all of a machine that is not known says nothing.
pub(super) fn least(features: &Features, machine: &Machine, threads: usize) -> f64 {
    let of = |name: &str| {
        let place = FEATURES.iter().position(|own| *own == name);
        let logarithm = place.and_then(|place| features.counts.get(place)).copied();
        // Features are logarithms of one more than the count.
        logarithm.map_or(0.0, |own| f64::from(own).exp2() - 1.0)
    };
    if threads == 0 {
        return 0.0;
    }
    let arithmetic = of("arithmetic") / machine.fma_per_cycle.max(1) as f64;
    let width = 4 * machine.lanes * machine.loads_per_cycle;
    let memory = of("distinct bytes") / width.max(1) as f64;
    arithmetic.max(memory) / MOST_CYCLES / threads as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_search::Nest;

    #[test]
    fn peaks_bound_times_from_below() {
        let machine = Machine::with_vectors(32, 16);
        let with = |name: &str, count: f64| {
            let of = |own: &&str| if *own == name { (1.0 + count).log2() as f32 } else { 0.0 };
            Features { counts: FEATURES.iter().map(of).collect(), nest: Nest::default() }
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        let sums = 1e6 / machine.fma_per_cycle as f64 / 8.0;
        assert!(near(least(&with("arithmetic", 1e6), &machine, 1), sums));
        assert!(near(least(&with("arithmetic", 1e6), &machine, 4), sums / 4.0));
        let bytes = 1e6 / (32.0 * machine.loads_per_cycle as f64) / 8.0;
        assert!(near(least(&with("distinct bytes", 1e6), &machine, 1), bytes));
        assert_eq!(least(&with("arithmetic", 1e6), &machine, 0), 0.0);
    }
}
