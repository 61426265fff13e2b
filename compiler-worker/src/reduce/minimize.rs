//! Delta debugging: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), `ddmin`.

use crate::failure::Result;

/// A part of `items` that still fails and of which no single item can be left out. `fails` says whether a part fails; all
/// of `items` are known to. It is asked for nothing at all first, since that is often enough.
///
/// # Errors
/// What `fails` gives.
pub fn minimize<T: Clone>(
    items: Vec<T>,
    fails: &mut dyn FnMut(&[T]) -> Result<bool>,
) -> Result<Vec<T>> {
    let mut items = items;
    if items.is_empty() || fails(&[])? {
        return Ok(Vec::new());
    }
    let mut parts = 2;
    while items.len() > 1 {
        let (found, next) = round(&items, parts, fails)?;
        let is_finest = parts >= items.len();
        match found {
            Some(smaller) => items = smaller,
            None if is_finest => break,
            None => {}
        }
        parts = next.clamp(2, items.len().max(2));
    }
    Ok(items)
}

/// Tries each of `parts` parts alone, then all items without it: the first that fails, and how many parts to try next.
fn round<T: Clone>(
    items: &[T],
    parts: usize,
    fails: &mut dyn FnMut(&[T]) -> Result<bool>,
) -> Result<(Option<Vec<T>>, usize)> {
    let bound = |part: usize| part * items.len() / parts;
    for part in 0..parts {
        let alone = &items[bound(part)..bound(part + 1)];
        if fails(alone)? {
            return Ok((Some(alone.to_vec()), 2));
        }
    }
    for part in (0..parts).filter(|_| parts > 2) {
        let others = [&items[..bound(part)], &items[bound(part + 1)..]].concat();
        if fails(&others)? {
            return Ok((Some(others), parts - 1));
        }
    }
    Ok((None, parts * 2))
}

/// The least of `1..=most` for which `fails`, where it fails for all above one: of a list that is cut at one end. It is
/// known to fail for `most`.
///
/// # Errors
/// What `fails` gives.
pub fn least(most: usize, fails: &mut dyn FnMut(usize) -> Result<bool>) -> Result<usize> {
    let (mut below, mut least) = (0, most);
    while least - below > 1 {
        let middle = below + (least - below) / 2;
        match fails(middle)? {
            true => least = middle,
            false => below = middle,
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn minimized(count: usize, needed: &[usize]) -> (Vec<usize>, usize) {
        let mut asked = 0;
        let all = (0..count).collect();
        let found = minimize(all, &mut |items: &[usize]| {
            asked += 1;
            Ok(needed.iter().all(|entry| items.contains(entry)))
        });
        (found.unwrap(), asked)
    }

    #[test]
    fn exactly_what_is_needed_is_left() {
        for needed in [&[][..], &[0], &[41], &[99], &[3, 97], &[10, 11, 12], &[0, 25, 50, 75, 99]] {
            let (left, asked) = minimized(100, needed);
            assert_eq!(left, needed);
            assert!(asked <= 400, "{needed:?}: {asked}");
        }
        assert_eq!(minimized(0, &[]).0, Vec::<usize>::new());
        assert_eq!(minimized(1, &[0]).0, [0]);
        // One item takes about as many questions as the list can be halved.
        assert!(minimized(1000, &[777]).1 <= 25);
    }

    #[test]
    fn no_single_item_can_be_left_out() {
        // An even number of items, the first among them: not every part of a failing list fails.
        let fails = |items: &[usize]| items.contains(&0) && items.len().is_multiple_of(2);
        let mut all: Vec<usize> = (0..10).collect();
        all = minimize(all, &mut |items| Ok(fails(items))).unwrap();
        assert!(fails(&all));
        for index in 0..all.len() {
            let mut without = all.clone();
            without.remove(index);
            assert!(!fails(&without));
        }
    }

    #[test]
    fn a_list_is_cut_at_its_end() {
        for needed in 1..=33 {
            assert_eq!(least(33, &mut |length| Ok(length >= needed)).unwrap(), needed);
        }
    }
}
