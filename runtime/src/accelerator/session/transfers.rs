//! What comes into a session's buffers and out of them. The caller's tensors lie in the host's memory or, where the API
//! knows addresses of the device (CUDA's does), in the device's.

use std::ffi::c_void;

use super::Session;
use crate::RunError;
use crate::accelerator::memory::Space;

impl Session {
    /// Puts an input into its buffer.
    ///
    /// # Safety
    /// The pointer leads to so many bytes of the host or of a device.
    pub(super) unsafe fn take(
        &mut self,
        index: usize,
        input: *const c_void,
        bytes: u64,
    ) -> Result<(), RunError> {
        let space = Space::Input(index);
        if bytes > 0 && self.is_on_device(input.addr()) {
            let queue = &mut self.queues[usize::from(self.timed)];
            let buffer = (self.memory.of(space), 0);
            return queue.copy_beyond(buffer, input.addr() as u64, bytes, false);
        }
        // SAFETY: the caller's promise.
        self.write((space, 0), unsafe { slice(input, bytes) })
    }

    /// Takes an output out of its buffer.
    ///
    /// # Safety
    /// As for [`Session::take`], and nothing else touches them.
    pub(super) unsafe fn give(
        &mut self,
        index: usize,
        output: *mut c_void,
        bytes: u64,
    ) -> Result<(), RunError> {
        let space = Space::Output(index);
        if bytes > 0 && self.is_on_device(output.addr()) {
            let queue = &mut self.queues[usize::from(self.timed)];
            let buffer = (self.memory.of(space), 0);
            return queue.copy_beyond(buffer, output.addr() as u64, bytes, true);
        }
        // SAFETY: the caller's promise.
        self.read((space, 0), unsafe { slice_mut(output, bytes) })
    }

    /// Whether an address is one in a device's memory.
    pub(crate) fn is_on_device(&self, address: usize) -> bool {
        self.code.context.driver.is_on_device(address as u64)
    }

    pub(in crate::accelerator) fn write(
        &mut self,
        to: (Space, u64),
        bytes: &[u8],
    ) -> Result<(), RunError> {
        let queue = &mut self.queues[usize::from(self.timed)];
        queue.write(self.memory.of(to.0), to.1, bytes)
    }

    pub(in crate::accelerator) fn read(
        &mut self,
        from: (Space, u64),
        bytes: &mut [u8],
    ) -> Result<(), RunError> {
        let queue = &mut self.queues[usize::from(self.timed)];
        queue.read(self.memory.of(from.0), from.1, bytes)
    }

    pub(in crate::accelerator) fn fill(
        &mut self,
        to: (Space, u64),
        pattern: &[u8],
        bytes: u64,
    ) -> Result<(), RunError> {
        let queue = &mut self.queues[usize::from(self.timed)];
        queue.fill(self.memory.of(to.0), pattern, to.1, bytes)
    }
}

/// # Safety
/// The pointer leads to so many bytes, unless there are none.
unsafe fn slice<'a>(start: *const c_void, bytes: u64) -> &'a [u8] {
    match bytes {
        0 => &[],
        // SAFETY: the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts(start.cast(), bytes as usize) },
    }
}

/// # Safety
/// As for `slice`, and nothing else touches them.
unsafe fn slice_mut<'a>(start: *mut c_void, bytes: u64) -> &'a mut [u8] {
    match bytes {
        0 => &mut [],
        // SAFETY: the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes as usize) },
    }
}
