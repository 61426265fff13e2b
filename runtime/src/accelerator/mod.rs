//! Variants whose steps run on an accelerator: a device of many lanes, driven through the system's own library, which
//! is loaded when such a variant is, and only then.
//!
//! [`code`] makes the code of a variant ready on a device, [`session`] runs it: arena, weights, inputs and outputs lie
//! in the device's memory, inputs go there when a run begins and outputs come back when it ends. What the program of a
//! variant decides, and what it has the runtime compute, is done here on values that are read back. [`opencl`] is all
//! that knows OpenCL.
//!
//! No call waits for a device without end: see [`crate::Options::device_timeout`].

#[cfg(not(feature = "opencl"))]
mod absent;
#[cfg(feature = "opencl")]
mod code;
mod error;
#[cfg(feature = "opencl")]
mod memory;
#[cfg(feature = "opencl")]
mod opencl;
#[cfg(feature = "opencl")]
mod session;
#[cfg(feature = "opencl")]
mod step;

#[cfg(not(feature = "opencl"))]
pub(crate) use absent::{Code, Session};
#[cfg(feature = "opencl")]
pub(crate) use code::Code;
pub use error::DeviceError;
#[cfg(feature = "opencl")]
pub(crate) use session::Session;

/// A device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The number by which `HONE_OPENCL_DEVICE` names it: its position among all devices of the system.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Name of the platform that its driver belongs to.
    pub platform: String,
    /// Version of the driver.
    pub driver: String,
    /// Version of OpenCL, as the device says it.
    pub version: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Units that run blocks side by side.
    pub compute_units: u32,
    /// Bytes of global memory.
    pub memory_bytes: u64,
    /// Bytes of the largest buffer.
    pub buffer_bytes: u64,
    /// Bytes of memory that the lanes of a block share.
    pub shared_bytes: u64,
    /// Lanes of a block.
    pub lanes: u64,
    /// Lanes of a block along `x`, `y` and `z`.
    pub lanes_along: [u64; 3],
    /// Bytes of which offsets into a buffer are multiples.
    pub alignment: u64,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A processor that runs OpenCL.
    Processor,
    /// A GPU.
    Gpu,
    /// Another accelerator.
    Other,
}

impl DeviceKind {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Gpu => "GPU",
            Self::Other => "accelerator",
        }
    }
}

/// Every OpenCL device of this system, in the order of their numbers.
///
/// # Errors
/// No OpenCL on this system, no platform, no device: each with what to do.
pub fn devices() -> Result<Vec<DeviceInfo>, DeviceError> {
    #[cfg(not(feature = "opencl"))]
    return Err(DeviceError::NotBuilt);
    #[cfg(feature = "opencl")]
    Ok(opencl::find::devices()?.into_iter().map(|device| device.info).collect())
}

/// The device that variants for OpenCL run on: the one whose number stands in `HONE_OPENCL_DEVICE`, else the first GPU,
/// else the first other accelerator, else the first device.
///
/// # Errors
/// As for [`devices`]; a number that no device has.
pub fn chosen_device() -> Result<DeviceInfo, DeviceError> {
    #[cfg(not(feature = "opencl"))]
    return Err(DeviceError::NotBuilt);
    #[cfg(feature = "opencl")]
    Ok(opencl::find::chosen(None)?.info)
}
