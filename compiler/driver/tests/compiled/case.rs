//! A graph of a few nodes, and checking what its artifact computes.

use hone_artifact::Reader;
use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate, prepare};
use hone_graph::ValueId;
use hone_machine::Machine;
use hone_ops::{Binary, BinaryFunction, Cast, Concat, Op, Unary, UnaryFunction};
use hone_types::DataType;
use std::collections::HashSet;

fn seeded(seed: usize, shape: &[usize]) -> Tensor {
    let mut state = seed as u64 * 977 + 13;
    let values: Vec<f64> = (0..shape.iter().product::<usize>())
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        })
        .collect();
    Tensor::from_f64(DataType::F32, shape, &values).unwrap()
}

/// Builds a graph over inputs of the given shapes.
pub struct Case {
    graph: Graph,
    seed: usize,
}

impl Case {
    pub fn new() -> Self {
        Self { graph: Graph::new(), seed: 0 }
    }

    pub fn input(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.add_input(name, TensorType::new(DataType::F32, shape))
    }

    pub fn constant(&mut self, shape: &[usize]) -> ValueId {
        self.seed += 1;
        self.graph.add_constant("constant", seeded(self.seed, shape))
    }

    /// The same of numbers that are so many times smaller.
    pub fn smaller_constant(&mut self, shape: &[usize], times: f64) -> ValueId {
        self.seed += 1;
        let values: Vec<f64> =
            seeded(self.seed, shape).to_f64().iter().map(|value| value / times).collect();
        let tensor = Tensor::from_f64(DataType::F32, shape, &values).unwrap();
        self.graph.add_constant("constant", tensor)
    }

    pub fn node(&mut self, operation: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.add_node(name, operation.into(), &inputs).unwrap()[0]
    }

    pub fn unary(&mut self, function: UnaryFunction, input: ValueId) -> ValueId {
        self.node(Unary::new(function), &[input])
    }

    pub fn binary(&mut self, function: BinaryFunction, left: ValueId, right: ValueId) -> ValueId {
        self.node(Binary::new(function), &[left, right])
    }

    pub fn cast(&mut self, to: DataType, value: ValueId) -> ValueId {
        self.node(Cast { to }, &[value])
    }

    /// A constant of one element.
    pub fn number(&mut self, value: f64, dtype: DataType) -> ValueId {
        let number = Tensor::from_f64(dtype, [1], &[value]).unwrap();
        self.graph.add_constant("number", number)
    }

    /// Constant integers of eight bits.
    pub fn integers(&mut self, dtype: DataType, shape: &[usize]) -> ValueId {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|place| (place * 37 % 255) as f64 - 127.0).collect();
        self.graph.add_constant("integers", Tensor::from_f64(dtype, shape, &values).unwrap())
    }

    /// Constant bytes, from 0 to `most`.
    pub fn unsigned(&mut self, most: usize, shape: &[usize]) -> ValueId {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|n| (n * 151 % (most + 1)) as f64).collect();
        let bytes = Tensor::from_f64(DataType::U8, shape, &values).unwrap();
        self.graph.add_constant("bytes", bytes)
    }

    /// Unsigned bytes of an input, and the numbers that they are rounded from.
    pub fn bytes(&mut self, shape: &[usize]) -> (ValueId, ValueId) {
        let x = self.input(shape);
        let scale = self.number(127.0, DataType::F32);
        let scaled = self.binary(BinaryFunction::Multiply, x, scale);
        let middle = self.number(128.0, DataType::F32);
        let shifted = self.binary(BinaryFunction::Add, scaled, middle);
        (self.cast(DataType::U8, shifted), shifted)
    }

    /// Bytes less `zero`, times a scale.
    pub fn scaled(&mut self, bytes: ValueId, zero: f64) -> ValueId {
        let scale = self.number(0.013, DataType::F32);
        self.scaled_by(bytes, zero, scale)
    }

    /// Bytes times one scale for each channel.
    pub fn scaled_by_channels(&mut self, bytes: ValueId, channels: usize) -> ValueId {
        let scales = self.constant(&[channels, 1, 1, 1]);
        self.scaled_by(bytes, 0.0, scales)
    }

    /// Bytes less `zero`, times `scale`.
    pub fn scaled_by(&mut self, bytes: ValueId, zero: f64, scale: ValueId) -> ValueId {
        let wide = self.cast(DataType::I32, bytes);
        let zero = self.number(zero, DataType::I32);
        let centered = self.binary(BinaryFunction::Subtract, wide, zero);
        let number = self.cast(DataType::F32, centered);
        self.binary(BinaryFunction::Multiply, number, scale)
    }

    /// As [`Case::check`]; the artifact in `f32` must read constants of another type.
    pub fn check_storing(mut self, dtype: DataType, output: ValueId) {
        self.graph.add_output("output", output);
        let prepared = prepare(&self.graph, &options(DataType::F32)).unwrap();
        let inputs = prepared.nodes().iter().flat_map(|(_, node)| node.inputs.iter().flatten());
        let mut constants = inputs.filter_map(|input| prepared.constant(*input));
        assert!(constants.any(|constant| constant.dtype() == dtype), "no constant of {dtype}");
        self.check_both();
    }

    pub fn check(mut self, output: ValueId) {
        self.graph.add_output("output", output);
        self.check_both();
    }

    /// As [`Case::check`], of several results; so many kernels of the artifact in `f32` compute anything for
    /// concatenations.
    pub fn check_copies(mut self, outputs: &[ValueId], copies: usize) {
        for (number, output) in outputs.iter().enumerate() {
            self.graph.add_output(format!("output{number}"), *output);
        }
        let nodes = self.graph.nodes().iter().map(|(_, node)| node);
        let concatenations: HashSet<&str> = nodes
            .filter(|node| node.operation.downcast::<Concat>().is_some())
            .map(|node| node.name.as_str())
            .collect();
        let artifact = self.check_both();
        let reader = Reader::new(&artifact).unwrap();
        let copying = reader.manifest().variants[0]
            .steps
            .iter()
            .filter(|step| step.nodes.iter().any(|name| concatenations.contains(name.as_str())));
        let found: Vec<&[String]> = copying.map(|step| step.nodes.as_slice()).collect();
        assert_eq!(found.len(), copies, "{found:?}");
    }

    /// Returns the artifact in `f32`.
    fn check_both(&self) -> Vec<u8> {
        let artifacts = [DataType::F32, DataType::BF16].map(|precision| {
            interpret_schedules(&self.graph, precision);
            self.check_code(precision)
        });
        let [artifact, _] = artifacts;
        artifact
    }

    fn check_code(&self, precision: DataType) -> Vec<u8> {
        let types: Vec<TensorType> = self
            .graph
            .inputs()
            .iter()
            .map(|port| self.graph.tensor_type(port.value).clone())
            .collect();
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(n, own)| seeded(100 + n, &own.shape)).collect();
        let options = options(precision);
        // Narrow numbers are rounded where the prepared graph says so; in which order sums are added
        // may decide to which side.
        let reference = if precision == DataType::F32 {
            self.graph.clone()
        } else {
            prepare(&self.graph, &options).unwrap()
        };
        let expected = evaluate(&reference, &inputs).unwrap();
        let compiled = compile_graph(self.graph.clone(), b"case", &options).unwrap();
        for threads in [1, 2] {
            let actual = run(&compiled.artifact, &inputs, threads);
            let what = format!("compiled code, {precision}, {threads} threads");
            for (expected, actual) in expected.iter().zip(&actual) {
                compare(expected, actual, tolerance(precision), &what);
            }
        }
        compiled.artifact
    }
}

fn run(artifact: &[u8], inputs: &[Tensor], threads: usize) -> Vec<Tensor> {
    let options = hone_runtime::Options { threads, ..Default::default() };
    let mut model = hone_runtime::Model::load_memory(artifact.to_vec(), &options).unwrap();
    let infos = model.outputs().to_vec();
    let mut outputs: Vec<Vec<u8>> =
        infos.iter().map(|info| vec![0u8; info.bytes as usize]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&inputs, &mut slots).unwrap();
    let tensors = infos.iter().zip(outputs).map(|(info, output)| {
        let shape: Vec<usize> = info.shape.iter().map(|extent| *extent as usize).collect();
        Tensor::from_bytes(TensorType::new(DataType::F32, shape), output).unwrap()
    });
    tensors.collect()
}

fn options(precision: DataType) -> Options {
    Options { precision, ..Options::new(Target::host().unwrap()) }
}

/// Largest error, as a share of the largest element.
fn tolerance(precision: DataType) -> f64 {
    if precision == DataType::F32 { 1e-4 } else { 1e-2 }
}

/// Every group's scheduled program computes what its plain one does.
fn interpret_schedules(graph: &Graph, precision: DataType) {
    let options = options(precision);
    let graph = prepare(graph, &options).unwrap();
    for group in hone_passes::fuse(&graph) {
        let last = &graph.nodes()[*group.nodes.last().unwrap()];
        let program = hone_lower::lower(&graph, &group.nodes, &last.outputs).unwrap().program;
        let target = &options.target;
        let machine = Machine::with_vectors(target.vector_bytes, target.vector_registers);
        let scheduled = hone_tune::schedule(program.clone(), &machine).unwrap();
        let inputs: Vec<Tensor> = program
            .parameters()
            .into_iter()
            .map(|id| &program.buffers[id])
            .filter(|buffer| matches!(buffer.role, hone_tensor::Role::Input(_)))
            .enumerate()
            .map(|(n, buffer)| {
                let values = seeded(n, &buffer.shape).to_f64();
                Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values).unwrap()
            })
            .collect();
        let expected = hone_tensor::interpret(&program, &inputs).unwrap();
        let template = scheduled.template;
        let actual =
            hone_tensor::interpret(scheduled.schedule.program(), &inputs).unwrap_or_else(|error| {
                panic!("{template}: {error:?}\n{}", scheduled.schedule.program())
            });
        compare(&expected[0], &actual[0], tolerance(precision), &format!("schedule by {template}"));
    }
}

fn compare(expected: &Tensor, actual: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(expected.tensor_type(), actual.tensor_type(), "{what}");
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let largest = expected.iter().fold(1e-6f64, |most, value| most.max(value.abs()));
    for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let error = (expected - actual).abs();
        // A kernel alone gets any numbers, also such as have no root, and pads for a maximum with infinities.
        let same = expected == actual || expected.is_nan() && actual.is_nan();
        assert!(
            same || error <= tolerance * largest,
            "{what}: element {place} is {actual}, not {expected}"
        );
    }
}
