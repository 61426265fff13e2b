//! A run allocates nothing: every allocation of this process is counted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use hone_runtime::{Model, Options, Profile};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The only test of this program, so that nothing else allocates meanwhile.
#[test]
fn a_run_allocates_nothing() {
    let (_folder, path) = file(&affine(64));
    for threads in [1, 2] {
        let mut model = Model::load(&path, &Options { threads, ..Options::default() }).unwrap();
        let mut profile = Profile::new(&model);
        let (x, mut y) = (ramp(64), ramp(64));
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        for _ in 0..100 {
            model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
            let outputs = &mut [as_bytes_mut(&mut y)];
            model.run_profiled(&[as_bytes(&x)], outputs, &mut profile).unwrap();
        }
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "{threads} threads");
        assert_eq!(y, expected(&x));
    }
    runs_of_other_sizes_allocate_nothing();
}

fn runs_of_other_sizes_allocate_nothing() {
    let (_folder, path) = file(&affine_sizes(&[64, 9, 1]));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let (x, mut y) = (ramp(64), ramp(64));
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for turn in 0..100 {
        let rows = [1, 64, 9][turn % 3];
        model.set_input_shapes(&[&[rows as u64, ROW as u64]]).unwrap();
        let (x, y) = (&x[..rows * ROW], &mut y[..rows * ROW]);
        model.run(&[as_bytes(x)], &mut [as_bytes_mut(y)]).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0);
    assert_eq!(y, expected(&x));
}
