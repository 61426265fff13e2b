//! Conversions between `f16` and `f32` are those of whole vectors, also where LLVM could compute with
//! halves and get the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen::{Target, assembly};
use hone_tensor::{BinaryOp, Builder, Expr, LoopKind, Program, Statement};
use hone_types::{DataType, TensorType};

/// 16 halves each: `max(x, 0)`, and `x + y`.
fn program(sum: bool) -> Program {
    let halves = TensorType::new(DataType::F16, [16]);
    let mut builder = Builder::new();
    let x = builder.input("x", &halves);
    let y = builder.input("y", &halves);
    let extended = |buffer, i: &[Expr]| Expr::Load(buffer, i.to_vec()).cast(DataType::F32);
    let result = builder.map("result", &halves, |i| {
        let result = match sum {
            true => extended(x, i) + extended(y, i),
            false => extended(x, i).binary(BinaryOp::Maximum, Expr::Constant(0.0, DataType::F32)),
        };
        result.cast(DataType::F16)
    });
    builder.output(result);
    let mut program = builder.finish();
    for statement in &mut program.body {
        if let Statement::Loop(loop_) = statement {
            loop_.kind = LoopKind::Vectorized;
        }
    }
    program
}

#[test]
fn conversions_take_whole_vectors() {
    // Instructions that convert from halves and to them, and how many 16 elements take.
    let cases = [
        ("x86_64-unknown-linux-gnu", "skylake-avx512", ["vcvtph2ps", "vcvtps2ph"], 1),
        ("x86_64-unknown-linux-gnu", "haswell", ["vcvtph2ps", "vcvtps2ph"], 2),
        ("aarch64-unknown-linux-gnu", "cortex-a72", ["fcvtl", "fcvtn"], 4),
    ];
    for (triple, cpu, [extend, round], vectors) in cases {
        let target = Target::new(triple, cpu, vec![]).unwrap();
        for (sum, inputs) in [(false, 1), (true, 2)] {
            let text = assembly(&program(sum), &target).unwrap();
            let is = |line: &str, name: &str| line.trim_start().starts_with(name);
            let count = |name: &str| text.lines().filter(|line| is(line, name)).count();
            assert_eq!(count(extend), vectors * inputs, "{cpu}: {text}");
            assert_eq!(count(round), vectors, "{cpu}: {text}");
            // A conversion of one element on AArch64.
            let single = |line: &&str| is(line, "fcvt\t") || is(line, "fcvt ");
            assert_eq!(text.lines().filter(single).count(), 0, "{cpu}: {text}");
        }
    }
}
