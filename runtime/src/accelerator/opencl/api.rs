//! The functions of the OpenCL 1.2 API that are used, found in the system's loader when they are first asked for.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

use crate::accelerator::DeviceError;
use crate::accelerator::library::{functions, open, variable};

/// An opaque object of the API.
pub(crate) type Handle = *mut c_void;
type Notify = Option<extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
type BuildNotify = Option<extern "C" fn(Handle, *mut c_void)>;

/// `CL_SUCCESS`
pub(crate) const SUCCESS: i32 = 0;
/// `CL_DEVICE_NOT_FOUND`
pub(crate) const DEVICE_NOT_FOUND: i32 = -1;
/// `CL_PLATFORM_NOT_FOUND_KHR`
pub(crate) const PLATFORM_NOT_FOUND: i32 = -1001;
/// `CL_MEM_OBJECT_ALLOCATION_FAILURE`, `CL_OUT_OF_HOST_MEMORY`, `CL_INVALID_BUFFER_SIZE`
pub(crate) const NO_MEMORY: [i32; 3] = [-4, -6, -61];

/// `CL_DEVICE_TYPE_ALL`, and its single bits
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
/// `CL_DEVICE_TYPE_CPU`
pub(crate) const DEVICE_TYPE_CPU: u64 = 1 << 1;
/// `CL_DEVICE_TYPE_GPU`
pub(crate) const DEVICE_TYPE_GPU: u64 = 1 << 2;

/// `CL_PLATFORM_NAME`
pub(crate) const PLATFORM_NAME: u32 = 0x0902;
/// `CL_DEVICE_TYPE`
pub(crate) const DEVICE_TYPE: u32 = 0x1000;
/// `CL_DEVICE_MAX_COMPUTE_UNITS`
pub(crate) const DEVICE_COMPUTE_UNITS: u32 = 0x1002;
/// `CL_DEVICE_MAX_WORK_GROUP_SIZE`
pub(crate) const DEVICE_LANES: u32 = 0x1004;
/// `CL_DEVICE_MAX_WORK_ITEM_SIZES`
pub(crate) const DEVICE_LANES_ALONG: u32 = 0x1005;
/// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`
pub(crate) const DEVICE_BUFFER_BYTES: u32 = 0x1010;
/// `CL_DEVICE_MEM_BASE_ADDR_ALIGN`, in bits
pub(crate) const DEVICE_ALIGNMENT_BITS: u32 = 0x1019;
/// `CL_DEVICE_GLOBAL_MEM_SIZE`
pub(crate) const DEVICE_MEMORY_BYTES: u32 = 0x101F;
/// `CL_DEVICE_LOCAL_MEM_SIZE`
pub(crate) const DEVICE_SHARED_BYTES: u32 = 0x1023;
/// `CL_DEVICE_NAME`
pub(crate) const DEVICE_NAME: u32 = 0x102B;
/// `CL_DEVICE_VENDOR`
pub(crate) const DEVICE_VENDOR: u32 = 0x102C;
/// `CL_DRIVER_VERSION`
pub(crate) const DRIVER_VERSION: u32 = 0x102D;
/// `CL_DEVICE_VERSION`
pub(crate) const DEVICE_VERSION: u32 = 0x102F;
/// `CL_PROGRAM_BUILD_LOG`
pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
/// `CL_KERNEL_WORK_GROUP_SIZE`
pub(crate) const KERNEL_LANES: u32 = 0x11B0;
/// `CL_EVENT_COMMAND_EXECUTION_STATUS`; its value `CL_COMPLETE` is 0, errors are negative
pub(crate) const EVENT_STATUS: u32 = 0x11D3;
/// `CL_PROFILING_COMMAND_START`
pub(crate) const PROFILING_START: u32 = 0x1282;
/// `CL_PROFILING_COMMAND_END`
pub(crate) const PROFILING_END: u32 = 0x1283;
/// `CL_QUEUE_PROFILING_ENABLE`
pub(crate) const QUEUE_PROFILING: u64 = 1 << 1;
/// `CL_MEM_READ_WRITE`
pub(crate) const MEM_READ_WRITE: u64 = 1;
/// `CL_BUFFER_CREATE_TYPE_REGION`
pub(crate) const BUFFER_REGION: u32 = 0x1220;

/// `cl_buffer_region`
#[repr(C)]
pub(crate) struct Region {
    pub(crate) origin: usize,
    pub(crate) size: usize,
}

functions! {
    platforms: "clGetPlatformIDs" (u32, *mut Handle, *mut u32) -> i32;
    platform_info: "clGetPlatformInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    devices: "clGetDeviceIDs" (Handle, u64, u32, *mut Handle, *mut u32) -> i32;
    device_info: "clGetDeviceInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    context: "clCreateContext"
        (*const isize, u32, *const Handle, Notify, *mut c_void, *mut i32) -> Handle;
    queue: "clCreateCommandQueue" (Handle, Handle, u64, *mut i32) -> Handle;
    program: "clCreateProgramWithSource"
        (Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle;
    build: "clBuildProgram"
        (Handle, u32, *const Handle, *const c_char, BuildNotify, *mut c_void) -> i32;
    build_info: "clGetProgramBuildInfo"
        (Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    kernel: "clCreateKernel" (Handle, *const c_char, *mut i32) -> Handle;
    kernel_info: "clGetKernelWorkGroupInfo"
        (Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    argument: "clSetKernelArg" (Handle, u32, usize, *const c_void) -> i32;
    buffer: "clCreateBuffer" (Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
    part: "clCreateSubBuffer" (Handle, u64, u32, *const c_void, *mut i32) -> Handle;
    launch: "clEnqueueNDRangeKernel"
        (Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle, *mut Handle)
        -> i32;
    read: "clEnqueueReadBuffer"
        (Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> i32;
    write: "clEnqueueWriteBuffer"
        (Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle) -> i32;
    copy: "clEnqueueCopyBuffer"
        (Handle, Handle, Handle, usize, usize, usize, u32, *const Handle, *mut Handle) -> i32;
    fill: "clEnqueueFillBuffer"
        (Handle, Handle, *const c_void, usize, usize, usize, u32, *const Handle, *mut Handle) -> i32;
    marker: "clEnqueueMarkerWithWaitList" (Handle, u32, *const Handle, *mut Handle) -> i32;
    flush: "clFlush" (Handle) -> i32;
    event_info: "clGetEventInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    event_times: "clGetEventProfilingInfo" (Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    release_event: "clReleaseEvent" (Handle) -> i32;
    release_buffer: "clReleaseMemObject" (Handle) -> i32;
    release_kernel: "clReleaseKernel" (Handle) -> i32;
    release_program: "clReleaseProgram" (Handle) -> i32;
    release_queue: "clReleaseCommandQueue" (Handle) -> i32;
    release_context: "clReleaseContext" (Handle) -> i32;
}

/// The loader's usual name; `HONE_OPENCL_LIBRARY` in the environment names another.
const LIBRARY: &str = "libOpenCL.so.1";

/// The loader of this system, loaded once.
///
/// # Errors
/// None, or one without a function that is needed.
pub(crate) fn api() -> Result<&'static Api, DeviceError> {
    static KNOWN: Mutex<Option<&'static Api>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(api) = *known {
        return Ok(api);
    }
    let library = variable("HONE_OPENCL_LIBRARY").unwrap_or_else(|| LIBRARY.to_owned());
    let handle = open(&library)
        .map_err(|reason| DeviceError::NoLoader { library: library.clone(), reason })?;
    let found = Api::find(handle).map_err(|symbol| DeviceError::OldLoader { library, symbol })?;
    let api: &'static Api = Box::leak(Box::new(found));
    *known = Some(api);
    Ok(api)
}

/// An error in words.
pub(crate) fn words(code: i32) -> String {
    format!("OpenCL error {code}")
}
