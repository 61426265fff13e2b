//! What must not load, does not, and says why.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::error::Error;
use std::path::Path;

use common::*;
use hone_artifact::{Manifest, ReadError, Reader, Writer};
use hone_runtime::{LoadError, Model, Options};

fn load(bytes: Vec<u8>) -> Result<Model, LoadError> {
    Model::load_memory(bytes, &Options::default())
}

#[test]
fn damage_anywhere_is_found_before_any_code_is_loaded() {
    let good = pack(&affine(4));
    let step = (good.len() / 997).max(1);
    for at in (0..good.len()).step_by(step).chain(good.len() - 128..good.len()) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let error = load(bad).unwrap_err();
        assert!(matches!(error, LoadError::Artifact { .. }), "byte {at}: {error}");
    }
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let good = pack(&affine(4));
    let reader = Reader::new(&good).unwrap();
    let edges = reader.sections().iter().flat_map(|s| [s.offset, s.offset + s.length]);
    let edges = edges.flat_map(|at| [at.saturating_sub(1), at]).map(|at| at as usize);
    let spread = (0..200).map(|i| i * good.len() / 200);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.hone");
    for length in edges.chain(spread).chain(0..64).filter(|&length| length < good.len()) {
        std::fs::write(&path, &good[..length]).unwrap();
        let error = Model::load(&path, &Options::default()).unwrap_err();
        let LoadError::Artifact { source, path: named } = &error else {
            // Nothing can be mapped of an empty file on some systems.
            assert!(length == 0 && matches!(error, LoadError::Open { .. }), "{length}: {error}");
            continue;
        };
        assert!(matches!(source, ReadError::Length { .. }), "{length}: {source}");
        assert_eq!(named, &path);
    }
}

#[test]
fn another_cpu_is_refused_with_what_is_missing() {
    let mut manifest = affine(4);
    manifest.variants[0].target.features = vec!["zz-one".into(), "zz-two".into()];
    let error = load(pack(&manifest)).unwrap_err();
    assert!(matches!(error, LoadError::Cpu { .. }));
    let text = error.to_string();
    assert!(text.starts_with("artifact is for a CPU that this one is not: "), "{text}");
    assert!(text.contains("zz-one, zz-two"), "{text}");
    manifest.variants[0].target.triple = "riscv64-unknown-linux-gnu".into();
    let text = load(pack(&manifest)).unwrap_err().to_string();
    assert!(text.contains("riscv64-unknown-linux-gnu"), "{text}");
}

#[test]
fn the_first_variant_that_fits_is_taken() {
    let mut manifest = affine(4);
    let mut better = manifest.variants[0].clone();
    better.target.features = vec!["zz-one".into()];
    // Its code must not even be looked at.
    better.steps[0].kernel = "not_there".into();
    manifest.variants.insert(0, better);
    let mut model = load(pack(&manifest)).unwrap();
    let (x, mut y) = (ramp(4), ramp(4));
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
    assert_eq!(y, expected(&x));
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    let mut manifest = affine(4);
    manifest.variants[0].steps[1].kernel = "not_there".into();
    let error = load(pack(&manifest)).unwrap_err();
    assert!(matches!(&error, LoadError::NoKernel { kernel, step: 1 } if kernel == "not_there"));
}

#[test]
fn code_that_is_no_shared_object_is_refused() {
    let mut writer = Writer::new();
    writer.code(vec![1u8; 100]);
    writer.weights(weights());
    let error = load(writer.to_bytes(&affine(4)).unwrap()).unwrap_err();
    assert!(matches!(error, LoadError::Code { .. }), "{error}");
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let mut manifest: Manifest = affine(4);
    manifest.variants[0].arena_bytes = 1 << 47;
    let error = load(pack(&manifest)).unwrap_err();
    assert!(matches!(error, LoadError::Memory { .. }), "{error}");
    assert!(error.source().is_some());
}

#[test]
fn a_path_that_is_no_file_is_named() {
    for path in [Path::new("/no/such/file.hone"), Path::new("/")] {
        let error = Model::load(path, &Options::default()).unwrap_err();
        assert!(matches!(error, LoadError::Open { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
