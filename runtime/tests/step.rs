//! Runs single steps of a loaded model.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use hone_runtime::{Model, Options, RunError, StepArgument};

#[test]
fn a_step_alone_computes_from_what_is_given() {
    for threads in [1, 2] {
        let (_folder, path) = file(&affine(5));
        let options = Options { threads, ..Options::default() };
        let mut model = Model::load(&path, &options).unwrap();
        let product: Vec<f32> = (0..5 * ROW).map(|i| i as f32).collect();
        let mut y = vec![f32::NAN; 5 * ROW];
        let mut arguments = [
            StepArgument::Fill(as_bytes(&product)),
            StepArgument::Leave,
            StepArgument::Exchange(as_bytes_mut(&mut y)),
        ];
        model.run_steps(1..2, &mut arguments).unwrap();
        let bias = |i: usize| 100.0 + (i % ROW) as f32;
        assert!(y.iter().enumerate().all(|(i, y)| *y == product[i] + bias(i)), "{y:?}");
        // The first step writes the arena.
        let x = ramp(5);
        let mut product = vec![f32::NAN; 5 * ROW];
        let mut arguments = [
            StepArgument::Fill(as_bytes(&x)),
            StepArgument::Leave,
            StepArgument::Exchange(as_bytes_mut(&mut product)),
        ];
        model.run_steps(0..1, &mut arguments).unwrap();
        assert_eq!(product[17], x[17] * -2.0);
        // A whole run is as it was.
        let mut y = vec![f32::NAN; 5 * ROW];
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        assert_eq!(y, expected(&x));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (_folder, path) = file(&affine(5));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let refused = model.run_steps(1..3, &mut []).unwrap_err();
    assert_eq!(refused, RunError::Steps { first: 1, end: 3, known: 2 });
    assert!(matches!(model.run_steps(0..2, &mut []), Err(RunError::Steps { .. })));
    assert!(matches!(model.run_steps(0..0, &mut []), Err(RunError::Steps { .. })));
    assert!(matches!(model.run_steps(0..1, &mut []), Err(RunError::Count { expected: 3, .. })));
    let short = [0; 4];
    let mut arguments = [StepArgument::Fill(&short), StepArgument::Leave, StepArgument::Leave];
    assert!(matches!(model.run_steps(0..1, &mut arguments), Err(RunError::Size { .. })));
    let whole = [0; ROW * 4];
    let mut arguments = [StepArgument::Leave, StepArgument::Fill(&whole), StepArgument::Leave];
    assert!(matches!(model.run_steps(0..1, &mut arguments), Err(RunError::Size { .. })));
}

#[test]
fn a_kernel_that_stores_beside_its_buffer_is_noticed() {
    let mut manifest = affine(5);
    let step = &mut manifest.variants[0].steps[0];
    step.arguments[2].bytes -= 4;
    manifest.variants[0].steps[1].arguments[0].bytes -= 4;
    let (_folder, path) = file(&manifest);
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let x = ramp(5);
    let mut product = vec![0.0f32; 5 * ROW - 1];
    let mut arguments = [
        StepArgument::Fill(as_bytes(&x)),
        StepArgument::Leave,
        StepArgument::Exchange(as_bytes_mut(&mut product)),
    ];
    assert_eq!(model.run_steps(0..1, &mut arguments), Err(RunError::Stray { step: 0 }));
}
