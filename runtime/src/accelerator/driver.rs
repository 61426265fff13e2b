//! What is asked of the driver of a device, whichever API it has. [`super::opencl`] and [`super::cuda`] implement it;
//! [`super::objects`] and [`super::queue`] are all that call it, and hold what it gives.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use hone_artifact::DeviceApi;

use super::{DeviceError, DeviceInfo};

/// An object of a driver, or an address in a device's memory. Zero is none.
pub(crate) type Handle = u64;

/// An API's number of an error.
pub(crate) type Code = i32;

/// What drivers say that do not record; nobody asks them.
const NOT_RECORDED: Code = -1;

/// What a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of the device.
    Buffer,
    /// A part of such memory.
    Part,
    /// Built code.
    Program,
    /// A kernel of some.
    Kernel,
    /// Commands that run in order.
    Queue,
    /// A command, or the place between two.
    Event,
    /// Launches that were recorded, to be started by one call.
    Sequence,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// A buffer, or a part of one.
    Buffer(Handle),
    /// A counter.
    Counter(i64),
}

/// Where a transfer, a copy or a filling begins.
pub(crate) type At = (Handle, u64);

/// A launch.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: Handle,
    pub(crate) arguments: &'a [Value],
    /// Blocks along each dimension.
    pub(crate) grid: [u64; 3],
    /// Lanes of a block along each dimension.
    pub(crate) block: [u64; 3],
    /// Whether it gives an event that knows how long it ran.
    pub(crate) timed: bool,
}

/// A device in use.
///
/// # Safety
/// Of all functions that take handles: they are this driver's, of the kind that is named, and were not released.
/// Kernels and queues are used by one thread at a time. The bytes of a buffer that a command reads and writes are there.
pub(crate) trait Driver: Send + Sync {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// An error in words, such as `OpenCL error -5`.
    fn words(&self, code: Code) -> String;

    /// Whether an error says that memory is missing, and nothing else.
    fn is_out_of_memory(&self, code: Code) -> bool;

    /// Memory of at least one byte.
    fn buffer(&self, bytes: u64) -> Result<Handle, Code>;

    /// The bytes of a buffer from an offset on; at least one.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn part(&self, buffer: Handle, offset: u64, bytes: u64) -> Result<Handle, Code>;

    /// Builds what the code section holds; the error comes with what the driver's compiler says, if anything.
    fn program(&self, code: &[u8]) -> Result<Handle, (Code, String)>;

    /// A kernel of a program whose blocks have so many bytes of shared memory, and of how many lanes a block of it may be.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn kernel(
        &self,
        program: Handle,
        name: &CStr,
        shared_bytes: u64,
    ) -> Result<(Handle, u64), Code>;

    /// A queue; `timed` where launches shall tell how long they ran.
    fn queue(&self, timed: bool) -> Result<Handle, Code>;

    /// Most bytes of one transfer between host and device.
    fn most_at_once(&self) -> usize;

    /// Puts bytes into a buffer while nothing else is under way; they are copied when this returns. Whether their
    /// way to the device goes on.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn write(&self, queue: Handle, to: At, bytes: &[u8]) -> Result<bool, Code>;

    /// Begins to take so many bytes out of a buffer while nothing else is under way. Whether they are on their way.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn begin_read(&self, queue: Handle, from: At, bytes: usize) -> Result<bool, Code>;

    /// Takes the bytes that the last [`Driver::begin_read`] began with, once the queue is done.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn end_read(&self, queue: Handle, from: At, bytes: &mut [u8]) -> Result<(), Code>;

    /// Copies bytes between buffers, or inside of one where both ranges are apart.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn copy(&self, queue: Handle, from: At, to: At, bytes: u64) -> Result<(), Code>;

    /// Fills bytes of a buffer with a pattern of 1 or 8 bytes, of which offset and length are multiples.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn fill(&self, queue: Handle, to: At, pattern: &[u8], bytes: u64) -> Result<(), Code>;

    /// Starts a kernel; with `timed` its event, else zero.
    ///
    /// # Safety
    /// See [`Driver`]; arguments and lanes are those that the kernel takes.
    unsafe fn launch(&self, queue: Handle, launch: &Launch<'_>) -> Result<Handle, Code>;

    /// Whether an address that a caller gave is one in a device's memory; it can be copied from and to as a buffer's
    /// handle can.
    fn is_on_device(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Whether launches can be recorded, to be started by one call.
    fn records(&self) -> bool {
        false
    }

    /// Begins to record what is put into a queue, in which nothing is under way. Nothing of it runs, until
    /// [`Driver::recorded`] nothing but launches that are not timed, fillings and copies is put in, and no other function
    /// is called by this thread.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn record(&self, queue: Handle) -> Result<(), Code> {
        let _ = queue;
        Err(NOT_RECORDED)
    }

    /// Ends it, also where something was refused in between; what was recorded.
    ///
    /// # Safety
    /// See [`Driver`]; recording has begun, by this thread.
    unsafe fn recorded(&self, queue: Handle) -> Result<Handle, Code> {
        let _ = queue;
        Err(NOT_RECORDED)
    }

    /// Starts what was recorded, in its order.
    ///
    /// # Safety
    /// See [`Driver`]; kernels and buffers of what was recorded are there.
    unsafe fn launch_recorded(&self, queue: Handle, sequence: Handle) -> Result<(), Code> {
        let _ = (queue, sequence);
        Err(NOT_RECORDED)
    }

    /// The place behind everything that was put in, which all is started.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn marker(&self, queue: Handle) -> Result<Handle, Code>;

    /// Whether everything up to a marker is done; an error where something of it failed.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn is_done(&self, event: Handle) -> Result<bool, Code>;

    /// How long a launch ran that is done; `None` where the driver does not say.
    ///
    /// # Safety
    /// See [`Driver`].
    unsafe fn time(&self, event: Handle) -> Option<Duration>;

    /// Gives something back.
    ///
    /// # Safety
    /// See [`Driver`]; it is not used again.
    unsafe fn release(&self, kind: Kind, handle: Handle);
}

/// Every device that an API drives.
///
/// # Errors
/// No library, no driver, no device: each with what to do.
pub(crate) fn devices(api: DeviceApi) -> Result<Vec<DeviceInfo>, DeviceError> {
    match api {
        #[cfg(feature = "opencl")]
        DeviceApi::OpenCl => {
            super::opencl::find::devices().map(|all| infos(all, |device| device.info))
        }
        #[cfg(feature = "cuda")]
        DeviceApi::Cuda => super::cuda::find::devices().map(|all| infos(all, |device| device.info)),
        DeviceApi::WebGpu => Err(DeviceError::NotDriven { api }),
        #[allow(unreachable_patterns, reason = "where all are built in there is no other")]
        other => Err(DeviceError::NotBuilt { api: other }),
    }
}

fn infos<T>(all: Vec<T>, info: impl Fn(T) -> DeviceInfo) -> Vec<DeviceInfo> {
    all.into_iter().map(info).collect()
}

/// The device that is used: that of a number where one is given, else see [`super::chosen_device`].
///
/// # Errors
/// As for [`devices`]; a number that no device has.
pub(crate) fn chosen(api: DeviceApi, number: Option<usize>) -> Result<DeviceInfo, DeviceError> {
    let devices = devices(api)?;
    let named = super::library::variable(variable(api));
    let number = match number.map(|number| number.to_string()).or(named) {
        Some(wanted) => {
            let number = wanted.parse::<usize>().ok().filter(|number| *number < devices.len());
            let last = devices.len() - 1;
            let variable = variable(api);
            number.ok_or(DeviceError::NoSuchDevice { api, wanted, variable, last })?
        }
        None => {
            use super::DeviceKind;
            let first = |kind| devices.iter().position(|device| device.kind == kind);
            first(DeviceKind::Gpu).or_else(|| first(DeviceKind::Other)).unwrap_or(0)
        }
    };
    // There is one of every number.
    Ok(devices[number].clone())
}

/// The environment variable that names an API's device.
const fn variable(api: DeviceApi) -> &'static str {
    match api {
        DeviceApi::OpenCl => "HONE_OPENCL_DEVICE",
        DeviceApi::Cuda => "HONE_CUDA_DEVICE",
        // It has no devices here.
        DeviceApi::WebGpu => "HONE_WEBGPU_DEVICE",
    }
}

/// Takes a device into use.
///
/// # Errors
/// What its driver says.
pub(crate) fn open(info: &DeviceInfo) -> Result<Arc<dyn Driver>, DeviceError> {
    match info.api {
        #[cfg(feature = "opencl")]
        DeviceApi::OpenCl => Ok(super::opencl::device::Device::open(info)?),
        #[cfg(feature = "cuda")]
        DeviceApi::Cuda => Ok(super::cuda::device::Device::open(info)?),
        DeviceApi::WebGpu => Err(DeviceError::NotDriven { api: info.api }),
        #[allow(unreachable_patterns, reason = "where all are built in there is no other")]
        other => Err(DeviceError::NotBuilt { api: other }),
    }
}
