//! Which of many lifetimes overlap a given one: two lifetimes do where one of them contains the first
//! step of the other.

use crate::Lifetime;
use std::collections::BTreeSet;

/// Lifetimes by number. Adding one takes `log` of the steps, and a query that and what it finds.
pub(crate) struct AliveIndex {
    /// A segment tree over the steps: the children of node `n` are `2 n` and `2 n + 1`, and step `s` is
    /// leaf `leaves + s`. Each lifetime is kept in the few nodes whose steps it covers exactly.
    covering: Vec<Vec<usize>>,
    leaves: usize,
    /// First step and number of each lifetime.
    by_first: BTreeSet<(usize, usize)>,
}

impl AliveIndex {
    /// No lifetime of any of `steps` steps.
    pub(crate) fn new(steps: usize) -> Self {
        let leaves = steps.next_power_of_two();
        Self { covering: vec![Vec::new(); 2 * leaves], leaves, by_first: BTreeSet::new() }
    }

    /// Adds the lifetime of number `index`.
    pub(crate) fn insert(&mut self, index: usize, life: &Lifetime) {
        self.by_first.insert((life.first, index));
        let (mut left, mut right) = (life.first + self.leaves, life.last + self.leaves + 1);
        while left < right {
            if left % 2 == 1 {
                self.covering[left].push(index);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.covering[right].push(index);
            }
            (left, right) = (left / 2, right / 2);
        }
    }

    /// Visits the number of every lifetime that overlaps `life`, once, in no order.
    pub(crate) fn alive_with(&self, life: &Lifetime, mut visit: impl FnMut(usize)) {
        let mut node = life.first + self.leaves;
        while node > 0 {
            self.covering[node].iter().for_each(|index| visit(*index));
            node /= 2;
        }
        let later = (life.first + 1, 0)..(life.last + 1, 0);
        if later.start < later.end {
            self.by_first.range(later).for_each(|(_, index)| visit(*index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_overlapping_lifetime_once() {
        let life = |n: usize| Lifetime { bytes: 1, first: n * 5 % 11, last: n * 5 % 11 + n % 6 };
        let mut index = AliveIndex::new(17);
        (0..40).for_each(|n| index.insert(n, &life(n)));
        for n in 0..40 {
            let (queried, mut found) = (life(n), Vec::new());
            index.alive_with(&queried, |other| found.push(other));
            found.sort_unstable();
            let overlaps =
                |other: &Lifetime| queried.first <= other.last && other.first <= queried.last;
            let expected: Vec<usize> = (0..40).filter(|other| overlaps(&life(*other))).collect();
            assert_eq!(found, expected);
        }
    }
}
