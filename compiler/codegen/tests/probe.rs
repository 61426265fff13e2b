//! The probe's figures are those of a machine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[test]
fn figures_are_plausible() {
    let machine = hone_codegen::probe().unwrap();
    assert!(machine.f32_gflops > 1.0 && machine.f32_gflops < 2000.0, "{machine:?}");
    assert!(machine.memory_gbytes > 0.3 && machine.memory_gbytes < 1000.0, "{machine:?}");
    for dot in [machine.int8_gops, machine.bf16_gflops].into_iter().flatten() {
        assert!(dot > 1.0 && dot < 20_000.0, "{machine:?}");
    }
    assert!(machine.caches.iter().all(|cache| cache.bytes >= 1024), "{machine:?}");
}

/// What is measured is code for the given processor, whatever more this machine has: one without an
/// instruction for dot products has no figure for it. How much faster wider vectors are is the machine's affair
/// (exactly twice where additions and multiplications have separate units), and no test's.
#[cfg(target_arch = "x86_64")]
#[test]
fn only_instructions_of_the_target_are_measured() {
    let target = |cpu: &str| hone_codegen::Target::for_platform("linux", "amd64", cpu).unwrap();
    if !std::arch::is_x86_feature_detected!("fma") {
        return;
    }
    for cpu in ["x86-64", "x86-64-v3"] {
        let narrower = hone_codegen::probe_as(&target(cpu)).unwrap();
        assert!(narrower.f32_gflops > 1.0, "{cpu}: {narrower:?}");
        assert_eq!((narrower.int8_gops, narrower.bf16_gflops), (None, None), "{cpu}");
    }
    let host = hone_codegen::probe().unwrap();
    let has_dot = std::arch::is_x86_feature_detected!("avx512vnni");
    assert_eq!(host.int8_gops.is_some(), has_dot, "{host:?}");
}
