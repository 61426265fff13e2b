//! Sums of atoms.

use super::{expression, integer, value, var};
use crate::Expr;
use crate::sum::Sum;
use hone_types::Random;

#[test]
fn a_sum_is_worth_what_its_expression_is() {
    let mut random = Random::new(1);
    let points = super::Loops::constant(&[3, 3, 3]).points;
    for _ in 0..2_000 {
        let (a, b) = (expression(&mut random, 3, 3), expression(&mut random, 3, 2));
        let factor = integer(&mut random, 3);
        let sums = [
            (Sum::of(&a), a.clone()),
            (Sum::of(&a).plus(Sum::of(&b), factor).unwrap(), a.clone() + b * factor),
            (Sum::of(&a).scaled(factor).unwrap(), a * factor),
        ];
        for (sum, plain) in sums {
            let back = sum.clone().into_expr();
            for point in &points {
                assert_eq!(value(&back, point), value(&plain, point), "{plain:?} as {back:?}");
            }
            assert!(sum.terms.iter().all(|(_, factor)| *factor != 0), "{sum:?}");
            let once = |atom: &Expr| sum.terms.iter().filter(|own| own.0 == *atom).count() == 1;
            assert!(sum.terms.iter().all(|(atom, _)| once(atom)), "{sum:?}");
        }
    }
}

#[test]
fn sums_are_written_as_people_write_them() {
    let written = |expr: Expr| Sum::of(&expr).into_expr();
    let (a, b) = (var(0), var(1));
    let as_they_are = [
        a.clone(),
        a.clone() + 3,
        a.clone() - 3,
        a.clone() * 2 + b.clone(),
        a.clone() * 2 - b.clone(),
        a.clone() - b.clone() * 2 + 5,
        a.clone() - b.clone() - 5,
        Expr::Integer(5) - a.clone(),
        Expr::Integer(5) - a.clone() * 2 - b.clone(),
        a.clone() * -1,
        a.clone() * -2 - b.clone(),
        a.clone() * -1 - 4,
        a.clone() * -3 - b.clone() * 2 - 4,
        Expr::Integer(0),
        Expr::Integer(-7),
    ];
    for expr in as_they_are {
        assert_eq!(written(expr.clone()), expr);
    }
    assert_eq!(written(b.clone() * -1 + a.clone()), a.clone() - b.clone());
    assert_eq!(written(a.clone() * -1 + 4), Expr::Integer(4) - a.clone());
    assert_eq!(written(a.clone() + b.clone() - a.clone()), b);
    assert_eq!(written(a * Expr::Integer(0)), Expr::Integer(0));
}
