//! A process that forks after loading: the child has no workers and must not wait for any.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::*;
use hone_runtime::{Model, Options};

#[test]
fn a_forked_child_runs_on_its_own() {
    let (_folder, path) = file(&affine(64));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let (x, mut y, right) = (ramp(64), ramp(64), expected(&ramp(64)));
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    y.fill(0.0);
    // SAFETY: the child only runs the model, which allocates nothing and takes no lock, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ran = model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).is_ok();
        // SAFETY: ends the process without running what the parent registered.
        unsafe { libc::_exit(if ran && y == right { 7 } else { 1 }) };
    }
    assert!(child > 0);
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: our own child, and a place for its status.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(30) {
            // SAFETY: it has not been waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status:#x}");
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    assert_eq!(y, right);
}
