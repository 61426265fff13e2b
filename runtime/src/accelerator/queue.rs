//! What is asked of a device, one thing after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::DeviceError;
use super::driver::{At, Code, Kind, Launch};
use super::objects::{Buffer, Context, Object};
use crate::RunError;

/// As long as this a wait looks again and again; afterwards it sleeps between two looks.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep between two looks at a device.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A queue of a device; what is put in runs in order.
pub(crate) struct Queue {
    queue: Object,
    timeout: Duration,
    /// Whether something may be under way.
    pending: bool,
}

/// A launch that was put in and knows how long it ran, once it is done.
pub(crate) struct Event(Object);

/// Launches that were recorded; they run in their order when it is launched.
pub(crate) struct Sequence(Object);

impl Queue {
    /// A queue; `timed` where launches shall tell how long they ran. `timeout` bounds every wait.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn new(
        context: &Arc<Context>,
        timed: bool,
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        let handle =
            context.driver.queue(timed).map_err(|code| context.refused("a queue", code))?;
        Ok(Self { queue: Object::new(context, Kind::Queue, handle), timeout, pending: false })
    }

    fn context(&self) -> &Arc<Context> {
        &self.queue.context
    }

    /// What a code means that came while a run was under way.
    fn failed(&self, what: &'static str, code: Code) -> RunError {
        let (context, device) = (self.context(), self.context().name());
        match context.driver.is_out_of_memory(code) {
            true => RunError::DeviceMemory { device, what },
            false => RunError::DeviceLost { device, what, error: context.driver.words(code) },
        }
    }

    /// Puts bytes into a buffer; they are copied when this returns.
    pub(crate) fn write(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RunError> {
        let most = self.context().driver.most_at_once();
        for (part, bytes) in bytes.chunks(most).enumerate() {
            // What is under way may never end, and a transfer that waits for it neither.
            self.finish()?;
            let to = (buffer.handle(), offset + (part * most) as u64);
            // SAFETY: the bytes are copied before the call returns; queue and buffer are alive.
            let done = unsafe { self.context().driver.write(self.queue.handle, to, bytes) };
            self.pending = done.map_err(|code| self.failed("writing its memory", code))?;
        }
        Ok(())
    }

    /// Takes bytes out of a buffer, after everything that was put in before.
    pub(crate) fn read(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), RunError> {
        let (most, queue) = (self.context().driver.most_at_once(), self.queue.handle);
        for (part, bytes) in bytes.chunks_mut(most).enumerate() {
            self.finish()?;
            let from = (buffer.handle(), offset + (part * most) as u64);
            // SAFETY: queue and buffer are alive.
            let begun = unsafe { self.context().driver.begin_read(queue, from, bytes.len()) };
            self.pending = begun.map_err(|code| self.failed("reading its memory", code))?;
            self.finish()?;
            // SAFETY: the same place and number of bytes.
            let done = unsafe { self.context().driver.end_read(queue, from, bytes) };
            done.map_err(|code| self.failed("reading its memory", code))?;
        }
        Ok(())
    }

    /// Copies bytes from, or to, an address in a device's memory ([`super::driver::Driver::is_on_device`]).
    pub(crate) fn copy_beyond(
        &mut self,
        (buffer, offset): (&Buffer, u64),
        address: u64,
        bytes: u64,
        is_out: bool,
    ) -> Result<(), RunError> {
        let (own, other) = ((buffer.handle(), offset), (address, 0));
        let (from, to) = if is_out { (own, other) } else { (other, own) };
        self.copy_at(from, to, bytes)
    }

    /// Copies bytes between buffers, or inside of one where both ranges are apart.
    pub(crate) fn copy(
        &mut self,
        from: (&Buffer, u64),
        to: (&Buffer, u64),
        bytes: u64,
    ) -> Result<(), RunError> {
        self.copy_at((from.0.handle(), from.1), (to.0.handle(), to.1), bytes)
    }

    fn copy_at(&mut self, from: At, to: At, bytes: u64) -> Result<(), RunError> {
        if bytes == 0 || from == to {
            return Ok(());
        }
        self.pending = true;
        // SAFETY: both lie in their buffers, or the caller's, which are alive.
        let done = unsafe { self.context().driver.copy(self.queue.handle, from, to, bytes) };
        done.map_err(|code| self.failed("copying its memory", code))
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
        let (queue, to) = (self.queue.handle, (buffer.handle(), offset));
        // SAFETY: the bytes lie in the buffer, which is alive.
        let done = unsafe { self.context().driver.fill(queue, to, pattern, bytes) };
        done.map_err(|code| self.failed("filling its memory", code))
    }

    /// Starts a kernel over a grid of blocks. The event of one that is timed is given back.
    pub(crate) fn launch(&mut self, launch: &Launch<'_>) -> Result<Option<Event>, RunError> {
        self.pending = true;
        // SAFETY: kernel and buffers are alive, and the manifest was validated.
        let event = unsafe { self.context().driver.launch(self.queue.handle, launch) };
        let event = event.map_err(|code| self.failed("a launch", code))?;
        Ok((event != 0).then(|| Event(Object::new(self.context(), Kind::Event, event))))
    }

    /// Begins to record what is put in, when everything before is done: launches that are not timed, and nothing else,
    /// until [`Queue::recorded`]. Whether it is recorded; else it is run.
    ///
    /// # Errors
    /// Those of what was put in before.
    pub(crate) fn record(&mut self) -> Result<bool, RunError> {
        if !self.context().driver.records() {
            return Ok(false);
        }
        self.finish()?;
        // SAFETY: the queue is alive, and one thread uses it.
        Ok(unsafe { self.context().driver.record(self.queue.handle) }.is_ok())
    }

    /// Ends what [`Queue::record`] began; `None` where the driver refuses it.
    pub(crate) fn recorded(&mut self) -> Option<Sequence> {
        // SAFETY: the queue is alive, and this thread has begun to record.
        let recorded = unsafe { self.context().driver.recorded(self.queue.handle) };
        self.pending = false;
        Some(Sequence(Object::new(self.context(), Kind::Sequence, recorded.ok()?)))
    }

    /// Starts what was recorded; the kernels and buffers of it are there.
    pub(crate) fn launch_recorded(&mut self, sequence: &Sequence) -> Result<(), RunError> {
        self.pending = true;
        let (queue, recorded) = (self.queue.handle, sequence.0.handle);
        // SAFETY: all of it is alive: sessions drop what they recorded before their kernels and buffers.
        let done = unsafe { self.context().driver.launch_recorded(queue, recorded) };
        done.map_err(|code| self.failed("a launch", code))
    }

    /// Waits until everything that was put in is done.
    ///
    /// # Errors
    /// What went wrong on the device; [`RunError::DeviceTimeout`], after which the device is not to be used.
    pub(crate) fn finish(&mut self) -> Result<(), RunError> {
        if !self.pending {
            return Ok(());
        }
        // SAFETY: the queue is alive.
        let marker = unsafe { self.context().driver.marker(self.queue.handle) };
        let marker = marker.map_err(|code| self.failed("starting what was put in", code))?;
        let marker = Object::new(self.context(), Kind::Event, marker);
        let start = Instant::now();
        loop {
            // SAFETY: the marker is alive.
            let done = unsafe { self.context().driver.is_done(marker.handle) };
            if done.map_err(|code| self.failed("running kernels", code))? {
                self.pending = false;
                return Ok(());
            }
            let waited = start.elapsed();
            if waited > self.timeout {
                self.context().abandon();
                let (device, seconds) = (self.context().name(), self.timeout.as_secs());
                return Err(RunError::DeviceTimeout { device, seconds });
            }
            match waited < SPIN {
                true => std::thread::yield_now(),
                false => std::thread::sleep((waited / 16).min(LONGEST_SLEEP)),
            }
        }
    }
}

impl Event {
    /// How long the launch ran, once it is done; zero where the driver does not say.
    pub(crate) fn time(&self) -> Duration {
        // SAFETY: the event is alive.
        unsafe { self.0.context.driver.time(self.0.handle) }.unwrap_or_default()
    }
}
