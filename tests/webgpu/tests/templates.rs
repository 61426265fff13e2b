//! What templates for devices make of sizes that use all of a block: products in tiles and sums by a whole block, as
//! WGSL; and every bit pattern of 16 bits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{Wgsl, emit, source};
use hone_device_tests::{product, sixteen_bits, sums};
use hone_tensor::{Limits, Program, interpret};
use hone_tune::schedule_for_device;
use hone_types::{DataType, Tensor};
use hone_webgpu_tests::{device_of_tests, run, validate};

/// What a program computes on the device, which the named template has to take; its text is validated, and where there
/// is no device the outputs are the interpreter's.
fn outputs(template: &str, plain: &Program, inputs: &[Tensor]) -> (String, Vec<Tensor>) {
    let scheduled = schedule_for_device(plain.clone(), &Limits::PORTABLE).unwrap();
    assert_eq!(scheduled.template, template, "{}", scheduled.schedule.program());
    let bound = scheduled.schedule.into_program();
    let module = emit(&bound, &Wgsl::default(), &Limits::PORTABLE, "k").unwrap();
    let text = source(&Wgsl::default(), &[&module]);
    validate(&text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    let Some(device) = device_of_tests().unwrap() else {
        let interpreted = interpret(plain, inputs).unwrap();
        return (text, interpreted);
    };
    let kernels = device.build(&text, &module.kernels()).unwrap();
    let outputs = run(device, &kernels, &bound, &module, inputs).unwrap();
    (text, outputs)
}

fn check(template: &str, (plain, inputs): (Program, Vec<Tensor>)) -> String {
    let (text, outputs) = outputs(template, &plain, &inputs);
    assert_eq!(outputs, interpret(&plain, &inputs).unwrap(), "{text}");
    text
}

#[test]
fn products_are_computed_in_tiles() {
    for sizes in [[1, 64, 64, 32], [1, 128, 64, 48], [3, 32, 96, 24], [1, 16, 48, 8]] {
        let text = check("matmul", product(DataType::F32, sizes));
        assert!(text.contains("var<workgroup>") && text.contains("workgroupBarrier();"), "{text}");
    }
    check("matmul", product(DataType::F16, [1, 64, 32, 32]));
    check("matmul", product(DataType::BF16, [2, 32, 32, 16]));
    // No whole tiles.
    check("flat", product(DataType::F32, [1, 30, 64, 32]));
}

#[test]
fn long_sums_are_computed_by_a_whole_block() {
    for (rows, columns) in [(3, 1024), (1, 5000), (40, 777)] {
        check("sums", sums(rows, columns));
    }
    // Many short ones: a lane for each.
    check("flat", sums(2000, 10));
}

#[test]
fn every_text_of_sixteen_bits_is_converted_exactly() {
    for dtype in [DataType::F16, DataType::BF16] {
        let (plain, inputs) = sixteen_bits(dtype);
        let (_, outputs) = outputs("flat", &plain, &inputs);
        let expected = interpret(&plain, &inputs).unwrap();
        for (result, expected) in outputs.iter().zip(&expected) {
            for (index, (a, b)) in result.to_f64().iter().zip(expected.to_f64()).enumerate() {
                assert!(*a == b || (a.is_nan() && b.is_nan()), "{dtype} {index:#x}: {a}, not {b}");
            }
        }
    }
}
