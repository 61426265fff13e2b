//! The trained example: its accuracy by the reference interpreter.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use hone_model_tests::{interpret, read_npz};

#[test]
fn the_reference_recognises_the_test_digits() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let images = read_npz(&folder.join("test-images.npz")).unwrap();
    let labels = read_npz(&folder.join("test-labels.npz")).unwrap();
    let outputs = interpret(&folder.join("digits.onnx"), &images).unwrap();
    let (name, scores) = &outputs[0];
    assert_eq!(name, "scores");
    assert_eq!(scores.shape(), [360, 10]);
    let right = scores
        .to_f64()
        .chunks(10)
        .zip(labels[0].1.to_i64())
        .filter(|(scores, label)| {
            let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
            best.map(|(digit, _)| digit as i64) == Some(*label)
        })
        .count();
    // As many as onnxruntime gets right with the same file: see the example's README.
    assert_eq!(right, 357);
}
