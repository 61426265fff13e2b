//! Why a device cannot run a variant.

/// Why a device cannot run a variant. Nothing stays behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The library was built without accelerators.
    #[error(
        "this runtime was built without accelerators: use one that was built with the feature 'opencl'"
    )]
    NotBuilt,
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
    /// A number that no device has.
    #[error(
        "there is no OpenCL device '{wanted}': set HONE_OPENCL_DEVICE to a number from 0 to {last}, as hone devices lists them"
    )]
    NoSuchDevice {
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
    #[error("the driver of device '{device}' refuses {what} with OpenCL error {code}")]
    Driver {
        /// The device's name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// OpenCL's number of the error.
        code: i32,
    },
}
