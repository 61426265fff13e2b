//! What templates for devices make of sizes that use all of a block: products in tiles and sums by a whole
//! block, on an OpenCL device and lane by lane in the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{OpenClC, emit, source};
use hone_opencl_tests::{Device, device_of_tests, run};
use hone_tensor::{Builder, Combiner, Expr, Limits, Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor, TensorType};

/// Small whole numbers, so that every order of a sum gives the same.
fn numbers(dtype: DataType, shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|place: usize| ((place * 7 + place / 3) % 5) as f64 - 2.0)
        .collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}

/// `max(a . b, 0)`, of matrices of which there are `batch`.
fn product(dtype: DataType, [batch, m, n, k]: [usize; 4]) -> (Program, Vec<Tensor>) {
    let (a, b) = ([batch, m, k], [batch, k, n]);
    let mut builder = Builder::new();
    let left = builder.input("a", &TensorType::new(dtype, a));
    let right = builder.input("b", &TensorType::new(dtype, b));
    let shape = TensorType::new(DataType::F32, [batch, m, n]);
    let sum = builder.reduce("sum", &shape, &[k], Combiner::Sum, |i, r| {
        let load = |buffer, indices| Expr::Load(buffer, indices).cast(DataType::F32);
        let (left, right) = match dtype {
            DataType::F32 => (
                Expr::Load(left, vec![i[0].clone(), i[1].clone(), r[0].clone()]),
                Expr::Load(right, vec![i[0].clone(), r[0].clone(), i[2].clone()]),
            ),
            _ => (
                load(left, vec![i[0].clone(), i[1].clone(), r[0].clone()]),
                load(right, vec![i[0].clone(), r[0].clone(), i[2].clone()]),
            ),
        };
        left * right
    });
    let y = builder.map("y", &shape, |i| {
        Expr::Load(sum, i.to_vec()).maximum(Expr::Constant(0.0, DataType::F32))
    });
    builder.output(y);
    (builder.finish(), vec![numbers(dtype, &a), numbers(dtype, &b)])
}

/// Sums of squares of rows, and how far each is from 100.
fn sums(rows: usize, columns: usize) -> (Program, Vec<Tensor>) {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(DataType::F32, [rows, columns]));
    let shape = TensorType::new(DataType::F32, [rows]);
    let sum = builder.reduce("sum", &shape, &[columns], Combiner::Sum, |i, r| {
        let load = || Expr::Load(x, vec![i[0].clone(), r[0].clone()]);
        load() * load()
    });
    let y = builder
        .map("y", &shape, |i| Expr::Load(sum, i.to_vec()) - Expr::Constant(100.0, DataType::F32));
    builder.output(y);
    (builder.finish(), vec![numbers(DataType::F32, &[rows, columns])])
}

/// Runs a program, which the named template has to take; the scheduled program.
fn check(device: &Device, template: &str, (plain, inputs): (Program, Vec<Tensor>)) -> Program {
    let scheduled = schedule_for_device(plain.clone(), &Limits::PORTABLE).unwrap();
    assert_eq!(scheduled.template, template, "{}", scheduled.schedule.program());
    let bound = scheduled.schedule.into_program();
    let expected = interpret(&plain, &inputs).unwrap();
    assert_eq!(interpret(&bound, &inputs).unwrap(), expected, "lane by lane: {bound}");
    let module = emit(&bound, &OpenClC, &Limits::PORTABLE, "k").unwrap();
    let text = source(&OpenClC, &[&module]);
    let kernels = device.build(&text).unwrap();
    assert_eq!(run(device, &kernels, &bound, &module, &inputs).unwrap(), expected, "{text}");
    bound
}

#[test]
fn products_are_computed_in_tiles() {
    let Some(device) = device_of_tests().unwrap() else { return };
    for sizes in [[1, 64, 64, 32], [1, 128, 64, 48], [3, 32, 96, 24], [1, 16, 48, 8]] {
        check(device, "matmul", product(DataType::F32, sizes));
    }
    check(device, "matmul", product(DataType::F16, [1, 64, 32, 32]));
    check(device, "matmul", product(DataType::BF16, [2, 32, 32, 16]));
    // No whole tiles.
    check(device, "flat", product(DataType::F32, [1, 30, 64, 32]));
}

#[test]
fn long_sums_are_computed_by_a_whole_block() {
    let Some(device) = device_of_tests().unwrap() else { return };
    for (rows, columns) in [(3, 1024), (1, 5000), (40, 777)] {
        let bound = check(device, "sums", sums(rows, columns));
        assert!(bound.to_string().contains("sync block"), "{bound}");
    }
    // Many short ones: a lane for each.
    check(device, "flat", sums(2000, 10));
}

#[test]
fn every_text_of_sixteen_bits_is_converted_exactly() {
    let Some(device) = device_of_tests().unwrap() else { return };
    for dtype in [DataType::F16, DataType::BF16] {
        // All bit patterns, to 32 bits and back, and what lies between two of them.
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let all = Tensor::from_bytes(TensorType::new(dtype, [1 << 16]), bits).unwrap();
        let mut builder = Builder::new();
        let x = builder.input("x", all.tensor_type());
        let wide = TensorType::new(DataType::F32, [1 << 16]);
        let widened = builder.map("wide", &wide, |i| Expr::Load(x, i.to_vec()).cast(DataType::F32));
        let back = builder.map("back", all.tensor_type(), |i| {
            let load = Expr::Load(x, i.to_vec()).cast(DataType::F32);
            (load * Expr::Constant(1.001, DataType::F32)).cast(dtype)
        });
        let double = builder.map("double", all.tensor_type(), |i| {
            let load = Expr::Load(x, i.to_vec()).cast(DataType::F64);
            (load * Expr::Constant(1.0 + 1e-9, DataType::F64)).cast(dtype)
        });
        [widened, back, double].into_iter().for_each(|own| builder.output(own));
        let plain = builder.finish();
        let bound = schedule_for_device(plain.clone(), &Limits::PORTABLE).unwrap().schedule;
        let module = emit(bound.program(), &OpenClC, &Limits::PORTABLE, "k").unwrap();
        let kernels = device.build(&source(&OpenClC, &[&module])).unwrap();
        let inputs = [all];
        let results = run(device, &kernels, bound.program(), &module, &inputs).unwrap();
        let expected = interpret(&plain, &inputs).unwrap();
        for (result, expected) in results.iter().zip(&expected) {
            for (place, (a, b)) in result.to_f64().iter().zip(expected.to_f64()).enumerate() {
                assert!(*a == b || (a.is_nan() && b.is_nan()), "{dtype} {place:#x}: {a}, not {b}");
            }
        }
    }
}
