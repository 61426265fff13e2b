//! The C interface from several threads at once: a model runs in one of them while others share it and
//! read what it says of itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::*;
use hone_runtime::capi::*;

const ROWS: usize = 9;
const SHARES: usize = 200;

/// A pointer to a model; the C interface says what threads may do with it at once.
#[derive(Clone, Copy)]
struct Handle(*mut HoneModel);

// SAFETY: the interface's functions are called as `hone.h` allows from several threads.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn run(self, x: &[f32], y: &mut [f32]) -> i32 {
        let inputs: [*const c_void; 1] = [x.as_ptr().cast()];
        let outputs: [*mut c_void; 1] = [y.as_mut_ptr().cast()];
        // SAFETY: the lists have one pointer each, to as many elements as the tensors have.
        unsafe { hone_run(self.0, inputs.as_ptr(), outputs.as_ptr()) }
    }
}

fn load() -> Handle {
    let (_folder, path) = file(&affine(ROWS));
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends in zero; null options are the default.
    let model = unsafe { hone_load(path.as_ptr(), ptr::null()) };
    assert!(!model.is_null());
    Handle(model)
}

#[test]
fn a_running_model_is_shared_and_asked_about() {
    let model = load();
    // SAFETY: the model lives until the end of the test.
    let bytes = unsafe { hone_memory_bytes(model.0) };
    assert!(bytes > 0);
    let (over, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let x = ramp(ROWS);
    let wanted = expected(&x);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) || runs.load(Ordering::Relaxed) == 0 {
                let mut y = vec![0.0; wanted.len()];
                assert_eq!(model.run(&x, &mut y), 0);
                assert_eq!(y, wanted);
                runs.fetch_add(1, Ordering::Relaxed);
            }
        });
        let sharers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    // The whole handle, which may cross threads, and not the pointer in it.
                    let model = &model;
                    for _ in 0..SHARES {
                        // SAFETY: sharing and asking are allowed while another thread runs the model.
                        let (shared, size) =
                            unsafe { (hone_share(model.0), hone_memory_bytes(model.0)) };
                        assert_eq!(size, bytes);
                        let mut y = vec![0.0; wanted.len()];
                        assert_eq!(Handle(shared).run(&x, &mut y), 0);
                        assert_eq!(y, wanted);
                        // SAFETY: it is this thread's, and does not run.
                        unsafe { hone_free(shared) };
                    }
                })
            })
            .collect();
        sharers.into_iter().for_each(|sharer| sharer.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    // SAFETY: no thread uses it any more.
    unsafe { hone_free(model.0) };
}
