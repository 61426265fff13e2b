//! Which of NVIDIA's devices there are.

use std::ffi::c_char;

use hone_artifact::DeviceApi;

use super::api::{self, Api};
use super::graphs;
use crate::accelerator::{DeviceError, DeviceInfo, DeviceKind};

/// Devices that are looked at.
const MOST: i32 = 64;
/// Bytes of a device's name.
const NAME_BYTES: usize = 256;
/// Addresses of memory that is allocated are multiples of 256; kernels take any offset of whole elements, and those for
/// tensor cores of 16 bytes.
const ALIGNMENT: u64 = 16;

/// A device of the system.
pub(crate) struct Device {
    pub(crate) api: &'static Api,
    /// The functions of graphs, where the driver has them.
    pub(crate) graphs: Option<&'static graphs::Api>,
    /// `CUdevice`
    pub(crate) id: i32,
    pub(crate) info: DeviceInfo,
}

/// Every device of the system, or of those that `CUDA_VISIBLE_DEVICES` lets this process see.
///
/// # Errors
/// No driver, no device.
pub(crate) fn devices() -> Result<Vec<Device>, DeviceError> {
    let functions = api::functions()?;
    let (api, graphs) = (&functions.api, functions.graphs.as_ref());
    let none = |reason| DeviceError::NoCudaDevice { reason };
    let (mut count, mut version) = (0, 0);
    // SAFETY: places for one number each.
    let codes = unsafe { [(api.device_count)(&mut count), (api.version)(&mut version)] };
    if let Some(code) = codes.into_iter().find(|code| *code != api::SUCCESS) {
        return Err(none(api.words(code)));
    }
    let mut devices = Vec::new();
    for number in 0..count.min(MOST) {
        let mut id = 0;
        // SAFETY: a place for the device.
        let code = unsafe { (api.device)(&mut id, number) };
        if code != api::SUCCESS {
            return Err(none(format!("device {number}: {}", api.words(code))));
        }
        let info = describe(api, id, number as usize, version);
        devices.push(Device { api, graphs, id, info });
    }
    match devices.is_empty() {
        true => Err(none(api.words(api::NO_DEVICE))),
        false => Ok(devices),
    }
}

fn describe(api: &Api, id: i32, number: usize, version: i32) -> DeviceInfo {
    let attribute = |which: i32| {
        let mut value = 0;
        // SAFETY: the device is one that the driver gave; an attribute that it does not know leaves zero.
        unsafe { (api.device_attribute)(&mut value, which, id) };
        value.max(0) as u64
    };
    let mut memory = 0usize;
    // SAFETY: as above.
    unsafe { (api.device_memory)(&mut memory, id) };
    let [major, minor] = api::CAPABILITY.map(|which| attribute(which) as u32);
    DeviceInfo {
        api: DeviceApi::Cuda,
        capability: Some((major, minor)),
        number,
        name: name(api, id),
        vendor: "NVIDIA".to_owned(),
        platform: "CUDA".to_owned(),
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        version: format!("compute capability {major}.{minor}"),
        kind: DeviceKind::Gpu,
        compute_units: attribute(api::MULTIPROCESSORS) as u32,
        memory_bytes: memory as u64,
        buffer_bytes: memory as u64,
        shared_bytes: attribute(api::SHARED_BYTES).max(attribute(api::REQUESTED_SHARED_BYTES)),
        lanes: attribute(api::LANES),
        lanes_along: api::LANES_ALONG.map(attribute),
        alignment: ALIGNMENT,
    }
}

fn name(api: &Api, id: i32) -> String {
    let mut bytes = [0u8; NAME_BYTES];
    // SAFETY: there are as many bytes as is said.
    let code =
        unsafe { (api.device_name)(bytes.as_mut_ptr().cast::<c_char>(), NAME_BYTES as i32, id) };
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    match code {
        api::SUCCESS => String::from_utf8_lossy(&bytes[..end]).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}
