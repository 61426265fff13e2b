//! One of NVIDIA's devices in use: its primary context, which this process shares with other libraries that use it.
//!
//! Handles of buffers are addresses, so a part of one is an address in it. Transfers go through page-locked memory of
//! the queue, in pieces: so no call waits for the device.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::api::{self, Api, Pointer};
use super::{find, graphs};
use crate::accelerator::driver::{At, Code, Driver, Handle, Kind, Launch, Value};
use crate::accelerator::{DeviceError, DeviceInfo};

/// Bytes of a queue's page-locked memory, and of what the driver's assembler may say.
const STAGE_BYTES: usize = 4 << 20;
const LOG_BYTES: usize = 16 << 10;

/// A device with its context.
pub(crate) struct Device {
    found: find::Device,
    context: Pointer,
}

// SAFETY: contexts may be used from any thread that makes them its current one, which every call here does first.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What a handle of a queue leads to.
struct Queue {
    stream: Pointer,
    /// Page-locked memory, since the first transfer.
    stage: OnceLock<usize>,
}

/// What a handle of a kernel leads to.
struct Kernel {
    function: Pointer,
    /// Bytes of shared memory that launches ask for, besides what the code declares.
    requested_bytes: u32,
}

/// What a handle of an event leads to: the event, and for a launch the one in front of it.
struct Event {
    start: Pointer,
    end: Pointer,
}

impl Device {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What its driver says; a device that is not there any more.
    pub(crate) fn open(info: &DeviceInfo) -> Result<Arc<Self>, DeviceError> {
        let found = find::devices()?.into_iter().find(|found| found.info == *info);
        let gone = || DeviceError::NoCudaDevice { reason: format!("'{}' is gone", info.name) };
        let found = found.ok_or_else(gone)?;
        let mut context = null_mut();
        // SAFETY: the device is one that the driver gave.
        let code = unsafe { (found.api.retain_context)(&mut context, found.id) };
        match code {
            api::SUCCESS => Ok(Arc::new(Self { found, context })),
            code => {
                let (device, what) = (info.name.clone(), "to be used");
                Err(DeviceError::Driver { device, what, error: found.api.words(code) })
            }
        }
    }

    /// The functions, with the device's context as that of this thread.
    fn here(&self) -> Result<&'static Api, Code> {
        // SAFETY: the context is retained as long as `self` lives.
        checked(unsafe { (self.found.api.set_context)(self.context) })?;
        Ok(self.found.api)
    }

    /// The functions of graphs, with the device's context as that of this thread.
    fn graphs(&self) -> Result<&'static graphs::Api, Code> {
        self.here()?;
        self.found.graphs.ok_or(api::NOT_SUPPORTED)
    }

    /// The page-locked memory of a queue.
    fn stage(&self, queue: &Queue) -> Result<*mut u8, Code> {
        if let Some(stage) = queue.stage.get() {
            return Ok(*stage as *mut u8);
        }
        let mut stage = null_mut();
        // SAFETY: a place for the address.
        checked(unsafe { (self.here()?.allocate_host)(&mut stage, STAGE_BYTES) })?;
        // One thread uses a queue at a time.
        Ok(*queue.stage.get_or_init(|| stage as usize) as *mut u8)
    }

    /// An event at the end of what a stream has so far.
    fn recorded(&self, stream: Pointer, timed: bool) -> Result<Pointer, Code> {
        let (api, mut event) = (self.here()?, null_mut());
        // SAFETY: a place for the event.
        checked(unsafe { (api.event)(&mut event, api::EVENT_FLAGS[usize::from(timed)]) })?;
        // SAFETY: event and stream are of this context.
        checked(unsafe { (api.record)(event, stream) }).inspect_err(|_| {
            // SAFETY: it is ours.
            unsafe { (api.release_event)(event) };
        })?;
        Ok(event)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and all that was made in it is released.
        unsafe { (self.found.api.release_context)(self.found.id) };
    }
}

fn checked(code: Code) -> Result<(), Code> {
    if code == api::SUCCESS { Ok(()) } else { Err(code) }
}

fn boxed<T>(value: T) -> Handle {
    Box::into_raw(Box::new(value)) as usize as Handle
}

/// # Safety
/// The handle is of [`boxed`], of this type, and was not taken back.
unsafe fn of<'a, T>(handle: Handle) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*(handle as usize as *const T) }
}

impl Driver for Device {
    fn info(&self) -> &DeviceInfo {
        &self.found.info
    }

    fn words(&self, code: Code) -> String {
        self.found.api.words(code)
    }

    fn is_out_of_memory(&self, code: Code) -> bool {
        code == api::OUT_OF_MEMORY
    }

    fn buffer(&self, bytes: u64) -> Result<Handle, Code> {
        let size = usize::try_from(bytes).map_err(|_| api::OUT_OF_MEMORY)?;
        let mut address = 0;
        // SAFETY: a place for the address.
        checked(unsafe { (self.here()?.allocate)(&mut address, size) })?;
        Ok(address)
    }

    unsafe fn part(&self, buffer: Handle, offset: u64, _: u64) -> Result<Handle, Code> {
        Ok(buffer + offset)
    }

    fn program(&self, code: &[u8]) -> Result<Handle, (Code, String)> {
        let api = self.here().map_err(|code| (code, String::new()))?;
        // The text has to end with a zero.
        let text: Vec<u8> = code.iter().copied().filter(|byte| *byte != 0).chain([0]).collect();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = api::JIT_ERROR_LOG;
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
        let mut module = null_mut();
        // SAFETY: the text ends with a zero, and each option has its value: the log's place and its size.
        let loaded = checked(unsafe {
            let (count, options) = (options.len() as u32, options.as_mut_ptr());
            (api.load)(&mut module, text.as_ptr().cast(), count, options, values.as_mut_ptr())
        });
        loaded.map(|()| module as usize as Handle).map_err(|code| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
            (code, String::from_utf8_lossy(&log[..end]).into_owned())
        })
    }

    unsafe fn kernel(
        &self,
        program: Handle,
        name: &CStr,
        shared_bytes: u64,
    ) -> Result<(Handle, u64), Code> {
        let (api, mut function) = (self.here()?, null_mut());
        // SAFETY: the module is loaded, and the name ends with a zero.
        checked(unsafe {
            (api.function)(&mut function, program as usize as Pointer, name.as_ptr())
        })?;
        let attribute = |which: i32| -> Result<u64, Code> {
            let mut value = 0;
            // SAFETY: a function of the module.
            checked(unsafe { (api.function_attribute)(&mut value, which, function) })?;
            Ok(value.max(0) as u64)
        };
        let lanes = attribute(api::FUNCTION_LANES)?;
        let requested = shared_bytes.saturating_sub(attribute(api::FUNCTION_SHARED_BYTES)?);
        // More than any device has is refused by the call below.
        let requested_bytes = u32::try_from(requested).unwrap_or(i32::MAX as u32);
        if requested_bytes > 0 {
            let (which, bytes) = (api::FUNCTION_REQUESTED_BYTES, requested_bytes as i32);
            // SAFETY: as above.
            checked(unsafe { (api.set_function_attribute)(function, which, bytes) })?;
        }
        Ok((boxed(Kernel { function, requested_bytes }), lanes))
    }

    fn queue(&self, _: bool) -> Result<Handle, Code> {
        let mut stream = null_mut();
        // SAFETY: a place for the stream.
        checked(unsafe { (self.here()?.stream)(&mut stream, api::NON_BLOCKING) })?;
        Ok(boxed(Queue { stream, stage: OnceLock::new() }))
    }

    fn most_at_once(&self) -> usize {
        STAGE_BYTES
    }

    unsafe fn write(&self, queue: Handle, to: At, bytes: &[u8]) -> Result<bool, Code> {
        // SAFETY: the caller's promise.
        let queue = unsafe { of::<Queue>(queue) };
        let stage = self.stage(queue)?;
        // SAFETY: nothing is under way, so nothing reads the stage, which has room for so many bytes.
        unsafe { stage.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let start = self.here()?.to_device;
        // SAFETY: the stage stays as it is until the transfer is done; the bytes lie in the buffer.
        checked(unsafe { start(to.0 + to.1, stage.cast(), bytes.len(), queue.stream) })
            .map(|()| true)
    }

    unsafe fn begin_read(&self, queue: Handle, from: At, bytes: usize) -> Result<bool, Code> {
        // SAFETY: the caller's promise.
        let queue = unsafe { of::<Queue>(queue) };
        let (stage, start) = (self.stage(queue)?, self.here()?.to_host);
        // SAFETY: nothing else is under way, and the stage has room for so many bytes.
        checked(unsafe { start(stage.cast(), from.0 + from.1, bytes, queue.stream) }).map(|()| true)
    }

    unsafe fn end_read(&self, queue: Handle, _: At, bytes: &mut [u8]) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        let stage = self.stage(unsafe { of::<Queue>(queue) })?;
        // SAFETY: the transfer is done.
        unsafe { stage.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn copy(&self, queue: Handle, from: At, to: At, bytes: u64) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        let stream = unsafe { of::<Queue>(queue) }.stream;
        let start = self.here()?.copy;
        // SAFETY: both lie in their buffers.
        checked(unsafe { start(to.0 + to.1, from.0 + from.1, bytes as usize, stream) })
    }

    unsafe fn fill(&self, queue: Handle, to: At, pattern: &[u8], bytes: u64) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        let stream = unsafe { of::<Queue>(queue) }.stream;
        let (api, begin) = (self.here()?, to.0 + to.1);
        if let [byte] = *pattern {
            // SAFETY: the bytes lie in the buffer.
            return checked(unsafe { (api.fill_bytes)(begin, byte, bytes as usize, stream) });
        }
        for (index, word) in (0..bytes / 4).zip(pattern.chunks_exact(4).cycle()) {
            let word = word.try_into().map_or(0, u32::from_ne_bytes);
            // SAFETY: as above.
            checked(unsafe { (api.fill_words)(begin + 4 * index, word, 1, stream) })?;
        }
        Ok(())
    }

    unsafe fn launch(&self, queue: Handle, launch: &Launch<'_>) -> Result<Handle, Code> {
        // SAFETY: the caller's promise.
        let stream = unsafe { of::<Queue>(queue) }.stream;
        let api = self.here()?;
        // Addresses and counters have 64 bits.
        let value = |argument: &Value| match *argument {
            Value::Buffer(address) => address,
            Value::Counter(number) => number as u64,
        };
        let values: Vec<u64> = launch.arguments.iter().map(value).collect();
        let mut places: Vec<*mut c_void> =
            values.iter().map(|value| (&raw const *value).cast_mut().cast()).collect();
        let start = match launch.timed {
            true => self.recorded(stream, true)?,
            false => null_mut(),
        };
        let [columns, rows, layers] = launch.grid.map(|extent| extent as u32);
        let [x, y, z] = launch.block.map(|extent| extent as u32);
        // SAFETY: as above.
        let Kernel { function, requested_bytes } = *unsafe { of::<Kernel>(launch.kernel) };
        // SAFETY: as many values as the function has parameters, which are copied before the call returns.
        let launched = checked(unsafe {
            let (begin, values) = (api.launch, places.as_mut_ptr());
            let shared = requested_bytes;
            begin(function, columns, rows, layers, x, y, z, shared, stream, values, null_mut())
        });
        if !launch.timed {
            return launched.map(|()| 0);
        }
        match launched.and_then(|()| self.recorded(stream, true)) {
            Ok(end) => Ok(boxed(Event { start, end })),
            Err(code) => {
                // SAFETY: it is ours.
                unsafe { (api.release_event)(start) };
                Err(code)
            }
        }
    }

    fn is_on_device(&self, address: u64) -> bool {
        let (Ok(api), mut kind) = (self.here(), 0u32) else { return false };
        // SAFETY: a place for the number; an address that the driver does not know is refused.
        let code =
            unsafe { (api.pointer)((&raw mut kind).cast::<c_void>(), api::MEMORY_TYPE, address) };
        code == api::SUCCESS && kind == api::DEVICE_MEMORY
    }

    fn records(&self) -> bool {
        self.found.graphs.is_some()
    }

    unsafe fn record(&self, queue: Handle) -> Result<(), Code> {
        let graphs = self.graphs()?;
        // SAFETY: the caller's promise.
        unsafe { graphs.record(of::<Queue>(queue).stream) }
    }

    unsafe fn recorded(&self, queue: Handle) -> Result<Handle, Code> {
        let graphs = self.graphs()?;
        // SAFETY: the caller's promise.
        unsafe { graphs.recorded(of::<Queue>(queue).stream) }.map(|ready| ready as usize as Handle)
    }

    unsafe fn launch_recorded(&self, queue: Handle, sequence: Handle) -> Result<(), Code> {
        let (graphs, sequence) = (self.graphs()?, sequence as usize as Pointer);
        // SAFETY: the caller's promise.
        checked(unsafe { (graphs.launch)(sequence, of::<Queue>(queue).stream) })
    }

    unsafe fn marker(&self, queue: Handle) -> Result<Handle, Code> {
        // SAFETY: the caller's promise.
        let end = self.recorded(unsafe { of::<Queue>(queue) }.stream, false)?;
        Ok(boxed(Event { start: null_mut(), end }))
    }

    unsafe fn is_done(&self, event: Handle) -> Result<bool, Code> {
        // SAFETY: the caller's promise; the event is of this context.
        match unsafe { (self.here()?.query)(of::<Event>(event).end) } {
            api::SUCCESS => Ok(true),
            api::NOT_READY => Ok(false),
            code => Err(code),
        }
    }

    unsafe fn time(&self, event: Handle) -> Option<Duration> {
        // SAFETY: the caller's promise.
        let Event { start, end } = *unsafe { of::<Event>(event) };
        let mut milliseconds = 0f32;
        // SAFETY: both are of this context.
        let code = unsafe { (self.here().ok()?.elapsed)(&mut milliseconds, start, end) };
        let seconds = f64::from(milliseconds) / 1e3;
        (code == api::SUCCESS).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
    }

    unsafe fn release(&self, kind: Kind, handle: Handle) {
        // Where even this fails the context is gone, and everything of it.
        let Ok(api) = self.here() else { return };
        let pointer = handle as usize as Pointer;
        // SAFETY: the caller gives it up; the driver waits for commands that still need it.
        unsafe {
            match kind {
                Kind::Part => {}
                Kind::Kernel => drop(Box::from_raw(pointer.cast::<Kernel>())),
                Kind::Buffer => {
                    (api.free)(handle);
                }
                Kind::Program => {
                    (api.unload)(pointer);
                }
                Kind::Sequence => {
                    if let Some(graphs) = self.found.graphs {
                        (graphs.release_executable)(pointer);
                    }
                }
                Kind::Queue => {
                    let queue = Box::from_raw(pointer.cast::<Queue>());
                    (api.release_stream)(queue.stream);
                    if let Some(stage) = queue.stage.get() {
                        (api.free_host)(*stage as Pointer);
                    }
                }
                Kind::Event => {
                    let event = Box::from_raw(pointer.cast::<Event>());
                    for event in [event.start, event.end] {
                        if !event.is_null() {
                            (api.release_event)(event);
                        }
                    }
                }
            }
        }
    }
}
