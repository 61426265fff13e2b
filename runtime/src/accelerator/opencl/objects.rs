//! A device that is in use, and what is made on it: programs, kernels, buffers. Each is released when dropped.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::api::{self, Api, Handle};
use super::find::{self, Device};
use crate::accelerator::DeviceError;

/// Most characters of a compiler's log that a message carries.
const MOST_LOG: usize = 2000;

/// A device that is in use.
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) handle: Handle,
}

// SAFETY: the specification lets contexts be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What its driver says.
    pub(crate) fn open(device: Device) -> Result<Arc<Self>, DeviceError> {
        let mut code = 0;
        let id = device.id;
        // SAFETY: one device, without properties or a callback.
        let handle = unsafe { (device.api.context)(null(), 1, &id, None, null_mut(), &mut code) };
        let context = Self { device, handle };
        context.checked("to be used", code)?;
        Ok(Arc::new(context))
    }

    /// The loaded functions.
    pub(crate) fn api(&self) -> &'static Api {
        self.device.api
    }

    /// The device's name.
    pub(crate) fn name(&self) -> String {
        self.device.info.name.clone()
    }

    /// An error for a code that is none of success.
    pub(crate) fn checked(&self, what: &'static str, code: i32) -> Result<(), DeviceError> {
        match code {
            api::SUCCESS => Ok(()),
            code => Err(DeviceError::Driver { device: self.name(), what, code }),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: it is ours, and what was made of it keeps it alive by itself.
            unsafe { (self.device.api.release_context)(self.handle) };
        }
    }
}

/// A built text.
pub(crate) struct Program {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: programs may be used from any thread.
unsafe impl Send for Program {}
// SAFETY: as above; making kernels of one is safe from several threads.
unsafe impl Sync for Program {}

impl Program {
    /// Builds a text of OpenCL C 1.2.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with what the device's compiler says.
    pub(crate) fn build(context: &Arc<Context>, source: &[u8]) -> Result<Self, DeviceError> {
        let (api, device) = (context.api(), context.device.id);
        let (place, length) = (source.as_ptr().cast(), source.len());
        let mut code = 0;
        // SAFETY: one text of the length given, which is copied.
        let handle = unsafe { (api.program)(context.handle, 1, &place, &length, &mut code) };
        context.checked("a program", code)?;
        let program = Self { context: context.clone(), handle };
        let options = c"-cl-std=CL1.2";
        // SAFETY: one device, and options that live as long as the call.
        let code = unsafe { (api.build)(handle, 1, &device, options.as_ptr(), None, null_mut()) };
        match code {
            api::SUCCESS => Ok(program),
            code => {
                let log = program.log();
                let log = if log.is_empty() { format!("OpenCL error {code}") } else { log };
                Err(DeviceError::Build { device: context.name(), log })
            }
        }
    }

    fn log(&self) -> String {
        let (api, device) = (self.context.api(), self.context.device.id);
        let log = find::text(|size, place, length| {
            let what = api::PROGRAM_BUILD_LOG;
            // SAFETY: `text` gives memory of the size.
            unsafe { (api.build_info)(self.handle, device, what, size, place, length) }
        });
        log.chars().take(MOST_LOG).collect()
    }

    /// A kernel of the text, for one session: its arguments are set before each launch.
    ///
    /// # Errors
    /// A text without it; a block of `lanes` lanes that the driver does not launch it with.
    pub(crate) fn kernel(&self, name: &str, lanes: u64) -> Result<Kernel, DeviceError> {
        let (api, device) = (self.context.api(), self.context.device.id);
        let refused = |reason| {
            let (device, kernel) = (self.context.name(), name.to_owned());
            DeviceError::Kernel { device, kernel, reason }
        };
        let symbol = CString::new(name).map_err(|error| refused(error.to_string()))?;
        let mut code = 0;
        // SAFETY: the program is built, and the name ends with a zero.
        let handle = unsafe { (api.kernel)(self.handle, symbol.as_ptr(), &mut code) };
        if code != api::SUCCESS {
            return Err(refused(format!("OpenCL error {code}")));
        }
        let kernel = Kernel { context: self.context.clone(), handle };
        let mut most = 0usize;
        // SAFETY: the number has the size given.
        let code = unsafe {
            let (size, place) = (size_of_val(&most), (&raw mut most).cast::<c_void>());
            (api.kernel_info)(handle, device, api::KERNEL_LANES, size, place, null_mut())
        };
        if code == api::SUCCESS && (most as u64) < lanes {
            return Err(refused(format!("it takes blocks of {most} lanes, not of {lanes}")));
        }
        Ok(kernel)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it is ours; kernels made of it keep it alive by themselves.
        unsafe { (self.context.api().release_program)(self.handle) };
    }
}

/// A kernel, whose arguments one thread sets at a time.
pub(crate) struct Kernel {
    context: Arc<Context>,
    pub(crate) handle: Handle,
}

// SAFETY: it may move to another thread; what is not safe is setting arguments from two at once.
unsafe impl Send for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: it is ours; the queue keeps what it still needs.
        unsafe { (self.context.api().release_kernel)(self.handle) };
    }
}

/// Memory of the device, or a part of some.
pub(crate) struct Buffer {
    context: Arc<Context>,
    pub(crate) handle: Handle,
}

// SAFETY: buffers may be used from any thread; who accesses which bytes when is their holder's affair.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory of at least one byte.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] where there is none.
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: u64,
        what: &'static str,
    ) -> Result<Self, DeviceError> {
        let info = &context.device.info;
        let memory = |limit| DeviceError::Memory { device: context.name(), what, bytes, limit };
        if bytes > info.buffer_bytes {
            return Err(memory(info.buffer_bytes));
        }
        let mut code = 0;
        let size = usize::try_from(bytes.max(1)).map_err(|_| memory(info.buffer_bytes))?;
        // SAFETY: no host memory is handed over.
        let handle = unsafe {
            let flags = api::MEM_READ_WRITE;
            (context.api().buffer)(context.handle, flags, size, null_mut(), &mut code)
        };
        match code {
            api::SUCCESS => Ok(Self { context: context.clone(), handle }),
            code if api::NO_MEMORY.contains(&code) => Err(memory(info.memory_bytes)),
            code => Err(DeviceError::Driver { device: context.name(), what, code }),
        }
    }

    /// The bytes from `offset` on, which stay those of this buffer; at least one.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Result<Self, DeviceError> {
        let region = api::Region { origin: offset as usize, size: bytes.max(1) as usize };
        let mut code = 0;
        // SAFETY: the region lives as long as the call; the driver checks that it lies in the buffer.
        let handle = unsafe {
            let (flags, place) = (api::MEM_READ_WRITE, (&raw const region).cast());
            (self.context.api().part)(self.handle, flags, api::BUFFER_REGION, place, &mut code)
        };
        self.context.checked("a part of a buffer", code)?;
        Ok(Self { context: self.context.clone(), handle })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is ours; the queue keeps what it still needs, and a part keeps its whole.
        unsafe { (self.context.api().release_buffer)(self.handle) };
    }
}
