//! The device that a pod was given by its pool.

use hone_artifact::exit_code::Reason;
use hone_artifact::request::TargetRequest;
use hone_artifact::{Accelerator, DeviceApi};

use crate::failure::{Failure, Result};
use crate::target::CUDA_HERE;

/// That this machine has a device that runs what is made for a target, where the runtime drives such devices.
///
/// # Errors
/// `TargetMismatch` where there is none, or one that does not run it: an artifact would be stored that nobody has run, while
/// the device that was to run it is held.
pub fn device(target: &TargetRequest) -> Result<()> {
    let Some(word) = &target.accelerator else { return Ok(()) };
    let accelerator = word.parse::<Accelerator>().ok();
    let api = match (accelerator, word == CUDA_HERE) {
        (Some(accelerator), _) => accelerator.api(),
        (None, true) => DeviceApi::Cuda,
        // What it is said to be is refused where targets are read.
        (None, false) => return Ok(()),
    };
    if !DeviceApi::ALL.contains(&api) {
        return Ok(());
    }
    let pool = target.pool.as_deref().unwrap_or_default();
    let device = hone_runtime::accelerator::chosen_device(api).map_err(|error| {
        let message = format!(
            "target '{}': the worker in pool '{pool}' was given no device; see that the pool's device plugin, claim or runtime class hands containers the driver, or take an image that holds it",
            target.name
        );
        Failure::because(Reason::TargetMismatch, message, error)
    })?;
    match (accelerator, device.capability) {
        (Some(accelerator), Some(has)) if !accelerator.runs_on(has) => {
            let message = format!(
                "target '{}': the worker in pool '{pool}' was given device '{}' with {}, which does not run code for {accelerator}: name another pool, or set platform.accelerator of this one to what its devices are",
                target.name, device.name, device.version
            );
            Err(Failure::new(Reason::TargetMismatch, message))
        }
        _ => Ok(()),
    }
}
