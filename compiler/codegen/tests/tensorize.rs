//! Tensorized loops: what the machine code computes is what the nest computes, on machines with the
//! instruction and without it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::{run, run_on};
use hone_codegen::{Target, assembly};
use hone_schedule::Schedule;
use hone_tensor::{Builder, Combiner, Expr, Intrinsic, Program, Scope, interpret};
use hone_types::{DataType, Tensor, TensorType};

const ROWS: usize = 5;
const BLOCKS: usize = 3;
const STEPS: usize = 7;

/// `y[m, j] = sum of a[m, k] * b[j / 16, k / d, j % 16, k % d]` in registers, tensorized.
fn product(intrinsic: Intrinsic, lanes: usize) -> (Program, Program) {
    let run = intrinsic.depth() as usize;
    let ([a_type, b_type], sum) = (intrinsic.factors(), intrinsic.sum());
    let mut builder = Builder::new();
    let a = builder.input("a", &TensorType::new(a_type, [ROWS, STEPS * run]));
    let b = builder.input("b", &TensorType::new(b_type, [BLOCKS, STEPS, lanes, run]));
    let output = TensorType::new(sum, [ROWS, BLOCKS, lanes]);
    let sums = builder.reduce("sums", &output, &[STEPS, run], Combiner::Sum, |point, k| {
        let depth = k[0].clone() * run + k[1].clone();
        let left = Expr::Load(a, vec![point[0].clone(), depth]);
        let right = vec![point[1].clone(), k[0].clone(), point[2].clone(), k[1].clone()];
        left.cast(sum) * Expr::Load(b, right).cast(sum)
    });
    let stored = builder.map("store", &output, |point| Expr::Load(sums, point.to_vec()));
    builder.output(stored);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    let (sums, store) = (schedule.block("sums").unwrap(), schedule.block("store").unwrap());
    let at = schedule.loops(store)[1];
    schedule.compute_at(sums, at).unwrap();
    schedule.set_scope(sums, Scope::Register).unwrap();
    let loops = schedule.loops(sums)[2..].to_vec();
    let (lane, steps, run) =
        (loops[loops.len() - 3], loops[loops.len() - 2], loops[loops.len() - 1]);
    schedule.reorder(&[steps, lane, run]).unwrap();
    let initial = schedule.decompose_reduction(sums, steps).unwrap();
    schedule.tensorize(lane, intrinsic).unwrap();
    schedule.vectorize(*schedule.loops(initial).last().unwrap()).unwrap();
    schedule.vectorize(*schedule.loops(store).last().unwrap()).unwrap();
    (plain, schedule.into_program())
}

fn inputs(program: &Program) -> Vec<Tensor> {
    let parameters = program.parameters();
    let inputs = parameters.iter().map(|id| &program.buffers[*id]).take(parameters.len() - 1);
    inputs
        .enumerate()
        .map(|(index, buffer)| {
            // Whole numbers, so that no order of additions makes a difference; bytes use their range.
            let low = if buffer.dtype == DataType::U8 { 0.0 } else { -100.0 };
            let values = common::random(buffer.elements(), index as u64 + 5);
            let values: Vec<f64> = values
                .iter()
                .map(|value| (f64::from(*value).abs() * 220.0 + low).floor())
                .collect();
            Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values).unwrap()
        })
        .collect()
}

#[test]
fn instructions_compute_what_their_nest_does() {
    for (intrinsic, name) in Intrinsic::ALL {
        for lanes in [4, 8, 12, 16, 24, 32] {
            let (plain, tensorized) = product(intrinsic, lanes);
            let inputs = inputs(&plain);
            let expected = interpret(&plain, &inputs).unwrap();
            assert_eq!(interpret(&tensorized, &inputs).unwrap(), expected, "{name}, {lanes} lanes");
            let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
            let actual = run(&tensorized, &bytes);
            assert_eq!(expected[0].bytes(), actual[0], "{name}, {lanes} lanes");
        }
    }
}

#[test]
fn only_machines_that_have_it_get_the_instruction() {
    let cases = [
        (Intrinsic::DotBf16, "vdpbf16ps", "sapphirerapids", "icelake-server"),
        (Intrinsic::DotU8I8, "vpdpbusd", "icelake-server", "skylake-avx512"),
    ];
    for (intrinsic, instruction, with, without) in cases {
        let (_, program) = product(intrinsic, 16);
        // AVX-VNNI takes half of the lanes at a time.
        let halves = if intrinsic == Intrinsic::DotU8I8 { 2 } else { 0 };
        for (cpu, expected) in [(with, 1), (without, 0), ("haswell", 0), ("alderlake", halves)] {
            let target = Target::new("x86_64-unknown-linux-gnu", cpu, vec![]).unwrap();
            let text = assembly(&program, &target).unwrap();
            let count = text.lines().filter(|line| line.contains(instruction)).count();
            assert_eq!(count, expected, "{cpu}:\n{text}");
        }
    }
}

/// This machine without AVX-512, where it has the instruction of AVX-VNNI.
#[test]
fn bytes_are_multiplied_with_avx_vnni() {
    let host = Target::host().unwrap();
    let off = vec!["-avx512f".to_string(), "-evex512".to_string()];
    let features = [host.features.clone(), off].concat();
    let target = match Target::new(&host.triple, &host.cpu, features) {
        Ok(target) if target.has_intrinsic(Intrinsic::DotU8I8) => target,
        _ => return eprintln!("SKIPPED: this machine has no AVX-VNNI"),
    };
    assert_eq!(target.vector_bytes, 32);
    for lanes in [4, 8, 12, 16] {
        let (plain, tensorized) = product(Intrinsic::DotU8I8, lanes);
        let text = assembly(&tensorized, &target).unwrap();
        assert!(text.contains("vpdpbusd") && !text.contains("zmm"), "{lanes} lanes:\n{text}");
        let inputs = inputs(&plain);
        let expected = interpret(&plain, &inputs).unwrap();
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
        let actual = run_on(&tensorized, &bytes, &target);
        assert_eq!(expected[0].bytes(), actual[0], "{lanes} lanes");
    }
}
