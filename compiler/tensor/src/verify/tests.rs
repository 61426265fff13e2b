#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::{BlockBody, Builder, Combiner, Expr, Scope, Statement};
use hone_types::{DataType::F32, TensorType};

/// `root = sqrt(x)`, then `sum = root[0] + root[1] + ...`
fn program() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(F32, [4]));
    let root = builder.map("root", &TensorType::new(F32, [4]), |i| {
        Expr::Load(x, vec![i[0].clone()]).unary(crate::UnaryOp::Sqrt)
    });
    let sum = builder.reduce("sum", &TensorType::new(F32, []), &[4], Combiner::Sum, |_, r| {
        Expr::Load(root, vec![r[0].clone()])
    });
    builder.output(sum);
    builder.finish()
}

fn first_loop(program: &mut Program) -> &mut crate::Loop {
    match &mut program.body[0] {
        Statement::Loop(own) => own,
        _ => unreachable!("the plain nest of a vector begins with its loop"),
    }
}

fn message(program: &Program) -> String {
    verify(program).unwrap_err().to_string()
}

#[test]
fn plain_program_is_well_formed() {
    verify(&program()).unwrap();
    verify_registers(&program()).unwrap();
}

#[test]
fn order_is_checked() {
    let mut program = program();
    program.body.reverse();
    assert_eq!(message(&program), "block 'sum' reads 'root' before block 'root' has computed it");
    program.body.truncate(1);
    assert_eq!(message(&program), "block 'sum' reads 'root', which no block computes");
}

#[test]
fn repeated_blocks_are_found() {
    let mut program = program();
    let copy = first_loop(&mut program).body[0].clone();
    first_loop(&mut program).body.push(copy);
    assert_eq!(message(&program), "block 'root' stands more than once in the loop tree");
}

#[test]
fn bindings_stay_in_their_domain() {
    let mut program = program();
    first_loop(&mut program).extent = Expr::Integer(5);
    let expected = "block 'root': the binding of v0 takes 0..=4, its domain is 0..4";
    assert_eq!(message(&program), expected);
}

#[test]
fn accesses_stay_in_their_buffer() {
    let mut program = program();
    let block = program.block_named("root").unwrap();
    program.blocks[block].indices[0] = program.blocks[block].indices[0].clone() + 1;
    assert_eq!(message(&program), "block 'root' accesses 'root' at 1..=4 on axis 0 of extent 4");
}

#[test]
fn variables_are_bound() {
    let mut program = program();
    let stray = program.add_var("stray");
    first_loop(&mut program).extent = Expr::Var(stray);
    assert_eq!(message(&program), format!("loop v1 mentions {stray}, which is not bound there"));
}

#[test]
fn types_fit() {
    let mut program = program();
    let block = program.block_named("root").unwrap();
    program.blocks[block].body = BlockBody::Map(Expr::Integer(1));
    assert_eq!(message(&program), "block 'root': a value of i64 stands where f32 is expected");
}

#[test]
fn reduction_loops_do_not_run_in_parallel() {
    let mut program = program();
    first_loop(&mut program).kind = LoopKind::Parallel;
    verify(&program).unwrap();
    program.body.swap(0, 1);
    first_loop(&mut program).kind = LoopKind::Parallel;
    program.body.swap(0, 1);
    let expected = "loop v3 is parallel, but several iterations may write the same element of \
                    'sum' in block 'sum'";
    assert_eq!(message(&program), expected);
}

#[test]
fn registers_need_unrolled_loops() {
    let mut program = program();
    let root = program.blocks[program.block_named("root").unwrap()].buffer;
    program.buffers[root].scope = Scope::Register;
    let expected = "'root' is memory of one thread, but several kernels use it";
    assert_eq!(verify_registers(&program).unwrap_err().to_string(), expected);
}
