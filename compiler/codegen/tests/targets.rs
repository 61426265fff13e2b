//! Targets as LLVM's table describes them, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_codegen::Target;
use hone_tensor::Intrinsic;
use hone_types::DataType;

fn amd64(cpu: &str) -> Target {
    Target::for_platform("linux", "amd64", cpu).unwrap()
}

fn has(target: &Target, name: &str) -> bool {
    target.resolved.iter().any(|feature| feature.strip_prefix('+') == Some(name))
}

fn refusal(arch: &str, cpu: &str, features: &[&str]) -> String {
    let triple = format!("{arch}-unknown-linux-gnu");
    let features = features.iter().map(|name| name.to_string()).collect();
    Target::new(&triple, cpu, features).unwrap_err().to_string()
}

#[test]
fn unknown_processors_are_refused_with_the_nearest() {
    let text = refusal("x86_64", "saphirerapids", &[]);
    assert!(text.contains("knows no processor 'saphirerapids'"), "{text}");
    assert!(text.contains("the nearest known names are 'sapphirerapids'"), "{text}");
    let text = refusal("aarch64", "neoverse-n11", &[]);
    assert!(text.contains("'neoverse-n1'"), "{text}");
    let text = refusal("riscv64", "sifive-u75", &[]);
    assert!(text.contains("'sifive-u74'"), "{text}");
    let text = refusal("x86_64", "qqqq", &[]);
    assert!(text.contains("no known name is like it"), "{text}");
    assert!(refusal("x86_64", "zn\0ver4", &[]).contains("knows no processor"));
}

#[test]
fn processors_of_another_width_are_refused() {
    let text = refusal("x86_64", "pentium-m", &[]);
    assert!(text.contains("has not '64bit'"), "{text}");
    let text = refusal("riscv64", "sifive-e20", &[]);
    assert!(text.contains("has not '64bit'"), "{text}");
    let text = refusal("riscv64", "generic-rv23", &[]);
    assert!(text.contains("'generic-rv64'") && !text.contains("rv32"), "{text}");
}

#[test]
fn unknown_features_are_refused_with_the_nearest() {
    let text = refusal("x86_64", "x86-64-v3", &["+avx512vnn1"]);
    assert!(text.contains("knows no feature 'avx512vnn1'"), "{text}");
    assert!(text.contains("'avx512vnni'"), "{text}");
    let text = refusal("x86_64", "x86-64-v3", &["avx2"]);
    assert!(text.contains("begins with neither '+' (on) nor '-' (off)"), "{text}");
    assert!(refusal("aarch64", "generic", &["+dotprods"]).contains("'dotprod'"));
}

/// Vector width in bytes, fused multiply-adds, sums of products of bytes and of bfloat16, by the
/// manuals of the processors.
#[test]
fn x86_processors_have_their_features() {
    for (cpu, bytes, fma, dot_u8, dot_bf16) in [
        ("x86-64", 16, false, false, false),
        ("x86-64-v2", 16, false, false, false),
        ("core2", 16, false, false, false),
        ("nehalem", 16, false, false, false),
        ("silvermont", 16, false, false, false),
        ("goldmont", 16, false, false, false),
        ("tremont", 16, false, false, false),
        ("btver1", 16, false, false, false),
        ("k8", 16, false, false, false),
        ("sandybridge", 32, false, false, false),
        ("ivybridge", 32, false, false, false),
        ("btver2", 32, false, false, false),
        ("bdver1", 32, false, false, false),
        ("bdver2", 32, true, false, false),
        ("haswell", 32, true, false, false),
        ("x86-64-v3", 32, true, false, false),
        ("znver3", 32, true, false, false),
        ("alderlake", 32, true, true, false),
        ("arrowlake", 32, true, true, false),
        ("lunarlake", 32, true, true, false),
        ("sierraforest", 32, true, true, false),
        ("skylake-avx512", 64, true, false, false),
        ("x86-64-v4", 64, true, false, false),
        ("cascadelake", 64, true, true, false),
        ("cooperlake", 64, true, true, true),
        ("sapphirerapids", 64, true, true, true),
        ("graniterapids-d", 64, true, true, true),
        ("znver4", 64, true, true, true),
        ("znver5", 64, true, true, true),
    ] {
        let target = amd64(cpu);
        assert_eq!(target.vector_bytes, bytes, "{cpu}");
        assert_eq!(target.vector_registers, if bytes == 64 { 32 } else { 16 }, "{cpu}");
        assert_eq!(has(&target, "fma"), fma, "{cpu}");
        assert_eq!(has(&target, "avx2"), fma && cpu != "bdver2", "{cpu}");
        // Without the instruction for bytes there is one for pairs of 16 bits, where integers have vectors.
        let bytes_by = if dot_u8 { "vpdpbusd" } else { "pmaddwd" };
        let multiplies = bytes != 32 || has(&target, "avx2");
        let found = target.instruction(Intrinsic::DOT_U8_I8);
        assert_eq!(found, multiplies.then_some(bytes_by), "{cpu}");
        assert_eq!(target.multiplies(DataType::I8), multiplies, "{cpu}");
        assert_eq!(target.has_intrinsic(Intrinsic::DOT_BF16), dot_bf16, "{cpu}");
        assert_eq!(target.masks, bytes == 64, "{cpu}");
        assert_eq!(target.rounding, has(&target, "sse4.1"), "{cpu}");
    }
}

#[test]
fn products_of_integers_gain_by_the_processor() {
    let gains = |target: &Target, narrow: DataType| {
        [target.multiplies_faster(narrow), target.multiplies_faster_than_filtering(narrow)]
    };
    let cases = [
        (amd64("x86-64-v3"), [false, false], [true, false]),
        (amd64("znver3"), [false, false], [true, false]),
        (amd64("skylake-avx512"), [false, false], [false, false]),
        (amd64("znver4"), [true, true], [false, false]),
        (
            Target::for_platform("linux", "arm64", "neoverse-v1").unwrap(),
            [true, true],
            [false, false],
        ),
    ];
    for (target, bytes, halves) in cases {
        assert_eq!(gains(&target, DataType::I8), bytes, "{}", target.cpu);
        assert_eq!(gains(&target, DataType::I16), halves, "{}", target.cpu);
    }
}

#[test]
fn arm_processors_have_their_features() {
    let arm = |cpu: &str| Target::for_platform("linux", "arm64", cpu).unwrap();
    for (cpu, dotprod, i8mm, sve) in [
        ("", false, false, false),
        ("cortex-a72", false, false, false),
        ("neoverse-n1", true, false, false),
        ("cortex-a78", true, false, false),
        ("neoverse-v1", true, true, true),
        ("neoverse-n2", true, true, true),
        ("apple-a14", true, false, false),
    ] {
        let target = arm(cpu);
        assert!(has(&target, "neon"), "{cpu}");
        assert_eq!(has(&target, "dotprod"), dotprod, "{cpu}");
        assert_eq!(has(&target, "i8mm"), i8mm, "{cpu}");
        assert_eq!(has(&target, "sve"), sve, "{cpu}");
        assert_eq!((target.vector_bytes, target.vector_registers), (16, 32), "{cpu}");
    }
}

#[test]
fn switching_a_feature_off_switches_off_what_needs_it() {
    let triple = "x86_64-unknown-linux-gnu";
    let target = Target::new(triple, "znver4", vec!["-avx512f".into()]).unwrap();
    assert_eq!((target.vector_bytes, target.masks), (32, false));
    assert!(!target.has_intrinsic(Intrinsic::DOT_BF16));
    let target = Target::new(triple, "x86-64", vec!["+avx2".into()]).unwrap();
    assert_eq!(target.vector_bytes, 32);
    assert!(has(&target, "sse4.2"), "{:?}", target.resolved);
}

#[test]
fn this_machine_is_known() {
    let host = Target::host().unwrap();
    assert!(!host.resolved.is_empty());
}
