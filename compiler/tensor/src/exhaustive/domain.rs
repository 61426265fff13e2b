//! Bounds over nested loops.

use super::{Loops, expression, id, integer, value, var};
use crate::{Expr, Range};
use hone_types::Random;

#[test]
fn every_value_lies_in_the_range() {
    let mut random = Random::new(5);
    for loops in Loops::several() {
        for _ in 0..400 {
            let expr = expression(&mut random, 3, 3);
            let Some(range) = loops.domain.bounds(&expr) else { panic!("{expr:?} has a range") };
            let (least, largest) = loops.ends(&expr);
            assert!(range.min <= least && largest <= range.max, "{expr:?}: {range:?}");
        }
    }
}

#[test]
fn bounds_over_inner_loops_hold_in_every_iteration_of_the_outer_ones() {
    let mut random = Random::new(6);
    for loops in Loops::several() {
        for _ in 0..150 {
            let expr = expression(&mut random, 3, 3);
            for depth in 0..=3 {
                let upper = loops.domain.upper(&expr, depth).unwrap_or_default();
                let lower = loops.domain.lower(&expr, depth).unwrap_or_default();
                assert!(!upper.is_empty() && !lower.is_empty(), "{expr:?} has bounds");
                let inner = |bound: &Expr| (depth..3).any(|place| bound.mentions(id(place)));
                assert!(!upper.iter().chain(&lower).any(inner), "{expr:?} at {depth}");
                for point in &loops.points {
                    let own = value(&expr, point);
                    let above = upper.iter().all(|bound| value(bound, point) >= own);
                    let below = lower.iter().all(|bound| value(bound, point) <= own);
                    assert!(above && below, "{expr:?} at {point:?}: {lower:?}..={upper:?}");
                }
            }
        }
    }
}

/// Sums of different variables have both of their ends where every loop's extent is known, and so have
/// indices of tiles.
#[test]
fn ends_of_sums_are_reached() {
    let mut random = Random::new(7);
    let loops = Loops::constant(&[3, 1, 4]);
    for _ in 0..300 {
        let constant = Expr::Integer(integer(&mut random, 9));
        let expr = (0..3).fold(constant, |sum, place| sum + var(place) * integer(&mut random, 5));
        let (min, max) = loops.ends(&expr);
        assert_eq!(loops.domain.bounds(&expr), Some(Range { min, max }), "{expr:?}");
    }
}

/// Loops over tiles, and over what each has: `whole` elements by `tile`, the last one with the rest.
fn tiles(whole: i64, tile: i64) -> Loops {
    let outer = Expr::Integer((whole + tile - 1) / tile);
    let rest = Expr::Integer(whole) - var(0) * tile;
    Loops::of(&[outer, Expr::Integer(tile).minimum(rest), Expr::Integer(3)])
}

#[test]
fn ends_of_tiles_are_reached() {
    for (whole, tile) in [(10, 3), (9, 3), (7, 5), (5, 7), (12, 5)] {
        let loops = tiles(whole, tile);
        let element = var(0) * tile + var(1);
        for expr in [
            element.clone(),
            element.clone() * 2 + var(2),
            Expr::Integer(whole) - element.clone() - 1,
            element.clone() * -1 + 4,
            element.clone().floor_divide(Expr::Integer(2)),
            element.clone().minimum(Expr::Integer(4)),
            element.clone().maximum(Expr::Integer(4)),
            Expr::Integer(4) - element.clone().minimum(Expr::Integer(2)),
            (element.clone() + 3).minimum(element.clone() + var(2)),
        ] {
            let (min, max) = loops.ends(&expr);
            assert_eq!(loops.domain.bounds(&expr), Some(Range { min, max }), "{expr:?}");
            // Of each tile too: one of the bounds is reached.
            let upper = loops.domain.upper(&expr, 1).unwrap_or_default();
            let lower = loops.domain.lower(&expr, 1).unwrap_or_default();
            for point in &loops.points {
                let tile = loops.points.iter().filter(|other| other[0] == point[0]);
                let values: Vec<i64> = tile.map(|other| value(&expr, other)).collect();
                let at = |bound: &Expr| value(bound, point);
                assert_eq!(upper.iter().map(at).min(), values.iter().copied().max(), "{expr:?}");
                assert_eq!(lower.iter().map(at).max(), values.iter().copied().min(), "{expr:?}");
            }
        }
    }
}

#[test]
fn of_several_bounds_the_closest_stay_and_no_others() {
    let mut random = Random::new(8);
    let loops = Loops::constant(&[4, 3]);
    for _ in 0..400 {
        let count = random.below(5) + 1;
        let term = |random: &mut Random| {
            var(0) * integer(random, 1) + var(1) * integer(random, 1) + integer(random, 3)
        };
        let all: Vec<Expr> = (0..count).map(|_| term(&mut random)).collect();
        for up in [true, false] {
            let sign = if up { 1 } else { -1 };
            let kept = loops.domain.closest(all.clone(), up);
            let closest = |bounds: &[Expr], point: &[i64]| {
                bounds.iter().map(|bound| sign * value(bound, point)).min()
            };
            for point in &loops.points {
                assert_eq!(closest(&kept, point), closest(&all, point), "{all:?}: {kept:?}");
            }
            for (place, own) in kept.iter().enumerate() {
                let better = |other: &Expr| {
                    loops.points.iter().all(|at| sign * value(other, at) <= sign * value(own, at))
                };
                let others = kept.iter().enumerate().filter(|(other, _)| *other != place);
                assert!(!others.map(|(_, other)| other).any(better), "{all:?}: {kept:?}");
            }
        }
    }
}

#[test]
fn extents_of_one_value_are_that_value() {
    let loops = Loops::of(&[Expr::Integer(1), Expr::Integer(4), var(0) + 3]);
    let of = |expr: Expr| loops.domain.simplify_extent(&expr);
    assert_eq!(of(var(0) * 5 + 2), Expr::Integer(2));
    assert_eq!(of(var(1) + var(0)), var(1));
    assert_eq!(of(Expr::Integer(3).minimum(var(1) + 3)), Expr::Integer(3));
    assert_eq!(of(Expr::Integer(4).minimum(var(1) + 3)), Expr::Integer(4).minimum(var(1) + 3));
    assert_eq!(of((var(1) + 8).floor_divide(Expr::Integer(4))), Expr::Integer(2));
}

#[test]
fn a_domain_knows_its_loops() {
    let loops = Loops::of(&[Expr::Integer(3), Expr::Integer(4), var(0) + 1]);
    let domain = &loops.domain;
    assert_eq!((domain.len(), domain.is_empty()), (3, false));
    assert!(domain.outer(0).is_empty());
    assert_eq!((domain.position(id(2)), domain.position(id(3))), (Some(2), None));
    assert_eq!(domain.range(id(2)), Some(Range { min: 0, max: 2 }));
    assert_eq!(domain.outer(2).range(id(2)), None);
    assert!(domain.constant_extent(id(1)) && !domain.constant_extent(id(2)));
    assert!(!domain.outer(1).constant_extent(id(1)));
    assert!(domain.outer(2).covers(&(var(0) + var(1))));
    assert!(!domain.outer(2).covers(&(var(0) + var(2))));
    assert_eq!(domain.bounds(&var(3)), None);
    assert_eq!(domain.upper(&var(0).less(var(1)), 0), None);
    let (constant, terms) = domain.terms(&(var(0) * 2 + 3 - var(1) + var(0)));
    assert_eq!((constant, terms), (3, vec![(var(0), 3), (var(1), -1)]));
}
