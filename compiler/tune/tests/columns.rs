//! Reductions along another axis than the last, in vectors of columns, and maps whose indices are computed of columns alone:
//! the same results, by the template that is meant.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_machine::Machine;
use hone_tensor::{Builder, Combiner, Expr, Program, Scope, interpret, verify};
use hone_tune::{Scheduled, schedule};
use hone_types::{DataType, Tensor, TensorType};

const LANES: usize = 4;

fn of(shape: &[usize]) -> TensorType {
    TensorType::new(DataType::F32, shape.to_vec())
}

/// Small whole numbers, so that no order of additions makes a difference.
fn numbers(shape: &[usize]) -> Tensor {
    let value = |index: usize| ((index * 7 + index / 3) % 11) as f64 - 4.0;
    let values: Vec<f64> = (0..of(shape).elements()).map(value).collect();
    Tensor::from_f64(DataType::F32, shape.to_vec(), &values).unwrap()
}

/// The program's schedule, after it was checked that it computes as before.
fn scheduled(plain: &Program, input: Tensor) -> Scheduled {
    let machine = Machine::with_vectors(4 * LANES, 32);
    let scheduled = schedule(plain.clone(), &machine).unwrap();
    let program = scheduled.schedule.program();
    verify(program).unwrap();
    let inputs = [input];
    assert_eq!(interpret(program, &inputs).unwrap(), interpret(plain, &inputs).unwrap());
    scheduled
}

/// The index of the largest of `channels` values in each of so many columns, of several images.
fn indices_of_largest(images: usize, channels: usize, columns: usize) -> Scheduled {
    let shape = [images, channels, columns];
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&shape));
    let read = |point: &[Expr], channel: &Expr| {
        Expr::Load(x, vec![point[0].clone(), channel.clone(), point[1].clone()])
    };
    let results = [images, columns];
    let combiner = Combiner::Maximum;
    let largest =
        builder.reduce("largest", &of(&results), &[channels], combiner, |i, k| read(i, &k[0]));
    let output = TensorType::new(DataType::I64, results.to_vec());
    let index = builder.reduce("index", &output, &[channels], Combiner::Minimum, |i, k| {
        let found = read(i, &k[0]).equal(Expr::Load(largest, i.to_vec()));
        found.select(k[0].clone(), (channels as i64 - 1).into())
    });
    let y = builder.map("y", &output, |i| Expr::Load(index, i.to_vec()));
    builder.output(y);
    scheduled(&builder.finish(), numbers(&shape))
}

#[test]
fn an_index_is_searched_while_its_column_is_in_cache() {
    for (images, channels, columns) in [(1, 21, 64), (2, 5, 19), (3, 30, 6), (2, 7, 3)] {
        let scheduled = indices_of_largest(images, channels, columns);
        assert_eq!(scheduled.template, "columns", "{images} x {channels} x {columns}");
        let buffers = &scheduled.schedule.program().buffers;
        let in_registers = buffers.iter().filter(|buffer| buffer.1.scope == Scope::Register);
        assert_eq!(in_registers.count(), 2, "the largest and its index");
    }
}

/// Each of so many channels less the sum over all, in so many columns.
fn centred(channels: usize, columns: usize) -> Scheduled {
    let shape = [channels, columns];
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&shape));
    let sums = builder.reduce("sums", &of(&[columns]), &[channels], Combiner::Sum, |i, k| {
        Expr::Load(x, vec![k[0].clone(), i[0].clone()])
    });
    let y = builder.map("y", &of(&shape), |i| {
        Expr::Load(x, i.to_vec()) - Expr::Load(sums, vec![i[1].clone()])
    });
    builder.output(y);
    scheduled(&builder.finish(), numbers(&shape))
}

#[test]
fn what_columns_are_summed_into_stays_in_registers() {
    for (channels, columns) in [(30, 3), (21, 64), (5, 19)] {
        let scheduled = centred(channels, columns);
        assert_eq!(scheduled.template, "columns");
        let buffers = &scheduled.schedule.program().buffers;
        let in_registers = buffers.iter().filter(|buffer| buffer.1.scope == Scope::Register);
        assert_eq!(in_registers.count(), 1, "{channels} x {columns}");
    }
}

/// Sums over windows of five rows, then a map of each.
fn sums_of_windows(rows: usize, columns: usize) -> Scheduled {
    let shape = [rows + 4, columns];
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&shape));
    let results = of(&[rows, columns]);
    let sums = builder.reduce("sums", &results, &[5], Combiner::Sum, |i, k| {
        Expr::Load(x, vec![i[0].clone() + k[0].clone(), i[1].clone()])
    });
    let twice = builder.map("twice", &results, |i| {
        Expr::Load(sums, i.to_vec()) * Expr::Constant(2.0, DataType::F32)
    });
    builder.output(twice);
    scheduled(&builder.finish(), numbers(&shape))
}

#[test]
fn several_vectors_of_a_row_are_summed_at_a_time() {
    for (columns, together) in [(8 * LANES, 8), (16 * LANES, 8), (6 * LANES + 1, 7), (LANES + 2, 2)]
    {
        let scheduled = sums_of_windows(3, columns);
        assert_eq!(scheduled.template, "lanes", "{columns} columns");
        let program = scheduled.schedule.program();
        let sums = program.buffers.iter().find(|buffer| buffer.1.scope == Scope::Register);
        let elements = sums.expect("sums in registers").1.elements();
        assert_eq!(elements.div_ceil(LANES), together, "{columns} columns");
    }
}

/// Every row with each column three times, or twice.
fn repeated(rows: usize, columns: usize, times: usize) -> Scheduled {
    let shape = [rows, columns];
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&shape));
    let y = builder.map("y", &of(&[rows, columns * times]), |i| {
        Expr::Load(x, vec![i[0].clone(), i[1].clone().floor_divide(times.into())])
    });
    builder.output(y);
    scheduled(&builder.finish(), numbers(&shape))
}

#[test]
fn quotients_of_columns_are_computed_once_for_several_rows() {
    let asks =
        |scheduled: &Scheduled| scheduled.decisions.iter().any(|decision| decision.name == "rows");
    assert!(asks(&repeated(40, 7, 3)));
    assert!(!asks(&repeated(40, 7, 2)), "a shift");
    assert!(!asks(&repeated(1, 7, 3)), "one row");
}
