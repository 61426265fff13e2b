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

/// What was measured for code with the given vectors, where this machine executes it.
#[cfg(target_arch = "x86_64")]
#[test]
fn narrower_vectors_have_a_lower_peak() {
    let target = |cpu: &str| hone_codegen::Target::for_platform("linux", "amd64", cpu).unwrap();
    if !std::arch::is_x86_feature_detected!("fma") {
        return;
    }
    let [sse, avx2] =
        ["x86-64", "x86-64-v3"].map(|cpu| hone_codegen::probe_as(&target(cpu)).unwrap());
    assert!(sse.f32_gflops > 1.0, "{sse:?}");
    // Twice the lanes, and one instruction for a multiplication and an addition.
    assert!(avx2.f32_gflops > 2.0 * sse.f32_gflops, "{avx2:?} {sse:?}");
}
