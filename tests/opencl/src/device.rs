//! A device, its queue, programs and memory, with every code of the API checked.

use crate::api::{self, Api, Handle};
use anyhow::{Result, bail, ensure};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

/// An OpenCL device with a queue that runs one thing after the other.
pub struct Device {
    api: Api,
    device: Handle,
    context: Handle,
    queue: Handle,
}

// SAFETY: the specification makes every function used thread-safe, but for setting the arguments of one kernel, and
// kernels are not shared: each [`Kernels`] makes its own for each launch.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn checked(what: &str, code: i32) -> Result<()> {
    ensure!(code == api::SUCCESS, "{what} failed with OpenCL error {code}");
    Ok(())
}

impl Device {
    /// The first device of the first platform that has one; `None` where there is none.
    ///
    /// # Errors
    /// A loader without the functions of OpenCL 1.2; a device that gives no queue.
    pub fn open() -> Result<Option<Self>> {
        let Some(api) = Api::load()? else { return Ok(None) };
        let (mut platforms, mut count) = ([null_mut(); 8], 0);
        // SAFETY: both pointers are to memory of ours, of the length given.
        let code = unsafe { (api.platforms)(8, platforms.as_mut_ptr(), &mut count) };
        if code == api::PLATFORM_NOT_FOUND {
            return Ok(None);
        }
        checked("asking for platforms", code)?;
        let mut device = null_mut();
        let found = platforms.iter().take(count as usize).any(|platform| {
            let mut devices = 0;
            // SAFETY: the platform is one that the loader gave; the pointers are to memory of ours.
            let code = unsafe {
                (api.devices)(*platform, api::DEVICE_TYPE_ALL, 1, &mut device, &mut devices)
            };
            code == api::SUCCESS && devices > 0
        });
        if !found {
            return Ok(None);
        }
        let mut code = 0;
        // SAFETY: one device, without properties or a callback.
        let context = unsafe { (api.context)(null(), 1, &device, None, null_mut(), &mut code) };
        checked("making a context", code)?;
        // SAFETY: the context is of this device.
        let queue = unsafe { (api.queue)(context, device, 0, &mut code) };
        checked("making a queue", code)?;
        Ok(Some(Self { api, device, context, queue }))
    }

    /// The device's name.
    pub fn name(&self) -> String {
        let mut text = vec![0u8; 256];
        let mut length = 0;
        let place = text.as_mut_ptr().cast::<c_void>();
        // SAFETY: the text has the length given.
        let code = unsafe {
            (self.api.device_info)(self.device, api::DEVICE_NAME, text.len(), place, &mut length)
        };
        if code != api::SUCCESS {
            return "unknown".to_string();
        }
        text.truncate(length.saturating_sub(1));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Builds a text.
    ///
    /// # Errors
    /// What the device's compiler says.
    pub fn build(&self, source: &str) -> Result<Kernels<'_>> {
        let (place, length) = (source.as_ptr().cast(), source.len());
        let mut code = 0;
        // SAFETY: one text of the length given.
        let program = unsafe { (self.api.program)(self.context, 1, &place, &length, &mut code) };
        checked("making a program", code)?;
        let kernels = Kernels { device: self, program };
        let options = c"-cl-std=CL1.2 -cl-opt-disable";
        // SAFETY: one device, and options that live as long as the call.
        let code = unsafe {
            (self.api.build)(program, 1, &self.device, options.as_ptr(), None, null_mut())
        };
        if code != api::SUCCESS {
            bail!("the text was not built: {}", kernels.log());
        }
        Ok(kernels)
    }

    /// Memory that begins with the given bytes.
    pub(crate) fn memory(&self, bytes: &[u8]) -> Result<Memory<'_>> {
        // No memory may be empty.
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(8), 0);
        let mut code = 0;
        let place = bytes.as_mut_ptr().cast();
        // SAFETY: the device copies as many bytes as there are.
        let handle = unsafe {
            (self.api.buffer)(self.context, api::MEM_COPIED, bytes.len(), place, &mut code)
        };
        checked("making memory", code)?;
        Ok(Memory { device: self, handle })
    }

    /// Waits until all launches are complete.
    pub(crate) fn finish(&self) -> Result<()> {
        // SAFETY: the queue is ours.
        checked("running", unsafe { (self.api.finish)(self.queue) })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: both are ours, and nothing that was made of them is left.
        unsafe {
            (self.api.release_queue)(self.queue);
            (self.api.release_context)(self.context);
        }
    }
}

/// A built text.
pub struct Kernels<'a> {
    device: &'a Device,
    program: Handle,
}

/// An argument of a launch.
pub(crate) enum Value<'a> {
    Memory(&'a Memory<'a>),
    Counter(i64),
}

impl Kernels<'_> {
    fn log(&self) -> String {
        let mut text = vec![0u8; 1 << 16];
        let mut length = 0;
        let place = text.as_mut_ptr().cast();
        let (api, device) = (&self.device.api, self.device.device);
        // SAFETY: the text has the length given.
        unsafe {
            (api.build_info)(
                self.program,
                device,
                api::PROGRAM_BUILD_LOG,
                text.len(),
                place,
                &mut length,
            );
        }
        text.truncate(length.saturating_sub(1));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Starts a kernel.
    pub(crate) fn launch(
        &self,
        name: &str,
        arguments: &[Value<'_>],
        groups: [usize; 3],
        items: [usize; 3],
    ) -> Result<()> {
        let api = &self.device.api;
        let symbol = CString::new(name)?;
        let mut code = 0;
        // SAFETY: the program is built, and the name ends with a zero.
        let kernel = unsafe { (api.kernel)(self.program, symbol.as_ptr(), &mut code) };
        checked(&format!("finding kernel '{name}'"), code)?;
        let outcome = self.start(kernel, arguments, groups, items);
        // SAFETY: the kernel is ours; the queue keeps what it still needs.
        unsafe { (api.release_kernel)(kernel) };
        outcome.map_err(|error| error.context(format!("kernel '{name}'")))
    }

    fn start(
        &self,
        kernel: Handle,
        arguments: &[Value<'_>],
        groups: [usize; 3],
        items: [usize; 3],
    ) -> Result<()> {
        let api = &self.device.api;
        for (place, argument) in arguments.iter().enumerate() {
            let (size, value) = match argument {
                Value::Memory(own) => {
                    (size_of::<Handle>(), (&raw const own.handle).cast::<c_void>())
                }
                Value::Counter(own) => (size_of::<i64>(), (&raw const *own).cast()),
            };
            // SAFETY: the value has the size given, and is copied.
            checked("an argument", unsafe { (api.argument)(kernel, place as u32, size, value) })?;
        }
        let all: Vec<usize> = groups.iter().zip(&items).map(|(own, items)| own * items).collect();
        // SAFETY: both ranges have three dimensions, and nothing is waited for.
        let code = unsafe {
            (api.launch)(
                self.device.queue,
                kernel,
                3,
                null(),
                all.as_ptr(),
                items.as_ptr(),
                0,
                null(),
                null_mut(),
            )
        };
        checked("starting", code)
    }
}

impl Drop for Kernels<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is ours.
        unsafe { (self.device.api.release_program)(self.program) };
    }
}

/// Memory of a device.
pub(crate) struct Memory<'a> {
    device: &'a Device,
    handle: Handle,
}

impl Memory<'_> {
    /// Its first bytes, once everything started is complete.
    pub(crate) fn read(&self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        if length == 0 {
            return Ok(bytes);
        }
        let (api, place) = (&self.device.api, bytes.as_mut_ptr().cast());
        // SAFETY: the memory has at least as many bytes; the call waits until they are copied.
        let code = unsafe {
            (api.read)(self.device.queue, self.handle, 1, 0, length, place, 0, null(), null_mut())
        };
        checked("reading memory", code)?;
        Ok(bytes)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory is ours; the queue keeps what it still needs.
        unsafe { (self.device.api.release_buffer)(self.handle) };
    }
}
