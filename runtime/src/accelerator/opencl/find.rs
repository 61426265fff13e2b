//! Which devices there are, and which one is used.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use hone_artifact::DeviceApi;

use super::api::{self, Api, Handle, api};
use crate::accelerator::{DeviceError, DeviceInfo, DeviceKind};

/// Platforms, and devices of each, that are looked at.
const MOST: usize = 64;

/// A device of the system.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) api: &'static Api,
    pub(crate) id: Handle,
    pub(crate) info: DeviceInfo,
}

// SAFETY: devices are never released, and may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Every device of the system.
///
/// # Errors
/// No loader, no platform, no device.
pub(crate) fn devices() -> Result<Vec<Device>, DeviceError> {
    // A loader that several threads ask for the first time at once may find no platform.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let api = api()?;
    let mut devices = Vec::new();
    let mut names = Vec::new();
    for platform in platforms(api)? {
        let name = text(|size, address, length| {
            // SAFETY: the platform is one that the loader gave; `text` gives memory of the size.
            unsafe { (api.platform_info)(platform, api::PLATFORM_NAME, size, address, length) }
        });
        let (mut ids, mut count) = ([null_mut(); MOST], 0);
        // SAFETY: as above, with memory for as many devices.
        let code = unsafe {
            (api.devices)(platform, api::DEVICE_TYPE_ALL, MOST as u32, ids.as_mut_ptr(), &mut count)
        };
        let count = if code == api::SUCCESS { count as usize } else { 0 };
        if code != api::SUCCESS && code != api::DEVICE_NOT_FOUND {
            names.push(format!("{name}, which answers with OpenCL error {code}"));
        } else {
            names.push(name.clone());
        }
        for id in ids.into_iter().take(count) {
            let info = describe(api, id, devices.len(), &name);
            devices.push(Device { api, id, info });
        }
    }
    match devices.is_empty() {
        true => Err(DeviceError::NoDevice { platforms: names.join("; ") }),
        false => Ok(devices),
    }
}

fn platforms(api: &Api) -> Result<Vec<Handle>, DeviceError> {
    let (mut ids, mut count) = ([null_mut(); MOST], 0);
    // SAFETY: memory for as many platforms as is said.
    let code = unsafe { (api.platforms)(MOST as u32, ids.as_mut_ptr(), &mut count) };
    match code {
        api::SUCCESS if count > 0 => Ok(ids.into_iter().take(count as usize).collect()),
        api::SUCCESS | api::PLATFORM_NOT_FOUND => Err(DeviceError::NoPlatform),
        code => {
            let (device, what) = ("of this system".to_owned(), "to list its platforms");
            Err(DeviceError::Driver { device, what, error: api::words(code) })
        }
    }
}

fn describe(api: &Api, id: Handle, number: usize, platform: &str) -> DeviceInfo {
    let word = |what: u32| {
        text(|size, address, length| {
            // SAFETY: the device is one that the loader gave; `text` gives memory of the size.
            unsafe { (api.device_info)(id, what, size, address, length) }
        })
    };
    let numbers = |what: u32| -> [u64; 3] {
        let mut values = [0u64; 3];
        // SAFETY: the values have the size given; a shorter answer leaves the rest zero, on machines whose first byte
        // is the lowest, which all that drivers exist for are.
        unsafe {
            let address = values.as_mut_ptr().cast::<c_void>();
            (api.device_info)(id, what, size_of_val(&values), address, null_mut());
        }
        values
    };
    let number_of = |what: u32| numbers(what)[0];
    let kinds = number_of(api::DEVICE_TYPE);
    let kind = match kinds {
        _ if kinds & api::DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
        _ if kinds & api::DEVICE_TYPE_CPU != 0 => DeviceKind::Processor,
        _ => DeviceKind::Other,
    };
    DeviceInfo {
        api: DeviceApi::OpenCl,
        capability: None,
        number,
        name: word(api::DEVICE_NAME),
        vendor: word(api::DEVICE_VENDOR),
        platform: platform.to_owned(),
        driver: word(api::DRIVER_VERSION),
        version: word(api::DEVICE_VERSION),
        kind,
        compute_units: number_of(api::DEVICE_COMPUTE_UNITS) as u32,
        memory_bytes: number_of(api::DEVICE_MEMORY_BYTES),
        buffer_bytes: number_of(api::DEVICE_BUFFER_BYTES),
        shared_bytes: number_of(api::DEVICE_SHARED_BYTES),
        lanes: number_of(api::DEVICE_LANES),
        lanes_along: numbers(api::DEVICE_LANES_ALONG),
        alignment: number_of(api::DEVICE_ALIGNMENT_BITS) / 8,
    }
}

/// A text that `ask` writes, into memory of a size that it is told, without the zero at its end. It is asked for the
/// length first.
pub(crate) fn text(ask: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> String {
    const MOST_BYTES: usize = 1 << 24;
    let mut length = 0;
    if ask(0, null_mut(), &mut length) != api::SUCCESS || length > MOST_BYTES {
        return "unknown".to_owned();
    }
    let mut bytes = vec![0u8; length];
    if ask(length, bytes.as_mut_ptr().cast(), &mut length) != api::SUCCESS {
        return "unknown".to_owned();
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}
