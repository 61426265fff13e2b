//! Runs that are launched by one call: steps are recorded once as a graph, with the same answers as when they are launched
//! one by one, and are launched one by one where that is refused or the driver has no such functions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, SETTINGS, chain, compiled, library, options, said};
use hone_driver::{Accelerator, DataType};
use hone_import::onnx::proto::attribute_proto::AttributeType;
use hone_import::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use hone_import::onnx::proto::type_proto;
use hone_import::onnx::proto::*;
use hone_model_builder::{TaggerSizes, convolutions, tagger};
use hone_runtime::{Model, Profile};
use prost::Message;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a child process is told to load.
const ARTIFACT: &str = "HONE_GRAPHS_ARTIFACT";
const ROUNDS: usize = 4;

/// Runs a model four times, each time on other inputs, and the same with every launch timed, which launches one by one. On
/// standard error it says when a run begins, among what the driver says.
#[test]
fn child() {
    let Some(path) = std::env::var_os(ARTIFACT) else { return };
    let options =
        hone_runtime::Options { device_timeout: Duration::from_secs(2), ..Default::default() };
    let mut model = Model::load(path, &options).unwrap();
    let mut other = model.share().unwrap();
    let mut profile = Profile::new(&other);
    for round in 0..ROUNDS {
        let mut outputs = [(); 2].map(|()| {
            let bytes = model.outputs().iter().map(|own| own.bytes as usize);
            bytes.map(|bytes| vec![0u8; bytes]).collect::<Vec<_>>()
        });
        let inputs: Vec<Vec<u8>> =
            model.inputs().iter().map(|own| input(own.bytes as usize, round)).collect();
        let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let [first, second] = outputs
            .each_mut()
            .map(|own| own.iter_mut().map(Vec::as_mut_slice).collect::<Vec<&mut [u8]>>());
        let (mut first, mut second) = (first, second);
        eprintln!("begin: run {round}");
        let run = model.run(&given, &mut first);
        eprintln!("end");
        match run {
            Err(error) => eprintln!("run {round} failed: {}", chain(&error)),
            Ok(()) => {
                other.run_profiled(&given, &mut second, &mut profile).unwrap();
                assert_eq!(outputs[0], outputs[1], "run {round}");
                let all = outputs[0].iter().flatten();
                assert!(all.copied().any(|byte| byte != 0), "run {round}: nothing was computed");
            }
        }
    }
    println!("all alike");
}

/// Eight bytes are a number of iterations, others are floats.
fn input(bytes: usize, round: usize) -> Vec<u8> {
    if bytes == 8 {
        return (5 + round as i64).to_le_bytes().to_vec();
    }
    let number = |index: usize| ((index * 37 + round * 11) % 23) as f32 / 11.0 - 1.0;
    (0..bytes / 4).flat_map(|index| number(index).to_le_bytes()).collect()
}

/// What a run had the driver do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    /// Kernels that were launched one by one.
    single: usize,
    /// Launches that were recorded.
    recorded: usize,
    /// Graphs that were made ready, and launched.
    ready: usize,
    graphs: usize,
}

/// What the child says, and what each of its runs had the driver do.
fn runs(artifact: &[u8], library: &Path, settings: &str) -> (String, Vec<Calls>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("model.hone");
    std::fs::write(&path, artifact).unwrap();
    let settings = format!("{settings} say=launches");
    let said = said("child", &[(ARTIFACT, &path), (LIBRARY, library)], &[(SETTINGS, &settings)]);
    assert!(said.contains("all alike"), "{said}");
    let parts = said.split("begin: run ").skip(1).map(|part| part.split("end\n").next().unwrap());
    let count = |part: &str, what: &str| part.matches(&format!("fake CUDA: {what}")).count();
    let calls = parts.map(|part| Calls {
        single: count(part, "launched\n"),
        recorded: count(part, "recorded\n"),
        ready: count(part, "instantiated"),
        graphs: count(part, "launched a graph"),
    });
    let calls = calls.collect();
    (said, calls)
}

fn artifact(model: &[u8], precision: DataType) -> Vec<u8> {
    compiled(model, &options(Accelerator::Sm80, precision)).1
}

/// A network with several kernels, some of which are launched more than once.
fn recurrent() -> Vec<u8> {
    let sizes = TaggerSizes { steps: 3, features: 5, hidden: 8, tags: 4 };
    artifact(&tagger(sizes, 4).encode_to_vec(), DataType::F32)
}

#[test]
fn runs_behind_the_first_are_one_launch() {
    let networks = [recurrent(), artifact(&convolutions(16, 6).encode_to_vec(), DataType::BF16)];
    for artifact in networks {
        let (said, runs) = runs(&artifact, &library(), "");
        let all = runs[0].single;
        assert!(all > 2, "{said}");
        assert_eq!(runs[0], Calls { single: all, recorded: all, ready: 1, graphs: 0 });
        for run in &runs[1..] {
            assert_eq!(*run, Calls { graphs: 1, ..Calls::default() });
        }
    }
}

/// The buffers of a carried value change places in every iteration, so the body is recorded for both places.
#[test]
fn the_body_of_a_loop_is_recorded_for_every_set_of_its_buffers() {
    let artifact = artifact(&repeated(), DataType::F32);
    let (said, runs) = runs(&artifact, &library(), "");
    let body = runs[0].single / 2;
    assert!(body > 1, "{said}");
    let first = Calls { single: 2 * body, recorded: 2 * body, ready: 2, graphs: 3 };
    assert_eq!(runs[0], first, "{said}");
    for (round, run) in runs.iter().enumerate().skip(1) {
        assert_eq!(*run, Calls { graphs: 5 + round, ..Calls::default() }, "{said}");
    }
}

#[test]
fn what_is_refused_or_not_there_is_launched_one_by_one() {
    let artifact = recurrent();
    let (_, recorded) = runs(&artifact, &library(), "");
    let all = recorded[0].single;
    for fault in ["fault=capture:1", "fault=instantiate:1"] {
        let (said, runs) = runs(&artifact, &library(), fault);
        assert_eq!(runs[0].ready, 0, "{fault}: {said}");
        assert!(runs.iter().all(|run| run.single == all && run.graphs == 0), "{fault}: {runs:?}");
        // It is not tried again.
        assert!(runs[1..].iter().all(|run| run.recorded == 0), "{fault}: {runs:?}");
    }
    // Drivers before CUDA 11.4 lack one function.
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("libolder.so");
    std::fs::write(&old, without(&std::fs::read(library()).unwrap(), INSTANTIATE)).unwrap();
    let (_, runs) = runs(&artifact, &old, "");
    assert!(runs.iter().all(|run| *run == Calls { single: all, ..Calls::default() }), "{runs:?}");
}

/// A device that fails in a graph is lost as in a launch, and what does not end counts as lost.
#[test]
fn a_device_that_fails_in_a_graph_is_lost() {
    let artifact = recurrent();
    let (_, recorded) = runs(&artifact, &library(), "");
    // Both sessions run once before.
    let inside = 2 * recorded[0].single + 2;
    for (fault, words) in [
        ("launch", "CUDA error 719, CUDA_ERROR_LAUNCH_FAILED"),
        ("gone", "was lost: a launch ended with CUDA error 46, CUDA_ERROR_DEVICE_UNAV"),
        ("hang", "has not answered for 2 seconds and counts as lost"),
    ] {
        let (said, runs) = runs(&artifact, &library(), &format!("fault={fault}:{inside}"));
        assert_eq!(runs[1].graphs, 1, "{fault}: {said}");
        assert!(!said.contains("run 0 failed"), "{fault}: {said}");
        let failed = (1..ROUNDS).filter(|round| {
            let begin = format!("run {round} failed: ");
            said.lines().any(|line| line.starts_with(&begin) && line.contains(words))
        });
        assert_eq!(failed.count(), ROUNDS - 1, "{fault}: {said}");
    }
}

/// Tensors of the caller may lie in the device's memory, at other addresses in every run: what was recorded stays.
#[test]
fn the_c_interface_takes_addresses_of_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("model.hone"), recurrent()).unwrap();
    std::os::unix::fs::symlink(library(), at("libcuda.so.1")).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Werror", "-o"]).arg(at("on_device"));
    compiler
        .arg("-I")
        .arg(tests.join("../../runtime/include"))
        .arg(tests.join("tests/on_device.c"));
    compiler.arg("-L").arg(&built).arg("-L").arg(folder.path());
    compiler.args(["-lhone_runtime", "-l:libcuda.so.1"]);
    assert!(compiler.status().unwrap().success());
    let path = std::env::join_paths([built.as_path(), folder.path()]).unwrap();
    let mut program = Command::new(at("on_device"));
    program.arg(at("model.hone")).env("LD_LIBRARY_PATH", path).env(SETTINGS, "say=launches");
    let ended = program.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    assert_eq!(errors.matches("fake CUDA: instantiated").count(), 1, "{errors}");
    assert_eq!(errors.matches("fake CUDA: launched a graph").count(), 7, "{errors}");
}

const INSTANTIATE: &str = "cuGraphInstantiateWithFlags";

/// A library in which a function has another name, so that nobody finds it.
fn without(library: &[u8], function: &str) -> Vec<u8> {
    let mut library = library.to_vec();
    let name = [function.as_bytes(), b"\0"].concat();
    let places: Vec<usize> =
        (0..library.len() - name.len()).filter(|at| library[*at..].starts_with(&name)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| library[*at] = b'x');
    library
}

/// `x = x + softmax(x * w)`, as often as an input says.
fn repeated() -> Vec<u8> {
    const ELEMENTS: usize = 12;
    let weights = (0..ELEMENTS * ELEMENTS).map(|index| (index % 7) as f32 / 4.0 - 0.75);
    let body = GraphProto {
        name: Some("body".into()),
        node: vec![
            node("Identity", &["go"], "again"),
            node("MatMul", &["now", "w"], "scores"),
            node("Softmax", &["scores"], "weighted"),
            node("Add", &["now", "weighted"], "next"),
        ],
        input: vec![info("number", 7, &[]), info("go", 9, &[]), info("now", 1, &[4, ELEMENTS])],
        output: vec![info("again", 9, &[]), info("next", 1, &[4, ELEMENTS])],
        ..GraphProto::default()
    };
    let mut repeat = node("Loop", &["trips", "", "x"], "y");
    repeat.attribute.push(AttributeProto {
        name: Some("body".into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body),
        ..AttributeProto::default()
    });
    let graph = GraphProto {
        name: Some("repeated".into()),
        node: vec![repeat],
        input: vec![info("trips", 7, &[]), info("x", 1, &[4, ELEMENTS])],
        output: vec![info("y", 1, &[4, ELEMENTS])],
        initializer: vec![TensorProto {
            name: Some("w".into()),
            data_type: Some(1),
            dims: vec![ELEMENTS as i64; 2],
            float_data: weights.collect(),
            ..TensorProto::default()
        }],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: None, version: Some(17) };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(operator.into()),
        name: Some(output.into()),
        input: inputs.iter().map(|name| (*name).into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

fn info(name: &str, element: i32, shape: &[usize]) -> ValueInfoProto {
    let dim = |extent: &usize| Dimension {
        value: Some(dimension::Value::DimValue(*extent as i64)),
        ..Dimension::default()
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: Some(element), shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}
