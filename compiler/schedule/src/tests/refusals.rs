//! What is refused, and what it says.

use super::{floats, load, twice_by_rows};
use crate::{Schedule, ScheduleError};
use hone_tensor::{Builder, Scope};

/// `twice = x + x`, `sum = sum of twice by rows`, `out = sum + sum`.
fn schedule() -> Schedule {
    let mut builder = Builder::new();
    let sum = twice_by_rows(&mut builder);
    let out = builder.map("out", &floats(&[4]), |i| load(sum, i) + load(sum, i));
    builder.output(out);
    Schedule::new(builder.finish())
}

fn refused<T: std::fmt::Debug>(result: Result<T, ScheduleError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, ScheduleError::Refused { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_refused_step_leaves_no_trace() {
    let mut schedule = schedule();
    let before = schedule.program().clone();
    let row = schedule.loops(schedule.block("sum").unwrap())[0];
    refused(schedule.split(row, 0));
    assert_eq!(schedule.program(), &before);
    assert!(schedule.trace().entries.is_empty());
}

#[test]
fn reductions_are_not_spread() {
    let mut schedule = schedule();
    let [row, column] = schedule.loops(schedule.block("sum").unwrap())[..] else { panic!() };
    let expected = format!(
        "vectorize of loop {column} 'r0_loop' refused: several iterations may write the same \
         element of 'sum' in block 'sum'"
    );
    assert_eq!(refused(schedule.vectorize(column)), expected);
    schedule.reorder(&[column, row]).unwrap();
    assert!(refused(schedule.parallel(column)).contains("the same element of 'sum'"));
}

#[test]
fn readers_outside_the_loop_are_named() {
    let mut schedule = schedule();
    let [twice, sum, out] = ["twice", "sum", "out"].map(|name| schedule.block(name).unwrap());
    let row = schedule.loops(out)[0];
    let message = refused(schedule.compute_at(twice, row));
    assert!(message.contains("its reader 'sum' is not below loop"), "{message}");
    schedule.compute_at(sum, row).unwrap();
    schedule.compute_at(twice, row).unwrap();
    let message = refused(schedule.set_scope(out, Scope::Register));
    assert!(message.contains("a parameter of the program"), "{message}");
}

#[test]
fn unfinished_reductions_are_not_read() {
    let mut schedule = schedule();
    let (sum, out) = (schedule.block("sum").unwrap(), schedule.block("out").unwrap());
    let [row, column] = schedule.loops(sum)[..] else { panic!() };
    let message = refused(schedule.reverse_compute_at(out, column));
    assert!(message.contains("'sum' is still being reduced over loop"), "{message}");
    schedule.reverse_compute_at(out, row).unwrap();
}
