//! Tensorized loops: what the machine code computes is what the nest computes, on machines with the
//! instruction and without it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::run_on;
use hone_codegen::{Target, assembly};
use hone_schedule::Schedule;
use hone_tensor::{BinaryOp, Builder, Combiner, Expr, Intrinsic, Program, Scope, interpret};
use hone_types::{DataType, Tensor, TensorType};

const ROWS: usize = 5;
const BLOCKS: usize = 3;
const STEPS: usize = 7;

/// `y[m, j] = sum of a[m, k] * b[j / 16, k / d, j % 16, k % d]` in registers, tensorized. The intrinsic's first
/// operand is the one that all lanes read, or the second where `swapped`. Where `b` holds two numbers in a byte, the
/// second is that of `a` behind the run of the first ones.
fn product(intrinsic: Intrinsic, lanes: usize, swapped: bool) -> (Program, Program) {
    let run = intrinsic.depth() as usize;
    let sum = intrinsic.result();
    let ([a_type, b_type], parts) = match *intrinsic.operands() {
        [first, second] => (if swapped { [second, first] } else { [first, second] }, 1),
        [first, _, bits] => ([first, bits], 2),
        _ => panic!("{intrinsic:?} is no product"),
    };
    let mut builder = Builder::new();
    let a = builder.input("a", &TensorType::new(a_type, [ROWS, STEPS * parts * run]));
    let b = builder.input("b", &TensorType::new(b_type, [BLOCKS, STEPS, lanes, run]));
    let output = TensorType::new(sum, [ROWS, BLOCKS, lanes]);
    let sums = builder.reduce("sums", &output, &[STEPS, run], Combiner::Sum, |point, k| {
        let depth = k[0].clone() * (parts * run) + k[1].clone();
        let left = |depth: Expr| Expr::Load(a, vec![point[0].clone(), depth]).cast(sum);
        let right = vec![point[1].clone(), k[0].clone(), point[2].clone(), k[1].clone()];
        let right = Expr::Load(b, right);
        if parts == 1 {
            return left(depth) * right.cast(sum);
        }
        let number = |op: BinaryOp, by: f64| right.clone().binary(op, Expr::Constant(by, b_type));
        left(depth.clone()) * number(BinaryOp::And, 15.0).cast(sum)
            + left(depth + run) * number(BinaryOp::ShiftRight, 4.0).cast(sum)
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

/// Compares interpreter and machine code for `target`, which must be of this machine.
fn check(intrinsic: Intrinsic, target: &Target) {
    for (lanes, swapped) in [4, 8, 12, 16, 24, 32].into_iter().flat_map(|n| [(n, false), (n, true)])
    {
        let (plain, tensorized) = product(intrinsic, lanes, swapped);
        let inputs = inputs(&plain);
        let expected = interpret(&plain, &inputs).unwrap();
        assert_eq!(interpret(&tensorized, &inputs).unwrap(), expected, "{intrinsic:?}, {lanes}");
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
        let actual = run_on(&tensorized, &bytes, target);
        assert_eq!(expected[0].bytes(), actual[0], "{intrinsic:?} on {}, {lanes}", target.cpu);
    }
}

#[test]
fn instructions_compute_what_their_nest_does() {
    for intrinsic in Intrinsic::ALL.into_iter().filter(|intrinsic| !intrinsic.is_of_tiles()) {
        check(intrinsic, &Target::host().unwrap());
    }
}

/// This machine as if it had fewer instructions: what stands in for them computes the same.
#[test]
fn narrower_instructions_compute_the_same() {
    let host = Target::host().unwrap();
    if !host.triple.starts_with("x86_64") {
        return eprintln!("SKIPPED: this machine is no x86-64");
    }
    let target = |cpu| Target::new(&host.triple, cpu, vec![]).unwrap();
    let has = |feature: &str| host.resolved.contains(&feature.to_string());
    let mut targets = vec![target("x86-64")];
    if has("+avx2") && has("+fma") {
        targets.push(target("x86-64-v3"));
    }
    if has("+avx512bw") {
        targets.push(target("skylake-avx512"));
    }
    for target in targets {
        assert_eq!(target.instruction(Intrinsic::DOT_U8_I8), Some("pmaddwd"), "{}", target.cpu);
        check(Intrinsic::DOT_U8_I8, &target);
        check(Intrinsic::DOT_I16, &target);
        check(Intrinsic::DOT_I8_U4, &target);
    }
}

#[test]
fn every_machine_gets_its_best_instruction() {
    let (bytes, bf16) = (Intrinsic::DOT_U8_I8, Intrinsic::DOT_BF16);
    let (halves, bits) = (Intrinsic::DOT_I16, Intrinsic::DOT_I8_U4);
    let (x86, arm) = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu");
    // For 16 lanes, how often a line of the assembly has the instruction.
    let cases = [
        (x86, "sapphirerapids", bf16, Some(("vdpbf16ps", 1))),
        (x86, "icelake-server", bf16, None),
        (x86, "icelake-server", bytes, Some(("vpdpbusd", 1))),
        // AVX-VNNI takes half of the lanes at a time.
        (x86, "alderlake", bytes, Some(("vpdpbusd", 2))),
        (x86, "skylake-avx512", bytes, Some(("pmaddwd", 2))),
        (x86, "haswell", bytes, Some(("pmaddwd", 4))),
        (x86, "x86-64", bytes, Some(("pmaddwd", 8))),
        (x86, "skylake-avx512", halves, Some(("pmaddwd", 1))),
        (x86, "haswell", halves, Some(("pmaddwd", 2))),
        (x86, "x86-64", halves, Some(("pmaddwd", 4))),
        (arm, "neoverse-v1", halves, None),
        (arm, "neoverse-v1", bytes, Some(("usdot", 4))),
        // The correction takes two more for each vector of the signed operand.
        (arm, "neoverse-n1", bytes, Some(("sdot", 12))),
        (arm, "cortex-a72", bytes, None),
        (arm, "neoverse-v1", bf16, Some(("bfdot", 4))),
        (arm, "neoverse-n1", bf16, None),
        (x86, "icelake-server", bits, Some(("vpdpbusd", 2))),
        (x86, "alderlake", bits, Some(("vpdpbusd", 4))),
        (x86, "skylake-avx512", bits, Some(("pmaddubsw", 2))),
        (x86, "haswell", bits, Some(("pmaddubsw", 4))),
        (x86, "x86-64", bits, None),
        (arm, "neoverse-n1", bits, Some(("sdot", 8))),
        (arm, "cortex-a72", bits, None),
    ];
    for (triple, cpu, intrinsic, expected) in cases {
        let target = Target::new(triple, cpu, vec![]).unwrap();
        assert_eq!(target.instruction(intrinsic), expected.map(|(name, _)| name), "{cpu}");
        let (_, program) = product(intrinsic, 16, false);
        let text = assembly(&program, &target).unwrap();
        let count = |name: &str| text.lines().filter(|line| line.contains(name)).count();
        if let Some((name, expected)) = expected {
            assert_eq!(count(name), expected, "{cpu}:\n{text}");
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
        Ok(target) if target.instruction(Intrinsic::DOT_U8_I8) == Some("vpdpbusd") => target,
        _ => return eprintln!("SKIPPED: this machine has no AVX-VNNI"),
    };
    assert_eq!(target.vector_bytes, 32);
    let (_, tensorized) = product(Intrinsic::DOT_U8_I8, 16, false);
    let text = assembly(&tensorized, &target).unwrap();
    assert!(text.contains("vpdpbusd") && !text.contains("zmm"), "{text}");
    check(Intrinsic::DOT_U8_I8, &target);
}
