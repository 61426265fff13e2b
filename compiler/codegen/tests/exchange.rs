//! Lanes that read their neighbours in registers: each reads what the interpreter reads, on vectors of any width.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::{random, run_on};
use hone_codegen::{Target, assembly};
use hone_schedule::Schedule;
use hone_tensor::{Builder, Expr, Program, Scope, interpret};
use hone_types::DataType::{F32, F64};
use hone_types::{DataType, Tensor, TensorType};

const ROWS: usize = 3;
const LANES: usize = 16;

/// `y[r, i] = x[r, i] + x[r, i - far]` by way of a row in registers; nothing is added beyond its ends.
fn shifted(dtype: DataType, far: i64) -> (Program, Program) {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(dtype, [ROWS, LANES]));
    let y = builder.reserve("y", &TensorType::new(dtype, [ROWS, LANES]));
    let row = builder.begin_loop("row", ROWS);
    let values = builder.map("values", &TensorType::new(dtype, [LANES]), |point| {
        Expr::Load(x, vec![row.clone(), point[0].clone()])
    });
    builder.store("sum", y, row, &[LANES], |point| {
        let lane = &point[0];
        let is_there = match far > 0 {
            true => Expr::from(far - 1).less(lane.clone()),
            false => lane.clone().less(Expr::from(LANES) + far),
        };
        let read = Expr::Load(values, vec![lane.clone() - far]);
        Expr::Load(values, point.to_vec()) + is_there.select(read, Expr::Constant(0.0, dtype))
    });
    builder.end_loop();
    builder.output(y);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    let (values, sum) = (schedule.block("values").unwrap(), schedule.block("sum").unwrap());
    schedule.set_scope(values, Scope::Register).unwrap();
    for block in [values, sum] {
        schedule.vectorize(*schedule.loops(block).last().unwrap()).unwrap();
    }
    (plain, schedule.into_program())
}

fn check(target: &Target) {
    for (dtype, far) in
        [F32, F64].into_iter().flat_map(|dtype| [1, 3, 8, 13].map(|far| (dtype, far)))
    {
        for far in [far, -far] {
            let (plain, scheduled) = shifted(dtype, far);
            let numbers: Vec<f64> = random(ROWS * LANES, 7).into_iter().map(f64::from).collect();
            let input = Tensor::from_f64(dtype, [ROWS, LANES], &numbers).unwrap();
            let expected = interpret(&plain, std::slice::from_ref(&input)).unwrap();
            let actual = run_on(&scheduled, &[input.bytes().to_vec()], target);
            assert_eq!(expected[0].bytes(), actual[0], "{dtype} by {far} on {}", target.cpu);
        }
    }
}

#[test]
fn lanes_read_their_neighbours() {
    let host = Target::host().unwrap();
    check(&host);
    if !host.triple.starts_with("x86_64") {
        return;
    }
    let has = |feature: &str| host.resolved.contains(&feature.to_string());
    check(&Target::new(&host.triple, "x86-64", vec![]).unwrap());
    if has("+avx2") && has("+fma") {
        check(&Target::new(&host.triple, "x86-64-v3", vec![]).unwrap());
    }
}

/// Two neighbouring registers make one: no row goes through memory.
#[test]
fn neighbours_are_exchanged_in_registers() {
    let (_, scheduled) = shifted(F32, 3);
    for cpu in ["sapphirerapids", "haswell"] {
        let target = Target::new("x86_64-unknown-linux-gnu", cpu, vec![]).unwrap();
        let code = assembly(&scheduled, &target).unwrap();
        assert!(!code.contains("(%rsp)"), "{cpu}: {code}");
    }
}
