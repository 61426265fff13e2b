//! Runs WGSL of loop programs on a Vulkan device by `wgpu`, for tests, and checks its text where there is no device.
//!
//! [`validate`] parses and validates a text as WebGPU without extensions does. [`Device::open`] finds a device; llvmpipe
//! (`mesa-vulkan-drivers` on Debian) is one on every processor. [`run`] runs the steps of a module on host tensors,
//! [`Artifact`] a whole model that was compiled for WebGPU.

mod artifact;
mod device;
mod run;
mod text;

pub use artifact::Artifact;
pub use device::{Device, Kernels};
pub use run::run;
pub use text::{Binding, bindings, validate};

use anyhow::bail;
use std::sync::{Mutex, PoisonError};

/// The device of the tests; `None`, with a line that says so, where the system has none. With
/// `HONE_WEBGPU=required` in the environment it is an error to have none. Tests of one process share it.
///
/// # Errors
/// No device where one is required; an adapter that gives no device.
pub fn device_of_tests() -> anyhow::Result<Option<&'static Device>> {
    static DEVICE: Mutex<Option<&'static Device>> = Mutex::new(None);
    let mut known = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() {
        *known = Device::open()?.map(|device| &*Box::leak(Box::new(device)));
    }
    let required = std::env::var_os("HONE_WEBGPU").is_some_and(|value| value == "required");
    if known.is_none() && required {
        bail!(
            "HONE_WEBGPU=required, but there is no Vulkan device: run `cargo xtask setup --tests`"
        );
    }
    if known.is_none() {
        println!("skipped: there is no Vulkan device (cargo xtask setup --tests installs one)");
    }
    Ok(*known)
}
