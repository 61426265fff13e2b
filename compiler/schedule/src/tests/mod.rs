//! Whole schedules, judged by the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod kernels;
mod random;
mod refusals;
mod text;

use crate::Schedule;
use hone_tensor::{BufferId, Builder, Combiner, Expr, Program, Role, interpret};
use hone_types::{DataType, Tensor, TensorType};

/// A float tensor type.
fn floats(shape: &[usize]) -> TensorType {
    TensorType::new(DataType::F32, shape)
}

fn load(buffer: BufferId, indices: &[Expr]) -> Expr {
    Expr::Load(buffer, indices.to_vec())
}

/// Small whole numbers, so that sums of products are exact in any order.
/// `twice = x + x`, `sum = sum of twice by rows`: the sum.
fn twice_by_rows(builder: &mut Builder) -> BufferId {
    let x = builder.input("x", &floats(&[4, 6]));
    let twice = builder.map("twice", &floats(&[4, 6]), |i| load(x, i) + load(x, i));
    builder.reduce("sum", &floats(&[4]), &[6], Combiner::Sum, |i, r| {
        load(twice, &[i[0].clone(), r[0].clone()])
    })
}

fn inputs(program: &Program) -> Vec<Tensor> {
    let parameters = program.parameters().into_iter();
    parameters
        .filter(|buffer| matches!(program.buffers[*buffer].role, Role::Input(_)))
        .enumerate()
        .map(|(place, buffer)| {
            let own = &program.buffers[buffer];
            let values: Vec<f64> = (0..own.elements())
                .map(|element| ((element * 37 + place * 11 + element / 7) % 9) as f64 - 4.0)
                .collect();
            Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap()
        })
        .collect()
}

/// Both programs give the same results: exactly, or within `tolerance`.
fn assert_same(plain: &Program, scheduled: &Program, tolerance: f64) {
    hone_tensor::verify(scheduled).unwrap();
    let inputs = inputs(plain);
    let expected = interpret(plain, &inputs).unwrap();
    let actual = interpret(scheduled, &inputs).unwrap();
    assert_eq!(expected.len(), actual.len());
    for (expected, actual) in expected.iter().zip(&actual) {
        assert_eq!(expected.tensor_type(), actual.tensor_type());
        for (place, (a, b)) in expected.to_f64().iter().zip(actual.to_f64()).enumerate() {
            let close = (a - b).abs() <= tolerance * (1.0 + a.abs());
            assert!(close, "element {place}: expected {a}, got {b}");
        }
    }
}

/// The schedule's program computes what the plain one does, and its trace gives it again, through
/// text and JSON.
fn assert_right(plain: &Program, schedule: &Schedule, tolerance: f64) {
    let judged = std::panic::catch_unwind(|| assert_same(plain, schedule.program(), tolerance));
    if judged.is_err() {
        panic!("wrong after\n{}\n{}", schedule.trace(), schedule.program());
    }
    let text: crate::Trace = schedule.trace().to_string().parse().unwrap();
    assert_eq!(&text, schedule.trace());
    let json = serde_json::to_string(schedule.trace()).unwrap();
    let json: crate::Trace = serde_json::from_str(&json).unwrap();
    let again = Schedule::replay(plain.clone(), &json).unwrap();
    assert_eq!(again.program(), schedule.program());
    assert_eq!(again.trace(), schedule.trace());
}
