//! What is asked of a device, one thing after the other.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::api::{self, Handle};
use super::objects::{Buffer, Context, Kernel};
use crate::RunError;
use crate::accelerator::DeviceError;

/// As long as this a wait looks again and again; afterwards it sleeps between two looks.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep between two looks at a device.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A queue of a device; what is put in runs in order.
pub(crate) struct Queue {
    context: Arc<Context>,
    handle: Handle,
    timeout: Duration,
    /// Whether something may be under way.
    pending: bool,
    /// Whether the device did not answer in time: releasing the queue would wait for it.
    abandoned: bool,
}

// SAFETY: queues may be used from any thread.
unsafe impl Send for Queue {}

/// An argument of a launch.
pub(crate) enum Value {
    /// A buffer's handle.
    Buffer(Handle),
    /// A counter.
    Counter(i64),
}

/// A command that was put in; released when dropped.
pub(crate) struct Event {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}

impl Queue {
    /// A queue; `timed` where commands shall tell when they ran. `timeout` bounds every wait.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn new(
        context: &Arc<Context>,
        timed: bool,
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        let properties = if timed { api::QUEUE_PROFILING } else { 0 };
        let mut code = 0;
        // SAFETY: the context is of this device.
        let handle = unsafe {
            let queue = context.api().queue;
            queue(context.handle, context.device.id, properties, &mut code)
        };
        context.checked("a queue", code)?;
        Ok(Self { context: context.clone(), handle, timeout, pending: false, abandoned: false })
    }

    fn checked(&self, what: &'static str, code: i32) -> Result<(), RunError> {
        match code {
            api::SUCCESS => Ok(()),
            code => Err(failed(&self.context, what, code)),
        }
    }

    /// Puts bytes into a buffer; they are copied when this returns.
    pub(crate) fn write(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RunError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // What is under way may never end, and a transfer that waits for it neither.
        self.finish()?;
        // SAFETY: the bytes have the length given and are read before the call returns.
        let code = unsafe {
            let (queue, from) = (self.handle, bytes.as_ptr().cast::<c_void>());
            let write = self.context.api().write;
            write(
                queue,
                buffer.handle,
                1,
                offset as usize,
                bytes.len(),
                from,
                0,
                null(),
                null_mut(),
            )
        };
        self.checked("writing its memory", code)
    }

    /// Takes bytes out of a buffer, after everything that was put in before.
    pub(crate) fn read(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), RunError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.finish()?;
        // SAFETY: the bytes have the length given and are written before the call returns.
        let code = unsafe {
            let (queue, to) = (self.handle, bytes.as_mut_ptr().cast::<c_void>());
            let read = self.context.api().read;
            read(queue, buffer.handle, 1, offset as usize, bytes.len(), to, 0, null(), null_mut())
        };
        self.checked("reading its memory", code)
    }

    /// Copies bytes between buffers, or inside of one where both ranges are apart.
    pub(crate) fn copy(
        &mut self,
        from: (&Buffer, u64),
        to: (&Buffer, u64),
        bytes: u64,
    ) -> Result<(), RunError> {
        if bytes == 0 || (from.0.handle == to.0.handle && from.1 == to.1) {
            return Ok(());
        }
        self.pending = true;
        let (source, target) = (from.1 as usize, to.1 as usize);
        // SAFETY: the driver checks both ranges.
        let code = unsafe {
            let copy = self.context.api().copy;
            let (queue, from, to) = (self.handle, from.0.handle, to.0.handle);
            copy(queue, from, to, source, target, bytes as usize, 0, null(), null_mut())
        };
        self.checked("copying its memory", code)
    }

    /// Fills bytes of a buffer with a pattern of 1 or 8 bytes, of which offset and length are multiples.
    pub(crate) fn fill(
        &mut self,
        buffer: &Buffer,
        pattern: &[u8],
        offset: u64,
        bytes: u64,
    ) -> Result<(), RunError> {
        if bytes == 0 {
            return Ok(());
        }
        self.pending = true;
        // SAFETY: the pattern has the length given and is copied; the driver checks the range.
        let code = unsafe {
            let (fill, start) = (self.context.api().fill, pattern.as_ptr().cast::<c_void>());
            let (offset, bytes, to) = (offset as usize, bytes as usize, buffer.handle);
            fill(self.handle, to, start, pattern.len(), offset, bytes, 0, null(), null_mut())
        };
        self.checked("filling its memory", code)
    }

    /// Starts a kernel over a grid of blocks. With `timed` the command is given back.
    pub(crate) fn launch(
        &mut self,
        kernel: &Kernel,
        arguments: impl Iterator<Item = Value>,
        (grid, block): ([u64; 3], [u64; 3]),
        timed: bool,
    ) -> Result<Option<Event>, RunError> {
        let api = self.context.api();
        for (place, argument) in arguments.enumerate() {
            let (size, value) = match &argument {
                Value::Buffer(handle) => (size_of::<Handle>(), (&raw const *handle).cast()),
                Value::Counter(number) => (size_of::<i64>(), (&raw const *number).cast::<c_void>()),
            };
            // SAFETY: the value has the size given, and is copied.
            let code = unsafe { (api.argument)(kernel.handle, place as u32, size, value) };
            self.checked("an argument of a kernel", code)?;
        }
        let items = block.map(|extent| extent as usize);
        let all: [usize; 3] = std::array::from_fn(|axis| grid[axis] as usize * items[axis]);
        self.pending = true;
        let mut event = null_mut();
        let place = if timed { &raw mut event } else { null_mut() };
        // SAFETY: both ranges have three dimensions, and nothing is waited for.
        let code = unsafe {
            let (launch, queue) = (api.launch, self.handle);
            launch(queue, kernel.handle, 3, null(), all.as_ptr(), items.as_ptr(), 0, null(), place)
        };
        self.checked("a launch", code)?;
        Ok(timed.then(|| Event { context: self.context.clone(), handle: event }))
    }

    /// Waits until everything that was put in is done.
    ///
    /// # Errors
    /// What went wrong on the device; [`RunError::DeviceTimeout`], after which this queue is not to be used.
    pub(crate) fn finish(&mut self) -> Result<(), RunError> {
        if !self.pending {
            return Ok(());
        }
        let api = self.context.api();
        let mut handle = null_mut();
        // SAFETY: the queue is ours; the marker waits for everything before it.
        let code = unsafe { (api.marker)(self.handle, 0, null(), &mut handle) };
        self.checked("a marker", code)?;
        let marker = Event { context: self.context.clone(), handle };
        // SAFETY: the queue is ours.
        let code = unsafe { (api.flush)(self.handle) };
        self.checked("starting what was put in", code)?;
        let start = Instant::now();
        loop {
            match marker.status()? {
                0 => {
                    self.pending = false;
                    return Ok(());
                }
                code if code < 0 => return Err(failed(&self.context, "running kernels", code)),
                _ => {}
            }
            let waited = start.elapsed();
            if waited > self.timeout {
                self.abandoned = true;
                // It would be waited for when it is released.
                std::mem::forget(marker);
                let (device, seconds) = (self.context.name(), self.timeout.as_secs());
                return Err(RunError::DeviceTimeout { device, seconds });
            }
            match waited < SPIN {
                true => std::thread::yield_now(),
                false => std::thread::sleep((waited / 16).min(LONGEST_SLEEP)),
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.abandoned {
            // SAFETY: it is ours.
            unsafe { (self.context.api().release_queue)(self.handle) };
        }
    }
}

impl Event {
    /// How far the command is: 0 when it is done, negative where it failed.
    fn status(&self) -> Result<i32, RunError> {
        let mut status = 0i32;
        // SAFETY: the number has the size given.
        let code = unsafe {
            let place = (&raw mut status).cast::<c_void>();
            let ask = self.context.api().event_info;
            ask(self.handle, api::EVENT_STATUS, size_of::<i32>(), place, null_mut())
        };
        match code {
            api::SUCCESS => Ok(status),
            code => Err(failed(&self.context, "asking how far it is", code)),
        }
    }

    /// How long the command ran, once it is done; zero where the driver does not say.
    pub(crate) fn time(&self) -> Duration {
        let ask = |what: u32| {
            let mut time = 0u64;
            // SAFETY: the number has the size given.
            let code = unsafe {
                let place = (&raw mut time).cast::<c_void>();
                let times = self.context.api().event_times;
                times(self.handle, what, size_of::<u64>(), place, null_mut())
            };
            (code == api::SUCCESS).then_some(time)
        };
        match (ask(api::PROFILING_START), ask(api::PROFILING_END)) {
            (Some(start), Some(end)) => Duration::from_nanos(end.saturating_sub(start)),
            _ => Duration::ZERO,
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { (self.context.api().release_event)(self.handle) };
    }
}

/// What a code means that came while a run was under way.
fn failed(context: &Context, what: &'static str, code: i32) -> RunError {
    let device = context.name();
    match api::NO_MEMORY.contains(&code) {
        true => RunError::DeviceMemory { device, what },
        false => RunError::DeviceLost { device, what, code },
    }
}
