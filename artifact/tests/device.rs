//! Code for accelerators in a manifest: what is sound reads back, and nothing that a device could be hurt by does.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{
    Accelerator, Access, Argument, Carried, Command, DataType, DeviceCode, DeviceKernel,
    DeviceLimits, Language, Launch, LaunchArgument, Loop, Manifest, Part, Reader, SCHEMA_VERSION,
    Slot, Step, Target, TensorInfo, Variant, Writer,
};

fn launch(argument: LaunchArgument) -> Launch {
    Launch {
        kernel: "f_0".into(),
        grid: [4, 1, 1],
        block: [64, 2, 1],
        shared_bytes: 1024,
        arguments: vec![LaunchArgument::Buffer(0), LaunchArgument::Buffer(1), argument],
    }
}

fn device() -> DeviceCode {
    let repeated = Command::Launch(launch(LaunchArgument::Counter(0)));
    let commands = vec![
        Command::Launch(launch(LaunchArgument::Buffer(1))),
        Command::Repeat { times: 3, body: vec![repeated] },
    ];
    DeviceCode {
        language: Language::OpenClC,
        limits: DeviceLimits {
            lanes: 256,
            lanes_along: [256, 256, 64],
            shared_bytes: 16384,
            alignment: 512,
            storage_buffers: None,
        },
        kernels: vec![DeviceKernel { symbol: "k".into(), commands }],
    }
}

fn manifest() -> Manifest {
    let argument = |slot, access| Argument { slot, bytes: 64, access };
    let step = Step {
        nodes: vec!["add".into()],
        kernel: "k".into(),
        tasks: 1,
        min_tasks_per_thread: 1,
        beside: None,
        waves: None,
        arguments: vec![
            argument(Slot::Input { index: 0, offset: 0 }, Access::Read),
            argument(Slot::Arena { offset: 512 }, Access::Write),
        ],
        flops: 16,
        bytes_read: 64,
        bytes_written: 64,
    };
    let variant = Variant {
        target: Target {
            triple: "x86_64-unknown-linux-gnu".into(),
            cpu: "x86-64".into(),
            features: vec![],
            accelerator: Some(Accelerator::OpenCl),
        },
        code: 0,
        weights: 0,
        weights_bytes: 0,
        arena_bytes: 4096,
        scratch_bytes_per_thread: 0,
        steps: vec![step],
        program: Vec::new(),
        extents: Vec::new(),
        shapes: None,
        device: Some(device()),
        recipe: None,
    };
    Manifest {
        schema_version: SCHEMA_VERSION,
        model_digest: "sha256:00".into(),
        compiler_version: "0.1.0".into(),
        records_digest: None,
        inputs: vec![TensorInfo::new("x", DataType::F32, vec![16]).unwrap()],
        outputs: Vec::new(),
        interface: Default::default(),
        open: None,
        padded: None,
        variants: vec![variant],
    }
}

#[test]
fn launches_read_back_as_they_were_written() {
    let mut writer = Writer::new();
    writer.code(b"__kernel void f_0() {}".to_vec());
    writer.weights(Vec::new());
    let manifest = manifest();
    let bytes = writer.to_bytes(&manifest).unwrap();
    let reader = Reader::new(&bytes).unwrap();
    assert_eq!(*reader.manifest(), manifest);
    let device = reader.manifest().variants[0].device.as_ref().unwrap();
    assert_eq!(device.commands("k").unwrap().len(), 2);
    assert!(device.commands("other").is_none());
    assert_eq!(Manifest::version_needed(&manifest.variants), 3);
}

#[test]
fn launches_that_no_device_should_see_are_refused() {
    let refused = |change: &dyn Fn(&mut Variant), words: &str| {
        let mut manifest = manifest();
        change(&mut manifest.variants[0]);
        let error = manifest.validate().expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    };
    let first = |change: fn(&mut Launch)| {
        move |variant: &mut Variant| {
            let device = variant.device.as_mut().unwrap();
            let Command::Launch(launch) = &mut device.kernels[0].commands[0] else { panic!() };
            change(launch);
        }
    };
    refused(&|variant| variant.device = None, "is for opencl and has no launches");
    refused(&|variant| variant.target.accelerator = None, "names no accelerator");
    refused(&|variant| variant.target.features.push("avx2".into()), "features of a processor");
    refused(&|variant| variant.device.as_mut().unwrap().limits.alignment = 96, "no power of two");
    refused(&|variant| variant.device.as_mut().unwrap().kernels.clear(), "'k', which is not there");
    refused(
        &|variant| {
            let kernels = &mut variant.device.as_mut().unwrap().kernels;
            kernels.push(kernels[0].clone());
        },
        "kernel 'k' is there twice",
    );
    refused(&first(|launch| launch.block[0] = 512), "beyond the declared limits");
    refused(&first(|launch| launch.block = [256, 2, 1]), "beyond the declared limits");
    refused(&first(|launch| launch.block[2] = 0), "beyond the declared limits");
    refused(&first(|launch| launch.block = [u64::MAX; 3]), "beyond the declared limits");
    refused(&first(|launch| launch.grid[1] = 0), "cannot be launched");
    refused(&first(|launch| launch.grid[1] = 1 << 31), "cannot be launched");
    refused(&first(|launch| launch.shared_bytes = 16385), "shared memory are beyond");
    refused(&first(|launch| launch.kernel = "a\0".into()), "holds a zero byte");
    refused(&first(|own| own.arguments[2] = LaunchArgument::Counter(0)), "no repetition 0");
    refused(&first(|own| own.arguments[2] = LaunchArgument::Buffer(2)), "its kernel takes 3");
    refused(
        &|variant| variant.steps[0].arguments[1].slot = Slot::Arena { offset: 576 },
        "is not aligned for a device",
    );
    refused(
        &|variant| {
            let deep = (0..20).fold(Vec::new(), |body, _| vec![Command::Repeat { times: 2, body }]);
            variant.device.as_mut().unwrap().kernels[0].commands = deep;
        },
        "deeper in one another",
    );
    let mut old = manifest();
    old.schema_version = 2;
    assert!(old.validate().unwrap_err().to_string().contains("schema version 2 does not know"));
}

/// A carried value's buffers take each other's place as arguments of steps.
#[test]
fn carried_values_are_aligned_for_a_device() {
    let arena = |offset| Slot::Arena { offset };
    let mut manifest = manifest();
    let own = |next| Loop {
        node: "loop".into(),
        most: Some(2),
        trips: None,
        condition: None,
        goes_on: None,
        capacity: None,
        number: arena(2048),
        count: arena(2112),
        carried: vec![Carried {
            initial: arena(3072),
            current: arena(512),
            next,
            result: arena(3136),
            bytes: 64,
        }],
        collected: Vec::new(),
        body: vec![Part::Steps { first: 0, count: 1 }],
    };
    manifest.variants[0].program = vec![Part::Loop(Box::new(own(arena(1024))))];
    manifest.validate().unwrap();
    manifest.variants[0].program = vec![Part::Loop(Box::new(own(arena(1088))))];
    let error = manifest.validate().unwrap_err().to_string();
    assert!(error.contains("loop 'loop': a buffer at offset 1088"), "{error}");
}
