//! Why a device cannot run a variant.

use hone_artifact::{Accelerator, DeviceApi};

/// Why a device cannot run a variant. Nothing stays behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The library was built without what drives the device.
    #[error(
        "this runtime was built without {api}: use one that was built with the feature '{}'",
        api.name().to_lowercase()
    )]
    NotBuilt {
        /// What drives the device.
        api: DeviceApi,
    },
    /// The runtime drives no such devices.
    #[error(
        "this program does not drive {api}: an artifact for it runs in a browser, as the page in examples/web runs one, or by what else reads its launches; compile for 'opencl' or one of NVIDIA's architectures to run a model here"
    )]
    NotDriven {
        /// What drives the device.
        api: DeviceApi,
    },
    /// The system has no OpenCL loader.
    #[error(
        "this system has no OpenCL loader '{library}' ({reason}): install one (ocl-icd-libopencl1 on Debian) and the driver of the device"
    )]
    NoLoader {
        /// What was looked for.
        library: String,
        /// What the system's loader said.
        reason: String,
    },
    /// The loader lacks a function.
    #[error(
        "the OpenCL loader '{library}' has no function {symbol}: install one of OpenCL 1.2 or newer"
    )]
    OldLoader {
        /// The loader.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// No driver is registered with the loader.
    #[error(
        "the OpenCL loader knows no platform: install the driver of the device, and see that it is registered in /etc/OpenCL/vendors"
    )]
    NoPlatform,
    /// No platform has a device.
    #[error(
        "no OpenCL platform has a device (platforms: {platforms}): see that the device is there and that this process may use it"
    )]
    NoDevice {
        /// Names of the platforms.
        platforms: String,
    },
    /// The system has no driver of NVIDIA's.
    #[error(
        "this system has no CUDA driver library '{library}' ({reason}): install NVIDIA's driver, and give containers access to it"
    )]
    NoCuda {
        /// What was looked for.
        library: String,
        /// What the system's loader said.
        reason: String,
    },
    /// The driver's library lacks a function.
    #[error(
        "the CUDA driver library '{library}' has no function {symbol}: install a driver of CUDA 11.1 or newer"
    )]
    OldCuda {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The driver has no device.
    #[error(
        "the CUDA driver has no device ({reason}): see that one is there, that this process may use it, and what CUDA_VISIBLE_DEVICES says"
    )]
    NoCudaDevice {
        /// What the driver said.
        reason: String,
    },
    /// The driver is too old for the code.
    #[error(
        "the driver of device '{device}' is of CUDA {}.{}, code for {accelerator} needs {}.{}: install a newer driver",
        has.0, has.1, needs.0, needs.1
    )]
    OldDriver {
        /// The device's name.
        device: String,
        /// What the code is for.
        accelerator: Accelerator,
        /// Version of CUDA that the driver is of.
        has: (u32, u32),
        /// The oldest one that reads the code.
        needs: (u32, u32),
    },
    /// The code is for other devices.
    #[error(
        "device '{device}' has compute capability {}.{}, which code for {accelerator} does not run on: compile with --accelerator {}",
        has.0, has.1,
        Accelerator::of_capability(*has).map_or("opencl", Accelerator::name)
    )]
    Architecture {
        /// The device's name.
        device: String,
        /// Its compute capability.
        has: (u32, u32),
        /// What the code is for.
        accelerator: Accelerator,
    },
    /// A number that no device has.
    #[error(
        "there is no {api} device '{wanted}': set {variable} to a number from 0 to {last}, as hone devices lists them"
    )]
    NoSuchDevice {
        /// What drives the device.
        api: DeviceApi,
        /// The variable of the environment that names a device.
        variable: &'static str,
        /// What was asked for.
        wanted: String,
        /// The largest number.
        last: usize,
    },
    /// The device offers less than the variant needs.
    #[error(
        "device '{device}' has {has} {what}, the artifact needs {needs}: compile for another device"
    )]
    Limit {
        /// The device's name.
        device: String,
        /// What there is too little of.
        what: &'static str,
        /// What the artifact needs.
        needs: u64,
        /// What the device has.
        has: u64,
    },
    /// The device has too little memory.
    #[error(
        "device '{device}' has too little memory: {bytes} bytes for {what}, of {limit} at most; use a device with more memory, or compile with smaller shapes"
    )]
    Memory {
        /// The device's name.
        device: String,
        /// What the memory is for.
        what: &'static str,
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes that it has, or gives in one piece.
        limit: u64,
    },
    /// The driver refuses the text of the kernels.
    #[error("the driver of device '{device}' refuses the artifact's kernels: {log}")]
    Build {
        /// The device's name.
        device: String,
        /// What its compiler said.
        log: String,
    },
    /// The driver refuses one kernel.
    #[error("the driver of device '{device}' refuses kernel '{kernel}': {reason}")]
    Kernel {
        /// The device's name.
        device: String,
        /// The kernel's name.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// The driver refuses something else.
    #[error("the driver of device '{device}' refuses {what} with {error}")]
    Driver {
        /// The device's name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// Number and words of the error, as its API has them.
        error: String,
    },
}
