//! An allocator that is run through time ahead of time: each value takes the smallest free range that fits
//! when its life begins and gives it back when it ends.

use crate::Lifetime;
use std::collections::{BTreeMap, BTreeSet};

/// Places the lifetimes of the given numbers at `base` and above, in order of their first steps; returns
/// the end of the highest, or `base`. Takes time in proportion to `n log n`.
pub(crate) fn allocate_in_time(
    lifetimes: &[Lifetime],
    numbers: &[usize],
    base: u64,
    offsets: &mut [u64],
) -> u64 {
    let mut order = numbers.to_vec();
    order.sort_by_key(|index| (lifetimes[*index].first, *index));
    let mut alive: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut free = FreeList { end: base, ..FreeList::default() };
    for index in order {
        let life = &lifetimes[index];
        while let Some((_, ended)) = alive.first().filter(|(last, _)| *last < life.first).copied() {
            alive.pop_first();
            free.give_back(offsets[ended], lifetimes[ended].bytes);
        }
        offsets[index] = free.take(life.bytes);
        alive.insert((life.last, index));
    }
    free.end
}

/// The free ranges below `end`; neighbouring ranges are one.
#[derive(Default)]
struct FreeList {
    /// Length of each range, by its start.
    by_start: BTreeMap<u64, u64>,
    /// Length and start of each range.
    by_length: BTreeSet<(u64, u64)>,
    end: u64,
}

impl FreeList {
    /// The start of a range of `bytes`: of the smallest that fits, or at the end.
    fn take(&mut self, bytes: u64) -> u64 {
        if let Some((length, start)) = self.by_length.range((bytes, 0)..).next().copied() {
            self.remove(start, length);
            self.insert(start + bytes, length - bytes);
            return start;
        }
        // The highest range may reach the end, which then grows by what is missing.
        let highest = self.by_start.last_key_value().map(|(start, length)| (*start, *length));
        let start = match highest.filter(|(start, length)| start + length == self.end) {
            Some((start, length)) => {
                self.remove(start, length);
                start
            }
            None => self.end,
        };
        self.end = start + bytes;
        start
    }

    fn give_back(&mut self, mut start: u64, mut bytes: u64) {
        let behind = self.by_start.get(&(start + bytes)).copied();
        if let Some(length) = behind {
            self.remove(start + bytes, length);
            bytes += length;
        }
        let before = self.by_start.range(..start).next_back().map(|(key, length)| (*key, *length));
        if let Some((key, length)) = before.filter(|(key, length)| key + length == start) {
            self.remove(key, length);
            (start, bytes) = (key, bytes + length);
        }
        self.insert(start, bytes);
    }

    fn insert(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_used_again_and_joined() {
        let mut free = FreeList { end: 100, ..FreeList::default() };
        assert_eq!([free.take(10), free.take(20), free.take(30)], [100, 110, 130]);
        free.give_back(100, 10);
        free.give_back(110, 20);
        assert_eq!(free.take(30), 100);
        free.give_back(130, 30);
        assert_eq!((free.take(40), free.end), (130, 170));
        free.give_back(100, 30);
        free.give_back(130, 40);
        assert_eq!(free.by_start, BTreeMap::from([(100, 70)]));
    }

    #[test]
    fn a_range_joins_the_one_behind_it() {
        let mut free = FreeList { end: 100, ..FreeList::default() };
        assert_eq!([free.take(10), free.take(20), free.take(30)], [100, 110, 130]);
        free.give_back(110, 20);
        free.give_back(100, 10);
        assert_eq!(free.by_start, BTreeMap::from([(100, 30)]));
        assert_eq!(free.by_length, BTreeSet::from([(30, 100)]));
    }

    #[test]
    fn a_range_that_is_taken_whole_leaves_none_behind() {
        let mut free = FreeList::default();
        assert_eq!([free.take(10), free.take(20)], [0, 10]);
        free.give_back(0, 10);
        assert_eq!(free.take(10), 0);
        assert!(free.by_start.is_empty() && free.by_length.is_empty());
    }
}
