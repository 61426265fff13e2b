//! WGSL of bound programs, word for word, and what has none.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{EmitError, Wgsl, emit, source};
use hone_tensor::{Builder, Expr, Limits, Program, UnaryOp, parse};
use hone_types::{DataType, TensorType};
use std::path::Path;

/// A program that the verifier's cases have.
fn case(name: &str) -> Program {
    let path = format!("../../tests/programs/{name}.txt");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    parse(text.split_once("--- ").unwrap().0).unwrap()
}

fn text(program: &Program) -> String {
    let module = emit(program, &Wgsl::default(), &Limits::PORTABLE, "k").unwrap();
    source(&Wgsl::default(), &[&module])
}

#[test]
fn first_lane_waits_for_the_others_and_works_alone() {
    let expected = "\
@group(0) @binding(0) var<storage, read_write> k_0_b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> k_0_b2: array<f32>;
var<workgroup> k_0_b1: array<f32, 16>;
@compute @workgroup_size(16, 1, 1)
fn k_0(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let v4 = i32(block.x);
  {
    let v5 = i32(lane.x);
    let t0 = k_0_b0[((v4 * 16i) + v5)];
    k_0_b1[v5] = (t0 * t0);
  }
  workgroupBarrier(); storageBarrier();
  if (i32(lane.x) == 0) {
    for (var v6 = 0i; v6 < 16i; v6++) {
      if ((v6 == 0i)) { k_0_b2[v4] = 0.0f; }
      k_0_b2[v4] = (k_0_b2[v4] + k_0_b1[v6]);
    }
  }
}

";
    assert_eq!(
        text(&case("first_lane_alone")).replace("((v6 == 0i))", "(v6 == 0i)"),
        expected.replace("((v6 == 0i))", "(v6 == 0i)")
    );
}

#[test]
fn counters_of_the_host_are_uniform() {
    let text = text(&case("bound_grid_around_blocks"));
    assert!(text.contains("var<uniform> k_0_v3: i32;"), "{text}");
    assert!(text.contains("let v3 = k_0_v3;"), "{text}");
}

/// `y[i] = value(x[i])`
fn mapped(from: DataType, to: DataType, value: impl Fn(Expr, &Expr) -> Expr) -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(from, [4]));
    let y =
        builder.map("y", &TensorType::new(to, [4]), |i| value(Expr::Load(x, i.to_vec()), &i[0]));
    builder.output(y);
    builder.finish()
}

#[test]
fn lanes_store_their_bytes_and_leave_their_neighbours_alone() {
    let text = text(&mapped(DataType::U8, DataType::U8, |x, _| x.clone() + x));
    assert!(
        text.contains("k_0_b0: array<u32>") && text.contains("k_0_b1: array<atomic<u32>>"),
        "{text}"
    );
    assert!(text.contains("hone_load_u8(k_0_b0[v1 >> 2u], v1)"), "{text}");
    assert!(
        text.contains("atomicAnd(&k_0_b1[hone_index >> 2u], ~(0xffu << hone_shift));"),
        "{text}"
    );
    assert!(
        text.contains("atomicOr(&k_0_b1[hone_index >> 2u], hone_bits << hone_shift);"),
        "{text}"
    );
}

#[test]
fn indices_are_of_32_bits_until_they_meet_values_of_64() {
    let text = text(&mapped(DataType::I64, DataType::I64, |x, i| x + (i.clone() * 3i64 + 1i64)));
    assert!(text.contains("hone_add_64(k_0_b0[v1], hone_64_of_i32(((v1 * 3i) + 1i)))"), "{text}");
    assert!(text.contains("fn hone_add_64(") && !text.contains("fn hone_multiply_64("), "{text}");
}

#[test]
fn what_is_computed_twice_is_written_once() {
    let text = text(&mapped(DataType::F64, DataType::F64, |x, _| {
        let square = x.clone() * x;
        square.clone() / (square.clone() + square)
    }));
    assert!(text.contains("let t0 = k_0_b0[v1];\n"), "{text}");
    assert!(text.contains("let t1 = hone_multiply_f64(t0, t0);\n"), "{text}");
    assert!(text.contains("= hone_divide_f64(t1, hone_add_f64(t1, t1));"), "{text}");
}

#[test]
fn what_is_no_finite_number_is_made_of_bits() {
    let text = text(&mapped(DataType::F32, DataType::F32, |x, _| {
        x.maximum(Expr::Constant(f64::NEG_INFINITY, DataType::F32))
    }));
    assert!(text.contains("hone_maximum(k_0_b0[v1], hone_f32(0xff800000u))"), "{text}");
    assert!(text.contains("fn hone_is_nan("), "a helper of a helper is missing: {text}");
}

#[test]
fn no_operation_is_left_to_the_compilers_constants() {
    let one = || Expr::Constant(1.0, DataType::F32);
    let text = text(&mapped(DataType::F32, DataType::F32, |x, _| {
        x + one() / Expr::Constant(0.0, DataType::F32)
    }));
    assert!(text.contains("(hone_runtime_f32(1.0f) / 0.0f)"), "{text}");
}

fn refusal(program: &Program, dialect: Wgsl) -> String {
    emit(program, &dialect, &Limits::PORTABLE, "k").unwrap_err().to_string()
}

#[test]
fn functions_of_doubles_have_no_text() {
    let program = mapped(DataType::F64, DataType::F64, |x, _| x.unary(UnaryOp::Exp));
    assert_eq!(refusal(&program, Wgsl::default()), "block 'y': Exp of f64 has no form in WGSL");
}

#[test]
fn kernels_have_no_more_buffers_than_the_device() {
    let mut builder = Builder::new();
    let given = TensorType::new(DataType::F32, [4]);
    let inputs: Vec<_> = (0..8).map(|i| builder.input(&format!("x{i}"), &given)).collect();
    let y = builder.map("y", &given, |i| {
        let loads = inputs.iter().map(|input| Expr::Load(*input, i.to_vec()));
        loads.reduce(|a, b| a + b).unwrap()
    });
    builder.output(y);
    let program = builder.finish();
    let message = refusal(&program, Wgsl::default());
    assert_eq!(message, "kernel 'k_0' has 9 buffers in global memory; WGSL has 8");
    assert!(emit(&program, &Wgsl { storage_buffers: 9 }, &Limits::PORTABLE, "k").is_ok());
}

#[test]
fn what_32_bits_cannot_count_is_refused() {
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(DataType::F32, [1 << 16, 1 << 16]));
    let y = builder.map("y", &TensorType::new(DataType::F32, [1]), |i| {
        Expr::Load(x, vec![i[0].clone(), i[0].clone()])
    });
    builder.output(y);
    let error = emit(&builder.finish(), &Wgsl::default(), &Limits::PORTABLE, "k").unwrap_err();
    assert!(matches!(error, EmitError::Index { .. }), "{error}");
    assert_eq!(error.to_string(), "'x' is too large to be counted in i32, as WGSL does");
}
