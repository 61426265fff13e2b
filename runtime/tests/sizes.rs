//! One artifact for several sizes: which one runs, what they share, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;

use common::*;
use hone_artifact::{Access, DataType, Slot, TensorInfo};
use hone_runtime::{HugePages, Model, Options, RunError};

fn load(sizes: &[usize], options: &Options) -> Model {
    let (_folder, path) = file(&affine_sizes(sizes));
    Model::load(&path, options).unwrap()
}

/// Runs on so many rows, whatever ran before.
fn run(model: &mut Model, rows: usize) {
    let shape = [rows as u64, ROW as u64];
    model.set_input_shapes(&[&shape]).unwrap();
    assert_eq!(model.inputs()[0].shape, shape);
    let (x, mut y) = (ramp(rows), vec![f32::NAN; rows * ROW]);
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    assert_eq!(y, expected(&x), "{rows} rows");
    assert_eq!(model.output_shapes(), [shape]);
}

#[test]
fn the_shapes_of_the_inputs_choose_what_runs() {
    for threads in [1, 2] {
        let mut model = load(&[97, 8, 3, 1], &Options { threads, ..Options::default() });
        // At first the largest.
        assert_eq!(model.inputs()[0].shape, [97, 16]);
        let sizes: Vec<String> = model.sizes().map(|own| own.shapes.unwrap().to_string()).collect();
        assert_eq!(sizes, ["rows=97", "rows=8", "rows=3", "rows=1"]);
        for rows in [3, 97, 97, 1, 8, 3, 1, 97] {
            run(&mut model, rows);
        }
    }
}

#[test]
fn other_shapes_are_refused_and_change_nothing() {
    let mut model = load(&[8, 3], &Options::default());
    run(&mut model, 3);
    for (shape, said) in [
        (&[4, 16][..], "input 'x' has shape [4, 16], the artifact takes [8, 16], [3, 16]; compile"),
        (&[3], "input 'x' has shape [3], the artifact takes"),
        (&[3, 16, 1], "input 'x' has shape [3, 16, 1], the artifact takes"),
    ] {
        let error = model.set_input_shapes(&[shape]).unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
    }
    let count = RunError::Count { role: "input", expected: 1, found: 2 };
    assert_eq!(model.set_input_shapes(&[&[3, 16], &[3, 16]]), Err(count));
    assert!(!model.select_sizes(2));
    // Still set to three rows: a buffer of eight is one of another size.
    let (x, mut y) = (ramp(8), ramp(8));
    let error = model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap_err();
    assert!(error.to_string().contains("input 'x' is 192 bytes, the buffer given has 512"));
    assert_eq!(y, ramp(8));
    run(&mut model, 3);
}

#[test]
fn an_artifact_of_one_size_has_one() {
    let (_folder, path) = file(&affine(5));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    assert_eq!(model.sizes().len(), 1);
    assert!(model.sizes().all(|own| own.shapes.is_none()));
    model.set_input_shapes(&[&[5, 16]]).unwrap();
    let error = model.set_input_shapes(&[&[6, 16]]).unwrap_err();
    let taken = vec![vec![5, 16]];
    let (name, found) = ("x".to_owned(), vec![6, 16]);
    assert_eq!(error, RunError::Shape { name, found, taken, first: true });
}

/// What a kernel of each size sees as its weights is one place in memory.
#[test]
fn weights_are_there_once() {
    let mut manifest = affine_sizes(&[4, 2]);
    for variant in &mut manifest.variants {
        let weight = argument(Slot::Weight { offset: 0 }, 8, Access::Read);
        let address = argument(Slot::Output { index: 0, offset: 0 }, 8, Access::Write);
        variant.steps = vec![step("where_weights", 1, vec![weight, address])];
        let shapes = variant.shapes.as_mut().unwrap();
        shapes.outputs = vec![vec![1]];
    }
    manifest.outputs = vec![TensorInfo::new("address", DataType::U64, vec![1]).unwrap()];
    let (_folder, path) = file(&manifest);
    for huge_pages in [HugePages::Arena, HugePages::ArenaAndWeights] {
        let mut model = Model::load(&path, &Options { huge_pages, ..Options::default() }).unwrap();
        let mut addresses = Vec::new();
        for rows in [4u64, 2, 4] {
            model.set_input_shapes(&[&[rows, 16]]).unwrap();
            let (x, mut address) = (ramp(rows as usize), [0u64; 1]);
            // SAFETY: any bytes are a number.
            let bytes = unsafe { std::slice::from_raw_parts_mut(address.as_mut_ptr().cast(), 8) };
            model.run(&[as_bytes(&x)], &mut [bytes]).unwrap();
            addresses.push(address[0]);
        }
        assert!(addresses.iter().all(|own| *own == addresses[0] && *own > 0), "{addresses:?}");
    }
}

/// The arena is that of the largest size, and there is one for all of them.
#[test]
fn memory_is_that_of_the_largest_size() {
    let all = load(&[64, 32, 16], &Options { threads: 1, ..Options::default() });
    let one = load(&[64, 1], &Options { threads: 1, ..Options::default() });
    assert_eq!(all.memory().reserved, one.memory().reserved);
    assert_eq!(all.memory().weights, 2 * 64);
}

#[test]
fn threads_run_different_sizes_of_one_model_at_once() {
    let sizes = [61, 32, 7, 2, 1];
    let model = load(&sizes, &Options::default());
    let (model, sizes) = (&model, &sizes);
    thread::scope(|scope| {
        for first in 0..8 {
            scope.spawn(move || {
                let mut own = model.share().unwrap();
                for turn in 0..200 {
                    run(&mut own, sizes[(first + turn * 3) % sizes.len()]);
                }
            });
        }
    });
}
