//! The functions, as the driver's library exports them.

#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "the manual of the CUDA driver API has them"
)]
#![allow(unsafe_op_in_unsafe_fn, reason = "every function is the other side of a C interface")]

use crate::capture::Work;
use crate::driver::{
    Code, DECLARED_SHARED_BYTES, Driver, ERRORS, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE,
    Outcome,
};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::slice;
use std::sync::{Arc, Mutex};

thread_local! {
    /// The thread's current context; zero is none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn code(outcome: Outcome<()>) -> Code {
    outcome.err().unwrap_or(0)
}

/// Does something in the current context.
pub(crate) fn here<T>(work: impl FnOnce(&mut Driver, u64) -> Outcome<T>) -> Outcome<T> {
    let context = CURRENT.get();
    if context == 0 {
        return Err(INVALID_CONTEXT);
    }
    Driver::get(|driver| work(driver, context))
}

/// Stores what came out.
unsafe fn give<T>(place: *mut T, outcome: Outcome<T>) -> Code {
    match outcome {
        Ok(_) if place.is_null() => INVALID_VALUE,
        Ok(value) => {
            place.write(value);
            0
        }
        Err(code) => code,
    }
}

pub(crate) unsafe fn give_handle(place: *mut *mut c_void, outcome: Outcome<u64>) -> Code {
    give(place, outcome.map(|handle| handle as usize as *mut c_void))
}

pub(crate) fn handle(pointer: *mut c_void) -> u64 {
    pointer as usize as u64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> Code {
    if flags != 0 { INVALID_VALUE } else { code(Driver::init()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> Code {
    give(version, Driver::get(|driver| Ok(driver.settings.driver)))
}

/// Texts of errors that stay.
unsafe fn words(place: *mut *const c_char, text: Option<&'static str>) -> Code {
    static KNOWN: Mutex<Vec<(&str, CString)>> = Mutex::new(Vec::new());
    let Some(text) = text else { return INVALID_VALUE };
    let mut known = KNOWN.lock().unwrap_or_else(|poison| poison.into_inner());
    if !known.iter().any(|(own, _)| *own == text) {
        known.push((text, CString::new(text).unwrap_or_default()));
    }
    let found = known.iter().find(|(own, _)| *own == text).map(|(_, own)| own.as_ptr());
    give(place, found.ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: Code, place: *mut *const c_char) -> Code {
    words(place, ERRORS.iter().find(|own| own.0 == error).map(|own| own.1))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: Code, place: *mut *const c_char) -> Code {
    words(place, ERRORS.iter().find(|own| own.0 == error).map(|own| own.2))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> Code {
    give(count, Driver::get(|driver| Ok(driver.settings.devices)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut i32, number: i32) -> Code {
    give(device, known(number))
}

/// The number of a device that is there.
fn known(number: i32) -> Outcome<i32> {
    Driver::get(|driver| match (0..driver.settings.devices).contains(&number) {
        true => Ok(number),
        false => Err(INVALID_DEVICE),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(place: *mut c_char, bytes: i32, device: i32) -> Code {
    const NAME: &CStr = c"interpreter of PTX";
    let name = NAME.to_bytes_with_nul();
    match known(device) {
        Ok(_) if bytes as usize >= name.len() => {
            place.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            0
        }
        Ok(_) => INVALID_VALUE,
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> Code {
    give(bytes, known(device).and_then(|_| Driver::get(|driver| Ok(driver.settings.memory))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(place: *mut i32, which: i32, device: i32) -> Code {
    let value = |driver: &mut Driver| match which {
        1..=3 => Ok(driver.settings.lanes),
        4 => Ok(driver.settings.lanes.min(64)),
        8 => Ok(DECLARED_SHARED_BYTES),
        97 => Ok(driver.settings.shared_bytes()),
        16 => Ok(1),
        75 => Ok(driver.settings.capability.0 as i32),
        76 => Ok(driver.settings.capability.1 as i32),
        _ => Err(INVALID_VALUE),
    };
    give(place, known(device).and_then(|_| Driver::get(value)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(place: *mut *mut c_void, device: i32) -> Code {
    give_handle(place, Driver::get(|driver| driver.retain(device)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    code(Driver::get(|driver| driver.release(device)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> Code {
    code(
        Driver::get(|driver| driver.is_there(handle(context)))
            .map(|()| CURRENT.set(handle(context))),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_void,
    count: c_uint,
    options: *mut i32,
    values: *mut *mut c_void,
) -> Code {
    let text = CStr::from_ptr(image.cast()).to_string_lossy();
    let context = CURRENT.get();
    let loaded = match context {
        0 => Err((INVALID_CONTEXT, String::new())),
        _ => {
            let mut log = String::new();
            let loaded = Driver::get(|driver| {
                driver.unless_captured(context)?;
                driver.load(context, &text).map_err(|(code, words)| {
                    log = words;
                    code
                })
            });
            loaded.map_err(|code| (code, log))
        }
    };
    let value = |option: i32| {
        let place = (0..count as usize).find(|place| *options.add(*place) == option);
        place.map(|place| *values.add(place))
    };
    // The buffer of the error log and its size.
    if let (Err((_, log)), Some(buffer), Some(size)) = (&loaded, value(5), value(6)) {
        let bytes = &log.as_bytes()[..log.len().min((size as usize).saturating_sub(1))];
        buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        buffer.cast::<u8>().add(bytes.len()).write(0);
    }
    give_handle(module, loaded.map_err(|(code, _)| code))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> Code {
    let name = CStr::from_ptr(name).to_string_lossy();
    give_handle(function, here(|driver, own| driver.function(own, handle(module), &name)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    place: *mut i32,
    which: i32,
    function: *mut c_void,
) -> Code {
    let attribute = |driver: &mut Driver, own| {
        let (entry, requested) = driver.kernel(own, handle(function))?;
        let declared = entry.shared as i32;
        match which {
            0 => Ok(driver.settings.lanes),
            1 => Ok(declared),
            8 => Ok(requested.unwrap_or(DECLARED_SHARED_BYTES - declared)),
            _ => Err(INVALID_VALUE),
        }
    };
    give(place, here(attribute))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: *mut c_void, which: i32, value: i32) -> Code {
    code(here(|driver, own| match which {
        8 => driver.request_shared(own, handle(function), value),
        _ => Err(INVALID_VALUE),
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
    give(address, unless_captured(|driver, own| driver.allocate(own, bytes)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Code {
    code(unless_captured(|driver, own| driver.free(own, address)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(place: *mut *mut c_void, bytes: usize) -> Code {
    let place_of = |driver: &mut Driver, own| driver.allocate_host(own, bytes);
    give(place, unless_captured(place_of).map(|place| place.cast()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    place: *mut c_void,
    which: i32,
    address: u64,
) -> Code {
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE of CU_MEMORYTYPE_HOST and CU_MEMORYTYPE_DEVICE; other memory is not known.
    let kind = here(|driver, own| match which {
        2 => driver.memory_type(own, address),
        _ => Err(INVALID_VALUE),
    });
    give(place.cast::<u32>(), kind)
}

/// As [`here`], for calls that a capture of a stream may prohibit.
fn unless_captured<T>(work: impl FnOnce(&mut Driver, u64) -> Outcome<T>) -> Outcome<T> {
    here(|driver, own| {
        driver.unless_captured(own)?;
        work(driver, own)
    })
}

/// Streams and events.
fn remove(object: *mut c_void) -> Code {
    code(here(|driver, own| driver.remove(own, handle(object))))
}

/// Modules and memory of the host.
fn remove_unless_captured(object: *mut c_void) -> Code {
    code(unless_captured(|driver, own| driver.remove(own, handle(object))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(place: *mut c_void) -> Code {
    remove_unless_captured(place)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> Code {
    remove_unless_captured(module)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> Code {
    remove(stream)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> Code {
    remove(event)
}

/// Puts something into a stream.
fn put(stream: *mut c_void, work: Work) -> Code {
    code(here(|driver, own| driver.put(own, handle(stream), work)))
}

/// Puts something into a stream that is done with bytes of the device's memory.
fn put_bytes(
    stream: *mut c_void,
    place: (u64, usize),
    host: Option<usize>,
    with: impl Fn(&mut [u8]) + Send + Sync + 'static,
) -> Code {
    put(stream, Work::Bytes { place, host, with: Arc::new(with) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Code {
    let from = from as usize;
    put_bytes(stream, (to, bytes), Some(from), move |to| {
        to.copy_from_slice(slice::from_raw_parts(from as *const u8, bytes));
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> Code {
    let to = to as usize;
    put_bytes(stream, (from, bytes), Some(to), move |from| {
        slice::from_raw_parts_mut(to as *mut u8, bytes).copy_from_slice(from);
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> Code {
    put(stream, Work::Copy { from, to, bytes })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    to: u64,
    value: u8,
    count: usize,
    stream: *mut c_void,
) -> Code {
    put_bytes(stream, (to, count), None, move |bytes| bytes.fill(value))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    to: u64,
    value: c_uint,
    count: usize,
    stream: *mut c_void,
) -> Code {
    if !to.is_multiple_of(4) {
        return INVALID_VALUE;
    }
    put_bytes(stream, (to, 4 * count), None, move |bytes| {
        bytes.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_ne_bytes()));
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _: c_uint) -> Code {
    give_handle(stream, here(|driver, own| driver.stream(own)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _: c_uint) -> Code {
    give_handle(event, here(|driver, own| driver.event(own)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> Code {
    code(here(|driver, own| driver.record(own, handle(event), handle(stream))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> Code {
    code(unless_captured(|driver, own| driver.came(own, handle(event)).map(|_| ())))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> Code {
    let between = |driver: &mut Driver, own| {
        let start = driver.came(own, handle(start))?;
        let end = driver.came(own, handle(end))?;
        Ok(end.duration_since(start).as_secs_f32() * 1e3)
    };
    give(milliseconds, here(between))
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "as the API has it")]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    columns: c_uint,
    rows: c_uint,
    layers: c_uint,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    shared: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    if !extra.is_null() {
        return INVALID_VALUE;
    }
    let sizes = [[columns, rows, layers], [x, y, z]].map(|own| own.map(|extent| extent as usize));
    code(here(|driver, own| {
        let count = driver.kernel(own, handle(function))?.0.parameters.len();
        // Every parameter has 64 bits.
        let arguments: Vec<u64> =
            (0..count).map(|place| (*parameters.add(place)).cast::<u64>().read()).collect();
        let shared_bytes = shared as usize;
        let work = Work::Launch { function: handle(function), arguments, sizes, shared_bytes };
        driver.put(own, handle(stream), work)
    }))
}
