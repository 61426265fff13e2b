//! `examples/c/run.c`, compiled against `hone.h` and both forms of the library, runs an artifact.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::*;

/// Where Cargo put the libraries that it built for this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

fn build(to: &Path, library: &[&str]) {
    let room = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-o"])
        .arg(to)
        .arg("-I")
        .arg(room.join("include"))
        .arg(room.join("../examples/c/run.c"))
        .arg("-L")
        .arg(libraries())
        .args(library)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn call(program: &Path, arguments: &[&Path]) -> Output {
    Command::new(program).args(arguments).env("LD_LIBRARY_PATH", libraries()).output().unwrap()
}

fn check(library: &[&str]) {
    let (folder, model) = file(&affine(9));
    let at = |name: &str| folder.path().join(name);
    let program = at("run");
    build(&program, library);
    let x = ramp(9);
    std::fs::write(at("x.bin"), as_bytes(&x)).unwrap();
    let output = call(&program, &[&model, &at("x.bin"), &at("y.bin")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(at("y.bin")).unwrap(), as_bytes(&expected(&x)));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("x f32 [9,16] 576 bytes"), "{said}");

    let mut bytes = std::fs::read(&model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(at("bad.hone"), bytes).unwrap();
    let output = call(&program, &[&at("bad.hone"), &at("x.bin"), &at("z.bin")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("damaged"), "{said}");
    assert!(!at("z.bin").exists());
}

/// The same program on an artifact for several numbers of rows.
#[test]
fn the_c_example_runs_any_of_several_sizes() {
    let (folder, model) = file(&affine_sizes(&[9, 4, 1]));
    let at = |name: &str| folder.path().join(name);
    let program = at("run");
    build(&program, &["-lhone_runtime"]);
    let said_of = |shape: &str, rows: usize| {
        std::fs::write(at("x.bin"), as_bytes(&ramp(rows))).unwrap();
        let (x, y) = (at("x.bin"), at("y.bin"));
        let shape: Vec<&Path> = match shape {
            "" => Vec::new(),
            shape => vec![Path::new("-s"), Path::new(shape)],
        };
        let arguments: Vec<&Path> =
            [vec![model.as_path()], shape, vec![x.as_path(), y.as_path()]].concat();
        call(&program, &arguments)
    };
    for (shape, rows) in [("", 9), ("4,16", 4), ("1,16", 1), ("9,16", 9)] {
        let output = said_of(shape, rows);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read(at("y.bin")).unwrap(), as_bytes(&expected(&ramp(rows))));
    }
    let output = said_of("5,16", 5);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "input 'x' has shape [5, 16], the artifact takes [9, 16], [4, 16], [1, 16]";
    assert!(!output.status.success() && said.contains(expected), "{said}");
}

#[test]
fn the_c_example_runs_with_the_shared_library() {
    check(&["-lhone_runtime"]);
}

#[test]
fn the_c_example_runs_with_the_static_library() {
    check(&["-l:libhone_runtime.a", "-lpthread", "-ldl", "-lm"]);
}

/// The header travels inside the artifact and stands on its own beside `stdint.h`.
#[test]
fn the_artifacts_own_header_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let header = hone_artifact::c_header(&affine(9), "affine-9");
    let program = "#include <stdint.h>\nAFFINE_9_INPUT_0_TYPE x[AFFINE_9_INPUT_0_ELEMENTS];\n\
        int ok[sizeof x == AFFINE_9_INPUT_0_BYTES && AFFINE_9_OUTPUTS == 1 ? 1 : -1];\n";
    let path = folder.path().join("h.c");
    std::fs::write(&path, header + program).unwrap();
    let status = Command::new("cc").arg("-fsyntax-only").arg(&path).status().unwrap();
    assert!(status.success());
}
