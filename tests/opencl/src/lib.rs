//! Runs texts of loop programs on an OpenCL device, for tests.
//!
//! [`Device::open`] finds the system's OpenCL loader (`ocl-icd-libopencl1` on Debian) and a device; PoCL
//! (`pocl-opencl-icd`) is one on every processor. [`run`] runs the steps of a module on host tensors.

mod api;
mod device;
mod run;

pub use device::{Device, Kernels};
pub use run::run;

use anyhow::bail;
use std::sync::{Mutex, PoisonError};

/// The device of the tests; `None`, with a line that says so, where the system has none. With
/// `HONE_OPENCL=required` in the environment it is an error to have none. Tests of one process share it: a
/// loader that several threads ask for the first time at once may find no platform.
///
/// # Errors
/// No device where one is required; a loader that fails.
pub fn device_of_tests() -> anyhow::Result<Option<&'static Device>> {
    static DEVICE: Mutex<Option<&'static Device>> = Mutex::new(None);
    let mut known = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() {
        *known = Device::open()?.map(|own| &*Box::leak(Box::new(own)));
    }
    let required = std::env::var_os("HONE_OPENCL").is_some_and(|own| own == "required");
    if known.is_none() && required {
        bail!(
            "HONE_OPENCL=required, but there is no OpenCL device: run `cargo xtask setup --tests`"
        );
    }
    if known.is_none() {
        println!("skipped: there is no OpenCL device (cargo xtask setup --tests installs one)");
    }
    Ok(*known)
}
