//! A dimension of any size: runs that are composed of runs at compiled sizes, in Rust and by the C interface.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::process::Command;
use std::thread;

use common::*;
use hone_artifact::{Access, DataType, Manifest, OpenDimension, Slot, TensorInfo};
use hone_runtime::{Model, Options, Profile};

/// `affine` for some numbers of rows, and so for any.
fn any_rows(sizes: &[usize]) -> Manifest {
    let open = OpenDimension { name: "rows".into(), inputs: vec![Some(0)], outputs: vec![Some(0)] };
    Manifest { open: Some(open), ..affine_sizes(sizes) }
}

fn tensor(name: &str, shape: Vec<u64>) -> TensorInfo {
    TensorInfo::new(name, DataType::F32, shape).unwrap()
}

fn load(sizes: &[usize], options: &Options) -> Model {
    let (_folder, path) = file(&any_rows(sizes));
    Model::load(&path, options).unwrap()
}

fn run(model: &mut Model, rows: usize) {
    let shape = [rows as u64, ROW as u64];
    model.set_input_shapes(&[&shape]).unwrap();
    assert_eq!(
        (&model.inputs()[0].shape[..], &model.outputs()[0].shape[..]),
        (&shape[..], &shape[..])
    );
    // What lies around the buffers stays as it is.
    let (x, mut y) = (ramp(rows), vec![f32::NAN; (rows + 2) * ROW]);
    let inside = ROW..(rows + 1) * ROW;
    model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y[inside.clone()])]).unwrap();
    assert_eq!(y[inside.clone()], expected(&x), "{rows} rows");
    assert!(y[..inside.start].iter().chain(&y[inside.end..]).all(|own| own.is_nan()));
    assert_eq!(model.output_shapes(), [shape]);
}

#[test]
fn any_size_runs_in_any_order() {
    for threads in [1, 2] {
        let mut model = load(&[8, 3, 1], &Options { threads, ..Options::default() });
        assert_eq!(model.open_dimension().unwrap().name, "rows");
        assert_eq!(model.sizes().len(), 3);
        let reserved = model.memory().reserved;
        for rows in [13, 8, 1, 100, 2, 3, 0, 7, 64, 5, 0, 1000] {
            run(&mut model, rows);
            assert_eq!(model.current_sizes().is_some(), [8, 3, 1].contains(&rows));
        }
        assert_eq!(model.memory().reserved, reserved, "the arena is that of the largest size");
        assert!(model.select_sizes(1));
        assert_eq!(model.inputs()[0].shape, [3, 16]);
    }
}

#[test]
fn what_fits_no_size_is_refused_and_changes_nothing() {
    let mut model = load(&[8, 3, 1], &Options::default());
    run(&mut model, 3);
    for (shape, said) in [
        (
            &[5, 17][..],
            "input 'x' has shape [5, 17], the artifact takes [rows, 16], at any rows; compile",
        ),
        (&[5], "input 'x' has shape [5], the artifact takes [rows, 16]"),
        (&[5, 16, 1], "input 'x' has shape [5, 16, 1], the artifact takes [rows, 16]"),
        (&[u64::MAX, 16], "input 'x' has shape [18446744073709551615, 16], the artifact takes"),
    ] {
        let error = model.set_input_shapes(&[shape]).unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
        assert_eq!(model.inputs()[0].shape, [3, 16]);
    }
    model.set_input_shapes(&[&[13, 16]]).unwrap();
    let (x, mut y) = (ramp(12), ramp(13));
    let error = model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap_err();
    assert!(error.to_string().contains("input 'x' is 832 bytes, the buffer given has 768"));
    assert_eq!(y, ramp(13));
    // Behind a refusal a model that was composed is set to its largest sizes.
    model.set_input_shapes(&[&[13, 17]]).unwrap_err();
    assert_eq!(model.inputs()[0].shape, [8, 16]);
    run(&mut model, 13);
}

#[test]
fn a_profile_is_of_the_largest_part() {
    let mut model = load(&[4, 1], &Options::default());
    model.set_input_shapes(&[&[9, 16]]).unwrap();
    let mut profile = Profile::new(&model);
    let (x, mut y) = (ramp(9), ramp(9));
    model.run_profiled(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)], &mut profile).unwrap();
    assert_eq!(y, expected(&x));
    assert!(profile.steps.iter().all(|step| step.runs == 1));
}

#[test]
fn threads_run_different_sizes_at_once() {
    let model = &load(&[5, 2, 1], &Options::default());
    thread::scope(|scope| {
        for first in 0..6 {
            scope.spawn(move || {
                let mut own = model.share().unwrap();
                (0..100).for_each(|turn| run(&mut own, (first * 7 + turn * 3) % 31));
            });
        }
    });
}

/// Two inputs, one without the dimension, and an output without it: `rows` rows of `x`, and `b`.
#[test]
fn what_has_no_such_dimension_is_passed_whole() {
    let mut manifest = any_rows(&[4, 1]);
    let row = ROW as u64;
    manifest.inputs.push(tensor("b", vec![row]));
    manifest.outputs.push(tensor("again", vec![row]));
    for variant in &mut manifest.variants {
        let shapes = variant.shapes.as_mut().unwrap();
        shapes.inputs.push(vec![row]);
        shapes.outputs.push(vec![row]);
        let bytes = ROW * 4;
        let b = argument(Slot::Input { index: 1, offset: 0 }, bytes, Access::Read);
        // Adds the second input in place of the bias, and gives it away scaled.
        variant.steps[1].arguments[1] = b.clone();
        let mut again = variant.steps[0].clone();
        again.tasks = 1;
        again.arguments[0] = b;
        again.arguments[2] = argument(Slot::Output { index: 1, offset: 0 }, bytes, Access::Write);
        variant.steps.push(again);
    }
    let open = manifest.open.as_mut().unwrap();
    open.inputs.push(None);
    open.outputs.push(None);
    let (_folder, path) = file(&manifest);
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let b: Vec<f32> = (0..ROW).map(|i| 1000.0 + i as f32).collect();
    for rows in [1usize, 3, 4, 11] {
        model.set_input_shapes(&[&[rows as u64, row], &[row]]).unwrap();
        let (x, mut y, mut again) = (ramp(rows), ramp(rows), vec![0f32; ROW]);
        let mut outputs = [as_bytes_mut(&mut y), as_bytes_mut(&mut again)];
        model.run(&[as_bytes(&x), as_bytes(&b)], &mut outputs).unwrap();
        let want = |(i, x): (usize, &f32)| x * ((i % ROW) as f32 - 3.0) + b[i % ROW];
        assert_eq!(y, x.iter().enumerate().map(want).collect::<Vec<f32>>());
        let scaled: Vec<f32> = b.iter().enumerate().map(|(i, b)| b * (i as f32 - 3.0)).collect();
        assert_eq!(again, scaled);
    }
    let error = model.set_input_shapes(&[&[0, row], &[row]]).unwrap_err().to_string();
    assert!(error.contains("an output without this dimension would not be computed"), "{error}");
    let error = model.set_input_shapes(&[&[2, row], &[2]]).unwrap_err().to_string();
    assert!(error.starts_with("input 'b' has shape [2], the artifact takes [16]"), "{error}");
}

#[test]
fn inputs_have_one_size_of_it() {
    let mut manifest = any_rows(&[2, 1]);
    manifest.inputs.push(tensor("z", vec![2, 1]));
    for variant in &mut manifest.variants {
        let shapes = variant.shapes.as_mut().unwrap();
        shapes.inputs.push(vec![shapes.inputs[0][0], 1]);
    }
    manifest.open.as_mut().unwrap().inputs.push(Some(0));
    let (_folder, path) = file(&manifest);
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let error = model.set_input_shapes(&[&[5, 16], &[6, 1]]).unwrap_err().to_string();
    assert_eq!(error, "rows is 5 in input 'x' and 6 in input 'z': it must be the same");
    model.set_input_shapes(&[&[5, 16], &[5, 1]]).unwrap();
}

/// The same through the C interface.
#[test]
fn a_program_in_c_runs_any_size() {
    let (folder, path) = file(&any_rows(&[4, 1]));
    let (source, program) = (folder.path().join("any.c"), folder.path().join("any"));
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
    assert_eq!(
        text,
        "axis 0 -1\n13 832: right\n4 256: right\n0 0: right\n7 448: right\nrefused: input 'x' has shape [3, 15]\n"
    );
}

const PROGRAM: &str = r#"
#include "hone.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
  if (argc != 2) return 5;
  hone_model *model = hone_load(argv[1], NULL);
  if (!model) { puts(hone_last_error()); return 1; }
  printf("axis %d %d\n", hone_open_axis(model, 0), hone_open_axis(model, 1));
  const uint64_t sizes[] = {13, 4, 0, 7};
  for (int s = 0; s < 4; s++) {
    const uint64_t shape[] = {sizes[s], 16}, *const shapes[] = {shape};
    if (hone_set_input_shapes(model, shapes)) { puts(hone_last_error()); return 1; }
    const hone_tensor *in = hone_input(model, 0), *out = hone_output(model, 0);
    if (in->shape[0] != sizes[s] || out->shape[0] != sizes[s]) return 2;
    float *x = malloc(in->bytes + 4), *y = malloc(out->bytes + 4);
    for (size_t i = 0; i < sizes[s] * 16; i++) x[i] = (float)i;
    const void *inputs[] = {x}; void *outputs[] = {y};
    if (hone_run(model, inputs, outputs)) { puts(hone_last_error()); return 1; }
    uint64_t found[2];
    if (hone_output_shape(model, 0, found) || found[0] != sizes[s]) return 3;
    int right = 1;
    for (size_t i = 0; i < sizes[s] * 16; i++)
      right &= y[i] == x[i] * ((float)(i % 16) - 3) + 100 + (float)(i % 16);
    printf("%llu %llu: %s\n", (unsigned long long)out->shape[0], (unsigned long long)out->bytes, right ? "right" : "wrong");
    free(x); free(y);
  }
  const uint64_t shape[] = {3, 15}, *const shapes[] = {shape};
  if (!hone_set_input_shapes(model, shapes)) return 4;
  printf("refused: %.27s\n", hone_last_error());
  hone_free(model);
  return 0;
}
"#;
