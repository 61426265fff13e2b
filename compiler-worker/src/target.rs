//! The targets of requests, as the compiler knows them.

use hone_artifact::DeviceApi;
use hone_artifact::exit_code::Reason;
use hone_artifact::request::TargetRequest;
use hone_driver::{Accelerator, CodegenError, Target};

use crate::device;
use crate::failure::{Failure, Result};

/// What code is made for.
///
/// # Errors
/// `TargetMismatch` for what the compiler does not know.
pub fn target(request: &TargetRequest) -> Result<Target> {
    let TargetRequest { name, os, arch, cpu, features, accelerator, .. } = request;
    let arch = if arch.is_empty() { device::arch() } else { arch };
    let named = || format!("target '{name}' cannot be compiled for");
    let unknown = |error: CodegenError| Failure::because(Reason::TargetMismatch, named(), error);
    if let Some(accelerator) = accelerator {
        return with_accelerator(request, accelerator, arch);
    }
    let target = match cpu.as_deref() {
        Some("host") if arch != device::arch() || os != std::env::consts::OS => {
            let message = format!(
                "target '{name}' is {os}/{arch} with cpu 'host', this machine is {}/{}: name the processor instead",
                std::env::consts::OS,
                device::arch()
            );
            return Err(Failure::new(Reason::TargetMismatch, message));
        }
        Some("host") => Target::host().map_err(unknown)?,
        cpu => Target::for_platform(os, arch, cpu.unwrap_or_default()).map_err(unknown)?,
    };
    match features.is_empty() {
        true => Ok(target),
        false => {
            let all = target.features.iter().chain(features).cloned().collect();
            Target::new(&target.triple, &target.cpu, all).map_err(unknown)
        }
    }
}

/// The word for the architecture of the CUDA device at hand.
pub const CUDA_HERE: &str = "cuda";

/// The newest architecture whose code the CUDA device of this machine runs.
fn cuda_here(target: &str) -> Result<Accelerator> {
    let refused = |error: hone_runtime::DeviceError| {
        let message = format!(
            "target '{target}' is for the CUDA device of this machine; name an architecture, such as sm_80, to compile without one"
        );
        Failure::because(Reason::TargetMismatch, message, error)
    };
    let device = hone_runtime::accelerator::chosen_device(DeviceApi::Cuda).map_err(refused)?;
    device.capability.and_then(Accelerator::of_capability).ok_or_else(|| {
        let (name, version) = (device.name, device.version);
        let message = format!(
            "target '{target}' is for device '{name}', which has {version}: code is made for 7.5 and later"
        );
        Failure::new(Reason::TargetMismatch, message)
    })
}

/// A target whose steps an accelerator runs, in a host of an architecture.
fn with_accelerator(request: &TargetRequest, accelerator: &str, arch: &str) -> Result<Target> {
    let TargetRequest { name, os, cpu, features, .. } = request;
    let refused = |message: String| Failure::new(Reason::TargetMismatch, message);
    let accelerator = match accelerator {
        CUDA_HERE => cuda_here(name)?,
        word => word.parse::<Accelerator>().map_err(|error| {
            let message = format!("target '{name}' ('{CUDA_HERE}' is the device at hand)");
            Failure::because(Reason::TargetMismatch, message, error)
        })?,
    };
    if !matches!(cpu.as_deref(), None | Some("host")) || !features.is_empty() {
        return Err(refused(format!(
            "target '{name}' has an accelerator, which runs every step: remove cpu and features"
        )));
    }
    let unknown = |error: CodegenError| {
        let message = format!("target '{name}' cannot be compiled for");
        Failure::because(Reason::TargetMismatch, message, error)
    };
    let host = Target::for_platform(os, arch, "").map_err(unknown)?;
    host.with_accelerator(accelerator).map_err(unknown)
}
