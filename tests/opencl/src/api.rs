//! The functions of the OpenCL 1.2 API that are used, loaded when asked for.
//!
//! Declarations follow the Khronos specification; handles are opaque pointers.

use anyhow::Context;
use libloading::Library;
use std::ffi::{c_char, c_void};

/// An opaque object of the API.
pub(crate) type Handle = *mut c_void;
type Notify = Option<extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
type BuildNotify = Option<extern "C" fn(Handle, *mut c_void)>;

/// `CL_SUCCESS`
pub(crate) const SUCCESS: i32 = 0;
/// `CL_PLATFORM_NOT_FOUND_KHR`
pub(crate) const PLATFORM_NOT_FOUND: i32 = -1001;
/// `CL_DEVICE_TYPE_ALL`
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
/// `CL_DEVICE_NAME`
pub(crate) const DEVICE_NAME: u32 = 0x102B;
/// `CL_PROGRAM_BUILD_LOG`
pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
/// `CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR`
pub(crate) const MEM_COPIED: u64 = 1 | 1 << 5;

macro_rules! api {
    ($($name:ident: $symbol:literal ($($type:ty),*) -> $result:ty;)*) => {
        /// The loaded functions.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> $result,)*
            _library: Library,
        }

        impl Api {
            /// Loads the system's loader; `None` where it has none.
            pub(crate) fn load() -> anyhow::Result<Option<Self>> {
                // SAFETY: the loader is the system's, and its initialisers have no preconditions.
                let Ok(library) = (unsafe { Library::new("libOpenCL.so.1") }) else {
                    return Ok(None);
                };
                Ok(Some(Self {
                    $($name: {
                        // SAFETY: the signature is that of the specification.
                        let own = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *own.with_context(|| format!("the OpenCL loader has no {}", $symbol))?
                    },)*
                    _library: library,
                }))
            }
        }
    };
}

api! {
    platforms: "clGetPlatformIDs" (u32, *mut Handle, *mut u32) -> i32;
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
    argument: "clSetKernelArg" (Handle, u32, usize, *const c_void) -> i32;
    buffer: "clCreateBuffer" (Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
    launch: "clEnqueueNDRangeKernel"
        (Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle, *mut Handle)
        -> i32;
    read: "clEnqueueReadBuffer"
        (Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> i32;
    finish: "clFinish" (Handle) -> i32;
    release_buffer: "clReleaseMemObject" (Handle) -> i32;
    release_kernel: "clReleaseKernel" (Handle) -> i32;
    release_program: "clReleaseProgram" (Handle) -> i32;
    release_queue: "clReleaseCommandQueue" (Handle) -> i32;
    release_context: "clReleaseContext" (Handle) -> i32;
}
