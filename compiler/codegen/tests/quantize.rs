//! Rounding to integers of few bits, which is one instruction where there is one, against the interpreter.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use hone_codegen::Target;
use hone_tensor::{Builder, Expr, LoopKind, Program, Statement, UnaryOp, interpret};
use hone_types::{DataType, Tensor, TensorType};

/// What is added behind rounding: zero points of bytes, and one that is none.
const ADDED: [f64; 6] = [0.0, 3.0, 128.0, -7.0, 255.0, 0.5];
const TYPES: [DataType; 4] = [DataType::U8, DataType::I8, DataType::U16, DataType::I16];

/// Halves, which lie between two integers, and their neighbours; ends of all types; and what is no number.
fn values() -> Vec<f32> {
    let mut values: Vec<f32> = (-1200..=1200).map(|quarter| quarter as f32 * 0.25).collect();
    for end in [32_767.0f32, 65_535.0, 1e9, 2_147_483_648.0, 1e30, f32::INFINITY] {
        values.extend([end, -end, end - 0.5, 0.5 - end, end + 0.5, end * 1.5]);
    }
    values.extend([f32::NAN, -f32::NAN, 0.499_999_97, -0.499_999_97, 1e-45, -0.0]);
    values
}

/// For each type and addend, the integers and what they are in `f32`.
fn program(kind: LoopKind) -> Program {
    let mut builder = Builder::new();
    let shape = [values().len()];
    let x = builder.input("x", &TensorType::new(DataType::F32, shape));
    for to in TYPES {
        for added in ADDED {
            let quantized = |i: &[Expr]| {
                let rounded = Expr::Load(x, i.to_vec()).unary(UnaryOp::Round);
                let moved = match added {
                    0.0 => rounded,
                    added => rounded + Expr::Constant(added, DataType::F32),
                };
                moved.cast(to)
            };
            let integers = builder.map("integers", &TensorType::new(to, shape), quantized);
            builder.output(integers);
            let floats = TensorType::new(DataType::F32, shape);
            let floats = builder.map("floats", &floats, |i| quantized(i).cast(DataType::F32));
            builder.output(floats);
        }
    }
    let mut program = builder.finish();
    for statement in &mut program.body {
        if let Statement::Loop(loop_) = statement {
            loop_.kind = kind;
        }
    }
    program
}

/// This machine as it is, and with the instructions of older ones, where it has those.
fn targets() -> Vec<Target> {
    let host = Target::host().unwrap();
    let older = match std::env::consts::ARCH {
        "x86_64" => ["x86-64", "x86-64-v3"].map(|cpu| ("amd64", cpu)).to_vec(),
        arch => vec![(arch, "")],
    };
    let older = older.into_iter().map(|(arch, cpu)| Target::for_platform("linux", arch, cpu));
    [host].into_iter().chain(older.map(Result::unwrap)).collect()
}

#[test]
fn rounding_to_integers_saturates_and_breaks_ties_to_even() {
    let input = Tensor::from_elements([values().len()], &values()).unwrap();
    let bytes = input.bytes().to_vec();
    for kind in [LoopKind::Serial, LoopKind::Vectorized] {
        let program = program(kind);
        let expected = interpret(&program, std::slice::from_ref(&input)).unwrap();
        for target in targets() {
            let actual = common::run_on(&program, std::slice::from_ref(&bytes), &target);
            for (output, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
                let same = expected.bytes() == &actual[..];
                assert!(same, "output {output}, {kind:?}, {}", target.cpu);
            }
        }
    }
}

/// On x86-64 nothing is narrowed to bytes and extended again, and nothing is rounded twice.
#[test]
fn a_quantized_number_stays_in_its_register() {
    let mut builder = Builder::new();
    let tensor_type = TensorType::new(DataType::F32, [64]);
    let x = builder.input("x", &tensor_type);
    let y = builder.map("y", &tensor_type, |i| {
        let rounded = Expr::Load(x, i.to_vec()).unary(UnaryOp::Round);
        let moved = rounded + Expr::Constant(3.0, DataType::F32);
        moved.cast(DataType::U8).cast(DataType::F32)
    });
    builder.output(y);
    let mut program = builder.finish();
    if let Statement::Loop(loop_) = &mut program.body[0] {
        loop_.kind = LoopKind::Vectorized;
    }
    let target = Target::for_platform("linux", "amd64", "x86-64-v4").unwrap();
    let code = hone_codegen::assembly(&program, &target).unwrap();
    let count = |name: &str| code.matches(name).count();
    assert!(count("vcvtps2dq") > 0, "{code}");
    for narrow in ["vrndscaleps", "vpmovdb", "vpmovzxbd", "vpackus"] {
        assert_eq!(count(narrow), 0, "{narrow} in {code}");
    }
}
