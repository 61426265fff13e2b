//! Places values with known lifetimes in one arena.

use crate::alive_index::AliveIndex;
use crate::free_list::allocate_in_time;

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

/// The offset of each value, and the size of the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Offset of each value in bytes, in the order given.
    pub offsets: Vec<u64>,
    /// Size of the arena in bytes.
    pub bytes: u64,
    /// No plan can be smaller: the most bytes alive in any one step.
    pub lower_bound: u64,
}

/// Pairs of values alive together that best fit may examine. It covers every network we know many times
/// over; beyond it, as where three thousand values are alive at once, the smaller values are placed in
/// order of time.
const MAX_PAIRS: usize = 4_000_000;

/// Places the largest values first, each in the smallest gap that fits among those alive with it
/// (greedy by size: Pisarchyk and Lee, 2020). Offsets are multiples of `alignment` bytes. Takes time in
/// proportion to `n log n` and to the pairs of values alive together, of which it examines [`MAX_PAIRS`] at
/// most; the values left over then lie behind the others ([`allocate_in_time`]).
pub fn plan_memory(lifetimes: &[Lifetime], alignment: u64) -> MemoryPlan {
    let aligned: Vec<Lifetime> = lifetimes
        .iter()
        .map(|life| Lifetime { bytes: life.bytes.next_multiple_of(alignment), ..*life })
        .collect();
    plan_within(&aligned, MAX_PAIRS)
}

/// Plans lifetimes of aligned sizes, of which best fit examines about `pairs` pairs.
fn plan_within(lifetimes: &[Lifetime], pairs: usize) -> MemoryPlan {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|index| {
        let Lifetime { bytes, first, .. } = lifetimes[*index];
        (std::cmp::Reverse(bytes), first, *index)
    });
    let mut offsets = vec![0; lifetimes.len()];
    let mut placed = AliveIndex::new(steps(lifetimes));
    let (mut examined, mut count) = (0, 0);
    for index in &order {
        let life = &lifetimes[*index];
        let mut occupied: Vec<(u64, u64)> = Vec::new();
        placed.alive_with(life, |other| {
            occupied.push((offsets[other], offsets[other] + lifetimes[other].bytes));
        });
        occupied.sort_unstable();
        offsets[*index] = best_gap(&occupied, life.bytes);
        placed.insert(*index, life);
        count += 1;
        examined += occupied.len();
        if examined > pairs {
            break;
        }
    }
    let (by_size, by_time) = order.split_at(count);
    let end = |index: &usize| offsets[*index] + lifetimes[*index].bytes;
    let mut bytes = by_size.iter().map(end).max().unwrap_or(0);
    bytes = allocate_in_time(lifetimes, by_time, bytes, &mut offsets);
    MemoryPlan { offsets, bytes, lower_bound: lower_bound(lifetimes) }
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

/// The most bytes alive in any one step.
fn lower_bound(lifetimes: &[Lifetime]) -> u64 {
    let mut changes = vec![0i128; steps(lifetimes) + 1];
    for life in lifetimes.iter().filter(|life| life.first <= life.last) {
        changes[life.first] += i128::from(life.bytes);
        changes[life.last + 1] -= i128::from(life.bytes);
    }
    let alive = changes.iter().scan(0, |alive, change| {
        *alive += change;
        Some(*alive)
    });
    alive.max().and_then(|maximum| u64::try_from(maximum).ok()).unwrap_or(0)
}

/// Number of steps that the lifetimes span.
fn steps(lifetimes: &[Lifetime]) -> usize {
    lifetimes.iter().map(|life| life.last + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chain(sizes: &[u64]) -> Vec<Lifetime> {
        let lives = sizes.iter().enumerate();
        lives.map(|(step, bytes)| Lifetime { bytes: *bytes, first: step, last: step + 1 }).collect()
    }

    #[test]
    fn a_chain_alternates_between_two_offsets() {
        let plan = plan_memory(&chain(&[100, 300, 200, 300, 100]), 64);
        assert_eq!(plan.bytes, plan.lower_bound);
    }

    fn scattered(count: u64) -> Vec<Lifetime> {
        let life = |n: u64| {
            let first = (n % 13 * 5 + n % 3) as usize;
            Lifetime { bytes: 64 + n * 37 % 500, first, last: first + (n % 7 * (n % 5)) as usize }
        };
        (0..count).map(life).collect()
    }

    fn overlaps(a: &Lifetime, b: &Lifetime) -> bool {
        a.first <= b.last && b.first <= a.last
    }

    fn assert_apart(lifetimes: &[Lifetime], plan: &MemoryPlan) {
        for (i, a) in lifetimes.iter().enumerate() {
            assert!(plan.offsets[i] + a.bytes <= plan.bytes);
            for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                let (at, other) = (plan.offsets[i], plan.offsets[j]);
                let apart = at + a.bytes <= other || other + b.bytes <= at;
                assert!(apart || !overlaps(a, b), "{a:?} at {at} and {b:?} at {other}");
            }
        }
        assert!(plan.bytes >= plan.lower_bound);
    }

    #[test]
    fn values_alive_together_never_overlap() {
        let lifetimes = scattered(60);
        let plan = plan_memory(&lifetimes, 64);
        assert!(plan.offsets.iter().all(|offset| offset % 64 == 0));
        assert_apart(&lifetimes, &plan);
    }

    #[test]
    fn the_lower_bound_is_the_most_that_is_alive() {
        let lifetimes = scattered(60);
        let alive = |step: usize| -> u64 {
            let alive = lifetimes.iter().filter(|life| life.first <= step && step <= life.last);
            alive.map(|life| life.bytes.next_multiple_of(64)).sum()
        };
        let maximum = (0..steps(&lifetimes)).map(alive).max().unwrap();
        assert_eq!(plan_memory(&lifetimes, 64).lower_bound, maximum);
    }

    #[test]
    fn a_value_is_placed_in_the_smallest_gap_that_fits() {
        let life = |bytes: u64, first: usize, last: usize| Lifetime { bytes, first, last };
        // Two values that end early leave gaps between those that stay.
        let stays = [life(1_000, 0, 2), life(800, 0, 2), life(600, 0, 2)];
        let ends = [life(900, 0, 0), life(700, 0, 0)];
        for (bytes, offset) in
            [(500, 2_700), (700, 2_700), (800, 1_000), (900, 1_000), (901, 4_000)]
        {
            let late = life(bytes, 1, 2);
            let order = [stays[0], ends[0], stays[1], ends[1], stays[2]];
            assert_eq!(best_gap(&occupied(&order, &late), bytes), offset, "{bytes} bytes");
        }
    }

    /// The ranges of values placed one behind the other that are alive with `late`.
    fn occupied(order: &[Lifetime], late: &Lifetime) -> Vec<(u64, u64)> {
        let mut end = 0;
        let ranges = order.iter().map(|life| {
            end += life.bytes;
            (overlaps(life, late), (end - life.bytes, end))
        });
        ranges.filter(|(alive, _)| *alive).map(|(_, range)| range).collect()
    }

    #[test]
    fn values_beyond_the_bound_on_pairs_are_placed_in_order_of_time() {
        let lifetimes = scattered(200);
        let within = plan_within(&lifetimes, usize::MAX);
        for pairs in [0, 10, 500, 2_000] {
            let plan = plan_within(&lifetimes, pairs);
            assert_apart(&lifetimes, &plan);
            assert!(plan.bytes <= 2 * within.bytes, "{} beside {}", plan.bytes, within.bytes);
        }
    }

    #[test]
    fn many_values_are_placed_quickly() {
        let count = 50_000;
        let fan: Vec<Lifetime> = (0..count)
            .map(|step| Lifetime { bytes: 64, first: step, last: count + step })
            .collect();
        let plan = plan_memory(&fan, 64);
        assert_eq!(plan.bytes, plan.lower_bound);
        let plan = plan_memory(&chain(&vec![256; count]), 64);
        assert_eq!(plan.bytes, plan.lower_bound);
    }
}
