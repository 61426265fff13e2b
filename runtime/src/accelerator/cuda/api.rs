//! The functions of the CUDA driver API that are used, found in the driver's library when they are first asked for.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use super::graphs;
use crate::accelerator::DeviceError;
use crate::accelerator::library::{functions, open, variable};

/// An opaque object of the API.
pub(crate) type Pointer = *mut c_void;
/// `CUdeviceptr`
pub(crate) type Address = u64;

/// `CUDA_SUCCESS`
pub(crate) const SUCCESS: i32 = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_NO_DEVICE`
pub(crate) const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_NOT_READY`
pub(crate) const NOT_READY: i32 = 600;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK`
pub(crate) const LANES: i32 = 1;
/// `CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X`, `_Y`, `_Z`
pub(crate) const LANES_ALONG: [i32; 3] = [2, 3, 4];
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK`
pub(crate) const SHARED_BYTES: i32 = 8;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`: for kernels that ask for it.
pub(crate) const REQUESTED_SHARED_BYTES: i32 = 97;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
pub(crate) const MULTIPROCESSORS: i32 = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`, `_MINOR`
pub(crate) const CAPABILITY: [i32; 2] = [75, 76];
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`
pub(crate) const FUNCTION_LANES: i32 = 0;
/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`: what the code declares.
pub(crate) const FUNCTION_SHARED_BYTES: i32 = 1;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`: what launches may ask for besides.
pub(crate) const FUNCTION_REQUESTED_BYTES: i32 = 8;
/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
pub(crate) const JIT_ERROR_LOG: [i32; 2] = [5, 6];
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
pub(crate) const MEMORY_TYPE: i32 = 2;
/// `CU_MEMORYTYPE_DEVICE`
pub(crate) const DEVICE_MEMORY: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DEFAULT`, `CU_EVENT_DISABLE_TIMING`
pub(crate) const EVENT_FLAGS: [c_uint; 2] = [2, 0];

functions! {
    init: "cuInit" (c_uint) -> i32;
    version: "cuDriverGetVersion" (*mut i32) -> i32;
    error_name: "cuGetErrorName" (i32, *mut *const c_char) -> i32;
    error_text: "cuGetErrorString" (i32, *mut *const c_char) -> i32;
    device_count: "cuDeviceGetCount" (*mut i32) -> i32;
    device: "cuDeviceGet" (*mut i32, i32) -> i32;
    device_name: "cuDeviceGetName" (*mut c_char, i32, i32) -> i32;
    device_memory: "cuDeviceTotalMem_v2" (*mut usize, i32) -> i32;
    device_attribute: "cuDeviceGetAttribute" (*mut i32, i32, i32) -> i32;
    retain_context: "cuDevicePrimaryCtxRetain" (*mut Pointer, i32) -> i32;
    release_context: "cuDevicePrimaryCtxRelease_v2" (i32) -> i32;
    set_context: "cuCtxSetCurrent" (Pointer) -> i32;
    load: "cuModuleLoadDataEx"
        (*mut Pointer, *const c_void, c_uint, *mut i32, *mut *mut c_void) -> i32;
    unload: "cuModuleUnload" (Pointer) -> i32;
    function: "cuModuleGetFunction" (*mut Pointer, Pointer, *const c_char) -> i32;
    function_attribute: "cuFuncGetAttribute" (*mut i32, i32, Pointer) -> i32;
    set_function_attribute: "cuFuncSetAttribute" (Pointer, i32, i32) -> i32;
    allocate: "cuMemAlloc_v2" (*mut Address, usize) -> i32;
    free: "cuMemFree_v2" (Address) -> i32;
    allocate_host: "cuMemAllocHost_v2" (*mut Pointer, usize) -> i32;
    free_host: "cuMemFreeHost" (Pointer) -> i32;
    to_device: "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Pointer) -> i32;
    to_host: "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Pointer) -> i32;
    copy: "cuMemcpyDtoDAsync_v2" (Address, Address, usize, Pointer) -> i32;
    fill_bytes: "cuMemsetD8Async" (Address, u8, usize, Pointer) -> i32;
    fill_words: "cuMemsetD32Async" (Address, c_uint, usize, Pointer) -> i32;
    pointer: "cuPointerGetAttribute" (*mut c_void, i32, Address) -> i32;
    stream: "cuStreamCreate" (*mut Pointer, c_uint) -> i32;
    release_stream: "cuStreamDestroy_v2" (Pointer) -> i32;
    event: "cuEventCreate" (*mut Pointer, c_uint) -> i32;
    record: "cuEventRecord" (Pointer, Pointer) -> i32;
    query: "cuEventQuery" (Pointer) -> i32;
    elapsed: "cuEventElapsedTime" (*mut f32, Pointer, Pointer) -> i32;
    release_event: "cuEventDestroy_v2" (Pointer) -> i32;
    launch: "cuLaunchKernel"
        (Pointer, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Pointer,
         *mut *mut c_void, *mut *mut c_void) -> i32;
}

/// The library's usual name; `HONE_CUDA_LIBRARY` in the environment names another.
const LIBRARY: &str = "libcuda.so.1";

/// The functions of the driver's library: those that are needed, and those of graphs where it has them.
pub(crate) struct Functions {
    pub(crate) api: Api,
    pub(crate) graphs: Option<graphs::Api>,
}

/// The driver's library, loaded once; what it drives is known from then on.
///
/// # Errors
/// None, one without a function that is needed, or one that has no device.
pub(crate) fn functions() -> Result<&'static Functions, DeviceError> {
    static KNOWN: Mutex<Option<&'static Functions>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = *known {
        return Ok(functions);
    }
    let library = variable("HONE_CUDA_LIBRARY").unwrap_or_else(|| LIBRARY.to_owned());
    let handle = open(&library)
        .map_err(|reason| DeviceError::NoCuda { library: library.clone(), reason })?;
    let api = Api::find(handle).map_err(|symbol| DeviceError::OldCuda { library, symbol })?;
    // SAFETY: no flags are defined.
    match unsafe { (api.init)(0) } {
        SUCCESS => {}
        code => return Err(DeviceError::NoCudaDevice { reason: api.words(code) }),
    }
    // SAFETY: the library is the driver's.
    let graphs = unsafe { graphs::Api::of(handle) };
    let functions: &'static Functions = Box::leak(Box::new(Functions { api, graphs }));
    *known = Some(functions);
    Ok(functions)
}

impl Api {
    /// An error in words.
    pub(crate) fn words(&self, code: i32) -> String {
        type Ask = unsafe extern "C" fn(i32, *mut *const c_char) -> i32;
        let ask = |ask: Ask| {
            let mut text = std::ptr::null();
            // SAFETY: the answer is null or a text that stays.
            let code = unsafe { ask(code, &mut text) };
            let known = code == SUCCESS && !text.is_null();
            // SAFETY: as above.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (ask(self.error_name), ask(self.error_text)) {
            (Some(name), Some(text)) => format!("CUDA error {code}, {name}: {text}"),
            (Some(name), None) => format!("CUDA error {code}, {name}"),
            _ => format!("CUDA error {code}"),
        }
    }
}
