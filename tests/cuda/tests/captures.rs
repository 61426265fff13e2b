//! The rules of captured streams, as the manual has them, in the driver of the tests.

#![allow(clippy::unwrap_used)]

use hone_fake_cuda::api::*;
use hone_fake_cuda::graphs::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// One test at a time: a capture may prohibit calls of other threads.
static ALONE: Mutex<()> = Mutex::new(());

/// A stream of the first device, whose context this thread has as its current one.
struct Stream(*mut c_void);

impl Stream {
    fn new() -> Self {
        let (mut context, mut stream) = (null_mut(), null_mut());
        // SAFETY: places for both; no flags.
        unsafe {
            assert_eq!(cuInit(0), 0);
            assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
            assert_eq!(cuCtxSetCurrent(context), 0);
            assert_eq!(cuStreamCreate(&mut stream, 1), 0);
        }
        Self(stream)
    }

    fn begin(&self, mode: u32) -> i32 {
        // SAFETY: a stream of the current context.
        unsafe { cuStreamBeginCapture_v2(self.0, mode) }
    }

    fn end(&self) -> (i32, *mut c_void) {
        let mut graph = null_mut();
        // SAFETY: as above, and a place for the graph.
        (unsafe { cuStreamEndCapture(self.0, &mut graph) }, graph)
    }

    fn fill(&self, address: u64, value: u8) -> i32 {
        // SAFETY: as above; the driver checks the bytes.
        unsafe { cuMemsetD8Async(address, value, 16, self.0) }
    }

    /// The first byte of some memory.
    fn first(&self, address: u64) -> u8 {
        let mut bytes = [0u8; 16];
        // SAFETY: there are 16 bytes on both sides.
        let code = unsafe { cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, 16, self.0) };
        assert_eq!(code, 0);
        bytes[0]
    }
}

fn allocate() -> (i32, u64) {
    let mut address = 0;
    // SAFETY: a place for the address.
    (unsafe { cuMemAlloc_v2(&mut address, 16) }, address)
}

fn event() -> *mut c_void {
    let mut event = null_mut();
    // SAFETY: a place for the event.
    assert_eq!(unsafe { cuEventCreate(&mut event, 2) }, 0);
    event
}

#[test]
fn what_is_captured_runs_when_it_is_launched_and_as_often() {
    let _alone = ALONE.lock().unwrap_or_else(|own| own.into_inner());
    let (stream, other) = (Stream::new(), Stream::new());
    let ((_, source), (_, target)) = (allocate(), allocate());
    assert_eq!((stream.fill(source, 1), stream.fill(target, 2)), (0, 0));
    assert_eq!(stream.begin(THREAD_LOCAL), 0);
    // SAFETY: both have 16 bytes.
    assert_eq!(unsafe { cuMemcpyDtoDAsync_v2(target, source, 16, stream.0) }, 0);
    assert_eq!(stream.fill(source, 7), 0);
    let (code, graph) = stream.end();
    assert_eq!((code, stream.first(source), stream.first(target)), (0, 1, 2));
    let mut ready = null_mut();
    // SAFETY: graphs and streams of the current context.
    unsafe {
        assert_eq!(cuGraphInstantiateWithFlags(&mut ready, graph, 0), 0);
        // What is ready does not need the graph.
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuGraphLaunch(ready, other.0), 0);
        assert_eq!((stream.first(source), stream.first(target)), (7, 1));
        assert_eq!(stream.fill(source, 9), 0);
        assert_eq!(cuGraphLaunch(ready, stream.0), 0);
        assert_eq!((stream.first(source), stream.first(target)), (7, 9));
        assert_eq!(cuGraphDestroy(ready), 1, "it is no graph");
        assert_eq!(cuGraphExecDestroy(ready), 0);
        assert_eq!(cuGraphLaunch(ready, stream.0), 400);
    }
}

#[test]
fn what_a_capture_does_not_allow_ends_it() {
    let _alone = ALONE.lock().unwrap_or_else(|own| own.into_inner());
    let stream = Stream::new();
    let (_, memory) = allocate();
    let bytes = [0u8; 16];
    let event = event();
    // SAFETY: of every call: handles of the current context, and 16 bytes.
    let tries: [(&str, i32, &dyn Fn() -> i32); 5] = [
        ("an allocation", 900, &|| allocate().0),
        ("giving memory back", 900, &|| unsafe { cuMemFree_v2(memory) }),
        ("memory that may be paged out", 900, &|| unsafe {
            cuMemcpyHtoDAsync_v2(memory, bytes.as_ptr().cast(), 16, stream.0)
        }),
        ("an event that is asked", 900, &|| unsafe {
            assert_eq!(cuEventRecord(event, stream.0), 0);
            cuEventQuery(event)
        }),
        ("a capture in a capture", 401, &|| stream.begin(THREAD_LOCAL)),
    ];
    for (what, expected, attempt) in tries {
        assert_eq!(stream.begin(THREAD_LOCAL), 0, "{what}");
        assert_eq!(attempt(), expected, "{what}");
        let ends = if expected == 900 { 901 } else { 0 };
        assert_eq!(stream.fill(memory, 1), ends, "{what}: what comes behind it");
        let (code, graph) = stream.end();
        assert_eq!((code, graph.is_null()), (ends, ends != 0), "{what}");
        assert_eq!(stream.fill(memory, 1), 0, "{what}: the stream goes on");
    }
    assert_eq!(stream.end().0, 401, "none is under way");
    assert_eq!(stream.begin(3), 1, "no such mode");
    assert_eq!(Stream(null_mut()).begin(THREAD_LOCAL), 900, "the default stream");
}

#[test]
fn modes_say_which_threads_are_disturbed() {
    let _alone = ALONE.lock().unwrap_or_else(|own| own.into_inner());
    let stream = Stream::new();
    let elsewhere = || std::thread::spawn(|| (Stream::new(), allocate().0).1).join().unwrap();
    assert_eq!(stream.begin(THREAD_LOCAL), 0);
    assert_eq!(elsewhere(), 0);
    assert_eq!(stream.end().0, 0);
    assert_eq!(stream.begin(GLOBAL), 0);
    assert_eq!(elsewhere(), 900);
    assert_eq!(stream.end().0, 901);
    assert_eq!(stream.begin(RELAXED), 0);
    assert_eq!((elsewhere(), allocate().0), (0, 0));
    assert_eq!(stream.end().0, 0);
    // Another thread may end a relaxed capture alone.
    for (mode, expected) in [(THREAD_LOCAL, 908), (RELAXED, 0)] {
        assert_eq!(stream.begin(mode), 0);
        let handle = stream.0 as usize;
        let ended = std::thread::spawn(move || {
            Stream::new();
            Stream(handle as *mut c_void).end().0
        });
        assert_eq!(ended.join().unwrap(), expected);
        assert_eq!(stream.end().0, if expected == 0 { 401 } else { 0 });
    }
}

/// An event behind what is captured has no time.
#[test]
fn events_of_a_capture_cannot_be_asked() {
    let _alone = ALONE.lock().unwrap_or_else(|own| own.into_inner());
    let (stream, event) = (Stream::new(), event());
    assert_eq!(stream.begin(RELAXED), 0);
    // SAFETY: handles of the current context.
    unsafe {
        assert_eq!(cuEventRecord(event, stream.0), 0);
        assert_eq!(cuEventQuery(event), 907);
        assert_eq!(stream.end().0, 0);
        assert_eq!(cuEventQuery(event), 907);
        assert_eq!(cuEventRecord(event, stream.0), 0);
        assert_eq!(cuEventQuery(event), 0);
    }
}
