//! Sound artifacts are verified, and every kind of fault is found by the part that is there for it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ops::Range;

use hone_artifact::{Access, Manifest, Reader, Slot, Writer};
use hone_driver::ops::{
    Binary, BinaryFunction, Cast, Concat, Convolution, MatMul, Op, Pool, PoolKind, Softmax, Unary,
    UnaryFunction, Window,
};
use hone_driver::{DataType, Graph, Options, Target, Tensor, TensorType, ValueId, compile_graph};
use hone_runtime::StepArgument;
use hone_worker::compiler::ports;
use hone_worker::failure::Result;
use hone_worker::inputs::SEEDS;
use hone_worker::verify::{Settings, Subject, Verification, verify};
use hone_worker::work::executor::{Executor, Native};
use hone_worker::work::verify::standard_samples;

/// Builds small models with seeded constants.
struct Net {
    graph: Graph,
    state: u64,
}

impl Net {
    fn new() -> Self {
        Self { graph: Graph::new(), state: 7 }
    }

    fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    fn constant(&mut self, dtype: DataType, shape: &[usize], largest: f64) -> ValueId {
        let count = shape.iter().product();
        let mut next = || {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            ((self.state >> 33) as f64 / f64::from(1u32 << 30) - 1.0) * largest
        };
        let values: Vec<f64> = (0..count).map(|_| next()).collect();
        let tensor = Tensor::from_f64(dtype, shape, &values).unwrap();
        self.graph.add_constant(format!("weights{}", self.graph.values().len()), tensor)
    }

    fn number(&mut self, dtype: DataType, value: f64) -> ValueId {
        let tensor = Tensor::from_f64(dtype, [1], &[value]).unwrap();
        self.graph.add_constant("number", tensor)
    }

    fn binary(&mut self, function: BinaryFunction, left: ValueId, right: ValueId) -> ValueId {
        self.node(Binary::new(function), &[left, right])
    }

    fn by(&mut self, function: BinaryFunction, left: ValueId, number: f64) -> ValueId {
        let number = self.number(DataType::F32, number);
        self.binary(function, left, number)
    }

    /// `saturate(round(x / scale) + zero)` in unsigned bytes.
    fn quantized(&mut self, x: ValueId, scale: f64, zero: f64) -> ValueId {
        let scaled = self.by(BinaryFunction::Divide, x, scale);
        let rounded = self.node(Unary::new(UnaryFunction::Round), &[scaled]);
        let moved = self.by(BinaryFunction::Add, rounded, zero);
        let above = self.by(BinaryFunction::Maximum, moved, 0.0);
        let within = self.by(BinaryFunction::Minimum, above, 255.0);
        self.node(Cast { to: DataType::U8 }, &[within])
    }

    /// `(bytes - zero) * scale`.
    fn dequantized(&mut self, bytes: ValueId, scale: f64, zero: f64) -> ValueId {
        let wide = self.node(Cast { to: DataType::I32 }, &[bytes]);
        let zero = self.number(DataType::I32, zero);
        let centered = self.binary(BinaryFunction::Subtract, wide, zero);
        let number = self.node(Cast { to: DataType::F32 }, &[centered]);
        self.by(BinaryFunction::Multiply, number, scale)
    }

    fn convolution(&mut self, x: ValueId, weights: ValueId) -> ValueId {
        let window = Window { pads_begin: vec![1, 1], pads_end: vec![1, 1], ..Window::plain(2) };
        self.node(Convolution { window, groups: 1 }, &[x, weights])
    }

    fn input(&mut self, shape: &[usize]) -> ValueId {
        self.graph.add_input("x", TensorType::new(DataType::F32, shape))
    }

    fn output(mut self, value: ValueId) -> Graph {
        self.graph.add_output("y", value);
        self.graph
    }
}

/// Two quantized convolutions, a pool of four equal steps between them; the second reads its bytes with the
/// zero point `zero`.
fn quantized_net(zero: f64) -> Graph {
    let mut net = Net::new();
    let x = net.input(&[1, 8, 14, 14]);
    let bytes = net.quantized(x, 0.013, 120.0);
    let mut x = net.dequantized(bytes, 0.013, 120.0);
    for channels in [8, 20] {
        let weights = net.constant(DataType::I8, &[20, channels, 3, 3], 120.0);
        let weights = net.dequantized(weights, 0.004, 0.0);
        let y = net.convolution(x, weights);
        let bytes = net.quantized(y, 0.05, 100.0);
        x = net.dequantized(bytes, 0.05, if channels == 8 { zero } else { 100.0 });
        if channels == 8 {
            let window = Window { strides: vec![2, 2], ..Window::plain(2) };
            let kernel = vec![2, 2];
            let pool = Pool { kind: PoolKind::Average, kernel, window, count_padding: false };
            let pooled = net.node(pool, &[x]);
            let bytes = net.quantized(pooled, 0.05, 100.0);
            x = net.dequantized(bytes, 0.05, 100.0);
        }
    }
    net.output(x)
}

/// Convolution, a transcendental function, a product and a softmax.
fn plain_net() -> Graph {
    let mut net = Net::new();
    let x = net.input(&[1, 5, 9, 11]);
    let weights = net.constant(DataType::F32, &[19, 5, 3, 3], 0.3);
    let y = net.convolution(x, weights);
    let y = net.node(Unary::new(UnaryFunction::Erf), &[y]);
    let right = net.constant(DataType::F32, &[11, 37], 1.0);
    let y = net.node(MatMul {}, &[y, right]);
    let y = net.node(Softmax { axis: 3, log: false }, &[y]);
    net.output(y)
}

/// Three convolutions that write their channels into one image, which two others read.
fn joined_net() -> Graph {
    let mut net = Net::new();
    let x = net.input(&[1, 16, 9, 9]);
    let mut parts = Vec::new();
    for _ in 0..3 {
        let weights = net.constant(DataType::F32, &[32, 16, 2, 2], 0.2);
        parts.push(net.convolution(x, weights));
    }
    let all = net.node(Concat { axis: 1 }, &parts);
    let mut results = Vec::new();
    for _ in 0..2 {
        let weights = net.constant(DataType::F32, &[16, 96, 2, 2], 0.1);
        results.push(net.convolution(all, weights));
    }
    let y = net.binary(BinaryFunction::Add, results[0], results[1]);
    net.output(y)
}

fn options(precision: DataType) -> Options {
    Options { precision, ..Options::new(Target::host().unwrap()) }
}

const SETTINGS: Settings = Settings { rtol: 1e-3, atol: Some(1e-4), max_relative_error: None };

/// An artifact and the model that it is verified against.
struct Case {
    graph: Graph,
    artifact: Vec<u8>,
    options: Options,
    settings: Settings,
}

impl Case {
    fn new(graph: Graph, precision: DataType) -> Self {
        let options = options(precision);
        let artifact = compile_graph(graph.clone(), b"case", &options).unwrap().artifact;
        let reduced = (precision != DataType::F32).then_some(0.05);
        Self {
            graph,
            artifact,
            options,
            settings: Settings { max_relative_error: reduced, ..SETTINGS },
        }
    }

    fn verify_by(&self, executor: &mut dyn Executor) -> Verification {
        let samples =
            standard_samples(&self.graph, &ports(&self.graph, false).unwrap(), &SEEDS, true);
        let subject = Subject {
            name: "case",
            artifact: &self.artifact,
            sizes: 0,
            imported: &self.graph,
            options: Ok(&self.options),
        };
        verify(&subject, &samples, self.settings, executor).unwrap()
    }

    fn verify(&self) -> Verification {
        let mut native = Native::from_bytes(self.artifact.clone(), &Default::default()).unwrap();
        self.verify_by(&mut native)
    }

    fn fault(&self) -> String {
        self.verify().judge("case", self.settings).unwrap_err().to_string()
    }

    /// The artifact with another manifest or other weights, whole by its checksums.
    fn rewrite(&mut self, change: impl FnOnce(&mut Manifest, &mut Vec<u8>)) {
        let reader = Reader::new(&self.artifact).unwrap();
        let mut manifest = reader.manifest().clone();
        let mut weights = reader.weights(0).unwrap_or_default().to_vec();
        change(&mut manifest, &mut weights);
        let mut writer = Writer::new();
        writer.code(reader.code(0).unwrap());
        writer.weights(weights);
        writer.header(String::new());
        let bytes = writer.to_bytes(&manifest).unwrap();
        self.artifact = bytes;
    }
}

#[test]
fn sound_artifacts_pass_in_every_arithmetic() {
    let cases = [
        (plain_net(), DataType::F32),
        (plain_net(), DataType::BF16),
        (quantized_net(100.0), DataType::F32),
        (quantized_net(100.0), DataType::BF16),
        (joined_net(), DataType::F32),
        (joined_net(), DataType::BF16),
    ];
    for (graph, precision) in cases {
        let case = Case::new(graph, precision);
        let found = case.verify();
        let rounds = found.passes.as_ref().is_some_and(|passes| passes.lifted);
        assert!(found.passed() || rounds, "{precision}: {found:#?}");
        assert!(found.kernels.iter().all(|kernel| kernel.fault.is_none()), "{found:#?}");
        assert_eq!(found.samples.len(), 4, "{found:#?}");
        assert!(found.end_to_end_only.is_none() && found.layout_fault.is_none(), "{found:#?}");
        let passes = found.passes.unwrap();
        assert_eq!((passes.fault, passes.unchecked), (None, None));
        assert!(found.kernels.iter().all(|kernel| kernel.elements > 0));
    }
}

#[test]
fn a_wrong_zero_point_is_found_though_it_moves_the_answers_little() {
    let right = Case::new(quantized_net(100.0), DataType::F32);
    // Compiled from a model that differs in one zero point by one.
    let wrong = Case { artifact: Case::new(quantized_net(101.0), DataType::F32).artifact, ..right };
    let found = wrong.verify();
    assert!(!found.passed(), "{found:#?}");
    // By its outputs alone it would have passed where half of the largest magnitude was allowed.
    assert!(found.end_to_end.max_fraction < 0.5, "{}", found.end_to_end.max_fraction);
    let fault = wrong.fault();
    assert!(fault.contains("kernels compute what the reference does not"), "{fault}");
}

/// Runs what another runs, and spoils the last argument of one step.
struct Faulty {
    inner: Native,
    step: usize,
    spoil: fn(&mut [u8]),
}

impl Executor for Faulty {
    fn description(&self) -> String {
        "a faulty machine".to_owned()
    }

    fn select(&mut self, sizes: usize) -> Result<()> {
        self.inner.select(sizes)
    }

    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        self.inner.run(inputs)
    }

    fn run_steps(&mut self, steps: Range<usize>, arguments: &mut [StepArgument<'_>]) -> Result<()> {
        self.inner.run_steps(steps.clone(), arguments)?;
        let written = arguments.iter_mut().rev().find_map(|argument| match argument {
            StepArgument::Exchange(bytes) => Some(bytes),
            _ => None,
        });
        if steps.contains(&self.step) {
            (self.spoil)(written.unwrap());
        }
        Ok(())
    }
}

#[test]
fn spoiled_lanes_and_borders_are_found_in_every_kernel() {
    let spoils: [fn(&mut [u8]); 3] = [
        // The last element, in its high byte.
        |bytes| *bytes.last_mut().unwrap() ^= 0x40,
        // One element in the middle.
        |bytes| bytes[bytes.len() / 8 * 4 + 3] ^= 0x50,
        // The last vector is that before it.
        |bytes| bytes.iter_mut().rev().take(64).for_each(|byte| *byte = byte.wrapping_add(64)),
    ];
    for graph in [quantized_net(100.0), plain_net()] {
        let case = Case::new(graph, DataType::F32);
        let steps = case.verify().kernels.iter().map(|kernel| kernel.step).collect::<Vec<_>>();
        for step in steps {
            for (number, spoil) in spoils.into_iter().enumerate() {
                let inner = Native::from_bytes(case.artifact.clone(), &Default::default()).unwrap();
                let found = case.verify_by(&mut Faulty { inner, step, spoil });
                assert!(!found.passed(), "spoil {number} of step {step}: {found:#?}");
                let faulty = found.kernels.iter().find(|kernel| kernel.fault.is_some()).unwrap();
                assert_eq!(faulty.step, step);
            }
        }
    }
}

#[test]
fn one_flipped_bit_of_the_weights_is_found() {
    for graph in [quantized_net(100.0), plain_net()] {
        let mut case = Case::new(graph, DataType::F32);
        case.rewrite(|_, weights| weights[5] ^= 1);
        let fault = case.fault();
        assert!(fault.contains("differs from the model's constant at byte 5"), "{fault}");
    }
}

#[test]
fn buffers_that_overlap_are_found() {
    let mut case = Case::new(plain_net(), DataType::F32);
    case.rewrite(|manifest, _| {
        // Every value of the arena at its beginning.
        let steps = &mut manifest.variants[0].steps;
        for argument in steps.iter_mut().flat_map(|step| &mut step.arguments) {
            if let Slot::Arena { offset } = &mut argument.slot {
                *offset = 0;
            }
        }
    });
    let fault = case.fault();
    assert!(fault.contains("it writes argument") || fault.contains("overwritten"), "{fault}");
}

#[test]
fn a_value_that_is_read_from_elsewhere_is_found() {
    let mut case = Case::new(plain_net(), DataType::F32);
    case.rewrite(|manifest, _| {
        let variant = &mut manifest.variants[0];
        variant.arena_bytes += 64;
        let arguments = variant.steps.iter_mut().skip(1).flat_map(|step| &mut step.arguments);
        let mut slots = arguments.filter_map(|argument| match &mut argument.slot {
            Slot::Arena { offset } => Some(offset),
            _ => None,
        });
        *slots.next().unwrap() += 64;
    });
    let fault = case.fault();
    assert!(fault.contains("does not lie where it is read"), "{fault}");
}

#[test]
fn a_part_that_lies_elsewhere_in_what_it_is_joined_to_is_found() {
    let step_of = |manifest: &Manifest, node: &str| {
        let mut steps = manifest.variants[0].steps.iter();
        steps.position(|step| step.nodes.iter().any(|name| name == node)).unwrap()
    };
    // The second part where the first one is, the last where the second one is, or both in each other's place.
    for moves in [&[(1, -1)][..], &[(2, -1)], &[(1, 1), (2, -1)]] {
        let mut case = Case::new(joined_net(), DataType::F32);
        case.rewrite(|manifest, _| {
            for (part, by) in moves {
                let step = step_of(manifest, &format!("node{part}"));
                let mut arguments = manifest.variants[0].steps[step].arguments.iter_mut();
                let result = arguments.find(|argument| argument.access != Access::Read).unwrap();
                let Slot::Arena { offset } = &mut result.slot else { panic!("{result:?}") };
                *offset = offset.checked_add_signed(by * result.bytes as i64).unwrap();
            }
        });
        let fault = case.fault();
        assert!(fault.contains("does not lie where it is read"), "{fault}");
    }
}

#[test]
fn without_the_options_only_whole_runs_are_compared_and_it_says_so() {
    let case = Case::new(plain_net(), DataType::F32);
    let samples = standard_samples(&case.graph, &ports(&case.graph, false).unwrap(), &SEEDS, false);
    let options = Err("it was compiled by another version".to_owned());
    let subject = Subject {
        name: "case",
        artifact: &case.artifact,
        sizes: 0,
        imported: &case.graph,
        options,
    };
    let mut native = Native::from_bytes(case.artifact.clone(), &Default::default()).unwrap();
    let found = verify(&subject, &samples, SETTINGS, &mut native).unwrap();
    assert!(found.passed() && found.kernels.is_empty() && found.passes.is_none());
    assert!(found.notes.iter().any(|note| note.contains("end to end only")), "{:?}", found.notes);
}

#[test]
fn the_manifest_says_how_to_find_the_values_again() {
    for precision in [DataType::F32, DataType::BF16] {
        let case = Case::new(plain_net(), precision);
        let reader = Reader::new(&case.artifact).unwrap();
        let found = Options::of_variant(&reader.manifest().variants[0]).unwrap();
        assert_eq!(found.precision, precision);
        assert_eq!(found.target.vector_bytes, case.options.target.vector_bytes);
        let again = compile_graph(case.graph.clone(), b"case", &found).unwrap().artifact;
        assert_eq!(again.len(), case.artifact.len());
    }
}
