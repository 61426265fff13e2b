//! An OpenCL device in use. Handles are the API's pointers.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use super::api::{self, Api, Handle as Pointer};
use super::find;
use crate::accelerator::driver::{At, Code, Driver, Handle, Kind, Launch, Value};
use crate::accelerator::{DeviceError, DeviceInfo};

/// A device with its context.
pub(crate) struct Device {
    found: find::Device,
    context: Pointer,
}

// SAFETY: the specification lets contexts and devices be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What its driver says; a device that is not there any more.
    pub(crate) fn open(info: &DeviceInfo) -> Result<Arc<Self>, DeviceError> {
        let found = find::devices()?.into_iter().find(|found| found.info == *info);
        let found =
            found.ok_or_else(|| DeviceError::NoDevice { platforms: info.platform.clone() })?;
        let (mut code, id) = (0, found.id);
        // SAFETY: one device, without properties or a callback.
        let context = unsafe { (found.api.context)(null(), 1, &id, None, null_mut(), &mut code) };
        match code {
            api::SUCCESS => Ok(Arc::new(Self { found, context })),
            code => {
                let (device, what) = (info.name.clone(), "to be used");
                Err(DeviceError::Driver { device, what, error: api::words(code) })
            }
        }
    }

    fn api(&self) -> &'static Api {
        self.found.api
    }

    fn log(&self, program: Pointer) -> String {
        find::text(|size, place, length| {
            let (ask, what) = (self.api().build_info, api::PROGRAM_BUILD_LOG);
            // SAFETY: the program is of this device; `text` gives memory of the size.
            unsafe { ask(program, self.found.id, what, size, place, length) }
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: it is ours, and what was made of it keeps it alive by itself.
        unsafe { (self.api().release_context)(self.context) };
    }
}

fn pointer(handle: Handle) -> Pointer {
    handle as usize as Pointer
}

fn made(pointer: Pointer, code: Code) -> Result<Handle, Code> {
    checked(code).map(|()| pointer as usize as Handle)
}

fn checked(code: Code) -> Result<(), Code> {
    if code == api::SUCCESS { Ok(()) } else { Err(code) }
}

impl Driver for Device {
    fn info(&self) -> &DeviceInfo {
        &self.found.info
    }

    fn words(&self, code: Code) -> String {
        api::words(code)
    }

    fn is_out_of_memory(&self, code: Code) -> bool {
        api::NO_MEMORY.contains(&code)
    }

    fn buffer(&self, bytes: u64) -> Result<Handle, Code> {
        let (mut code, flags) = (0, api::MEM_READ_WRITE);
        let size = usize::try_from(bytes).map_err(|_| api::NO_MEMORY[0])?;
        // SAFETY: no host memory is handed over.
        let handle =
            unsafe { (self.api().buffer)(self.context, flags, size, null_mut(), &mut code) };
        made(handle, code)
    }

    unsafe fn part(&self, buffer: Handle, offset: u64, bytes: u64) -> Result<Handle, Code> {
        let region = api::Region { origin: offset as usize, size: bytes as usize };
        let (mut code, flags) = (0, api::MEM_READ_WRITE);
        // SAFETY: the region lives as long as the call; the driver checks that it lies in the buffer.
        let handle = unsafe {
            let (address, part) = ((&raw const region).cast(), self.api().part);
            part(pointer(buffer), flags, api::BUFFER_REGION, address, &mut code)
        };
        made(handle, code)
    }

    fn program(&self, code: &[u8]) -> Result<Handle, (Code, String)> {
        let (text, length, device) = (code.as_ptr().cast(), code.len(), self.found.id);
        let mut code = 0;
        // SAFETY: one text of the length given, which is copied.
        let handle = unsafe { (self.api().program)(self.context, 1, &text, &length, &mut code) };
        let program = made(handle, code).map_err(|code| (code, String::new()))?;
        let options = c"-cl-std=CL1.2";
        // SAFETY: one device, and options that live as long as the call.
        let code =
            unsafe { (self.api().build)(handle, 1, &device, options.as_ptr(), None, null_mut()) };
        checked(code).map(|()| program).map_err(|code| {
            let log = self.log(handle);
            // SAFETY: it is ours.
            unsafe { (self.api().release_program)(handle) };
            (code, log)
        })
    }

    unsafe fn kernel(&self, program: Handle, name: &CStr, _: u64) -> Result<(Handle, u64), Code> {
        let (api, mut code) = (self.api(), 0);
        // SAFETY: the program is built, and the name ends with a zero.
        let handle = unsafe { (api.kernel)(pointer(program), name.as_ptr(), &mut code) };
        let kernel = made(handle, code)?;
        let mut most = 0usize;
        // SAFETY: the number has the size given.
        let code = unsafe {
            let (size, address) = (size_of_val(&most), (&raw mut most).cast::<c_void>());
            (api.kernel_info)(handle, self.found.id, api::KERNEL_LANES, size, address, null_mut())
        };
        Ok((kernel, if code == api::SUCCESS { most as u64 } else { u64::MAX }))
    }

    fn queue(&self, timed: bool) -> Result<Handle, Code> {
        let properties = if timed { api::QUEUE_PROFILING } else { 0 };
        let mut code = 0;
        // SAFETY: the context is of this device.
        let handle =
            unsafe { (self.api().queue)(self.context, self.found.id, properties, &mut code) };
        made(handle, code)
    }

    fn most_at_once(&self) -> usize {
        usize::MAX
    }

    unsafe fn write(&self, queue: Handle, to: At, bytes: &[u8]) -> Result<bool, Code> {
        let (write, from) = (self.api().write, bytes.as_ptr().cast::<c_void>());
        let (queue, buffer, offset) = (pointer(queue), pointer(to.0), to.1 as usize);
        // SAFETY: the bytes have the length given and are read before the call returns.
        checked(unsafe {
            write(queue, buffer, 1, offset, bytes.len(), from, 0, null(), null_mut())
        })
        .map(|()| false)
    }

    unsafe fn begin_read(&self, _: Handle, _: At, _: usize) -> Result<bool, Code> {
        Ok(false)
    }

    unsafe fn end_read(&self, queue: Handle, from: At, bytes: &mut [u8]) -> Result<(), Code> {
        let (read, to) = (self.api().read, bytes.as_mut_ptr().cast::<c_void>());
        let (queue, buffer, offset) = (pointer(queue), pointer(from.0), from.1 as usize);
        // SAFETY: the bytes have the length given and are written before the call returns.
        checked(unsafe { read(queue, buffer, 1, offset, bytes.len(), to, 0, null(), null_mut()) })
    }

    unsafe fn copy(&self, queue: Handle, from: At, to: At, bytes: u64) -> Result<(), Code> {
        let (source, target) = (pointer(from.0), pointer(to.0));
        let (begin, end, bytes) = (from.1 as usize, to.1 as usize, bytes as usize);
        let (copy, queue) = (self.api().copy, pointer(queue));
        // SAFETY: the driver checks both ranges.
        checked(unsafe { copy(queue, source, target, begin, end, bytes, 0, null(), null_mut()) })
    }

    unsafe fn fill(&self, queue: Handle, to: At, pattern: &[u8], bytes: u64) -> Result<(), Code> {
        let (fill, start) = (self.api().fill, pattern.as_ptr().cast::<c_void>());
        let (queue, buffer, size) = (pointer(queue), pointer(to.0), pattern.len());
        let (offset, bytes) = (to.1 as usize, bytes as usize);
        // SAFETY: the pattern has the length given and is copied; the driver checks the range.
        checked(unsafe { fill(queue, buffer, start, size, offset, bytes, 0, null(), null_mut()) })
    }

    unsafe fn launch(&self, queue: Handle, launch: &Launch<'_>) -> Result<Handle, Code> {
        let (api, kernel) = (self.api(), pointer(launch.kernel));
        for (index, argument) in launch.arguments.iter().enumerate() {
            let (object, number);
            let (size, value) = match *argument {
                Value::Buffer(handle) => {
                    object = pointer(handle);
                    (size_of::<Pointer>(), (&raw const object).cast::<c_void>())
                }
                Value::Counter(counter) => {
                    number = counter;
                    (size_of::<i64>(), (&raw const number).cast::<c_void>())
                }
            };
            // SAFETY: the value has the size given, and is copied.
            checked(unsafe { (api.argument)(kernel, index as u32, size, value) })?;
        }
        let items = launch.block.map(|extent| extent as usize);
        let all: [usize; 3] = std::array::from_fn(|axis| launch.grid[axis] as usize * items[axis]);
        let mut event = null_mut();
        let address = if launch.timed { &raw mut event } else { null_mut() };
        // SAFETY: both ranges have three dimensions, and nothing is waited for.
        let code = unsafe {
            let start = api.launch;
            let queue = pointer(queue);
            start(queue, kernel, 3, null(), all.as_ptr(), items.as_ptr(), 0, null(), address)
        };
        made(event, code)
    }

    unsafe fn marker(&self, queue: Handle) -> Result<Handle, Code> {
        let (queue, mut marker) = (pointer(queue), null_mut());
        // SAFETY: the marker waits for everything before it.
        checked(unsafe { (self.api().marker)(queue, 0, null(), &mut marker) })?;
        // SAFETY: the caller's promise.
        checked(unsafe { (self.api().flush)(queue) })?;
        Ok(marker as usize as Handle)
    }

    unsafe fn is_done(&self, event: Handle) -> Result<bool, Code> {
        let mut status = 0i32;
        // SAFETY: the number has the size given.
        checked(unsafe {
            let (address, ask) = ((&raw mut status).cast::<c_void>(), self.api().event_info);
            ask(pointer(event), api::EVENT_STATUS, size_of::<i32>(), address, null_mut())
        })?;
        if status < 0 { Err(status) } else { Ok(status == 0) }
    }

    unsafe fn time(&self, event: Handle) -> Option<Duration> {
        let ask = |what: u32| {
            let mut time = 0u64;
            // SAFETY: the number has the size given.
            let code = unsafe {
                let (address, times) = ((&raw mut time).cast::<c_void>(), self.api().event_times);
                times(pointer(event), what, size_of::<u64>(), address, null_mut())
            };
            (code == api::SUCCESS).then_some(time)
        };
        let (start, end) = (ask(api::PROFILING_START)?, ask(api::PROFILING_END)?);
        Some(Duration::from_nanos(end.saturating_sub(start)))
    }

    unsafe fn release(&self, kind: Kind, handle: Handle) {
        let api = self.api();
        let release = match kind {
            Kind::Buffer | Kind::Part => api.release_buffer,
            Kind::Program => api.release_program,
            Kind::Kernel => api.release_kernel,
            Kind::Queue => api.release_queue,
            Kind::Event => api.release_event,
            // It records none.
            Kind::Sequence => return,
        };
        // SAFETY: the caller gives it up; the driver keeps what commands still need.
        unsafe { release(pointer(handle)) };
    }
}
