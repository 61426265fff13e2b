//! Variants for several sizes: what a manifest may say of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{
    Access, Argument, DataType, DimensionSize, Manifest, OpenDimension, Reader, SCHEMA_VERSION,
    Shapes, Slot, Step, Target, TensorInfo, Variant, Writer, c_header,
};

fn step(bytes: u64) -> Step {
    let argument = |slot, access| Argument { slot, bytes, access };
    Step {
        nodes: vec!["relu".into()],
        kernel: "k0".into(),
        tasks: 1,
        min_tasks_per_thread: 1,
        beside: None,
        waves: None,
        arguments: vec![
            argument(Slot::Input { index: 0, offset: 0 }, Access::Read),
            argument(Slot::Output { index: 0, offset: 0 }, Access::Write),
        ],
        flops: 0,
        bytes_read: 0,
        bytes_written: 0,
    }
}

fn variant(rows: u64, cpu: &str) -> Variant {
    let shape = vec![vec![rows, 8]];
    let dimensions = vec![DimensionSize { name: "batch".into(), size: rows }];
    Variant {
        target: Target {
            triple: "x86_64-unknown-linux-gnu".into(),
            cpu: cpu.into(),
            features: vec![],
            accelerator: None,
        },
        code: 0,
        weights: 0,
        weights_bytes: 64,
        arena_bytes: 0,
        scratch_bytes_per_thread: 0,
        steps: vec![step(rows * 32)],
        program: vec![],
        extents: vec![],
        shapes: Some(Shapes { dimensions, inputs: shape.clone(), outputs: shape }),
        device: None,
        recipe: None,
    }
}

/// For four, two and one rows, on two processors.
fn manifest() -> Manifest {
    let tensor = |name: &str| TensorInfo::new(name, DataType::F32, vec![4, 8]).unwrap();
    let of = |cpu: &'static str| [4, 2, 1].map(|rows| variant(rows, cpu));
    Manifest {
        schema_version: SCHEMA_VERSION,
        model_digest: "sha256:00".into(),
        compiler_version: "0.1.0".into(),
        records_digest: None,
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y")],
        interface: hone_artifact::Interface::default(),
        open: None,
        padded: None,
        variants: of("znver5").into_iter().chain(of("znver4")).collect(),
    }
}

fn bytes(manifest: &Manifest) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.code(vec![7u8; 100]);
    writer.weights(vec![1u8; 64]);
    writer.to_bytes(manifest).unwrap()
}

#[test]
fn what_is_written_reads_back() {
    let manifest = manifest();
    let bytes = bytes(&manifest);
    let reader = Reader::new(&bytes).unwrap();
    reader.verify().unwrap();
    assert_eq!(reader.manifest(), &manifest);
    let of = |place: usize| &reader.manifest().variants[place];
    let inputs = reader.manifest().inputs_of(of(1));
    assert_eq!((&inputs[0].shape[..], inputs[0].bytes), (&[2, 8][..], 64));
    assert_eq!(reader.manifest().outputs_of(of(5))[0].bytes, 32);
    assert_eq!(of(1).shapes.as_ref().unwrap().to_string(), "batch=2");
}

#[test]
fn only_sizes_of_one_target_stand_for_each_other() {
    let mut manifest = manifest();
    assert_eq!(manifest.siblings(1), [0, 1, 2]);
    assert_eq!(manifest.siblings(3), [3, 4, 5]);
    assert!(manifest.siblings(6).is_empty());
    manifest.variants[0].shapes = None;
    assert_eq!(manifest.siblings(0), [0]);
}

#[test]
fn the_header_names_the_sizes() {
    let header = c_header(&manifest(), "m");
    let expected = "/* For batch=4; batch=2; batch=1. What follows is for batch=4. */";
    assert!(header.contains(expected) && header.contains("M_INPUT_0_ELEMENTS 32ull"), "{header}");
}

/// A run is composed of variants of one target, which end with size 1.
#[test]
fn every_target_of_an_open_dimension_has_size_1() {
    let mut manifest = manifest();
    let axis = vec![Some(0)];
    let open = OpenDimension { name: "batch".into(), inputs: axis.clone(), outputs: axis };
    manifest.open = Some(open);
    manifest.validate().unwrap();
    manifest.variants.pop();
    let error = manifest.validate().unwrap_err().to_string();
    assert!(error.contains("there is no variant of batch=1 beside that for batch=4"), "{error}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    type Change = fn(&mut Manifest);
    fn shapes(manifest: &mut Manifest, place: usize) -> &mut Shapes {
        manifest.variants[place].shapes.as_mut().unwrap()
    }
    let cases: [(&str, Change); 11] = [
        ("which schema version 2 does not know", |m| m.schema_version = 2),
        ("shapes of 0 inputs where the model has 1", |m| shapes(m, 1).inputs.clear()),
        ("shapes of 2 outputs where the model has 1", |m| shapes(m, 1).outputs.push(vec![])),
        ("input 'x' has 2 axes, it says [2]", |m| shapes(m, 1).inputs[0] = vec![2]),
        ("fits no address space", |m| shapes(m, 1).outputs[0] = vec![u64::MAX, 8]),
        ("is no name of a dimension", |m| shapes(m, 2).dimensions[0].name.clear()),
        ("is no name of a dimension", |m| shapes(m, 2).dimensions[0].name = "n".repeat(257)),
        ("for the same sizes (batch=2)", |m| m.variants[2] = m.variants[1].clone()),
        ("not for the manifest's shapes", |m| drop(m.variants.remove(0))),
        // Two rows have no room for the bytes of four.
        ("128 bytes at offset 0 reach outside of the input of 64 bytes", |m| {
            m.variants[1].steps = m.variants[0].steps.clone();
        }),
        ("one of more than 1024 variants", |m| m.variants = vec![m.variants[0].clone(); 1025]),
    ];
    for (expected, change) in cases {
        let mut bad = manifest();
        change(&mut bad);
        let error = bad.validate().unwrap_err().to_string();
        assert!(error.contains(expected), "'{expected}' is not in '{error}'");
    }
}
