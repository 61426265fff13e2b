//! Code for other processors: emitted and linked here, run by an emulator where there is one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/gemm.rs"]
mod gemm;

use gemm::{Sizes, scheduled};
use hone_codegen::{Options, Target, Unit, assembly, compile, disassemble, link};
use hone_tensor::{Builder, Combiner, Expr, LoopKind, Program, Statement, UnaryOp};
use hone_types::{DataType, TensorType};
use std::process::Command;

/// Rows of x times a weight, through a function: 8 results, in lanes, masked parts included.
fn program() -> Program {
    let float = |shape: &[usize]| TensorType::new(DataType::F32, shape);
    let mut builder = Builder::new();
    let x = builder.input("x", &float(&[4, 7]));
    let w = builder.input("w", &float(&[4]));
    let sum = builder.reduce("sum", &float(&[7]), &[4], Combiner::Sum, |i, r| {
        Expr::Load(x, vec![r[0].clone(), i[0].clone()]) * Expr::Load(w, vec![r[0].clone()])
    });
    let y = builder.map("y", &float(&[7]), |i| Expr::Load(sum, i.to_vec()).unary(UnaryOp::Tanh));
    builder.output(y);
    let mut program = builder.finish();
    for statement in &mut program.body {
        if let Statement::Loop(loop_) = statement {
            loop_.kind = LoopKind::Vectorized;
        }
    }
    program
}

fn shared_object(target: &Target) -> Vec<u8> {
    let program = program();
    let unit = Unit { symbol: "kernel", program: &program };
    let objects = compile(&[unit], target, &Options::default()).unwrap();
    assert_eq!(objects[0].kernels.len(), 2);
    link(&objects, target).unwrap()
}

#[test]
fn every_architecture_links() {
    // The machine numbers of the file format.
    for (arch, cpu, machine) in [
        ("amd64", "", 62),
        ("amd64", "x86-64-v4", 62),
        ("amd64", "x86-64", 62),
        ("arm64", "", 183),
        ("arm64", "cortex-a72", 183),
        ("riscv64", "", 243),
    ] {
        let target = Target::for_platform("linux", arch, cpu).unwrap();
        let bytes = shared_object(&target);
        assert_eq!(&bytes[..4], b"\x7fELF");
        assert_eq!(u16::from_le_bytes([bytes[18], bytes[19]]), machine, "{arch}");
        assert_eq!(bytes, shared_object(&target), "{arch}: equal input, equal bytes");
        let text = disassemble(&bytes, &target, "kernel_1").unwrap().unwrap();
        assert!(text.contains("ret") && !text.contains('?'), "{arch}: {text}");
        assert!(text.lines().count() > 10, "{arch}: the body is missing: {text}");
        assert!(disassemble(&bytes, &target, "nothing").unwrap().is_none());
    }
}

#[test]
fn unknown_platforms_are_refused() {
    let error = Target::for_platform("linux", "vax", "").unwrap_err();
    assert!(error.to_string().contains("amd64, arm64, riscv64"), "{error}");
    assert!(Target::for_platform("plan9", "amd64", "").is_err());
}

/// A register tile of 6 × 4 vectors: of the 32 registers 24 hold sums, 4 a row of the right operand and
/// up to 2 the lanes of the left one.
#[test]
fn arm_multiplies_by_lane_without_spilling() {
    let target = Target::for_platform("linux", "arm64", "neoverse-n1").unwrap();
    let (rows, vectors, unroll) = (6, 4, 4);
    let sizes = Sizes { m: rows * 5, n: 4 * vectors * 3, k: 256, rows, lanes: 4, vectors, unroll };
    let text = assembly(&scheduled(sizes), &target).unwrap();
    let products: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.starts_with("fmla")).collect();
    assert_eq!(products.len(), rows * vectors * unroll, "{text}");
    let by_lane = |line: &&&str| line.rsplit(',').next().is_some_and(|last| last.contains(".s["));
    let by_lanes = products.iter().filter(by_lane).count();
    // LLVM may load one of the rows with a separate broadcast instead.
    assert!(by_lanes * 10 >= products.len() * 9, "{by_lanes} of {}:\n{text}", products.len());
    let first = text.find("fmla").unwrap_or_default();
    let last = text.rfind("fmla").unwrap_or_default();
    let spills: Vec<&str> = text[first..last].lines().filter(|line| line.contains("[sp")).collect();
    assert!(spills.is_empty(), "spills between the products: {spills:?}\n{text}");
}

/// Runs the arm64 object through the C compiler for it and the emulator. Without them the test is left
/// out, but fails where they are required.
#[test]
fn arm_code_runs_under_the_emulator() {
    let compiler = "aarch64-linux-gnu-gcc";
    let present = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !present(compiler) || !present("qemu-aarch64") {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HONE_EMULATORS").is_ok_and(|value| value == "required");
        assert!(
            !required,
            "{compiler} or qemu-aarch64 is not installed: run cargo xtask setup --tests"
        );
        return eprintln!("SKIPPED: {compiler} or qemu-aarch64 is not installed");
    }
    let target = Target::for_platform("linux", "arm64", "").unwrap();
    let program = program();
    let unit = Unit { symbol: "kernel", program: &program };
    let objects = compile(&[unit], &target, &Options::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("kernel.o"), &objects[0].bytes).unwrap();
    let source = r#"
        #include <stdint.h>
        #include <stdio.h>
        void kernel_0(void *const *, int64_t, int64_t, void *);
        void kernel_1(void *const *, int64_t, int64_t, void *);
        static _Alignas(64) float x[28], w[4] = {0.5f, -0.25f, 1.0f, 0.125f}, y[7], sum[7];
        int main(void) {
            for (int i = 0; i < 28; ++i) x[i] = (float)(i % 5) * 0.25f - 0.5f;
            void *table[] = {x, w, y, sum};
            kernel_0(table, 0, 1, 0);
            kernel_1(table, 0, 1, 0);
            for (int i = 0; i < 7; ++i) printf("%.9g\n", y[i]);
        }
    "#;
    std::fs::write(path("main.c"), source).unwrap();
    let built = Command::new(compiler)
        .args(["-static", "-O1", "-o"])
        .args([path("main"), path("main.c"), path("kernel.o")])
        .status()
        .unwrap();
    assert!(built.success());
    let run = Command::new("qemu-aarch64").arg(path("main")).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stdout).unwrap();
    let actual: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let x = |i: usize| f64::from((i % 5) as u8) * 0.25 - 0.5;
    let weights = [0.5, -0.25, 1.0, 0.125];
    for (i, actual) in actual.iter().enumerate() {
        let sum: f64 = (0..4).map(|r| weights[r] * x(r * 7 + i)).sum();
        assert!((actual - sum.tanh()).abs() < 1e-6, "{i}: {actual}, not {}", sum.tanh());
    }
    assert_eq!(actual.len(), 7);
}
