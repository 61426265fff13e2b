//! Whole models from artifacts on a device: how far their answers are from the reference, and what a C program gets.

#![allow(clippy::unwrap_used)]

use hone_ops::{Graph, evaluate};
use hone_types::Tensor;
use std::path::Path;
use std::process::Command;

/// The largest error of an output as a share of its largest magnitude.
pub fn error(graph: &Graph, inputs: &[Tensor], outputs: &[Vec<u8>]) -> f64 {
    let expected = evaluate(graph, inputs).unwrap();
    let errors = expected.iter().zip(outputs).map(|(expected, bytes)| {
        let result = Tensor::from_bytes(expected.tensor_type().clone(), bytes.clone()).unwrap();
        let values = expected.to_f64();
        let largest = values.iter().fold(f64::MIN_POSITIVE, |a, b| a.max(b.abs()));
        let differences = result.to_f64().into_iter().zip(values).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, f64::max) / largest
    });
    errors.fold(0.0, f64::max)
}

/// The outputs of `examples/c/run.c`, which knows nothing of devices and hands over arrays of the host. `drivers` are
/// libraries with the names by which the runtime finds them.
pub fn outputs_in_c(
    artifact: &[u8],
    inputs: &[Tensor],
    outputs: usize,
    drivers: &[(&str, &Path)],
) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    std::fs::write(at("model.hone".into()), artifact).unwrap();
    for (name, library) in drivers {
        std::os::unix::fs::symlink(library, at((*name).into())).unwrap();
    }
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let program = at("run".into());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Werror", "-o"]).arg(&program);
    compiler.arg("-I").arg(room.join("runtime/include")).arg(room.join("examples/c/run.c"));
    assert!(compiler.arg("-L").arg(&libraries).arg("-lhone_runtime").status().unwrap().success());

    let mut command = Command::new(program);
    let path = std::env::join_paths([libraries.as_path(), folder.path()]).unwrap();
    command.env("LD_LIBRARY_PATH", path).arg(at("model.hone".into()));
    for (index, input) in inputs.iter().enumerate() {
        std::fs::write(at(format!("in{index}")), input.bytes()).unwrap();
        command.arg(at(format!("in{index}")));
    }
    let names: Vec<_> = (0..outputs).map(|index| at(format!("out{index}"))).collect();
    let ended = command.args(&names).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    names.iter().map(|name| std::fs::read(name).unwrap()).collect()
}
