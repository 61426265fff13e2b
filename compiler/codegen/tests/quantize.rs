//! Rounding to integers of few bits, which is one instruction where there is one, against the interpreter.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use hone_codegen::Target;
use hone_tensor::{Builder, Expr, LoopKind, Program, Statement, UnaryOp, interpret};
use hone_types::{DataType, Tensor, TensorType};

/// What is added behind rounding: zero points of bytes, and one that is none.
const ADDED: [f64; 6] = [0.0, 3.0, 128.0, -7.0, 255.0, 0.5];
/// Numbers of a row: the widest vector, which has instructions that others have not.
const LANES: usize = 16;
const TYPES: [DataType; 4] = [DataType::U8, DataType::I8, DataType::U16, DataType::I16];

/// Halves, which lie between two integers, and their neighbours; ends of all types; and what is no number.
fn values() -> Vec<f32> {
    let mut values: Vec<f32> = (-1200..=1200).map(|quarter| quarter as f32 * 0.25).collect();
    for end in [32_767.0f32, 65_535.0, 1e9, 2_147_483_648.0, 1e30, f32::INFINITY] {
        values.extend([end, -end, end - 0.5, 0.5 - end, end + 0.5, end * 1.5]);
    }
    values.extend([f32::NAN, -f32::NAN, 0.499_999_97, -0.499_999_97, 1e-45, -0.0]);
    values.resize(values.len().next_multiple_of(LANES), 0.5);
    values
}

/// For each type and addend, the integers and what they are in `f32`; the innermost of the loops over `shape` is of a kind.
fn program(kind: LoopKind, shape: &[usize]) -> Program {
    let mut builder = Builder::new();
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
    program.body.iter_mut().for_each(|statement| set_innermost(statement, kind));
    program
}

/// Makes the innermost loop below a statement one of the kind.
fn set_innermost(statement: &mut Statement, kind: LoopKind) {
    let Statement::Loop(loop_) = statement else { return };
    match loop_.body.iter().any(|inner| matches!(inner, Statement::Loop(_))) {
        true => loop_.body.iter_mut().for_each(|inner| set_innermost(inner, kind)),
        false => loop_.kind = kind,
    }
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
    let elements = values().len();
    let rows = [elements / LANES, LANES];
    let cases = [
        (LoopKind::Serial, &[elements][..]),
        (LoopKind::Vectorized, &[elements]),
        (LoopKind::Vectorized, &rows),
    ];
    for (kind, shape) in cases {
        let input = Tensor::from_elements(shape, &values()).unwrap();
        let bytes = input.bytes().to_vec();
        let program = program(kind, shape);
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

/// Code on x86-64 with AVX-512 that quantizes a vector of numbers to bytes, which `f32` stands for again where that is `to`.
fn assembly_of_bytes(to: DataType) -> String {
    let mut builder = Builder::new();
    let shape = [LANES];
    let x = builder.input("x", &TensorType::new(DataType::F32, shape));
    let y = builder.map("y", &TensorType::new(to, shape), |i| {
        let rounded = Expr::Load(x, i.to_vec()).unary(UnaryOp::Round);
        let moved = rounded + Expr::Constant(3.0, DataType::F32);
        moved.cast(DataType::U8).cast(to)
    });
    builder.output(y);
    let mut program = builder.finish();
    set_innermost(&mut program.body[0], LoopKind::Vectorized);
    let target = Target::for_platform("linux", "amd64", "x86-64-v4").unwrap();
    hone_codegen::assembly(&program, &target).unwrap()
}

/// On x86-64 what is quantized and dequantized again is rounded by additions, and never an integer.
#[test]
fn a_quantized_number_stays_a_float() {
    let code = assembly_of_bytes(DataType::F32);
    let count = |name: &str| code.matches(name).count();
    assert!(count("vaddps") > 0, "{code}");
    let others = ["vrndscaleps", "vcvtps2dq", "vcvtdq2ps", "vpmovdb", "vpmovusdb", "vpmovzxbd"];
    for other in others {
        assert_eq!(count(other), 0, "{other} in {code}");
    }
}

/// With AVX-512 the instruction that converts to bytes saturates, so that no upper bound is applied to the float.
#[test]
fn the_conversion_to_unsigned_bytes_saturates() {
    let code = assembly_of_bytes(DataType::U8);
    let count = |name: &str| code.matches(name).count();
    assert_eq!([count("vcvtps2dq"), count("vpmovusdb")], [1, 1], "{code}");
    assert_eq!([count("vminps"), count("vrndscaleps")], [0, 0], "{code}");
}
