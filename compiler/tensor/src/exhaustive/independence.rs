//! What indices determine.

use super::{Loops, expression, id, integer, value, var};
use crate::Expr;
use crate::independence::{determines, same_iteration};
use hone_types::Random;
use std::collections::BTreeMap;

/// Whether equal values of `indices` mean equal values of the variable at `place`, where the values of the first
/// `fixed` variables are equal anyway.
fn truly_determines(indices: &[Expr], place: usize, fixed: usize, loops: &Loops) -> bool {
    let mut seen: BTreeMap<Vec<i64>, i64> = BTreeMap::new();
    loops.points.iter().all(|point| {
        let mut key: Vec<i64> = indices.iter().map(|index| value(index, point)).collect();
        key.extend(&point[..fixed]);
        *seen.entry(key).or_insert(point[place]) == point[place]
    })
}

#[test]
fn what_is_determined_is_so_in_every_iteration() {
    let mut random = Random::new(9);
    let mut shown = 0;
    for loops in Loops::several() {
        for _ in 0..500 {
            let count = random.below(3) + 1;
            let indices: Vec<Expr> =
                (0..count).map(|_| loops.domain.simplify(&expression(&mut random, 3, 2))).collect();
            for (place, outer) in [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)] {
                let fixed = |atom: &Expr| !(outer..3).any(|inner| atom.mentions(id(inner)));
                if determines(&indices, id(place), &loops.domain, &fixed) {
                    shown += 1;
                    let true_of = truly_determines(&indices, place, outer, &loops);
                    assert!(true_of, "{indices:?} do not tell {place}");
                }
            }
        }
    }
    assert!(shown > 1_000, "few are determined: {shown}");
}

#[test]
fn an_index_of_two_terms_determines_both_where_they_do_not_overlap() {
    for (first, second) in [(4, 3), (2, 5), (3, 3), (5, 2)] {
        let loops = Loops::constant(&[first, second]);
        for factor in -7..=7 {
            for swapped in [false, true] {
                let (plain, scaled) = if swapped { (0, 1) } else { (1, 0) };
                let index = vec![loops.domain.simplify(&(var(scaled) * factor + var(plain)))];
                for place in 0..2 {
                    let found = determines(&index, id(place), &loops.domain, &|_| false);
                    let expected = truly_determines(&index, place, 0, &loops);
                    assert_eq!(found, expected, "{place} by {index:?} of {first}, {second}");
                }
            }
        }
    }
}

#[test]
fn a_quotient_and_its_remainder_determine_what_was_divided() {
    let loops = Loops::constant(&[12, 5]);
    let by = |divisor: i64| var(0).floor_divide(Expr::Integer(divisor));
    let rest = |divisor: i64| var(0).modulo(Expr::Integer(divisor));
    let known = |indices: &[Expr]| determines(indices, id(0), &loops.domain, &|_| false);
    assert!(known(&[by(4), rest(4)]));
    assert!(known(&[rest(4), by(4)]));
    assert!(known(&[by(4) * 4 + rest(4)]));
    assert!(known(&[by(4) * 5 + var(1), rest(4)]));
    assert!(!known(&[by(4) * 4 + var(1), rest(4)]));
    assert!(!known(&[by(4), rest(3)]));
    assert!(!known(&[by(4)]));
    assert!(!known(&[rest(4)]));
    let (sum, eight) = (var(0) * 5 + var(1), || Expr::Integer(8));
    let parts = [sum.clone().floor_divide(eight()), sum.modulo(eight())];
    assert!(known(&parts) && determines(&parts, id(1), &loops.domain, &|_| false));
}

/// Two accesses below one loop over `v1`, inside one over `v0`: whether one element means one iteration of `v1`.
fn truly_same(first: &Expr, second: &Expr, outer: &Loops, inner: [i64; 2]) -> bool {
    outer.points.iter().all(|a| {
        outer.points.iter().filter(|b| a[0] == b[0] && a[1] != b[1]).all(|b| {
            (0..inner[0]).all(|i| {
                (0..inner[1]).all(|j| {
                    let point = |own: &[i64], inner: i64| vec![own[0], own[1], inner];
                    value(first, &point(a, i)) != value(second, &point(b, j))
                })
            })
        })
    })
}

#[test]
fn accesses_of_one_element_are_of_one_iteration_where_that_is_said() {
    let mut random = Random::new(10);
    let (mut shown, mut open) = (0, 0);
    for _ in 0..4_000 {
        let extents: Vec<i64> = (0..4).map(|_| random.below(4) as i64 + 1).collect();
        let outer = Loops::constant(&extents[..2]);
        let [first_loops, second_loops] =
            [2, 3].map(|inner| Loops::constant(&[extents[0], extents[1], extents[inner]]));
        let (step, shift) = (integer(&mut random, 5), integer(&mut random, 3));
        let (a, b) = (integer(&mut random, 2), integer(&mut random, 2));
        let across = integer(&mut random, 1);
        let index = |own: i64, shift: i64, across: i64| {
            var(1) * step + var(2) * own + var(0) * across + shift
        };
        let first = first_loops.domain.simplify(&index(a, 0, 1));
        let second = second_loops.domain.simplify(&index(b, shift, across));
        let found = same_iteration(
            (std::slice::from_ref(&first), &first_loops.domain),
            (std::slice::from_ref(&second), &second_loops.domain),
            id(1),
        );
        let expected = truly_same(&first, &second, &outer, [extents[2], extents[3]]);
        assert!(expected || !found, "{first:?} and {second:?} in {extents:?}");
        shown += usize::from(found);
        open += usize::from(expected && !found && extents[1] > 1 && shift == 0);
    }
    assert!(shown > 400, "few are shown: {shown}");
    // Indices whose parts leave gaps for each other are not looked into.
    assert!(open < shown / 2, "{open} are not shown, {shown} are");
}

#[test]
fn iterations_are_apart_up_to_the_last_element_between_them() {
    for step in [1, 2, 4, 5] {
        for (first_extent, second_extent, shift) in
            [(1, 1, 0), (2, 1, 0), (1, 3, 0), (4, 4, 0), (3, 2, 1), (4, 2, 2), (2, 4, -1)]
        {
            // What the loops outside add is the same for both, however little.
            let outer = Loops::constant(&[2, 3]);
            let first_loops = Loops::constant(&[2, 3, first_extent]);
            let second_loops = Loops::constant(&[2, 3, second_extent]);
            for turn in [1, -1] {
                let first =
                    first_loops.domain.simplify(&((var(0) + var(1) * step + var(2)) * turn));
                let second = var(0) + var(1) * step + var(2) + shift;
                let second = second_loops.domain.simplify(&(second * turn));
                let found = same_iteration(
                    (std::slice::from_ref(&first), &first_loops.domain),
                    (std::slice::from_ref(&second), &second_loops.domain),
                    id(1),
                );
                let expected = truly_same(&first, &second, &outer, [first_extent, second_extent]);
                assert_eq!(
                    found, expected,
                    "{first:?} and {second:?}, {first_extent} {second_extent}"
                );
            }
        }
    }
}
