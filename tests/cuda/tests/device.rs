//! The official operator cases from artifacts, run by the runtime on a CUDA device: a real one where the machine has one
//! and `HONE_CUDA_LIBRARY` is not set, or the driver that interprets PTX.
//!
//! `cargo xtask gpu --device` sets `HONE_CUDA=required`; without it nothing is run. `HONE_ALL_CASES=1` takes all cases, else
//! a sample.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::DeviceApi;
use hone_driver::{Accelerator, Target};
use hone_onnx_tests::{Case, Compiled, Machine, folder, load, run};

/// One case of so many is in the sample.
const SAMPLE: u64 = 40;

/// Whether a case is in the sample: by its name, so that the sample does not depend on what other cases there are.
fn is_in_sample(case: &Case) -> bool {
    let hash = case.name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) % SAMPLE == 0
}

#[test]
fn official_cases_run_from_artifacts() {
    if std::env::var_os("HONE_CUDA").is_none_or(|own| own != "required") {
        return println!("SKIPPED: HONE_CUDA is not 'required'");
    }
    let device = hone_runtime::accelerator::chosen_device(DeviceApi::Cuda).unwrap();
    let accelerator = device.capability.and_then(Accelerator::of_capability).unwrap();
    println!("on {} for {accelerator}", device.name);
    let target = Target::host().unwrap().with_accelerator(accelerator).unwrap();
    let all = std::env::var_os("HONE_ALL_CASES").is_some();
    let backend = Compiled::new(target, Machine::Here);
    let report = run(&backend, &load(&folder()).unwrap(), |case| all || is_in_sample(case));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}
