//! What the machine code of a register-tiled product looks like.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(target_arch = "x86_64")]

mod support {
    pub mod gemm;
}
use hone_codegen::{Target, assembly};
use support::gemm::{Sizes, scheduled};

/// The instructions of the innermost loop: between the last label before the multiply-adds and the
/// jump back to it.
fn inner_loop(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut best: Vec<String> = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with(".L")) else {
            continue;
        };
        let rest = &lines[place + 1..];
        let Some(end) = rest
            .iter()
            .position(|own| own.starts_with('j') && own.split_whitespace().nth(1) == Some(label))
        else {
            continue;
        };
        let body = &rest[..=end];
        if body.iter().any(|own| own.ends_with(':')) {
            continue;
        }
        let count = |lines: &[String]| lines.iter().filter(|own| own.starts_with("vfmadd")).count();
        let body: Vec<String> = body.iter().map(|own| own.to_string()).collect();
        if count(&body) > count(&best) {
            best = body;
        }
    }
    best
}

#[test]
fn the_inner_loop_is_ideal() {
    let target = Target::new("x86_64-unknown-linux-gnu", "skylake-avx512", vec![]).unwrap();
    // Unrolled further, LLVM moves loads of the next step up and spills one or two of the largest
    // tiles' accumulators.
    for (rows, vectors, unroll) in
        [(14, 2, 1), (14, 2, 4), (12, 2, 4), (9, 3, 1), (8, 3, 2), (6, 4, 4), (5, 5, 1), (28, 1, 1)]
    {
        let sizes =
            Sizes { m: rows * 5, n: 16 * vectors * 3, k: 256, rows, lanes: 16, vectors, unroll };
        let text = assembly(&scheduled(sizes), &target).unwrap();
        let body = inner_loop(&text);
        let count = |start: &str| body.iter().filter(|own| own.starts_with(start)).count();
        let stack =
            body.iter().filter(|own| own.contains("(%rsp") || own.contains("(%rbp")).count();
        let listing = body.join("\n");
        assert_eq!(count("vfmadd"), rows * vectors * unroll, "{listing}");
        assert_eq!(stack, 0, "spills in the loop:\n{listing}");
        assert!(
            body.len() <= (rows * vectors + rows + vectors) * unroll + 6,
            "{}\n{listing}",
            body.len()
        );
    }
}
