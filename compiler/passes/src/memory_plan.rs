//! Places values with known lifetimes in one arena.

/// A value that needs memory from step `first` to step `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Size in bytes.
    pub bytes: u64,
    /// First step that touches it.
    pub first: usize,
    /// Last step that touches it.
    pub last: usize,
}

/// Where each value lies, and how large the arena is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Offset of each value in bytes, in the order given.
    pub offsets: Vec<u64>,
    /// Size of the arena in bytes.
    pub bytes: u64,
    /// No plan can be smaller: the most bytes alive in any one step.
    pub lower_bound: u64,
}

/// Places the largest values first, each in the smallest gap that fits among those alive with it
/// (greedy by size: Pisarchyk and Lee, 2020). Offsets are multiples of `alignment` bytes.
pub fn plan_memory(lifetimes: &[Lifetime], alignment: u64) -> MemoryPlan {
    let size = |place: usize| lifetimes[place].bytes.next_multiple_of(alignment);
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(size(*place)), lifetimes[*place].first, *place));
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for place in order {
        let mut occupied: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| overlaps(&lifetimes[place], &lifetimes[**other]))
            .map(|other| (offsets[*other], offsets[*other] + size(*other)))
            .collect();
        occupied.sort_unstable();
        offsets[place] = best_gap(&occupied, size(place));
        placed.push(place);
    }
    let bytes = (0..lifetimes.len()).map(|place| offsets[place] + size(place)).max().unwrap_or(0);
    MemoryPlan { offsets, bytes, lower_bound: lower_bound(lifetimes, alignment) }
}

fn overlaps(a: &Lifetime, b: &Lifetime) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// The start of the smallest gap of at least `bytes` between occupied ranges (sorted by start), or
/// the end of the last.
fn best_gap(occupied: &[(u64, u64)], bytes: u64) -> u64 {
    let mut end = 0;
    let mut best: Option<(u64, u64)> = None;
    for (start, stop) in occupied {
        let gap = start.saturating_sub(end);
        if gap >= bytes && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, end));
        }
        end = end.max(*stop);
    }
    best.map_or(end, |(_, start)| start)
}

fn lower_bound(lifetimes: &[Lifetime], alignment: u64) -> u64 {
    let steps = lifetimes.iter().map(|lifetime| lifetime.last + 1).max().unwrap_or(0);
    let alive = |step: usize| {
        let alive = lifetimes.iter().filter(|life| life.first <= step && step <= life.last);
        alive.map(|life| life.bytes.next_multiple_of(alignment)).sum()
    };
    (0..steps).map(alive).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(sizes: &[u64]) -> Vec<Lifetime> {
        let lives = sizes.iter().enumerate();
        lives.map(|(step, bytes)| Lifetime { bytes: *bytes, first: step, last: step + 1 }).collect()
    }

    #[test]
    fn a_chain_alternates_between_two_places() {
        let plan = plan_memory(&chain(&[100, 300, 200, 300, 100]), 64);
        assert_eq!(plan.bytes, plan.lower_bound);
    }

    #[test]
    fn values_alive_together_never_overlap() {
        let lifetimes: Vec<Lifetime> = (0..60)
            .map(|n| Lifetime {
                bytes: 64 + n * 37 % 500,
                first: n as usize % 13,
                last: n as usize % 13 + n as usize % 7,
            })
            .collect();
        let plan = plan_memory(&lifetimes, 64);
        for (i, a) in lifetimes.iter().enumerate() {
            for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                let apart = plan.offsets[i] + a.bytes <= plan.offsets[j]
                    || plan.offsets[j] + b.bytes <= plan.offsets[i];
                assert!(
                    apart || !overlaps(a, b),
                    "{a:?} at {} and {b:?} at {}",
                    plan.offsets[i],
                    plan.offsets[j]
                );
            }
        }
        assert!(plan.bytes >= plan.lower_bound);
    }
}
