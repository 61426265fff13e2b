//! What templates for devices make of sizes that use all of a block: products in tiles and sums by a whole
//! block, on an OpenCL device and lane by lane in the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{OpenClC, emit, source};
use hone_device_tests::{product, sixteen_bits, sums};
use hone_opencl_tests::{Device, device_of_tests, run};
use hone_tensor::{Limits, Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor};

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
        let (plain, inputs) = sixteen_bits(dtype);
        let bound = schedule_for_device(plain.clone(), &Limits::PORTABLE).unwrap().schedule;
        let module = emit(bound.program(), &OpenClC, &Limits::PORTABLE, "k").unwrap();
        let kernels = device.build(&source(&OpenClC, &[&module])).unwrap();
        let results = run(device, &kernels, bound.program(), &module, &inputs).unwrap();
        let expected = interpret(&plain, &inputs).unwrap();
        for (result, expected) in results.iter().zip(&expected) {
            for (place, (a, b)) in result.to_f64().iter().zip(expected.to_f64()).enumerate() {
                assert!(*a == b || (a.is_nan() && b.is_nan()), "{dtype} {place:#x}: {a}, not {b}");
            }
        }
    }
}
