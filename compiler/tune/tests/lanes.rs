//! Reductions over windows that move by several elements: in vectors where no border is tested.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_machine::Machine;
use hone_tensor::{Builder, Combiner, Expr, LoopKind, Program, Statement, interpret, verify};
use hone_tune::{Preferred, schedule_with};
use hone_types::{DataType, Tensor, TensorType};

const WIDTH: usize = 50;

/// `y[c, i] = largest over j of x[c, step * i + j - pad]`, where elements before the first are left out.
fn pool(step: usize, pad: usize) -> Program {
    let of = |shape: &[usize]| TensorType::new(DataType::F32, shape.to_vec());
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&[3, WIDTH]));
    let shape = of(&[3, (WIDTH - 3) / step + 1]);
    let largest = builder.reduce("largest", &shape, &[3], Combiner::Maximum, |i, j| {
        let index = i[1].clone() * step + j[0].clone();
        match pad {
            0 => Expr::Load(x, vec![i[0].clone(), index]),
            _ => {
                let index = index - pad;
                let inside = Expr::Integer(0).less_equal(index.clone());
                let least = Expr::Constant(f64::NEG_INFINITY, DataType::F32);
                inside.select(Expr::Load(x, vec![i[0].clone(), index]), least)
            }
        }
    });
    let y = builder.map("y", &shape, |i| Expr::Load(largest, i.to_vec()));
    builder.output(y);
    builder.finish()
}

/// The template that takes a program, after it was checked that the program computes as before.
fn template(plain: Program) -> &'static str {
    let values: Vec<f64> = (0..3 * WIDTH).map(|index| ((index * 31) % 17) as f64 - 9.0).collect();
    let inputs = [Tensor::from_f64(DataType::F32, [3, WIDTH], &values).unwrap()];
    let machine = Machine::with_vectors(32, 16);
    let scheduled = schedule_with(plain.clone(), &machine, &mut Preferred).unwrap();
    let program = scheduled.schedule.program();
    verify(program).unwrap();
    assert_eq!(interpret(program, &inputs).unwrap(), interpret(&plain, &inputs).unwrap());
    scheduled.template
}

#[test]
fn windows_few_elements_apart_are_reduced_in_vectors() {
    for step in [1, 2, 3, 4] {
        assert_eq!(template(pool(step, 0)), "lanes", "{step} elements apart");
    }
}

#[test]
fn windows_far_apart_or_behind_a_border_are_not() {
    assert_ne!(template(pool(5, 0)), "lanes");
    assert_ne!(template(pool(2, 1)), "lanes");
}

/// Sums of few columns have no loop outside of the one at which they are computed: that one is divided among threads.
#[test]
fn sums_of_few_columns_are_divided_among_threads() {
    let of = |shape: &[usize]| TensorType::new(DataType::F32, shape.to_vec());
    let mut builder = Builder::new();
    let x = builder.input("x", &of(&[4096, 100, 2]));
    let shape = of(&[4096, 2]);
    let sum = builder.reduce("sum", &shape, &[100], Combiner::Sum, |i, j| {
        Expr::Load(x, vec![i[0].clone(), j[0].clone(), i[1].clone()])
    });
    let y = builder.map("y", &shape, |i| Expr::Load(sum, i.to_vec()));
    builder.output(y);
    let machine = Machine::with_vectors(32, 16);
    let scheduled = schedule_with(builder.finish(), &machine, &mut Preferred).unwrap();
    assert_eq!(scheduled.template, "lanes");
    let [Statement::Loop(outer)] = &scheduled.schedule.program().body[..] else { unreachable!() };
    assert_eq!(outer.kind, LoopKind::Parallel);
}
