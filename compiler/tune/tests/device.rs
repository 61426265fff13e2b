//! What the templates for devices make, and that the interpreter catches faults in it: every `sync` that is
//! removed, every index into shared memory that is off by one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_tensor::{
    BlockId, Builder, Combiner, Expr, Limits, Program, Scope, Statement, interpret, verify_launches,
};
use hone_tune::schedule_for_device;
use hone_types::{DataType::F32, Tensor, TensorType};

fn numbers(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> =
        (0..count).map(|index| ((index * 7 + index / 3) % 11) as f64 - 5.0).collect();
    Tensor::from_f64(F32, shape, &values).unwrap()
}

fn product(m: usize, n: usize, k: usize) -> (Program, Vec<Tensor>) {
    let mut builder = Builder::new();
    let a = builder.input("a", &TensorType::new(F32, [m, k]));
    let b = builder.input("b", &TensorType::new(F32, [k, n]));
    let shape = TensorType::new(F32, [m, n]);
    let sum = builder.reduce("sum", &shape, &[k], Combiner::Sum, |i, r| {
        Expr::Load(a, vec![i[0].clone(), r[0].clone()])
            * Expr::Load(b, vec![r[0].clone(), i[1].clone()])
    });
    let y = builder.map("y", &shape, |i| Expr::Load(sum, i.to_vec()));
    builder.output(y);
    (builder.finish(), vec![numbers(&[m, k]), numbers(&[k, n])])
}

fn sums(rows: usize, columns: usize) -> (Program, Vec<Tensor>) {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(F32, [rows, columns]));
    let sum =
        builder.reduce("sum", &TensorType::new(F32, [rows]), &[columns], Combiner::Sum, |i, r| {
            Expr::Load(x, vec![i[0].clone(), r[0].clone()])
        });
    let y = builder.map("y", &TensorType::new(F32, [rows]), |i| Expr::Load(sum, i.to_vec()));
    builder.output(y);
    (builder.finish(), vec![numbers(&[rows, columns])])
}

/// Twenty programs with shared memory, on small inputs.
fn programs() -> Vec<(Program, Vec<Tensor>)> {
    let side = |number: usize| 16 * (1 + number % 2);
    let products =
        (0..16).map(|number| product(side(number), side(number / 2), [16, 24, 32, 40][number / 4]));
    let sums =
        [(2, 1024), (3, 777), (1, 4096), (5, 640)].map(|(rows, columns)| sums(rows, columns));
    let all = products.chain(sums).map(|(plain, inputs)| {
        let scheduled = schedule_for_device(plain, &Limits::PORTABLE).unwrap();
        assert_ne!(scheduled.template, "flat");
        (scheduled.schedule.into_program(), inputs)
    });
    all.collect()
}

/// Takes the `number`th sync out of statements.
fn remove(body: &mut Vec<Statement>, number: &mut usize) -> bool {
    for index in 0..body.len() {
        match &mut body[index] {
            Statement::Sync(_) if *number == 0 => {
                body.remove(index);
                return true;
            }
            Statement::Sync(_) => *number -= 1,
            Statement::Loop(loop_) => {
                if remove(&mut loop_.body, number) {
                    return true;
                }
            }
            Statement::Realize(_) => {}
        }
    }
    false
}

#[test]
fn every_removed_sync_is_caught() {
    let mut faults = 0;
    for (program, inputs) in programs() {
        for number in 0.. {
            let mut faulty = program.clone();
            if !remove(&mut faulty.body, &mut number.clone()) {
                break;
            }
            let error = interpret(&faulty, &inputs).expect_err("a sync is missing").to_string();
            assert!(error.starts_with("race: ") || error.contains("poisoned"), "{error}");
            assert!(verify_launches(&faulty, &Limits::PORTABLE).is_err(), "{faulty}");
            faults += 1;
        }
    }
    assert!(faults >= 20, "only {faults} syncs were removed");
}

/// Moves the place along an axis, where a block stores to shared memory or loads from it.
fn shift(program: &mut Program, block: BlockId, axis: usize, by: i64) -> bool {
    let shared = |program: &Program, buffer| program.buffers[buffer].scope == Scope::Shared;
    let target = program.blocks[block].buffer;
    if shared(program, target) {
        let index = program.blocks[block].indices[axis].clone();
        program.blocks[block].indices[axis] = index + by;
        return true;
    }
    let mut shifted = false;
    let scopes: Vec<bool> = program.buffers.ids().map(|buffer| shared(program, buffer)).collect();
    program.blocks[block]
        .map_expressions(&mut |expr| move_load(expr, axis, by, &scopes, &mut shifted));
    shifted
}

fn move_load(expr: &Expr, axis: usize, by: i64, scopes: &[bool], done: &mut bool) -> Expr {
    use hone_types::Id;
    match expr {
        Expr::Load(buffer, indices) if scopes[buffer.index()] && !*done => {
            *done = true;
            let mut indices = indices.clone();
            indices[axis] = indices[axis].clone() + by;
            Expr::Load(*buffer, indices)
        }
        _ => expr.map_operands(&mut |operand| move_load(operand, axis, by, scopes, done)),
    }
}

#[test]
fn every_shifted_index_is_caught() {
    let mut faults = 0;
    for (program, inputs) in programs() {
        let expected = interpret(&program, &inputs).unwrap();
        for block in program.blocks_in_order() {
            let shared = program.buffers.iter().filter(|(id, buffer)| {
                let touched =
                    program.blocks[block].buffer == *id || program.blocks[block].reads(*id);
                buffer.scope == Scope::Shared && touched
            });
            let rank = shared.map(|(_, buffer)| buffer.shape.len()).min().unwrap_or(0);
            for (axis, by) in (0..rank).flat_map(|axis| [(axis, 1), (axis, -1)]) {
                let mut faulty = program.clone();
                if !shift(&mut faulty, block, axis, by) {
                    continue;
                }
                let caught =
                    interpret(&faulty, &inputs).map_or(true, |results| results != expected);
                assert!(caught, "axis {axis} by {by}: {faulty}");
                faults += 1;
            }
        }
    }
    assert!(faults >= 100, "only {faults} indices were shifted");
}
