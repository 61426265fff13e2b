//! Ranges and simplest forms.

use super::{Loops, expression, integer, value, var};
use crate::affine::{bounds, simplify};
use crate::{BinaryOp, Expr, Range};
use hone_types::Random;

const OPERATIONS: [BinaryOp; 7] = [
    BinaryOp::Add,
    BinaryOp::Subtract,
    BinaryOp::Multiply,
    BinaryOp::FloorDivide,
    BinaryOp::Modulo,
    BinaryOp::Minimum,
    BinaryOp::Maximum,
];

/// Every range within `-6..=6`.
fn ranges() -> Vec<(i64, i64)> {
    (-6..=6).flat_map(|min| (min..=6).map(move |max| (min, max))).collect()
}

#[test]
fn one_operation_has_the_range_of_its_values() {
    for op in OPERATIONS {
        let divides = matches!(op, BinaryOp::FloorDivide | BinaryOp::Modulo);
        let rights = ranges().into_iter().step_by(if divides { 1 } else { 3 });
        for right in rights.filter(|(min, max)| !divides || min == max && *min > 0) {
            for left in ranges() {
                let expr = var(0).binary(op, var(1));
                let known = [left, right].map(|(min, max)| Range { min, max });
                let found = bounds(&expr, &|var| Some(known[hone_types::Id::index(var)])).unwrap();
                let lefts = left.0..=left.1;
                let values: Vec<i64> = lefts
                    .flat_map(|a| (right.0..=right.1).map(move |b| [a, b]))
                    .map(|point| value(&expr, &point))
                    .collect();
                let (min, max) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
                assert!(found.min <= min && max <= found.max, "{op:?} of {left:?}, {right:?}");
                // Remainders of several quotients are taken as any.
                let exact = Range { min, max };
                let any = op == BinaryOp::Modulo && found == Range::extent(right.0);
                assert!(found == exact || any, "{op:?} of {left:?}, {right:?}: {found:?}");
                let quotient = |value: i64| value.div_euclid(right.0);
                if op == BinaryOp::Modulo && quotient(left.0) == quotient(left.1) {
                    assert_eq!(found, exact, "{left:?} by {right:?}");
                }
            }
        }
    }
}

#[test]
fn divisors_that_may_vary_or_are_not_positive_give_no_range() {
    let of = |op, divisor: (i64, i64)| {
        let known = [(0, 9), divisor].map(|(min, max)| Range { min, max });
        bounds(&var(0).binary(op, var(1)), &|var| Some(known[hone_types::Id::index(var)]))
    };
    for op in [BinaryOp::FloorDivide, BinaryOp::Modulo] {
        for divisor in [(0, 0), (-2, -2), (1, 2), (-1, 1)] {
            assert_eq!(of(op, divisor), None, "{op:?} by {divisor:?}");
        }
        assert!(of(op, (1, 1)).is_some());
    }
}

#[test]
fn the_simplest_form_has_the_same_values() {
    let mut random = Random::new(2);
    for loops in Loops::several() {
        for _ in 0..600 {
            let expr = expression(&mut random, 3, 4);
            let simple = loops.domain.simplify(&expr);
            for point in &loops.points {
                assert_eq!(value(&simple, point), value(&expr, point), "{expr:?}: {simple:?}");
            }
        }
    }
}

#[test]
fn comparisons_are_decided_only_as_they_come_out() {
    let mut random = Random::new(3);
    let operations = [BinaryOp::Less, BinaryOp::LessEqual, BinaryOp::Equal];
    for loops in Loops::several() {
        for _ in 0..300 {
            let op = *random.pick(&operations).unwrap();
            let (left, right) = (expression(&mut random, 3, 2), expression(&mut random, 3, 2));
            let Expr::Constant(known, _) =
                loops.domain.simplify(&left.clone().binary(op, right.clone()))
            else {
                continue;
            };
            for point in &loops.points {
                let (a, b) = (value(&left, point), value(&right, point));
                let holds = match op {
                    BinaryOp::Less => a < b,
                    BinaryOp::LessEqual => a <= b,
                    _ => a == b,
                };
                assert_eq!(holds, known != 0.0, "{left:?} {op:?} {right:?}");
            }
        }
    }
}

/// An index `(a * y + b) * x + c` over loops of extents `[_, y, x]` by what its parts are made of.
#[test]
fn an_index_of_several_axes_divides_into_them() {
    for (y, x) in [(2, 3), (4, 5), (6, 4), (3, 8), (1, 7), (5, 1)] {
        let loops = Loops::constant(&[4, y, x]);
        let (a, b, c) = (var(0), var(1), var(2));
        let rows = a.clone() * y + b.clone();
        let index = rows.clone() * x + c.clone();
        let simple = |expr: &Expr| loops.domain.simplify_extent(expr);
        let same = |found: Expr, expected: Expr| {
            assert_eq!(simple(&found), simple(&expected), "{found:?} of y {y}, x {x}");
        };
        let by = |expr: &Expr, divisor: i64| expr.clone().floor_divide(Expr::Integer(divisor));
        let rest = |expr: &Expr, divisor: i64| expr.clone().modulo(Expr::Integer(divisor));
        same(by(&index, x), rows.clone());
        same(rest(&index, x), c.clone());
        same(by(&index, y * x), a.clone());
        same(rest(&index, y * x), b.clone() * x + c.clone());
        same(rest(&by(&index, x), y), b.clone());
        same(by(&rest(&index, y * x), x), b.clone());
        // Whole rows more, or fewer, change the quotient alone.
        for more in [-2, 3] {
            let moved = index.clone() + more * x;
            same(by(&moved, x), rows.clone() + more);
            same(rest(&moved, x), c.clone());
        }
        // Of twice the divisor the half that `rows` has is told from that of `c`.
        same(by(&index, 2 * x), by(&rows, 2));
        same(rest(&index, 2 * x), rest(&rows, 2) * x + c.clone());
    }
}

#[test]
fn an_index_that_overlaps_its_axes_is_not_divided() {
    let loops = Loops::constant(&[4, 4]);
    for (index, divisor) in [
        (var(0) * 3 + var(1), 3),
        (var(0) * 4 + var(1) + 1, 4),
        (var(0) * 4 + var(1) - 1, 4),
        (var(0) * 6 + var(1), 4),
        (var(0) * 4 + var(1) * 2, 4),
    ] {
        for op in [BinaryOp::FloorDivide, BinaryOp::Modulo] {
            let expr = index.clone().binary(op, Expr::Integer(divisor));
            let simple = loops.domain.simplify(&expr);
            let mut divided = false;
            simple
                .visit(&mut |part| divided |= matches!(part, Expr::Binary(own, ..) if *own == op));
            assert!(divided, "{expr:?}: {simple:?}");
        }
    }
}

#[test]
fn of_two_the_smaller_is_found_where_it_always_is() {
    let mut random = Random::new(4);
    let loops = Loops::constant(&[3, 4]);
    let term = |random: &mut Random| {
        var(0) * integer(random, 2) + var(1) * integer(random, 2) + integer(random, 6)
    };
    for _ in 0..1_000 {
        let (left, right) = (term(&mut random), term(&mut random));
        let (least, largest) = loops.ends(&(left.clone() - right.clone()));
        let decided = |expr: Expr| {
            let simple = simplify(&expr, &|var| loops.domain.range(var));
            !matches!(simple, Expr::Binary(BinaryOp::Minimum | BinaryOp::Maximum, ..))
        };
        let expected = largest <= 0 || least >= 0;
        assert_eq!(decided(left.clone().minimum(right.clone())), expected, "{left:?}, {right:?}");
        assert_eq!(decided(left.clone().maximum(right.clone())), expected, "{left:?}, {right:?}");
    }
}
