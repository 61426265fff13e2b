//! What follows from facts, held against all values of small loops, and case by case where loops are large.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::exhaustive::{Loops, condition, expression, id, integer, truth, value, var};
use crate::{BufferId, Builder};
use hone_types::{Random, TensorType};

/// A program with an input of each type, and an element of it.
fn loads(dtype: DataType) -> (Program, Expr) {
    let mut builder = Builder::new();
    let input: BufferId = builder.input("x", &TensorType::new(dtype, [4]));
    (builder.finish(), Expr::Load(input, vec![Expr::Integer(0)]))
}

fn nothing() -> Program {
    Builder::new().finish()
}

/// Loops of more iterations than are tried one by one.
fn large() -> Domain {
    let mut domain = Domain::default();
    (0..3).for_each(|place| domain.push(id(place), &Expr::Integer(1 << 40)));
    domain
}

#[test]
fn facts_of_a_condition_hold_where_it_comes_out_so() {
    let (mut random, program) = (Random::new(11), nothing());
    for loops in Loops::several() {
        for _ in 0..300 {
            let condition = condition(&mut random, 3, 3);
            for outcome in [true, false] {
                let mut facts = Facts::default();
                facts.assume(&condition, outcome, &program, &loops.domain);
                for point in &loops.points {
                    let hold = facts.at_least_zero.iter().all(|fact| value(fact, point) >= 0);
                    let comes_out = truth(&condition, point) == outcome;
                    assert!(hold || !comes_out, "{condition:?} is {outcome}: {facts:?}");
                }
            }
        }
    }
}

#[test]
fn facts_of_comparisons_hold_nowhere_else() {
    let (program, loops) = (nothing(), Loops::constant(&[5, 4]));
    let less = || var(0).less(var(1) + 1);
    let equal = || (var(0) * 2).equal(var(1) + 2);
    let cases = [
        (less(), true),
        (less(), false),
        (var(0).less_equal(var(1)), true),
        (var(0).less_equal(var(1)), false),
        (equal(), true),
        (less().unary(UnaryOp::Not), true),
        (less().unary(UnaryOp::Not).unary(UnaryOp::Not), false),
        (less().and(equal()), true),
        (less().binary(BinaryOp::Or, Expr::Integer(2).less(var(0))), false),
        (less().unary(UnaryOp::Not).and(var(1).less_equal(1.into())), true),
    ];
    for (condition, outcome) in cases {
        let mut facts = Facts::default();
        facts.assume(&condition, outcome, &program, &loops.domain);
        for point in &loops.points {
            let hold = facts.at_least_zero.iter().all(|fact| value(fact, point) >= 0);
            assert_eq!(hold, truth(&condition, point) == outcome, "{condition:?} is {outcome}");
        }
    }
}

#[test]
fn one_fact_is_kept_once() {
    let (program, loops) = (nothing(), Loops::constant(&[5]));
    let mut facts = Facts::default();
    for condition in [var(0).less(3.into()), var(0).less_equal(2.into())] {
        facts.assume(&condition, true, &program, &loops.domain);
    }
    assert_eq!(facts.at_least_zero, [Expr::Integer(2) - var(0)]);
}

#[test]
fn numbers_that_may_wrap_or_are_no_indices_make_no_fact() {
    let (program, load) = loads(DataType::I64);
    let domain = large();
    let facts = |condition: &Expr, program: &Program| {
        let mut facts = Facts::default();
        facts.assume(condition, true, program, &domain);
        facts.at_least_zero.len()
    };
    assert_eq!(facts(&load.clone().less(var(0)), &program), 1);
    assert_eq!(facts(&(load.clone() + 1).less(var(0)), &program), 0);
    assert_eq!(facts(&var(0).less_equal(load.clone() * 2), &program), 0);
    assert_eq!(facts(&(load.clone() - 1).less(load.clone() - 2), &program), 0);
    assert_eq!(facts(&load.clone().floor_divide(2.into()).equal(var(0)), &program), 2);
    let (program, narrow) = loads(DataType::I32);
    assert_eq!(facts(&narrow.clone().less(Expr::Constant(3.0, DataType::I32)), &program), 0);
    let (program, float) = loads(DataType::F32);
    assert_eq!(facts(&float.clone().less(Expr::Constant(3.0, DataType::F32)), &program), 0);
}

#[test]
fn sums_of_what_may_be_anything_may_wrap() {
    let (program, load) = loads(DataType::I64);
    let (bytes, byte) = loads(DataType::U8);
    let domain = large();
    let wraps = |expr: &Expr| may_wrap(expr, &program, &domain);
    let sum = load.clone() + 1;
    for expr in [
        sum.clone(),
        load.clone() - 1,
        load.clone() * 2,
        sum.clone().minimum(3.into()),
        Expr::Integer(3).maximum(sum.clone()),
        sum.clone().floor_divide(2.into()),
        sum.clone().cast(DataType::I64),
        var(0) * var(1) * 3,
    ] {
        assert!(wraps(&expr), "{expr:?}");
    }
    for expr in [
        load.clone(),
        load.clone().minimum(3.into()),
        load.clone().floor_divide(2.into()),
        load.clone().modulo(4.into()) + 1,
        var(0) + var(1) * 4,
        sum.clone().less(3.into()).select(1.into(), 2.into()),
        load.cast(DataType::I64),
    ] {
        assert!(!wraps(&expr), "{expr:?}");
    }
    let wide = (byte.clone() + byte).cast(DataType::I64);
    assert!(!may_wrap(&wide, &bytes, &domain), "the sum of bytes is a byte");
    assert!(!may_wrap(&(wide + 1), &bytes, &domain));
}

#[test]
fn loaded_numbers_have_the_ends_of_their_type() {
    let domain = Domain::default();
    let known = |low: i64, high: i64| (Some(low), Some(high));
    for (dtype, expected) in [
        (DataType::Bool, known(0, 1)),
        (DataType::I8, known(-128, 127)),
        (DataType::I16, known(-32_768, 32_767)),
        (DataType::I32, known(-2_147_483_648, 2_147_483_647)),
        (DataType::I64, known(i64::MIN, i64::MAX)),
        (DataType::U8, known(0, 255)),
        (DataType::U16, known(0, 65_535)),
        (DataType::U32, known(0, 4_294_967_295)),
        (DataType::U64, (None, None)),
        (DataType::F16, (None, None)),
        (DataType::F32, (None, None)),
    ] {
        let (program, load) = loads(dtype);
        assert_eq!(ends(&load, &program, &domain), (None, None), "{dtype}");
        assert_eq!(ends(&load.cast(DataType::I64), &program, &domain), expected, "{dtype}");
    }
    let (program, load) = loads(DataType::U8);
    let cast = load.cast(DataType::I32);
    let other = ends(&cast, &program, &domain);
    assert_eq!(other, (None, None), "only indices have ends");
}

#[test]
fn ends_follow_through_operations() {
    let (program, byte) = loads(DataType::I8);
    let domain = Loops::constant(&[3, 4]).domain;
    let of = |expr: Expr| ends(&expr, &program, &domain);
    let byte = byte.cast(DataType::I64);
    // Of whatever is not known both ends are open.
    let open = || byte.clone() * byte.clone();
    assert_eq!(of(open()), (None, None));
    assert_eq!(of(byte.clone() + 3), (Some(-125), Some(130)));
    assert_eq!(of(byte.clone() - var(1)), (Some(-131), Some(127)));
    assert_eq!(of(var(1) - byte.clone()), (Some(-127), Some(131)));
    assert_eq!(of(open() + 3), (None, None));
    assert_eq!(of(open().maximum(0.into()) + 3), (None, None), "it may wrap");
    assert_eq!(of(byte.clone().minimum(9.into())), (Some(-128), Some(9)));
    assert_eq!(of(byte.clone().maximum(9.into())), (Some(9), Some(127)));
    assert_eq!(of(open().minimum(9.into())), (None, Some(9)));
    assert_eq!(of(Expr::Integer(9).minimum(open())), (None, Some(9)));
    assert_eq!(of(open().maximum(9.into())), (Some(9), None));
    assert_eq!(of(open().minimum(9.into()).maximum(2.into())), (Some(2), Some(9)));
    assert_eq!(of(byte.clone().floor_divide(3.into())), (Some(-43), Some(42)));
    assert_eq!(of(byte.clone().floor_divide(1.into())), (Some(-128), Some(127)));
    assert_eq!(of(byte.clone().floor_divide(0.into())), (None, None));
    assert_eq!(of(byte.clone().floor_divide((-3).into())), (None, None));
    assert_eq!(of(byte.clone().floor_divide(var(0) + 1)), (None, None));
    assert_eq!(of(open().modulo(6.into())), (Some(0), Some(5)));
    assert_eq!(of(open().modulo(1.into())), (Some(0), Some(0)));
    assert_eq!(of(open().modulo(0.into())), (None, None));
    assert_eq!(of(open().modulo(var(0) + 2)), (None, None));
    let choice = |then: Expr, otherwise: Expr| of(var(0).less(1.into()).select(then, otherwise));
    assert_eq!(choice(byte.clone(), 200.into()), (Some(-128), Some(200)));
    assert_eq!(choice((-200).into(), byte.clone()), (Some(-200), Some(127)));
    assert_eq!(choice(open(), 3.into()), (None, None));
    assert_eq!(choice(3.into(), open().maximum(1.into())), (Some(1), None));
    let constant = |value: f64, dtype| Expr::Constant(value, dtype);
    assert_eq!(of(constant(-5.0, DataType::I32)), (Some(-5), Some(-5)));
    assert_eq!(of(constant(5.0, DataType::F32)), (None, None));
    assert_eq!(of(constant(7.0, DataType::U8).cast(DataType::I64)), (Some(7), Some(7)));
    let narrow = constant(5.0, DataType::I32) + constant(6.0, DataType::I32);
    assert_eq!(of(narrow), (None, None), "it may wrap in 32 bits");
}

#[test]
fn what_is_shown_of_small_loops_is_what_holds() {
    let (mut random, program) = (Random::new(12), nothing());
    let mut counts = [0, 0];
    for loops in Loops::several() {
        for _ in 0..250 {
            let condition = condition(&mut random, 3, 1);
            let mut facts = Facts::default();
            facts.assume(&condition, true, &program, &loops.domain);
            let index = loops.domain.simplify(&expression(&mut random, 3, 3));
            let extent = random.below(12);
            let inside = |point: &Vec<i64>| (0..extent as i64).contains(&value(&index, point));
            let expected = allowed(&facts, &loops).all(inside);
            let found = facts.within(&index, extent, &program, &loops.domain);
            assert!(expected || !found, "{index:?} below {extent} where {condition:?}");
            // Facts over other variables than the index' count for nothing.
            let told = covered(&index, &facts) && allowed(&facts, &loops).next().is_some();
            assert!(found || !expected || !told, "{index:?} below {extent} where {condition:?}");
            let holds = allowed(&facts, &loops).all(|point| value(&index, point) >= 0);
            assert!(holds || !shown(&facts, &index, &program, &loops), "{index:?}: {facts:?}");
            counts[usize::from(found)] += 1;
        }
    }
    assert!(counts.into_iter().all(|count| count > 100), "{counts:?}");
}

/// Whether every fact speaks of the index' variables alone.
fn covered(index: &Expr, facts: &Facts) -> bool {
    facts.at_least_zero.iter().all(|fact| {
        let mut covered = true;
        fact.visit(&mut |part| {
            covered &= !matches!(part, Expr::Var(var) if !index.mentions(*var));
        });
        covered
    })
}

fn shown(facts: &Facts, expr: &Expr, program: &Program, loops: &Loops) -> bool {
    facts.not_negative(expr, SPLITS, program, &loops.domain)
}

/// The iterations in which no fact is negative.
fn allowed<'a>(facts: &'a Facts, loops: &'a Loops) -> impl Iterator<Item = &'a Vec<i64>> {
    let holds = |point: &&Vec<i64>| facts.at_least_zero.iter().all(|fact| value(fact, point) >= 0);
    loops.points.iter().filter(holds)
}

#[test]
fn sums_that_facts_bound_are_not_negative_where_that_is_shown() {
    let (mut random, program) = (Random::new(13), nothing());
    let loops = Loops::constant(&[5, 4, 6]);
    let mut count = 0;
    for _ in 0..1_500 {
        let term = |random: &mut Random| {
            let sum = var(0) * integer(random, 4) + var(1) * integer(random, 4);
            let sum = sum + integer(random, 9);
            match random.below(5) {
                0 => sum.minimum(var(2) * integer(random, 3) + integer(random, 4)),
                1 => sum.maximum(var(2) * integer(random, 3) + integer(random, 4)),
                2 => sum.floor_divide(Expr::Integer(random.below(4) as i64 + 1)),
                3 => {
                    Expr::Integer(integer(random, 3))
                        - sum.floor_divide(Expr::Integer(random.below(4) as i64 + 1))
                }
                _ => sum,
            }
        };
        let mut facts = Facts::default();
        for _ in 0..2 {
            let fact = term(&mut random);
            facts.add(fact, &loops.domain);
        }
        let expr = term(&mut random) * [1, 1, -1][random.below(3)] + integer(&mut random, 3);
        if shown(&facts, &expr, &program, &loops) {
            let holds = allowed(&facts, &loops).all(|point| value(&expr, point) >= 0);
            assert!(holds, "{expr:?} from {facts:?}");
            count += 1;
        }
    }
    assert!(count > 150, "few are shown: {count}");
}

/// Whether `expr` is shown not to be negative over large loops, where none of `given` is.
fn follows(given: &[Expr], expr: &Expr) -> bool {
    let (domain, program) = (large(), nothing());
    let mut facts = Facts::default();
    given.iter().for_each(|fact| facts.add(fact.clone(), &domain));
    facts.not_negative(expr, SPLITS, &program, &domain)
}

#[test]
fn multiples_of_facts_are_subtracted() {
    let (a, b) = (|| var(0), || var(1));
    for (fact, expr, expected) in [
        (Expr::Integer(10) - a(), Expr::Integer(10) - a(), true),
        (Expr::Integer(10) - a(), Expr::Integer(9) - a(), false),
        (Expr::Integer(10) - a(), b() + 10 - a(), true),
        (Expr::Integer(10) - a() - b(), Expr::Integer(10) - a(), true),
        (Expr::Integer(10) - a(), Expr::Integer(10) - a() - b(), false),
        (a() - 5, a() - 5, true),
        (a() - 5, Expr::Integer(5) - a(), false),
        // Half of an odd number is rounded down.
        (Expr::Integer(7) - a() * 2, Expr::Integer(3) - a(), true),
        (Expr::Integer(7) - a() * 2, Expr::Integer(2) - a(), false),
        (Expr::Integer(8) - a() * 2, Expr::Integer(3) - a(), false),
        (Expr::Integer(8) - a() * 3, Expr::Integer(2) - a(), true),
        (Expr::Integer(9) - a() * 3, Expr::Integer(2) - a(), false),
        (Expr::Integer(3) - a(), Expr::Integer(6) - a() * 2, true),
        (Expr::Integer(3) - a(), Expr::Integer(5) - a() * 2, false),
        (Expr::Integer(14) - a() * 4, Expr::Integer(21) - a() * 6, true),
        (Expr::Integer(14) - a() * 4, Expr::Integer(20) - a() * 6, false),
        (Expr::Integer(14) - a() * 4, Expr::Integer(19) - a() * 6, false),
        (a() * 6 - 9, a() * 4 - 6, true),
        (a() * 6 - 9, a() * 4 - 8, false),
        (Expr::Integer(12) - a() - b() * 3, Expr::Integer(4) - b(), true),
        (Expr::Integer(12) - a() - b() * 3, Expr::Integer(3) - b(), false),
    ] {
        assert_eq!(follows(std::slice::from_ref(&fact), &expr), expected, "{expr:?} from {fact:?}");
        // Another fact beside it changes nothing.
        assert_eq!(follows(&[var(2) - 1, fact.clone()], &expr), expected, "{expr:?}");
    }
}

#[test]
fn minima_maxima_and_quotients_are_looked_into() {
    let (a, b, c) = (|| var(0), || var(1), || var(2));
    let [a_above, b_above] = [a() - 5, b() - 5];
    let [a_below, b_below] = [Expr::Integer(5) - a(), Expr::Integer(5) - b()];
    let both_above = a() + b() - 10;
    let both_below = Expr::Integer(10) - a() - b();
    let (five, least, most) = (|| Expr::Integer(5), a().minimum(b()), a().maximum(b()));
    let by = |expr: Expr, divisor: i64| expr.floor_divide(Expr::Integer(divisor));
    let cases: Vec<(Vec<Expr>, Expr, bool)> = vec![
        (vec![a_above.clone(), b_above.clone()], least.clone() - 5, true),
        (vec![a_above.clone()], least.clone() - 5, false),
        (vec![b_above.clone()], least.clone() - 5, false),
        (vec![both_above.clone()], least.clone() - 5, false),
        (vec![a_above.clone()], most.clone() - 5, true),
        (vec![b_above.clone()], most.clone() - 5, true),
        (vec![both_above.clone()], most.clone() - 5, true),
        (vec![both_above], most.clone() - 6, false),
        (vec![c() - 5], most.clone() - 5, false),
        (vec![a_below.clone(), b_below.clone()], five() - most.clone(), true),
        (vec![a_below.clone()], five() - most.clone(), false),
        (vec![both_below.clone()], five() - most.clone(), false),
        (vec![a_below.clone()], five() - least.clone(), true),
        (vec![b_below.clone()], five() - least.clone(), true),
        (vec![both_below.clone()], five() - least.clone(), true),
        (vec![both_below], Expr::Integer(4) - least.clone(), false),
        (vec![a() - 6], by(a(), 3) - 2, true),
        (vec![a() - 5], by(a(), 3) - 2, false),
        (vec![Expr::Integer(14) - a()], Expr::Integer(4) - by(a(), 3), true),
        (vec![Expr::Integer(15) - a()], Expr::Integer(4) - by(a(), 3), false),
        (vec![a() - 6 - b() * 3], by(a(), 3) - 2 - b(), true),
        (vec![a() - 5 - b() * 3], by(a(), 3) - 2 - b(), false),
        (vec![Expr::Integer(7) - a()], Expr::Integer(7) - by(a(), 1), true),
        // Only single quotients are.
        (vec![a() - 6], by(a(), 3) * 2 - 4, false),
        // One in the other, as deep as is looked.
        (vec![a_above, b_above], by(least.minimum(a() + 1) * 2, 2) - 5, true),
    ];
    for (given, expr, expected) in cases {
        assert_eq!(follows(&given, &expr), expected, "{expr:?} from {given:?}");
    }
}

#[test]
fn large_indices_are_inside_where_facts_say_so() {
    let (program, domain) = (nothing(), large());
    let index = var(0) - var(1);
    let within = |conditions: &[Expr], extent: usize| {
        let mut facts = Facts::default();
        conditions.iter().for_each(|own| facts.assume(own, true, &program, &domain));
        facts.within(&index, extent, &program, &domain)
    };
    let (above, below) = (var(1).less_equal(var(0)), var(0).less(var(1) + 8));
    assert!(within(&[above.clone(), below.clone()], 8));
    assert!(within(&[above.clone(), below.clone()], 9));
    assert!(!within(&[above.clone(), below.clone()], 7));
    assert!(!within(std::slice::from_ref(&above), 8));
    assert!(!within(std::slice::from_ref(&below), 8));
    let (bytes, byte) = loads(DataType::U8);
    let byte = byte.cast(DataType::I64);
    let of_bytes =
        |index: &Expr, extent: usize| Facts::default().within(index, extent, &bytes, &domain);
    assert!(of_bytes(&byte, 256) && !of_bytes(&byte, 255));
    assert!(of_bytes(&(byte.clone() + 1), 257) && !of_bytes(&(byte.clone() - 1), 300));
}
