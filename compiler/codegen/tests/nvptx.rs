//! PTX of bound programs: its form, and what has none. What it computes is tested in `tests/ptx`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen::CodegenError;
use hone_codegen::nvptx::{Architecture, Module, ProductOptions, emit, product, source};
use hone_tensor::{Argument, Program, Step, parse};
use std::path::Path;

/// A program that the verifier's cases have.
fn case(name: &str) -> Program {
    let path = format!("../../tests/programs/{name}.txt");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    parse(text.split_once("--- ").unwrap().0).unwrap()
}

fn text_of(program: &Program, architecture: Architecture) -> Result<Module, CodegenError> {
    emit(program, architecture, &architecture.limits(), "k")
}

#[test]
fn kernels_say_for_what_they_are() {
    let program = case("first_lane_alone");
    for architecture in Architecture::ALL {
        let module = text_of(&program, architecture).unwrap();
        let text = &module.text;
        assert!(text.contains(&format!(".target {architecture}")), "{text}");
        assert!(text.contains(".entry k_0("), "{text}");
        assert!(text.contains(".reqntid 16, 1, 1"), "{text}");
        assert!(text.contains("ld.global.nc.f32") && text.contains("bar.sync"), "{text}");
        assert!(!text.contains("call"), "{text}");
        let [Step::Launch(kernel)] = &module.steps[..] else { panic!("{:?}", module.steps) };
        assert_eq!((kernel.groups, kernel.items, kernel.shared_bytes), ([2, 1, 1], [16, 1, 1], 64));
    }
}

#[test]
fn equal_programs_give_equal_texts() {
    let program = case("first_lane_alone");
    let text = || text_of(&program, Architecture::Sm80).unwrap().text;
    assert_eq!(text(), text());
}

#[test]
fn loops_over_the_grid_become_parameters() {
    let module = text_of(&case("bound_grid_around_blocks"), Architecture::Sm80).unwrap();
    let [Step::Repeat { counter, times: 2, body }] = &module.steps[..] else {
        panic!("{:?}", module.steps)
    };
    let [Step::Launch(kernel)] = &body[..] else { panic!("{body:?}") };
    assert!(kernel.arguments.contains(&Argument::Counter(*counter)));
}

#[test]
fn texts_of_one_architecture_become_one() {
    let text = |stem| {
        let program = case("first_lane_alone");
        emit(&program, Architecture::Sm80, &Architecture::Sm80.limits(), stem).unwrap().text
    };
    let all = source(&[&text("a"), &text("b")]);
    assert_eq!(all.matches(".version").count(), 1);
    assert!(all.contains(".entry a_0(") && all.contains(".entry b_0("));
}

#[test]
fn what_the_verifier_refuses_has_no_text() {
    for name in ["shared_without_a_sync", "sync_on_some_of_the_lanes"] {
        let refused = text_of(&case(name), Architecture::Sm80).unwrap_err();
        assert!(matches!(refused, CodegenError::Verify(_)), "{name}: {refused}");
    }
}

#[test]
fn vectors_and_threads_have_no_text() {
    for kind in ["parallel", "vectorized"] {
        let text = format!(
            "output 0 b0 \"y\": f32[4]\n\nfor v1 \"i\" in 0..4 {kind} {{\n  block0 \"y\" (v0 \"i0\" < 4 = v1) \
             {{\n    b0[v0] = 1.0:f32\n  }}\n}}\n"
        );
        let message = text_of(&parse(&text).unwrap(), Architecture::Sm80).unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "kernel 'k_0': loop 'i' is {kind}: code for devices has serial, unrolled and bound loops only"
            )
        );
    }
}

#[test]
fn functions_of_floats_are_refused_for_integers() {
    let text = "input 0 b0 \"x\": i32[4]\noutput 1 b1 \"y\": i32[4]\n\nfor v1 \"i\" in 0..4 {\n  block0 \"y\" \
                (v0 \"i0\" < 4 = v1) {\n    b1[v0] = exp(b0[v0])\n  }\n}\n";
    let message = text_of(&parse(text).unwrap(), Architecture::Sm80).unwrap_err().to_string();
    assert_eq!(message, "kernel 'k_0': Exp of i32 values: cast first");
}

#[test]
fn what_is_no_product_is_left_to_others() {
    let options = ProductOptions::default();
    let module = product(&case("first_lane_alone"), Architecture::Sm80, &options, "k").unwrap();
    assert!(module.is_none());
}

#[test]
fn unknown_architectures_are_refused_with_the_known_ones() {
    assert_eq!(Architecture::named("sm_90a").unwrap(), Architecture::Sm90a);
    let message = Architecture::named("sm_99").unwrap_err().to_string();
    let expected = "target 'sm_99' is not available: known architectures of NVIDIA's are sm_75, sm_80, sm_86, sm_89, \
                    sm_90a";
    assert_eq!(message, expected);
}
