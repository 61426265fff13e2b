//! Code for every architecture, made and run here.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{
    Access, Argument, DataType, Manifest, Reader, SCHEMA_VERSION, Slot, Step, Target, TensorInfo,
    Variant, Writer,
};
use hone_codegen::{Options, Unit, compile, link};
use hone_emulator::{Emulator, EmulatorError, Model};
use hone_tensor::{Builder, Expr, LoopKind, Program, Statement};
use hone_types::TensorType;

const ROWS: usize = 5;
const COLUMNS: usize = 21;

/// The architectures, by LLVM's name and the platform's, with a feature of theirs that needs vectors.
const ARCHITECTURES: [(&str, &str, &[&str]); 4] = [
    ("x86_64", "amd64", &[]),
    ("aarch64", "arm64", &[]),
    ("riscv64", "riscv64", &[]),
    ("riscv64", "riscv64", &["+v"]),
];

/// `y = x * w + x`, rows in parallel, columns in lanes.
fn program() -> Program {
    let ty = TensorType::new(hone_types::DataType::F32, [ROWS, COLUMNS]);
    let mut builder = Builder::new();
    let (x, w) = (builder.input("x", &ty), builder.input("w", &ty));
    let y = builder.map("y", &ty, |i| {
        let load = |buffer| Expr::Load(buffer, i.to_vec());
        load(x) * load(w) + load(x)
    });
    builder.output(y);
    let mut program = builder.finish();
    let [Statement::Loop(rows)] = program.body.as_mut_slice() else { panic!("one nest") };
    rows.kind = LoopKind::Parallel;
    let [Statement::Loop(columns)] = rows.body.as_mut_slice() else { panic!("two loops") };
    columns.kind = LoopKind::Vectorized;
    program
}

/// Two steps of the same kernel, from the input through the arena to the output.
fn artifact(target: &hone_codegen::Target, weights: &[u8], damage: bool) -> Vec<u8> {
    let program = program();
    let unit = Unit { symbol: "kernel", program: &program };
    let objects = compile(&[unit], target, &Options::default()).unwrap();
    let mut code = link(&objects, target).unwrap();
    if damage {
        let file = object::File::parse(code.as_slice()).unwrap();
        let text = object::Object::section_by_name(&file, ".text").unwrap();
        let (start, bytes) = object::ObjectSection::file_range(&text).unwrap();
        // No instruction on any of the architectures but x86-64, where it stores at address 0.
        code[start as usize..(start + bytes) as usize].fill(0);
    }
    let mut writer = Writer::new();
    let bytes = (ROWS * COLUMNS * 4) as u64;
    let argument = |slot, access| Argument { slot, bytes, access };
    let step = |from, to| Step {
        nodes: vec!["node".to_string()],
        kernel: "kernel".to_string(),
        tasks: objects[0].kernels[0].tasks,
        min_tasks_per_thread: 1,
        beside: None,
        waves: None,
        arguments: vec![
            argument(from, Access::Read),
            argument(Slot::Weight { offset: 0 }, Access::Read),
            argument(to, Access::Write),
        ],
        flops: 0,
        bytes_read: 0,
        bytes_written: 0,
    };
    let (input, output) =
        (Slot::Input { index: 0, offset: 0 }, Slot::Output { index: 0, offset: 0 });
    let between = Slot::Arena { offset: 64 };
    let shape = vec![ROWS as u64, COLUMNS as u64];
    let variant = Variant {
        device: None,
        recipe: None,
        program: Vec::new(),
        extents: Vec::new(),
        shapes: None,
        target: Target {
            triple: target.triple.clone(),
            cpu: String::new(),
            features: vec![],
            accelerator: None,
        },
        code: writer.code(code),
        weights: writer.weights(weights.to_vec()),
        weights_bytes: weights.len() as u64,
        arena_bytes: 64 + bytes.next_multiple_of(64),
        scratch_bytes_per_thread: 0,
        steps: vec![step(input, between), step(between, output)],
    };
    let manifest = Manifest {
        schema_version: SCHEMA_VERSION,
        model_digest: format!("sha256:{}", "0".repeat(64)),
        compiler_version: "0".to_string(),
        records_digest: None,
        inputs: vec![TensorInfo::new("x", DataType::F32, shape.clone()).unwrap()],
        outputs: vec![TensorInfo::new("y", DataType::F32, shape).unwrap()],
        interface: Default::default(),
        open: None,
        padded: None,
        variants: vec![variant],
    };
    writer.to_bytes(&manifest).unwrap()
}

fn bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

fn x(index: usize) -> f32 {
    index as f32 * 0.25 - 7.0
}

fn w(index: usize) -> f32 {
    (index % 7) as f32 * 0.5
}

fn count() -> std::ops::Range<usize> {
    0..ROWS * COLUMNS
}

/// The artifact, and the emulator of its architecture; `None` where it is not installed and nobody
/// insists.
fn on(platform: &str, features: &[&str], damage: bool) -> Option<(Vec<u8>, Emulator)> {
    let plain = hone_codegen::Target::for_platform("linux", platform, "").unwrap();
    let features = features.iter().map(|name| name.to_string()).collect();
    let target = hone_codegen::Target::new(&plain.triple, &plain.cpu, features).unwrap();
    let artifact = artifact(&target, &bytes(count().map(w)), damage);
    let found = Emulator::find(&Reader::new(&artifact).unwrap().manifest().variants[0].target);
    let required = std::env::var_os("CI").is_some()
        || std::env::var_os("HONE_EMULATORS").is_some_and(|word| word == "required");
    match found {
        Ok(emulator) => Some((artifact, emulator)),
        Err(EmulatorError::Missing { .. }) if !required => {
            eprintln!("SKIPPED: no emulator of {platform}");
            None
        }
        Err(error) => panic!("{platform}: {error}"),
    }
}

#[test]
fn models_run_on_every_architecture() {
    for (arch, platform, features) in ARCHITECTURES {
        let Some((artifact, emulator)) = on(platform, features, false) else { continue };
        assert!(emulator.name().starts_with(&format!("qemu-{arch} ")), "{}", emulator.name());
        let version = emulator.name().rsplit(' ').next().unwrap();
        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
        let mut model = Model::load(&artifact, 0, &emulator).unwrap();
        for round in 0..2 {
            let input = |index| x(index) + round as f32;
            let outputs = model.run(&[&bytes(count().map(input))]).unwrap();
            let step = |index: usize, value: f32| value * w(index) + value;
            let expected = count().map(|index| step(index, step(index, input(index))));
            assert_eq!(outputs, [bytes(expected)], "{arch}");
        }
    }
}

#[test]
fn a_step_runs_alone() {
    for (arch, platform, features) in ARCHITECTURES {
        let Some((artifact, emulator)) = on(platform, features, false) else { continue };
        let mut model = Model::load(&artifact, 0, &emulator).unwrap();
        model.write_argument(1, 0, &bytes(count().map(x))).unwrap();
        model.write_argument(1, 2, &vec![0xff; ROWS * COLUMNS * 4]).unwrap();
        model.call(1).unwrap();
        let expected = bytes(count().map(|index| x(index) * w(index) + x(index)));
        assert_eq!(model.read_argument(1, 2).unwrap(), expected, "{arch}");
        assert_eq!(model.read_argument(1, 0).unwrap(), bytes(count().map(x)), "{arch}");
        assert_eq!(model.read_argument(1, 1).unwrap(), bytes(count().map(w)), "{arch}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some((artifact, emulator)) = on("arm64", &[], false) else { return };
    let refused = |error: EmulatorError| error.to_string();
    let error = Model::load(&artifact, 1, &emulator).unwrap_err();
    assert_eq!(refused(error), "the artifact has no variant 1");
    assert!(Model::load(&artifact[..80], 0, &emulator).is_err());
    let mut model = Model::load(&artifact, 0, &emulator).unwrap();
    assert_eq!(refused(model.run(&[]).unwrap_err()), "0 inputs given, 1 are needed");
    let error = model.run(&[&[0; 4]]).unwrap_err();
    assert_eq!(refused(error), "input 'x' has 4 bytes, 420 are needed");
    assert_eq!(refused(model.call(2).unwrap_err()), "there is no step 2");
    let error = model.write_argument(0, 3, &[]).unwrap_err();
    assert_eq!(refused(error), "there is no step 0 with an argument 3");
    let error = model.write_argument(0, 0, &[]).unwrap_err();
    assert_eq!(refused(error), "argument 0 of step 0 has 0 bytes, 420 are needed");
}

#[test]
fn a_crash_is_reported_with_the_step_and_the_signal() {
    for (arch, platform, features) in ARCHITECTURES {
        let Some((artifact, emulator)) = on(platform, features, true) else { continue };
        let mut model = Model::load(&artifact, 0, &emulator).unwrap();
        let error = model.run(&[&bytes(count().map(x))]).unwrap_err().to_string();
        let expected = "the emulated program ended during step 0, kernel 'kernel': signal";
        assert!(error.starts_with(expected), "{arch}: {error}");
    }
}

#[test]
fn what_no_emulator_has_is_refused() {
    let target = |triple: &str, features: &[&str]| Target {
        triple: triple.to_string(),
        cpu: String::new(),
        features: features.iter().map(|name| name.to_string()).collect(),
        accelerator: None,
    };
    let error = Emulator::find(&target("vax-unknown-linux-gnu", &[])).unwrap_err();
    assert!(error.to_string().contains("vax"), "{error}");
    match Emulator::find(&target("x86_64-unknown-linux-gnu", &["avx2", "avx512f"])) {
        Err(EmulatorError::Features { missing, .. }) => assert_eq!(missing, "avx512f"),
        Err(EmulatorError::Missing { .. }) => {}
        other => panic!("{other:?}"),
    }
}
