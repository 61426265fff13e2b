//! CUDA graphs, made by capturing a stream: what is put into it is not run but recorded, by the same calls that would
//! run it. Drivers older than CUDA 11.4 lack a function of these; everything is launched one by one then.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use super::api::{Pointer, SUCCESS};
use crate::accelerator::driver::Code;
use crate::accelerator::library::functions;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads of the process, which may use the device through other
/// libraries, neither disturb the capture nor are disturbed by it.
const THREAD_LOCAL: c_uint = 1;

functions! {
    begin: "cuStreamBeginCapture_v2" (Pointer, c_uint) -> i32;
    end: "cuStreamEndCapture" (Pointer, *mut Pointer) -> i32;
    instantiate: "cuGraphInstantiateWithFlags" (*mut Pointer, Pointer, c_ulonglong) -> i32;
    launch: "cuGraphLaunch" (Pointer, Pointer) -> i32;
    release_graph: "cuGraphDestroy" (Pointer) -> i32;
    release_executable: "cuGraphExecDestroy" (Pointer) -> i32;
}

impl Api {
    /// The functions, where the driver's library has all of them.
    ///
    /// # Safety
    /// The library is an open one of the CUDA driver.
    pub(super) unsafe fn of(library: *mut c_void) -> Option<Self> {
        Self::find(library).ok()
    }

    /// Begins to record what is put into a stream.
    ///
    /// # Safety
    /// The stream is one of the current context, and this thread alone uses it.
    pub(super) unsafe fn record(&self, stream: Pointer) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        checked(unsafe { (self.begin)(stream, THREAD_LOCAL) })
    }

    /// Ends it, and makes the record ready to be launched.
    ///
    /// # Safety
    /// As for [`Api::record`], which has begun.
    pub(super) unsafe fn recorded(&self, stream: Pointer) -> Result<Pointer, Code> {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: a place for the graph.
        checked(unsafe { (self.end)(stream, &mut graph) })?;
        // SAFETY: a place for the executable graph, of one that was just made; no flags.
        let ready = checked(unsafe { (self.instantiate)(&mut executable, graph, 0) });
        // SAFETY: it is ours, and an executable graph does not need it.
        unsafe { (self.release_graph)(graph) };
        ready.map(|()| executable)
    }
}

fn checked(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}
