//! A dimension of any size up to a bound: inputs that are laid into room for it, and outputs taken from there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::process::Command;
use std::thread;

use common::*;
use hone_artifact::{Access, DataType, Manifest, OpenDimension, PaddedDimension, Slot, TensorInfo};
use hone_runtime::{Model, Options};

fn tensor(name: &str, dtype: DataType, shape: Vec<u64>) -> TensorInfo {
    TensorInfo::new(name, dtype, shape).unwrap()
}

/// `affine` of `[2, length, ROW]` for some bounds of the length, and the sum of as many numbers of `z`, `[length]`, as the
/// size says.
fn any_length(bounds: &[usize]) -> Manifest {
    let rows: Vec<usize> = bounds.iter().map(|bound| 2 * bound).collect();
    let mut manifest = affine_sizes(&rows);
    let row = ROW as u64;
    let shapes = |bound: usize| {
        let bound = bound as u64;
        (vec![vec![2, bound, row], vec![bound], vec![]], vec![vec![2, bound, row], vec![1]])
    };
    let (inputs, outputs) = shapes(bounds[0]);
    let [x, z, size] = <[Vec<u64>; 3]>::try_from(inputs).unwrap();
    let [y, sum] = <[Vec<u64>; 2]>::try_from(outputs).unwrap();
    manifest.inputs = vec![
        tensor("x", DataType::F32, x),
        tensor("z", DataType::F32, z),
        tensor(&PaddedDimension::size_input("length"), DataType::I64, size),
    ];
    manifest.outputs = vec![tensor("y", DataType::F32, y), tensor("sum", DataType::F32, sum)];
    for (variant, bound) in manifest.variants.iter_mut().zip(bounds) {
        let sized = variant.shapes.as_mut().unwrap();
        (sized.inputs, sized.outputs) = shapes(*bound);
        let arguments = vec![
            argument(Slot::Input { index: 1, offset: 0 }, bound * 4, Access::Read),
            argument(Slot::Input { index: 2, offset: 0 }, 8, Access::Read),
            argument(Slot::Output { index: 1, offset: 0 }, 4, Access::Write),
        ];
        variant.steps.push(step("sum_of", 1, arguments));
    }
    manifest.padded = Some(PaddedDimension {
        name: "length".into(),
        inputs: vec![Some(1), Some(0)],
        outputs: vec![Some(1), None],
        lengths: Vec::new(),
        least: None,
        multiple: None,
    });
    manifest
}

fn load(bounds: &[usize], options: &Options) -> Model {
    let (_folder, path) = file(&any_length(bounds));
    Model::load(&path, options).unwrap()
}

fn run(model: &mut Model, length: usize) {
    let (size, row) = (length as u64, ROW as u64);
    model.set_input_shapes(&[&[2, size, row], &[size]]).unwrap();
    assert_eq!(model.inputs().len(), 2);
    assert_eq!(model.inputs()[0].shape, [2, size, row]);
    assert_eq!(model.outputs()[0].shape, [2, size, row]);
    // What lies around the buffers stays as it is.
    let (x, mut y) = (ramp(2 * length), vec![f32::NAN; (2 * length + 2) * ROW]);
    let (z, mut sum) = (vec![1f32; length], [0f32]);
    let inside = ROW..(2 * length + 1) * ROW;
    let mut outputs = [as_bytes_mut(&mut y[inside.clone()]), as_bytes_mut(&mut sum)];
    model.run(&[as_bytes(&x), as_bytes(&z)], &mut outputs).unwrap();
    assert_eq!(y[inside.clone()], expected(&x), "length {length}");
    assert!(y[..inside.start].iter().chain(&y[inside.end..]).all(|value| value.is_nan()));
    assert_eq!(sum, [length as f32]);
    assert_eq!(model.output_shapes(), [vec![2, size, row], vec![1]]);
}

#[test]
fn every_size_up_to_the_bound_runs_in_any_order() {
    for threads in [1, 2] {
        let mut model = load(&[9, 4], &Options { threads, ..Options::default() });
        assert_eq!(model.padded_dimension().unwrap().name, "length");
        assert_eq!((model.sizes().len(), model.inputs().len()), (2, 2));
        assert_eq!(model.inputs()[0].shape, [2, 9, 16], "at first the largest");
        let reserved = model.memory().reserved;
        for length in [5, 9, 1, 4, 3, 8, 2, 7, 6, 9] {
            run(&mut model, length);
        }
        assert_eq!(model.memory().reserved, reserved);
        // The compiled code itself takes the size as an input.
        assert!(model.select_sizes(1));
        assert_eq!(model.inputs()[0].shape, [2, 4, 16]);
        assert_eq!(model.inputs()[2].name, "size of length");
        run(&mut model, 7);
    }
}

#[test]
fn sizes_beyond_the_bound_and_shapes_that_do_not_fit_are_refused() {
    let mut model = load(&[9, 4], &Options::default());
    for (x, z, said) in [
        (
            &[2, 10, 16][..],
            &[10][..],
            "length is 10, the artifact takes 1 to 9 of it; how many is said when compiling",
        ),
        (&[2, 0, 16], &[0], "length is 0, the artifact takes 1 to 9 of it"),
        (&[2, u64::MAX, 16], &[u64::MAX], "length is 18446744073709551615, the artifact takes"),
        (&[2, 5, 16], &[6], "length is 5 in input 'x' and 6 in input 'z': it must be the same"),
        (&[3, 5, 16], &[5], "input 'x' has shape [3, 5, 16], the artifact takes [2, length, 16]"),
        (&[2, 5], &[5], "input 'x' has shape [2, 5], the artifact takes [2, length, 16]"),
    ] {
        let error = model.set_input_shapes(&[x, z]).unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
        assert_eq!(model.inputs()[0].shape, [2, 9, 16], "set to the largest");
    }
    let error = model.set_input_shapes(&[&[2, 5, 16], &[5], &[]]).unwrap_err();
    assert!(error.to_string().contains("given where the model has 2"), "{error}");
    run(&mut model, 6);
}

#[test]
fn threads_run_different_sizes_at_once() {
    let model = &load(&[16, 5], &Options::default());
    thread::scope(|scope| {
        for first in 0..6 {
            scope.spawn(move || {
                let mut model = model.share().unwrap();
                (0..100).for_each(|turn| run(&mut model, 1 + (first * 7 + turn * 3) % 16));
            });
        }
    });
}

/// The batch is the outermost axis, the length the next: a run is one of each slice.
#[test]
fn slices_of_any_size_are_run_one_by_one() {
    let mut manifest = affine_sizes(&[6, 3]);
    let row = ROW as u64;
    for (variant, bound) in manifest.variants.iter_mut().zip([6, 3]) {
        let shapes = variant.shapes.as_mut().unwrap();
        (shapes.inputs, shapes.outputs) =
            (vec![vec![1, bound, row], vec![]], vec![vec![1, bound, row]]);
    }
    let all = |name: &str| tensor(name, DataType::F32, vec![1, 6, row]);
    let size = tensor(&PaddedDimension::size_input("length"), DataType::I64, vec![]);
    (manifest.inputs, manifest.outputs) = (vec![all("x"), size], vec![all("y")]);
    let name = || "batch".to_owned();
    manifest.open =
        Some(OpenDimension { name: name(), inputs: vec![Some(0), None], outputs: vec![Some(0)] });
    manifest.padded = Some(PaddedDimension {
        name: "length".into(),
        inputs: vec![Some(1)],
        outputs: vec![Some(1)],
        lengths: Vec::new(),
        least: None,
        multiple: None,
    });
    let (_folder, path) = file(&manifest);
    let mut model = Model::load(&path, &Options::default()).unwrap();
    for (batch, length) in [(1, 6), (3, 4), (5, 1), (2, 3), (0, 2)] {
        let shape = [batch as u64, length as u64, row];
        model.set_input_shapes(&[&shape]).unwrap();
        let (x, mut y) = (ramp(batch * length), vec![f32::NAN; batch * length * ROW]);
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        assert_eq!(y, expected(&x), "{batch} x {length}");
    }
}

#[test]
fn manifests_that_say_it_wrongly_are_refused() {
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = any_length(&[9, 4]);
        change(&mut manifest);
        manifest.validate().unwrap_err().to_string()
    };
    let padded = |manifest: &mut Manifest, change: &dyn Fn(&mut PaddedDimension)| {
        change(manifest.padded.as_mut().unwrap());
    };
    let axes = refused(&|manifest| padded(manifest, &|padded| padded.inputs[0] = Some(2)));
    assert!(axes.contains("a variant has no bound of 'length'"), "{axes}");
    let axes = refused(&|manifest| padded(manifest, &|padded| padded.outputs[0] = Some(7)));
    assert!(axes.contains("a variant has no bound of 'length'"), "{axes}");
    let count = refused(&|manifest| padded(manifest, &|padded| padded.inputs.push(None)));
    assert!(count.contains("the axes of 'length' do not fit the inputs"), "{count}");
    let count = refused(&|manifest| padded(manifest, &|padded| padded.outputs.push(None)));
    assert!(count.contains("the axes of 'length' do not fit the outputs"), "{count}");
    let none = refused(&|manifest| padded(manifest, &|padded| padded.inputs = vec![None; 2]));
    assert!(none.contains("a variant has no bound of 'length'"), "{none}");
    let size = refused(&|manifest| {
        manifest.inputs[2] = tensor("n", DataType::U64, vec![]);
    });
    assert!(size.contains("the size of 'length' is no single i64"), "{size}");
}

/// The same through the C interface.
#[test]
fn a_program_in_c_runs_every_size() {
    let (folder, path) = file(&any_length(&[9, 4]));
    let (source, program) = (folder.path().join("padded.c"), folder.path().join("padded"));
    std::fs::write(&source, PROGRAM).unwrap();
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let built = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .args([Path::new("-I"), &include, Path::new("-L"), &libraries])
        .arg("-lhone_runtime")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran =
        Command::new(&program).arg(&path).env("LD_LIBRARY_PATH", &libraries).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["inputs 2, axis 1 of x, first 9", "5 15"], "{text}");
    assert!(lines[2].starts_with("-1 length is 10, the artifact takes 1 to 9 of it"), "{text}");
}

/// A C program that lays numbers into `x` and `z`, and prints the sum.
const PROGRAM: &str = r#"
#include "hone.h"
#include <stdio.h>
int main(int argc, char **argv) {
  if (argc != 2) return 5;
  hone_model *model = hone_load(argv[1], 0);
  if (!model) { puts(hone_last_error()); return 1; }
  printf("inputs %zu, axis %d of x, first %llu\n", hone_input_count(model), hone_bounded_axis(model, 0),
         (unsigned long long)hone_input(model, 0)->shape[1]);
  const uint64_t x[] = {2, 5, 16}, z[] = {5}, *const shapes[] = {x, z};
  if (hone_set_input_shapes(model, shapes)) { puts(hone_last_error()); return 1; }
  static float in[160], of[5] = {1, 2, 3, 4, 5}, out[160], sum[1];
  const void *inputs[] = {in, of};
  void *outputs[] = {out, sum};
  if (hone_run(model, inputs, outputs)) { puts(hone_last_error()); return 1; }
  printf("%llu %g\n", (unsigned long long)hone_output(model, 0)->shape[1], sum[0]);
  const uint64_t long_x[] = {2, 10, 16}, long_z[] = {10}, *const longer[] = {long_x, long_z};
  const int refused = hone_set_input_shapes(model, longer);
  printf("%d %s\n", refused, hone_last_error());
  hone_free(model);
  return 0;
}
"#;
