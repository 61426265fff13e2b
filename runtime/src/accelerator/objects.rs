//! A device that is in use, and what is made on it: programs, kernels, buffers. Each is released when dropped.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::driver::{self, Code, Driver, Handle, Kind};
use super::{DeviceError, DeviceInfo};

/// Most characters of a compiler's log that a message carries.
const MOST_LOG: usize = 2000;

/// A device that is in use.
pub(crate) struct Context {
    pub(crate) driver: Arc<dyn Driver>,
    /// Whether the device did not answer in time: giving something back might wait for it, so nothing is.
    abandoned: AtomicBool,
}

impl Context {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What its driver says.
    pub(crate) fn open(info: &DeviceInfo) -> Result<Arc<Self>, DeviceError> {
        let driver = driver::open(info)?;
        Ok(Arc::new(Self { driver, abandoned: AtomicBool::new(false) }))
    }

    /// What the device is.
    pub(crate) fn info(&self) -> &DeviceInfo {
        self.driver.info()
    }

    /// The device's name.
    pub(crate) fn name(&self) -> String {
        self.info().name.clone()
    }

    /// Notes that the device does not answer.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// The error of a code that came while something was made.
    pub(crate) fn refused(&self, what: &'static str, code: Code) -> DeviceError {
        DeviceError::Driver { device: self.name(), what, error: self.driver.words(code) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.abandoned.load(Ordering::Relaxed) {
            std::mem::forget(self.driver.clone());
        }
    }
}

/// Something that the driver gave.
pub(crate) struct Object {
    pub(crate) context: Arc<Context>,
    pub(crate) handle: Handle,
    kind: Kind,
}

impl Object {
    pub(crate) fn new(context: &Arc<Context>, kind: Kind, handle: Handle) -> Self {
        Self { context: context.clone(), handle, kind }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if !self.context.abandoned.load(Ordering::Relaxed) {
            // SAFETY: the handle is of this kind, and ours alone.
            unsafe { self.context.driver.release(self.kind, self.handle) };
        }
    }
}

/// A kernel, and what the largest of its launches needs.
pub(crate) struct KernelNeeds {
    pub(crate) name: String,
    /// Lanes of a block.
    pub(crate) lanes: u64,
    /// Bytes of shared memory of a block.
    pub(crate) shared_bytes: u64,
}

/// Built code.
pub(crate) struct Program(Object);

impl Program {
    /// Builds what a code section holds.
    ///
    /// # Errors
    /// [`DeviceError::Build`] with what the driver's compiler says.
    pub(crate) fn build(context: &Arc<Context>, code: &[u8]) -> Result<Self, DeviceError> {
        let handle = context.driver.program(code).map_err(|(code, log)| {
            let words = context.driver.words(code);
            let log: String = log.trim().chars().take(MOST_LOG).collect();
            let log = if log.is_empty() { words } else { format!("{log} ({words})") };
            DeviceError::Build { device: context.name(), log }
        })?;
        Ok(Self(Object::new(context, Kind::Program, handle)))
    }

    /// A kernel of it, for one session: its arguments are set before each launch.
    ///
    /// # Errors
    /// Code without it; a block of so many lanes, or of so much shared memory, that the driver does not launch it with.
    pub(crate) fn kernel(&self, needed: &KernelNeeds) -> Result<Kernel, DeviceError> {
        let context = &self.0.context;
        let KernelNeeds { name, lanes, shared_bytes } = needed;
        let refused = |reason| {
            let (device, kernel) = (context.name(), name.clone());
            DeviceError::Kernel { device, kernel, reason }
        };
        let symbol = CString::new(name.as_str()).map_err(|error| refused(error.to_string()))?;
        // SAFETY: the program is built and alive.
        let found = unsafe { context.driver.kernel(self.0.handle, &symbol, *shared_bytes) };
        let (handle, most) = found.map_err(|code| refused(context.driver.words(code)))?;
        let kernel = Kernel(Object::new(context, Kind::Kernel, handle));
        match most < *lanes {
            true => Err(refused(format!("it takes blocks of {most} lanes, not of {lanes}"))),
            false => Ok(kernel),
        }
    }
}

/// A kernel, whose arguments one thread sets at a time. Its program outlives it.
pub(crate) struct Kernel(Object);

impl Kernel {
    pub(crate) fn handle(&self) -> Handle {
        self.0.handle
    }
}

/// Memory of the device, or a part of some.
pub(crate) struct Buffer(Object);

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
        let info = context.info();
        let memory = |limit| DeviceError::Memory { device: context.name(), what, bytes, limit };
        if bytes > info.buffer_bytes {
            return Err(memory(info.buffer_bytes));
        }
        match context.driver.buffer(bytes.max(1)) {
            Ok(handle) => Ok(Self(Object::new(context, Kind::Buffer, handle))),
            Err(code) if context.driver.is_out_of_memory(code) => Err(memory(info.memory_bytes)),
            Err(code) => Err(context.refused(what, code)),
        }
    }

    /// The bytes from `offset` on, which stay those of this buffer; at least one.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Result<Self, DeviceError> {
        let context = &self.0.context;
        // SAFETY: the buffer is alive.
        let part = unsafe { context.driver.part(self.0.handle, offset, bytes.max(1)) };
        let part = part.map_err(|code| context.refused("a part of a buffer", code))?;
        Ok(Self(Object::new(context, Kind::Part, part)))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.handle
    }
}
