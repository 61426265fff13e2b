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
