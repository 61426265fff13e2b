//! The pool of threads from outside: one for all models, asleep when idle, gone with the last model.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::*;
use hone_runtime::{Model, Options};

fn within_seconds(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", workers());
        thread::sleep(Duration::from_millis(2));
    }
}

/// The only test of this program, so that the process's threads are its own.
#[test]
fn workers_are_few_asleep_when_idle_and_end_with_the_last_model() {
    let (_folder, path) = file(&affine(64));
    let cores = thread::available_parallelism().unwrap().get();
    let options = Options { threads: 64, ..Options::default() };
    let mut models: Vec<Model> = (0..3).map(|_| Model::load(&path, &options).unwrap()).collect();
    let (x, mut y) = (ramp(64), ramp(64));
    for model in &mut models {
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    }
    assert_eq!(workers().len(), cores.min(64) - 1, "one pool, callers counted");
    within_seconds("idle workers sleep", || workers().iter().all(|&state| state == 'S'));
    models[0].run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    assert_eq!(y, expected(&x), "woken again");
    drop(models);
    within_seconds("workers end", || workers().is_empty());
    let mut again = Model::load(&path, &options).unwrap();
    again.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    assert_eq!(y, expected(&x), "a new pool");
}
