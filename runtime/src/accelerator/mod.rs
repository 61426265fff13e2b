//! Variants whose steps run on an accelerator: a device of many lanes, driven through the system's own library, which
//! is loaded when such a variant is, and only then.
//!
//! [`code`] makes the code of a variant ready on a device, [`session`] runs it: arena, weights, inputs and outputs lie
//! in the device's memory, inputs go there when a run begins and outputs come back when it ends. What the program of a
//! variant decides, and what it has the runtime compute, is done here on values that are read back. What is asked of a
//! device is one list of functions, [`driver::Driver`]; [`opencl`] is all that knows OpenCL, [`cuda`] all that knows
//! CUDA. Where a driver can record launches ([`sequences`]), steps that run together are launched by one call from the
//! second time on.
//!
//! No call waits for a device without end: see [`crate::Options::device_timeout`].

use hone_artifact::DeviceApi;

#[cfg(not(any(feature = "opencl", feature = "cuda")))]
mod absent;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod code;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod driver;
mod error;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod library;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod memory;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod objects;
#[cfg(feature = "opencl")]
mod opencl;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod queue;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod sequences;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod session;
#[cfg(any(feature = "opencl", feature = "cuda"))]
mod step;

#[cfg(not(any(feature = "opencl", feature = "cuda")))]
use absent::driver;
#[cfg(not(any(feature = "opencl", feature = "cuda")))]
pub(crate) use absent::{Code, Session};
#[cfg(any(feature = "opencl", feature = "cuda"))]
pub(crate) use code::Code;
pub use error::DeviceError;
#[cfg(any(feature = "opencl", feature = "cuda"))]
pub(crate) use session::Session;

/// A device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What drives it.
    pub api: DeviceApi,
    /// NVIDIA's number of what it can do, such as 9.0.
    pub capability: Option<(u32, u32)>,
    /// The number by which `HONE_OPENCL_DEVICE`, or `HONE_CUDA_DEVICE`, names it: its position among all devices that
    /// the API drives.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Name of the platform that its driver belongs to.
    pub platform: String,
    /// Version of the driver; of CUDA, that which it has.
    pub driver: String,
    /// Version of OpenCL, or compute capability, as the device says it.
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

/// Every device of this system that an API drives, in the order of their numbers.
///
/// # Errors
/// No library of the API's on this system, no driver, no device: each with what to do.
pub fn devices(api: DeviceApi) -> Result<Vec<DeviceInfo>, DeviceError> {
    driver::devices(api)
}

/// The device that variants for an API run on: the one whose number stands in `HONE_OPENCL_DEVICE` or
/// `HONE_CUDA_DEVICE`, else the first GPU, else the first other accelerator, else the first device.
///
/// # Errors
/// As for [`devices`]; a number that no device has.
pub fn chosen_device(api: DeviceApi) -> Result<DeviceInfo, DeviceError> {
    driver::chosen(api, None)
}
