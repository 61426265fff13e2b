//! The text of a bound program, word for word, and what has none.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen_text::{Argument, EmitError, OpenClC, Step, emit, source};
use hone_tensor::{Limits, Program, parse};
use hone_types::Id;
use std::path::Path;

fn program(text: &str) -> Program {
    parse(text).unwrap()
}

/// A program that the verifier's cases have.
fn case(name: &str) -> Program {
    let path = format!("../../tests/programs/{name}.txt");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    program(text.split_once("--- ").unwrap().0)
}

fn refusal(program: &Program) -> EmitError {
    emit(program, &OpenClC, &Limits::PORTABLE, "k").unwrap_err()
}

#[test]
fn first_lane_waits_for_the_others_and_works_alone() {
    let module = emit(&case("first_lane_alone"), &OpenClC, &Limits::PORTABLE, "k").unwrap();
    let expected = "\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void k_0(__global const float* restrict b0, __global float* restrict b2) {
  __local float b1[16];
  const long v4 = (long)get_group_id(0);
  {
    const long v5 = (long)get_local_id(0);
    const float t0 = b0[((v4 * 16L) + v5)];
    b1[v5] = (t0 * t0);
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    for (long v6 = 0; v6 < 16L; ++v6) {
      if (v6 == 0L) b2[v4] = 0.0f;
      b2[v4] = (b2[v4] + b1[v6]);
    }
  }
}

";
    let text = source(&OpenClC, &[&module]);
    assert_eq!(text.replace("((uchar)(v6 == 0L))", "v6 == 0L"), expected);
    let kernels = module.kernels();
    assert_eq!((kernels[0].groups, kernels[0].items), ([2, 1, 1], [16, 1, 1]));
    assert_eq!(kernels[0].arguments.len(), 2);
}

#[test]
fn loops_over_the_grid_become_counters_of_the_host() {
    let module = emit(&case("bound_grid_around_blocks"), &OpenClC, &Limits::PORTABLE, "k").unwrap();
    let [Step::Repeat { counter, times: 2, body }] = &module.steps[..] else {
        panic!("{:?}", module.steps)
    };
    let [Step::Launch(kernel)] = &body[..] else { panic!("{body:?}") };
    assert_eq!(counter.index(), 3);
    assert!(kernel.arguments.contains(&Argument::Counter(*counter)));
    assert!(module.text.contains("const long v3)"), "{}", module.text);
}

#[test]
fn lanes_beyond_a_loop_are_idle() {
    let module = emit(&case("sync_between_loops_over_lanes"), &OpenClC, &Limits::PORTABLE, "k");
    assert!(module.unwrap().text.contains("if (get_local_id(0) < 8L) {"));
}

#[test]
fn what_the_verifier_refuses_has_no_text() {
    for name in ["shared_without_a_sync", "sync_on_some_of_the_lanes", "lanes_beyond_the_device"] {
        assert!(matches!(refusal(&case(name)), EmitError::Verify(_)), "{name}");
    }
}

#[test]
fn vectors_and_threads_have_no_text() {
    for kind in ["parallel", "vectorized"] {
        let text = format!(
            "output 0 b0 \"y\": f32[4]\n\nfor v1 \"i\" in 0..4 {kind} {{\n  block0 \"y\" (v0 \"i0\" < 4 = v1) \
             {{\n    b0[v0] = 1.0:f32\n  }}\n}}\n"
        );
        let message = refusal(&program(&text)).to_string();
        let expected = format!(
            "loop 'i' is {kind}: a text for devices has serial, unrolled and bound loops only"
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn operations_without_a_form_are_named() {
    let text = "input 0 b0 \"x\": i32[4]\noutput 1 b1 \"y\": i32[4]\n\nfor v1 \"i\" in 0..4 {\n  block0 \"y\" \
                (v0 \"i0\" < 4 = v1) {\n    b1[v0] = exp(b0[v0])\n  }\n}\n";
    let message = refusal(&program(text)).to_string();
    assert_eq!(message, "block 'y': Exp of i32 has no form in OpenCL C");
}

/// `y[i] = i < 3 ? x[i + 1] * x[i + 1] : 0`, and more of the same elements with `everywhere`.
fn guarded_reads(everywhere: bool) -> String {
    let more = if everywhere { "b0[v0 + 1] + " } else { "" };
    let text = format!(
        "input 0 b0 \"x\": f32[5]\noutput 1 b1 \"y\": f32[4]\n\nfor v1 \"i\" in 0..4 {{\n  block0 \"y\" \
         (v0 \"i0\" < 4 = v1) {{\n    b1[v0] = {more}select(v0 < 3, b0[v0 + 1] * b0[v0 + 1], 0.0:f32)\n  }}\n}}\n"
    );
    emit(&program(&text), &OpenClC, &Limits::PORTABLE, "k").unwrap().text
}

#[test]
fn what_a_condition_guards_is_read_behind_it_alone() {
    let text = guarded_reads(false);
    assert!(text.contains("const long t0 = (v1 + 1L);"), "{text}");
    assert!(text.contains("? (b0[t0] * b0[t0]) : 0.0f)"), "{text}");
    let text = guarded_reads(true);
    assert!(text.contains("const float t0 = b0[(v1 + 1L)];"), "{text}");
    assert!(text.contains("? (t0 * t0) : 0.0f)"), "{text}");
}
