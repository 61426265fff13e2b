//! Every operation of every element type, and every conversion, on values at the edges of the types: what WGSL computes
//! is what the interpreter of loop programs does. Integers, conversions and comparisons are equal; floats are as near as
//! a few roundings.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{EmitError, Wgsl, emit, source};
use hone_tensor::{BinaryOp, Builder, Expr, Limits, Program, UnaryOp, interpret, verify};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor, TensorType};
use hone_webgpu_tests::{Device, device_of_tests, run, validate};
use std::collections::BTreeMap;

const UNARY: [UnaryOp; 26] = [
    UnaryOp::Negate,
    UnaryOp::Abs,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sqrt,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sigmoid,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tan,
    UnaryOp::Asin,
    UnaryOp::Acos,
    UnaryOp::Atan,
    UnaryOp::Sinh,
    UnaryOp::Cosh,
    UnaryOp::Asinh,
    UnaryOp::Acosh,
    UnaryOp::Atanh,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
    UnaryOp::Truncate,
    UnaryOp::Not,
    UnaryOp::IsNan,
    UnaryOp::IsInfinite,
];

const BINARY: [BinaryOp; 18] = [
    BinaryOp::Add,
    BinaryOp::Subtract,
    BinaryOp::Multiply,
    BinaryOp::Divide,
    BinaryOp::FloorDivide,
    BinaryOp::Modulo,
    BinaryOp::Remainder,
    BinaryOp::Minimum,
    BinaryOp::Maximum,
    BinaryOp::Power,
    BinaryOp::Equal,
    BinaryOp::Less,
    BinaryOp::LessEqual,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::ShiftLeft,
    BinaryOp::ShiftRight,
];

/// Values of a type, those at its ends among them.
fn values(dtype: DataType) -> Vec<Vec<u8>> {
    if dtype.is_float() {
        return floats()
            .into_iter()
            .map(|value| Tensor::from_f64(dtype, [1], &[value]).unwrap().bytes().to_vec())
            .collect();
    }
    if dtype == DataType::Bool {
        return vec![vec![0], vec![1]];
    }
    let bits = 8 * dtype.bytes() as u32;
    let ends = [0, 1, 2, 3].into_iter().flat_map(|own: i128| {
        [own, -own, (1 << (bits - 1)) - own, (1 << (bits - 1)) + own, (1 << bits) - own]
    });
    let others = [5, 7, -7, 10, 31, 32, 33, 63, 64, 65, 100, -100, 0x1234_5678_9abc_def0];
    let signed = matches!(dtype, DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64);
    let range = if signed { -(1i128 << (bits - 1))..1 << (bits - 1) } else { 0..1 << bits };
    let mut values: Vec<i128> = ends.chain(others).filter(|value| range.contains(value)).collect();
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(|value| value.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn floats() -> Vec<f64> {
    let magnitudes = [
        0.0,
        1e-5,
        0.03,
        0.25,
        0.5,
        0.999,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        7.0,
        9.5,
        100.25,
        127.5,
        128.0,
        254.9,
        255.5,
        256.0,
        32767.5,
        65504.0,
        65519.0,
        65520.0,
        70000.0,
        2147483520.0,
        2147483648.0,
        4294967040.0,
        4294967296.0,
        1e10,
        9223371487098961920.0,
        9223372036854775808.0,
        1.8446744073709552e19,
        3e38,
        f64::INFINITY,
    ];
    let mut values: Vec<f64> = magnitudes.into_iter().flat_map(|value| [value, -value]).collect();
    values.push(f64::NAN);
    values
}

fn tensor(dtype: DataType, values: &[Vec<u8>]) -> Tensor {
    Tensor::from_bytes(TensorType::new(dtype, [values.len()]), values.concat()).unwrap()
}

/// `y[i] = value(a[i], b[i])`
fn program(dtype: DataType, count: usize, value: &dyn Fn(Expr, Expr) -> Expr) -> Program {
    let mut builder = Builder::new();
    let given = TensorType::new(dtype, [count]);
    let (a, b) = (builder.input("a", &given), builder.input("b", &given));
    let load = |buffer, i: &[Expr]| Expr::Load(buffer, i.to_vec());
    let index = [Expr::Integer(0)];
    let result = builder.dtype(&value(load(a, &index), load(b, &index)));
    let y = builder.map("y", &TensorType::new(result, [count]), |i| value(load(a, i), load(b, i)));
    builder.output(y);
    builder.finish()
}

/// What came out of many programs, by what it says of them.
#[derive(Default)]
struct Outcomes {
    right: usize,
    refused: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

/// Holds a program's outputs on the device against the interpreter's.
fn check(
    device: &Device,
    name: &str,
    plain: &Program,
    inputs: &[Tensor],
    relative: f64,
    outcomes: &mut Outcomes,
) {
    if verify(plain).is_err() {
        // Not an operation of this type.
        return;
    }
    let expected = interpret(plain, inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
    let bound = schedule_for_device(plain.clone(), &Limits::PORTABLE).unwrap().schedule;
    let module = match emit(bound.program(), &Wgsl::default(), &Limits::PORTABLE, "k") {
        Err(EmitError::Operation { operation, dtype, .. }) => {
            *outcomes.refused.entry(format!("{operation} of {dtype}")).or_default() += 1;
            return;
        }
        other => other.unwrap_or_else(|error| panic!("{name}: {error}")),
    };
    let text = source(&Wgsl::default(), &[&module]);
    validate(&text).unwrap_or_else(|error| panic!("{name}: {error:#}\n{text}"));
    let kernels = device.build(&text, &module.kernels()).unwrap();
    let actual = run(device, &kernels, bound.program(), &module, inputs).unwrap();
    if expected[0].bytes() == actual[0].bytes() {
        outcomes.right += 1;
        return;
    }
    let (results, expected) = (actual[0].to_f64(), expected[0].to_f64());
    let float = actual[0].dtype().is_float();
    let off = results.iter().zip(&expected).position(|(a, b)| {
        let near = float && (a - b).abs() <= relative * b.abs().max(1e-3);
        !(a == b || a.is_nan() && b.is_nan() || near)
    });
    match (float, off) {
        (true, None) => outcomes.right += 1,
        (_, off) => {
            let index = off.unwrap_or(0);
            let given = inputs.iter().map(|input| input.to_f64()[index]);
            outcomes.wrong.push(format!(
                "{name} of {:?} is {}, not {}",
                given.collect::<Vec<_>>(),
                results[index],
                expected[index]
            ));
        }
    }
}

fn finish(what: &str, outcomes: &Outcomes, least: usize) {
    println!("{what}: {} right, refused: {:?}", outcomes.right, outcomes.refused);
    assert!(outcomes.wrong.is_empty(), "{what}: wrong:\n{}", outcomes.wrong.join("\n"));
    assert!(outcomes.right >= least, "{what}: {} right", outcomes.right);
}

/// How far one rounding of a type is off, and a few of `f32`.
fn precision(dtype: DataType) -> f64 {
    match dtype {
        DataType::F16 => 1e-3,
        DataType::BF16 => 8e-3,
        // Bit by bit.
        DataType::F64 => 0.0,
        _ => 1e-6,
    }
}

#[test]
fn conversions_are_the_interpreters() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut outcomes = Outcomes::default();
    for from in DataType::all() {
        let given = tensor(from, &values(from));
        for to in DataType::all() {
            let plain = program(from, given.shape()[0], &|a, _| a.cast(to));
            let inputs = [given.clone(), given.clone()];
            check(device, &format!("{from} to {to}"), &plain, &inputs, 0.0, &mut outcomes);
        }
    }
    finish("conversions", &outcomes, 13 * 13);
}

#[test]
fn operations_on_two_values_are_the_interpreters() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut outcomes = Outcomes::default();
    for dtype in DataType::all() {
        let values = values(dtype);
        for op in BINARY {
            let whole = !dtype.is_float();
            let divides = matches!(
                op,
                BinaryOp::Divide | BinaryOp::FloorDivide | BinaryOp::Modulo | BinaryOp::Remainder
            );
            let fits = |b: &Vec<u8>| {
                let value = tensor(dtype, std::slice::from_ref(b)).to_f64()[0];
                // No integer is divided by 0; the interpreter's powers of integers stop at 32 bits; an error of a
                // logarithm grows with the exponent.
                match op {
                    BinaryOp::Power => value.abs() <= if whole { 1e9 } else { 300.0 },
                    _ => !(whole && divides) || value != 0.0,
                }
            };
            let pairs = values.iter().flat_map(|a| values.iter().map(move |b| (a, b)));
            let pairs = pairs.filter(|(_, b)| fits(b));
            let (left, right): (Vec<_>, Vec<_>) =
                pairs.map(|(a, b)| (a.clone(), b.clone())).unzip();
            let inputs = [tensor(dtype, &left), tensor(dtype, &right)];
            let plain = program(dtype, left.len(), &|a, b| a.binary(op, b));
            let relative = match op {
                BinaryOp::Power => 30.0 * precision(dtype),
                _ => precision(dtype),
            };
            check(device, &format!("{op:?} of {dtype}"), &plain, &inputs, relative, &mut outcomes);
        }
    }
    finish("operations on two values", &outcomes, 180);
}

#[test]
fn operations_on_one_value_are_the_interpreters() {
    let Some(device) = device_of_tests().unwrap() else { return };
    let mut outcomes = Outcomes::default();
    for dtype in DataType::all() {
        for op in UNARY {
            // What is left of an argument of many turns has few digits.
            let periodic = matches!(op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan);
            let mut values = values(dtype);
            values.retain(|value| {
                let value = tensor(dtype, std::slice::from_ref(value)).to_f64()[0];
                !periodic || value.abs() < 300.0
            });
            let given = tensor(dtype, &values);
            let plain = program(dtype, values.len(), &|a, _| a.unary(op));
            let relative = 10.0 * precision(dtype);
            let inputs = [given.clone(), given];
            check(device, &format!("{op:?} of {dtype}"), &plain, &inputs, relative, &mut outcomes);
        }
    }
    finish("operations on one value", &outcomes, 100);
}
