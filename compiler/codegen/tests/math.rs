//! Accuracy of the functions against the platform's, in `f32` and `f64`, in lanes and one by one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::run_on;
use hone_codegen::Target;
use hone_tensor::{BinaryOp, Builder, Expr, LoopKind, Program, Statement, UnaryOp};
use hone_types::DataType::{F32, F64};
use hone_types::{DataType, Tensor, TensorType};

/// Distance in units in the last place of the expected `f32`; 0 for equal specials.
fn ulps(actual: f64, expected: f64) -> f64 {
    let rounded = expected as f32;
    if actual.is_nan() || expected.is_nan() {
        return if actual.is_nan() && expected.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if f64::from(rounded) == actual {
        return 0.0;
    }
    if rounded.is_infinite() || actual.is_infinite() {
        return f64::INFINITY;
    }
    let size = rounded.abs().max(f32::MIN_POSITIVE);
    let unit = f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size);
    (actual - expected).abs() / unit
}

fn vectorized(mut program: Program) -> Program {
    for statement in &mut program.body {
        if let Statement::Loop(loop_) = statement {
            loop_.kind = LoopKind::Vectorized;
        }
    }
    program
}

/// Values at the ends, of every magnitude, and dense in between.
fn samples(dtype: DataType, low: f64, high: f64) -> Vec<f64> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        88.72,
        88.73,
        -87.34,
        -103.97,
        -104.1,
        709.7,
        -745.0,
        1e-45,
        -1e-45,
        1e-40,
        1.1754944e-38,
        3.4e38,
        -3.4e38,
        1e30,
        1e-30,
        0.625,
        0.9,
        4.0,
        0.99999994,
        1.0000001,
        0.41421356,
        2.41421356,
    ];
    let steps = 600;
    values.extend((0..=steps).map(|step| low + (high - low) * f64::from(step) / f64::from(steps)));
    for power in -120..120 {
        values.extend([1.37 * 2f64.powi(power), -1.73 * 2f64.powi(power)]);
    }
    if dtype == F32 {
        values.iter().map(|value| f64::from(*value as f32)).collect()
    } else {
        values
    }
}

struct Case {
    op: UnaryOp,
    exact: fn(f64) -> f64,
    low: f64,
    high: f64,
    /// Maximum magnitude for which the error is bounded.
    limit: f64,
    ulps: f64,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn cases() -> Vec<Case> {
    let case =
        |op, exact, low, high, ulps| Case { op, exact, low, high, limit: f64::INFINITY, ulps };
    let mut cases = vec![
        case(UnaryOp::Exp, f64::exp, -105.0, 90.0, 2.0),
        case(UnaryOp::Log, f64::ln, 0.0, 40.0, 2.0),
        case(UnaryOp::Sqrt, f64::sqrt, 0.0, 40.0, 0.51),
        case(UnaryOp::Tanh, f64::tanh, -10.0, 10.0, 6.0),
        case(UnaryOp::Erf, libm::erf, -5.0, 5.0, 6.0),
        case(UnaryOp::Sigmoid, sigmoid, -110.0, 30.0, 3.0),
        case(UnaryOp::Sin, f64::sin, -20.0, 20.0, 1.0),
        case(UnaryOp::Cos, f64::cos, -20.0, 20.0, 1.0),
        case(UnaryOp::Tan, f64::tan, -20.0, 20.0, 1.0),
        case(UnaryOp::Asin, f64::asin, -1.0, 1.0, 1.0),
        case(UnaryOp::Acos, f64::acos, -1.0, 1.0, 1.0),
        case(UnaryOp::Atan, f64::atan, -10.0, 10.0, 1.0),
        case(UnaryOp::Sinh, f64::sinh, -90.0, 90.0, 1.0),
        case(UnaryOp::Cosh, f64::cosh, -90.0, 90.0, 1.0),
        case(UnaryOp::Asinh, libm::asinh, -10.0, 10.0, 1.0),
        case(UnaryOp::Acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, 1.0, 10.0, 1.0),
        case(UnaryOp::Atanh, libm::atanh, -1.0, 1.0, 1.0),
        case(UnaryOp::Floor, f64::floor, -5.0, 5.0, 0.0),
        case(UnaryOp::Ceil, f64::ceil, -5.0, 5.0, 0.0),
        case(UnaryOp::Round, f64::round_ties_even, -5.0, 5.0, 0.0),
        case(UnaryOp::Truncate, f64::trunc, -5.0, 5.0, 0.0),
        case(UnaryOp::Abs, f64::abs, -5.0, 5.0, 0.0),
        case(UnaryOp::Negate, |x| -x, -5.0, 5.0, 0.0),
    ];
    for case in &mut cases {
        if matches!(case.op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan) {
            case.limit = 2f64.powi(30);
        }
    }
    cases
}

/// This machine as it is, and with the plainest instructions of its architecture: on x86-64 without
/// fused multiply-adds and without rounding.
fn targets() -> Vec<Target> {
    let plainest = match std::env::consts::ARCH {
        "x86_64" => ("amd64", "x86-64"),
        arch => (arch, ""),
    };
    let (arch, cpu) = plainest;
    vec![Target::host().unwrap(), Target::for_platform("linux", arch, cpu).unwrap()]
}

#[test]
fn functions_keep_their_bounds() {
    let mut worst = Vec::new();
    let both = targets();
    for (dtype, target) in [F32, F64].iter().flat_map(|dtype| both.iter().map(|t| (*dtype, t))) {
        let cases = cases();
        let mut builder = Builder::new();
        let mut inputs = Vec::new();
        for case in &cases {
            let values = samples(dtype, case.low, case.high);
            let tensor_type = TensorType::new(dtype, [values.len()]);
            let x = builder.input("x", &tensor_type);
            let y = builder.map("y", &tensor_type, |i| Expr::Load(x, i.to_vec()).unary(case.op));
            builder.output(y);
            inputs.push(Tensor::from_f64(dtype, [values.len()], &values).unwrap());
        }
        let plain = builder.finish();
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
        for program in [plain.clone(), vectorized(plain)] {
            for ((case, input), result) in
                cases.iter().zip(&inputs).zip(run_on(&program, &bytes, target))
            {
                let result = Tensor::from_bytes(input.tensor_type().clone(), result).unwrap();
                let maximum = check(case, dtype, &input.to_f64(), &result.to_f64());
                worst.push(format!("{dtype} {:?} {maximum:.3e}", case.op));
            }
        }
    }
    println!("{}", worst.join("\n"));
}

/// The maximum error: in units in the last place for `f32`, relative for `f64`.
fn check(case: &Case, dtype: DataType, inputs: &[f64], results: &[f64]) -> f64 {
    let mut maximum: f64 = 0.0;
    for (x, actual) in inputs.iter().zip(results) {
        let expected = (case.exact)(*x);
        if x.is_finite() && x.abs() > case.limit {
            continue;
        }
        if dtype == F32 && matches!(case.op, UnaryOp::Sigmoid) && expected < 1.3e-38 {
            // Where no normal number is so small, the smallest of them will do.
            assert!((0.0..1.3e-38).contains(actual), "sigmoid({x:e}) = {actual:e}");
            continue;
        }
        let (error, bound) = if dtype == F32 {
            (ulps(*actual, expected), case.ulps)
        } else {
            let same = *actual == expected || (actual.is_nan() && expected.is_nan());
            let minimum = if case.limit.is_finite() { 1.0 } else { 1e-300 };
            let error = (actual - expected).abs() / expected.abs().max(minimum);
            (if same { 0.0 } else { error }, 1e-12)
        };
        assert!(
            error <= bound,
            "{dtype} {:?}({x:e}) = {actual:e}, not {expected:e}: {error}",
            case.op
        );
        maximum = maximum.max(error);
    }
    maximum
}

#[test]
fn powers_and_remainders() {
    let points = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        -0.5,
        3.0,
        -3.0,
        2.5,
        -2.5,
        10.0,
        1e-3,
        1e10,
        -1e10,
        127.0,
        1e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.333,
        1.0000001,
        7.25,
    ];
    let pairs: Vec<(f64, f64)> =
        points.iter().flat_map(|a| points.iter().map(move |b| (*a, *b))).collect();
    for dtype in [F32, F64] {
        let round = |x: f64| if dtype == F32 { f64::from(x as f32) } else { x };
        let pairs: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (round(*a), round(*b))).collect();
        let tensor_type = TensorType::new(dtype, [pairs.len()]);
        let mut builder = Builder::new();
        let (a, b) = (builder.input("a", &tensor_type), builder.input("b", &tensor_type));
        let ops = [BinaryOp::Power, BinaryOp::Remainder, BinaryOp::Minimum, BinaryOp::Maximum];
        for op in ops {
            let y = builder.map("y", &tensor_type, |i| {
                Expr::Load(a, i.to_vec()).binary(op, Expr::Load(b, i.to_vec()))
            });
            builder.output(y);
        }
        let plain = builder.finish();
        let tensor = |pick: fn(&(f64, f64)) -> f64| {
            let values: Vec<f64> = pairs.iter().map(pick).collect();
            Tensor::from_f64(dtype, [pairs.len()], &values).unwrap().bytes().to_vec()
        };
        let inputs = [tensor(|pair| pair.0), tensor(|pair| pair.1)];
        let programs = [plain.clone(), vectorized(plain)];
        let both = targets();
        for (program, target) in
            programs.iter().flat_map(|program| both.iter().map(move |t| (program, t)))
        {
            for (op, result) in ops.into_iter().zip(run_on(program, &inputs, target)) {
                let result = Tensor::from_bytes(tensor_type.clone(), result).unwrap().to_f64();
                for ((a, b), actual) in pairs.iter().zip(&result) {
                    let extreme = |choose: fn(f64, f64) -> f64| {
                        if a.is_nan() || b.is_nan() { f64::NAN } else { choose(*a, *b) }
                    };
                    let expected = match op {
                        BinaryOp::Power => a.powf(*b),
                        BinaryOp::Minimum => extreme(f64::min),
                        BinaryOp::Maximum => extreme(f64::max),
                        // Quotients beyond 2^53 are outside the stated bound.
                        _ if (a / b).abs() > 2f64.powi(53) && a.is_finite() && *b != 0.0 => {
                            continue;
                        }
                        _ => a % b,
                    };
                    if dtype == F32 {
                        let error = ulps(*actual, expected);
                        assert!(
                            error <= 1.0,
                            "{op:?}({a:e}, {b:e}) = {actual:e}, not {expected:e}"
                        );
                    } else {
                        let same = *actual == expected || (actual.is_nan() && expected.is_nan());
                        let error = (actual - expected).abs() / expected.abs();
                        assert!(
                            same || error < 1e-12,
                            "{op:?}({a:e}, {b:e}) = {actual:e}, not {expected:e}"
                        );
                    }
                }
            }
        }
    }
}

/// Whole powers of whole numbers are exact: `Pow` of integers is computed in `f64` and cut off.
#[test]
fn whole_powers_are_exact() {
    let bases = (-15..=15).map(f64::from);
    let pairs: Vec<(f64, f64)> = bases
        .flat_map(|a| (0..50).map(move |b| (a, f64::from(b))))
        .filter(|(a, b)| a.abs().powf(*b) < 2f64.powi(50))
        .collect();
    let tensor_type = TensorType::new(F64, [pairs.len()]);
    let mut builder = Builder::new();
    let (a, b) = (builder.input("a", &tensor_type), builder.input("b", &tensor_type));
    let y = builder.map("y", &tensor_type, |i| {
        Expr::Load(a, i.to_vec()).binary(BinaryOp::Power, Expr::Load(b, i.to_vec()))
    });
    builder.output(y);
    let program = vectorized(builder.finish());
    let tensor =
        |values: Vec<f64>| Tensor::from_f64(F64, [pairs.len()], &values).unwrap().bytes().to_vec();
    let inputs = [
        tensor(pairs.iter().map(|pair| pair.0).collect()),
        tensor(pairs.iter().map(|pair| pair.1).collect()),
    ];
    for target in targets() {
        let result = run_on(&program, &inputs, &target).remove(0);
        let result = Tensor::from_bytes(tensor_type.clone(), result).unwrap().to_f64();
        for ((a, b), actual) in pairs.iter().zip(&result) {
            let expected = (*a as i64).pow(*b as u32) as f64;
            assert!(*actual == expected, "{a} to {b} is {actual}, not {expected}: {}", target.cpu);
        }
    }
}

/// Without the instruction for it, rounding is done by additions; with it off, this machine runs that.
#[test]
fn rounding_without_an_instruction() {
    let host = hone_codegen::Target::host().unwrap();
    let target = hone_codegen::Target { rounding: false, half_conversion: false, ..host };
    let values = samples(F32, -5.0, 5.0);
    let tensor_type = TensorType::new(F32, [values.len()]);
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type);
    type Exact = fn(f64) -> f64;
    let ops: [(UnaryOp, Exact); 4] = [
        (UnaryOp::Floor, f64::floor),
        (UnaryOp::Ceil, f64::ceil),
        (UnaryOp::Truncate, f64::trunc),
        (UnaryOp::Round, f64::round_ties_even),
    ];
    for (op, _) in ops {
        let y = builder.map("y", &tensor_type, |i| Expr::Load(x, i.to_vec()).unary(op));
        builder.output(y);
    }
    let half = builder.map("half", &TensorType::new(DataType::F16, [values.len()]), |i| {
        Expr::Load(x, i.to_vec()).cast(DataType::F16)
    });
    builder.output(half);
    let back = builder.map("back", &tensor_type, |i| Expr::Load(half, i.to_vec()).cast(F32));
    builder.output(back);
    let program = vectorized(builder.finish());
    let input = Tensor::from_f64(F32, [values.len()], &values).unwrap();
    let results = common::run_on(&program, &[input.bytes().to_vec()], &target);
    for ((op, exact), result) in ops.into_iter().zip(&results) {
        let result = Tensor::from_bytes(tensor_type.clone(), result.clone()).unwrap().to_f64();
        for (x, actual) in values.iter().zip(&result) {
            let expected = exact(*x);
            assert!(ulps(*actual, expected) == 0.0, "{op:?}({x:e}) = {actual:e}, not {expected:e}");
        }
    }
    let expected = Tensor::from_f64(DataType::F16, [values.len()], &values).unwrap().to_f64();
    let result = Tensor::from_bytes(tensor_type, results[5].clone()).unwrap().to_f64();
    for ((x, actual), expected) in values.iter().zip(&result).zip(&expected) {
        let same = actual == expected || (actual.is_nan() && expected.is_nan());
        assert!(same, "{x:e} in binary16 is {actual:e}, not {expected:e}");
    }
}

/// Subnormal numbers of 16 bits are normal ones of 32: they survive where kernels run with subnormal
/// numbers flushed, with the processor's conversions and with those by arithmetic.
#[test]
fn every_half_survives_where_subnormal_floats_are_flushed() {
    let host = hone_codegen::Target::host().unwrap();
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_ne_bytes()).collect();
    let tensor_type = TensorType::new(DataType::F16, [halves.len()]);
    let mut builder = Builder::new();
    let x = builder.input("x", &tensor_type);
    let float = builder.map("float", &TensorType::new(F32, [halves.len()]), |i| {
        Expr::Load(x, i.to_vec()).cast(F32)
    });
    builder.output(float);
    let back =
        builder.map("back", &tensor_type, |i| Expr::Load(float, i.to_vec()).cast(DataType::F16));
    builder.output(back);
    let program = vectorized(builder.finish());
    for half_conversion in [true, false] {
        let half_conversion = half_conversion && host.half_conversion;
        let target = hone_codegen::Target { half_conversion, ..host.clone() };
        let results = common::with_subnormals_flushed(|| {
            common::run_on(&program, std::slice::from_ref(&bytes), &target)
        });
        for (half, back) in halves.iter().zip(results[1].chunks_exact(2)) {
            let back = u16::from_ne_bytes([back[0], back[1]]);
            let is_nan = half & 0x7fff > 0x7c00;
            assert!(back == *half || (is_nan && back & 0x7fff > 0x7c00), "{half:#x}: {back:#x}");
        }
    }
}
