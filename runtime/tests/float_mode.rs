//! Kernels run with subnormal numbers flushed to zero on every thread; the caller's floating-point mode is
//! untouched.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use std::arch::asm;
use std::collections::HashSet;

use common::*;
use hone_artifact::{Access, DataType, Slot, TensorInfo};
use hone_runtime::{Model, Options};

const TASKS: usize = 256;

#[cfg(target_arch = "x86_64")]
mod machine {
    /// All exceptions masked, flush to zero, denormals are zero.
    pub const KERNELS: u64 = 0x9fc0;
    /// Rounds down, flushes nothing, flag of an overflow set.
    pub const ODD: u64 = 0x1f80 | 0x2000 | 0x08;
}

#[cfg(target_arch = "aarch64")]
mod machine {
    /// Flush to zero.
    pub const KERNELS: u64 = 1 << 24;
    /// Rounds down.
    pub const ODD: u64 = 2 << 22;
}

#[cfg(target_arch = "x86_64")]
fn mode() -> u64 {
    let mut value = 0u32;
    // SAFETY: stores four bytes to a local variable.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value) };
    value.into()
}

#[cfg(target_arch = "x86_64")]
fn set_mode(value: u64) {
    let value = value as u32;
    // SAFETY: only modes that every x86-64 processor has.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value) };
}

#[cfg(target_arch = "aarch64")]
fn mode() -> u64 {
    let value: u64;
    // SAFETY: reads a register that programs may read.
    unsafe { asm!("mrs {}, fpcr", out(reg) value) };
    value
}

#[cfg(target_arch = "aarch64")]
fn set_mode(value: u64) {
    // SAFETY: only modes that every AArch64 processor has.
    unsafe { asm!("msr fpcr, {}", in(reg) value) };
}

/// Exception flags come from whatever ran before.
#[cfg(target_arch = "x86_64")]
const FLAGS: u64 = 0x3f;
#[cfg(target_arch = "aarch64")]
const FLAGS: u64 = 0;

/// A model whose one output is the mode that each task ran in.
fn modes(threads: usize) -> Model {
    let mut manifest = affine(1);
    manifest.outputs = vec![TensorInfo::new("modes", DataType::U64, vec![TASKS as u64]).unwrap()];
    let output = argument(Slot::Output { index: 0, offset: 0 }, TASKS * 8, Access::Write);
    manifest.variants[0].steps = vec![step("float_mode", TASKS, vec![output])];
    Model::load_memory(pack(&manifest), &Options { threads, ..Options::default() }).unwrap()
}

fn seen(model: &mut Model) -> HashSet<u64> {
    let mut words = vec![0u64; TASKS];
    // SAFETY: any eight bytes of an integer are eight bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), TASKS * size_of::<u64>())
    };
    model.run(&[as_bytes(&ramp(1))], &mut [bytes]).unwrap();
    words.into_iter().map(|word| word & !FLAGS).collect()
}

#[test]
fn every_task_runs_in_the_kernels_mode_and_the_callers_comes_back() {
    for threads in [1, 2, 64] {
        let mut model = modes(threads);
        let before = mode();
        for odd in [before, machine::ODD] {
            set_mode(odd);
            let seen: Vec<HashSet<u64>> = (0..20).map(|_| seen(&mut model)).collect();
            let after = mode();
            set_mode(before);
            assert!(seen.iter().all(|modes| *modes == [machine::KERNELS].into()), "{seen:x?}");
            assert_eq!(after, odd, "{threads} threads");
        }
    }
}

#[test]
fn a_refused_run_leaves_the_callers_mode() {
    let mut model = modes(2);
    let before = mode();
    set_mode(machine::ODD);
    let refused = model.run(&[], &mut []);
    let after = mode();
    set_mode(before);
    assert!(refused.is_err());
    assert_eq!(after, machine::ODD);
}

/// Numbers around the least normal one: results differ from exact ones only below it.
#[test]
fn only_subnormal_results_differ() {
    let mut manifest = affine(64);
    let bytes = 64 * ROW * 4;
    manifest.variants[0].steps = vec![step(
        "halve",
        64,
        vec![
            argument(Slot::Input { index: 0, offset: 0 }, bytes, Access::Read),
            argument(Slot::Output { index: 0, offset: 0 }, bytes, Access::Write),
        ],
    )];
    let mut model = Model::load_memory(pack(&manifest), &Options::default()).unwrap();
    let x: Vec<f32> = (0..64 * ROW).map(|i| f32::from_bits((i as u32) << 15)).collect();
    let mut y = vec![f32::NAN; x.len()];
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    let halves: Vec<f32> = x.iter().map(|x| x * 0.5).collect();
    assert!(halves.iter().any(|half| half.is_subnormal()));
    for (got, exact) in y.into_iter().zip(halves) {
        let flushed = if exact.is_subnormal() { 0.0 } else { exact };
        assert_eq!(got, flushed, "half of {:e}", exact * 2.0);
    }
}
