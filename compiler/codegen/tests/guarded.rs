//! Reads under a condition that is the same for all lanes: with masks and without.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::{f32s, random, run_on, to_f32s};
use hone_codegen::Target;
use hone_tensor::{Builder, Expr, LoopKind, Program, Statement};
use hone_types::{DataType::F32, TensorType};

const ROWS: usize = 5;
const LANES: usize = 48;

/// y[h, c] = 2 * (x[h - 1, c], or -1 outside), with c in lanes.
fn program() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(F32, [ROWS, LANES]));
    let y = builder.map("y", &TensorType::new(F32, [ROWS + 2, LANES]), |i| {
        let row = i[0].clone() - 1;
        let inside = Expr::from(0).less_equal(row.clone()).and(row.clone().less(Expr::from(ROWS)));
        let read = Expr::Load(x, vec![row, i[1].clone()]);
        inside.select(read, Expr::Constant(-1.0, F32)) * Expr::Constant(2.0, F32)
    });
    builder.output(y);
    let mut program = builder.finish();
    for statement in &mut program.body {
        if let Statement::Loop(outer) = statement
            && let Some(Statement::Loop(inner)) = outer.body.first_mut()
        {
            inner.kind = LoopKind::Vectorized;
        }
    }
    program
}

#[test]
fn rows_outside_are_never_read() {
    let host = Target::host().unwrap();
    let x = random(ROWS * LANES, 7);
    let mut expected = vec![-2.0; LANES];
    expected.extend(x.iter().map(|value| value * 2.0));
    expected.extend(vec![-2.0; LANES]);
    for masks in [host.masks, false] {
        let target = Target { masks, ..host.clone() };
        let y = run_on(&program(), &[f32s(&x)], &target).remove(0);
        assert_eq!(to_f32s(&y), expected, "masks: {masks}");
    }
}
