//! The file format from outside: what is written reads back, and nothing damaged does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{
    Access, Argument, Carried, Collected, DataType, Host, HostFunction, HostTensor, HostType, If,
    Inspect, KernelText, Loop, Manifest, OutputExtent, PAGE, Part, ReadError, Reader,
    SCHEMA_VERSION, Slot, Step, Target, TensorInfo, Variant, Waves, WriteError, Writer, c_header,
};

const WEIGHTS: usize = 9000;

fn manifest() -> Manifest {
    let argument = |slot, bytes, access| Argument { slot, bytes, access };
    Manifest {
        schema_version: SCHEMA_VERSION,
        model_digest: "sha256:00".into(),
        compiler_version: "0.1.0".into(),
        records_digest: None,
        inputs: vec![TensorInfo::new("x", DataType::F32, vec![2, 8]).unwrap()],
        outputs: vec![TensorInfo::new("y", DataType::F32, vec![2, 4]).unwrap()],
        interface: Default::default(),
        open: None,
        padded: None,
        variants: vec![Variant {
            target: Target {
                triple: "x86_64-unknown-linux-gnu".into(),
                cpu: "znver5".into(),
                features: vec!["avx512f".into()],
                accelerator: None,
            },
            code: 0,
            weights: 0,
            weights_bytes: WEIGHTS as u64,
            arena_bytes: 256,
            scratch_bytes_per_thread: 64,
            device: None,
            recipe: None,
            program: vec![Part::If(If {
                node: "choice".into(),
                condition: Slot::Input { index: 0, offset: 0 },
                then: vec![Part::Loop(Box::new(own_loop()))],
                otherwise: vec![Part::Host(host())],
            })],
            extents: vec![OutputExtent { output: 0, axis: 0, slot: Slot::Arena { offset: 64 } }],
            shapes: None,
            steps: vec![Step {
                nodes: vec!["gemm".into()],
                kernel: "k0".into(),
                tasks: 4,
                min_tasks_per_thread: 2,
                beside: None,
                waves: None,
                arguments: vec![
                    argument(Slot::Input { index: 0, offset: 0 }, 64, Access::Read),
                    argument(Slot::Weight { offset: 64 }, 128, Access::Read),
                    argument(Slot::Arena { offset: 128 }, 128, Access::ReadWrite),
                    argument(Slot::Output { index: 0, offset: 4 }, 28, Access::Write),
                ],
                flops: 128,
                bytes_read: 192,
                bytes_written: 32,
            }],
        }],
    }
}

/// Places of what is not zero in the input.
fn host() -> Host {
    let tensor = |slot, dtype, shape: &[u64]| {
        let of = HostType { dtype, shape: shape.to_vec() };
        HostTensor { slot, of }
    };
    let input = Slot::Input { index: 0, offset: 0 };
    let [places, count] = [0, 64].map(|offset| Slot::Arena { offset });
    Host {
        node: "places".into(),
        function: HostFunction::NonZero,
        inputs: vec![Some(tensor(input, DataType::F32, &[2, 8]))],
        outputs: vec![tensor(places, DataType::I64, &[2, 16]), tensor(count, DataType::I64, &[])],
    }
}

/// The part of the program that the runtime computes.
fn host_of(manifest: &mut Manifest) -> &mut Host {
    match &mut manifest.variants[0].program[0] {
        Part::If(own) => match &mut own.otherwise[0] {
            Part::Host(own) => own,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A loop over the one step.
fn own_loop() -> Loop {
    let arena = |offset| Slot::Arena { offset };
    let initial = Slot::Input { index: 0, offset: 0 };
    let (current, next, result) = (arena(0), arena(64), arena(0));
    let output = Slot::Output { index: 0, offset: 0 };
    Loop {
        node: "loop".into(),
        most: Some(3),
        trips: Some(Slot::Input { index: 0, offset: 8 }),
        condition: Some(initial),
        goes_on: Some(arena(64)),
        capacity: Some(2),
        number: arena(128),
        count: arena(192),
        carried: vec![Carried { initial, current, next, result, bytes: 16 }],
        collected: vec![Collected { from: arena(128), all: output, bytes: 16, reversed: false }],
        body: vec![Part::Steps { first: 0, count: 1 }],
    }
}

fn writer() -> Writer<'static> {
    let mut writer = Writer::new();
    writer.code(vec![7u8; 5000]);
    writer.weights((0..WEIGHTS).map(|i| i as u8).collect::<Vec<_>>());
    writer.header(c_header(&manifest(), "my-model"));
    writer.inspect(Inspect {
        kernels: vec![KernelText { kernel: "k0".into(), ..KernelText::default() }],
    });
    writer
}

fn bytes() -> Vec<u8> {
    writer().to_bytes(&manifest()).unwrap()
}

/// The bytes after `change`, with the table's checksum made right again, as a hostile writer would.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = bytes();
    change(&mut bytes);
    let count = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let end = (32 + count * 32).min(bytes.len());
    let mut covered = bytes[..24].to_vec();
    covered.extend_from_slice(&bytes[32..end]);
    let sum = xxhash_rust::xxh3::xxh3_64(&covered);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn what_is_written_reads_back() {
    let bytes = bytes();
    assert_eq!(bytes, self::bytes(), "equal parts give equal bytes");
    let reader = Reader::new(&bytes).unwrap();
    reader.verify().unwrap();
    assert_eq!(reader.manifest(), &manifest());
    assert_eq!(reader.code(0).unwrap(), &[7u8; 5000][..]);
    assert_eq!(reader.weights(0).unwrap().len(), WEIGHTS);
    assert!(reader.code(1).is_none());
    let offset = reader.weights(0).unwrap().as_ptr() as usize - bytes.as_ptr() as usize;
    assert_eq!(offset as u64 % PAGE, 0);
    assert!(reader.header().unwrap().contains("#define MY_MODEL_INPUT_0_BYTES 64ull"));
    assert_eq!(reader.inspect().unwrap().unwrap().kernels[0].kernel, "k0");
}

#[test]
fn the_file_equals_the_bytes_and_carries_their_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.hone");
    let written = writer().write_file(&manifest(), &path).unwrap();
    let found = std::fs::read(&path).unwrap();
    assert_eq!(found, bytes());
    assert_eq!(written.bytes, found.len() as u64);
    assert_eq!(written.digest, Reader::new(&found).unwrap().digest());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn every_flipped_byte_is_found() {
    let good = bytes();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let result = Reader::new(&bad).and_then(|reader| reader.verify());
        assert!(result.is_err(), "byte {at} of {} was flipped unseen", good.len());
    }
}

#[test]
fn every_length_but_the_right_one_is_refused() {
    let good = bytes();
    for length in 0..good.len() {
        let error = Reader::new(&good[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Length { .. }), "{length}: {error}");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(Reader::new(&longer), Err(ReadError::Length { .. })));
}

#[test]
fn another_file_and_another_version_are_named_as_such() {
    assert!(matches!(Reader::new(b"\x7fELF..."), Err(ReadError::Magic)));
    let error = Reader::new(&resealed(|b| b[8] = 9)).unwrap_err();
    assert!(error.to_string().contains("format version 9"), "{error}");
}

#[test]
fn a_hostile_section_table_is_refused() {
    // Entry 2 begins at byte 96: kind, zero, offset, length, checksum.
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change); 8] = [
        ("overlap", |b| b[32 + 64 + 8..][..8].copy_from_slice(&0u64.to_le_bytes())),
        ("past the end", |b| b[32 + 64 + 16..][..8].copy_from_slice(&(1u64 << 40).to_le_bytes())),
        ("overflow", |b| b[32 + 64 + 16..][..8].copy_from_slice(&u64::MAX.to_le_bytes())),
        ("offset overflow", |b| b[32 + 64 + 8..][..8].copy_from_slice(&u64::MAX.to_le_bytes())),
        ("unknown kind", |b| b[32 + 64] = 99),
        ("a second manifest", |b| b[32 + 64] = 1),
        ("no section", |b| b[12..16].copy_from_slice(&0u32.to_le_bytes())),
        ("too many", |b| b[12..16].copy_from_slice(&u32::MAX.to_le_bytes())),
    ];
    for (what, change) in cases {
        let error = Reader::new(&resealed(change)).unwrap_err();
        assert!(matches!(error, ReadError::Table { .. }), "{what}: {error}");
    }
}

const WAVES: Waves = Waves { waves: 10, parts: 4, min_parts_per_thread: 1 };

#[test]
fn an_impossible_manifest_is_refused_naming_the_object() {
    type Change = fn(&mut Manifest);
    let cases: [(&str, Change); 24] = [
        ("schema version 9", |m| m.schema_version = 9),
        ("no target variant", |m| m.variants.clear()),
        ("output 'y': says 31 bytes", |m| m.outputs[0].bytes = 31),
        ("fits no address space", |m| m.inputs[0].shape = vec![u64::MAX, 2]),
        ("the name occurs twice", |m| m.inputs.push(m.inputs[0].clone())),
        ("arena of 18446744073709551615 bytes", |m| m.variants[0].arena_bytes = u64::MAX),
        ("tasks do not fit", |m| m.variants[0].steps[0].tasks = u64::MAX),
        ("minTasksPerThread is 0", |m| m.variants[0].steps[0].min_tasks_per_thread = 0),
        ("waves and 2 tasks", |m| {
            m.variants[0].steps[0].tasks = 2;
            m.variants[0].steps[0].waves = Some(WAVES);
        }),
        ("minPartsPerThread is 0", |m| {
            m.variants[0].steps[0].tasks = 1;
            m.variants[0].steps[0].waves = Some(Waves { min_parts_per_thread: 0, ..WAVES });
        }),
        ("do not fit 63 bits", |m| {
            m.variants[0].steps[0].tasks = 1;
            m.variants[0].steps[0].waves = Some(Waves { waves: u64::MAX / 4, ..WAVES });
        }),
        ("1 steps beside 1 are not there", |m| m.variants[0].steps[0].beside = Some([1, 1])),
        ("a step beside it writes what it reads or writes", |m| {
            m.variants[0].program.clear();
            let steps = &mut m.variants[0].steps;
            steps.push(steps[0].clone());
            steps[0].beside = Some([1, 1]);
        }),
        ("symbol is empty", |m| m.variants[0].steps[0].kernel.clear()),
        ("reach outside of the arena of 192 bytes", |m| m.variants[0].arena_bytes = 192),
        ("no input 3", |m| {
            m.variants[0].steps[0].arguments[0].slot = Slot::Input { index: 3, offset: 0 };
        }),
        ("no output 1", |m| {
            m.variants[0].steps[0].arguments[3].slot = Slot::Output { index: 1, offset: 0 };
        }),
        ("not a multiple of 64", |m| {
            m.variants[0].steps[0].arguments[1].slot = Slot::Weight { offset: 32 };
        }),
        ("reach outside of the weights", |m| {
            m.variants[0].steps[0].arguments[1].slot = Slot::Weight { offset: u64::MAX - 63 };
        }),
        ("would write the weights", |m| {
            m.variants[0].steps[0].arguments[1].access = Access::ReadWrite;
        }),
        ("results have other types", |m| host_of(m).outputs[0].of.shape = vec![2, 15]),
        ("operand 0 is missing", |m| host_of(m).inputs = vec![None]),
        ("node 'places': 80 bytes at offset 0 reach outside of the input", |m| {
            let own = host_of(m);
            own.function = HostFunction::Unique { axis: None, sorted: true };
            if let Some(input) = &mut own.inputs[0] {
                input.of.shape = vec![20];
            }
        }),
        ("would write the input", |m| {
            m.variants[0].steps[0].arguments[0].access = Access::Write;
        }),
    ];
    for (expected, change) in cases {
        let mut bad = manifest();
        change(&mut bad);
        let error = bad.validate().unwrap_err().to_string();
        assert!(error.contains(expected), "'{expected}' is not in '{error}'");
        assert!(matches!(writer().to_bytes(&bad), Err(WriteError::Manifest(_))), "{expected}");
    }
    let mut bad = manifest();
    bad.variants[0].steps[0].arguments[1].slot = Slot::Weight { offset: 1 };
    let error = bad.validate().unwrap_err().to_string();
    assert!(error.contains("step 0 (kernel 'k0', nodes [\"gemm\"]): argument 1"), "{error}");
}

#[test]
fn sections_that_the_manifest_does_not_have_are_refused_when_writing() {
    let mut other = manifest();
    other.variants[0].code = 1;
    let error = writer().to_bytes(&other).unwrap_err();
    assert!(matches!(error, WriteError::NoSection { kind: "code", .. }), "{error}");
    let mut other = manifest();
    other.variants[0].weights_bytes += 1;
    let error = writer().to_bytes(&other).unwrap_err();
    assert!(matches!(error, WriteError::WeightsSize { .. }), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/m.hone");
    let error = writer().write_file(&manifest(), &path).unwrap_err();
    assert!(matches!(error, WriteError::Io { .. }), "{error}");
    assert!(error.to_string().contains("missing/m.hone"), "{error}");
}

/// Hostile manifests under right checksums: whatever the reader lets through, it has validated.
#[test]
fn mutated_manifests_never_panic_and_never_pass_unsound() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let good = bytes();
    let place = Reader::new(&good).unwrap().sections()[0];
    let (start, length) = (place.offset as usize, place.length as usize);
    let mut passed = 0;
    for _ in 0..20_000 {
        let changes: Vec<_> = (0..1 + random(4)).map(|_| (random(length), random(96))).collect();
        let bad = resealed(|bytes| {
            for &(at, byte) in &changes {
                bytes[start + at] = b' ' + byte as u8;
            }
            let sum = xxhash_rust::xxh3::xxh3_64(&bytes[start..start + length]);
            bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        });
        if let Ok(reader) = Reader::new(&bad) {
            reader.manifest().validate().unwrap();
            passed += 1;
        }
    }
    assert!(passed > 0, "the checksums were made right, so harmless changes pass");
}
