//! A model loaded in an emulator, run whole or by single steps.

use crate::emulator::Emulator;
use crate::error::{EmulatorError, Result};
use crate::image::Image;
use crate::machine::Machine;
use hone_artifact::{BUFFER_ALIGNMENT, Manifest, Reader, Slot, Step, TensorInfo, Texts, Variant};

/// An artifact's code and memory in a separate emulated process.
#[derive(Debug)]
pub struct Model {
    pub(crate) machine: Machine,
    /// Inputs and outputs are in the shapes of the variant.
    pub(crate) manifest: Manifest,
    pub(crate) variant: usize,
    /// Of each step: its kernel's address, and that of its table of pointers.
    calls: Vec<(u64, u64)>,
    pub(crate) memory: Memory,
    pub(crate) texts: Texts,
    /// Nanoseconds of each step in this run, where it is timed.
    times: Option<Vec<u64>>,
}

/// Addresses in the emulated process.
#[derive(Debug)]
pub(crate) struct Memory {
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    arena: u64,
    weights: u64,
    scratch: u64,
}

impl Model {
    /// Starts an emulated process and loads a variant of an artifact into it.
    ///
    /// # Errors
    /// A damaged artifact, an emulator that does not start, no memory.
    pub fn load(artifact: &[u8], variant: usize, emulator: &Emulator) -> Result<Self> {
        let reader = Reader::new(artifact)?;
        let mut manifest = reader.manifest().clone();
        let selected = manifest.variants.get(variant).ok_or(EmulatorError::Variant { variant })?;
        (manifest.inputs, manifest.outputs) =
            (manifest.inputs_of(selected), manifest.outputs_of(selected));
        let selected = &manifest.variants[variant];
        // The reader has checked that both sections are there.
        let code = reader.code(selected.code).unwrap_or_default();
        let weights = reader.weights(selected.weights).unwrap_or_default();
        let mut machine = Machine::start(emulator)?;
        let image = Image::load(&mut machine, code)?;
        let memory = Memory::reserve(&mut machine, &manifest, selected)?;
        machine.write(memory.weights, weights)?;
        let calls = tables(&mut machine, &image, &memory, &selected.steps)?;
        let texts = Texts::new(manifest.interface.texts.iter().map(String::as_str));
        let texts = texts.map_err(|reason| EmulatorError::Text { reason })?;
        Ok(Self { machine, manifest, variant, calls, memory, texts, times: None })
    }

    /// For each input that users give, whether its elements stand for strings.
    pub fn text_inputs(&self) -> Vec<bool> {
        self.manifest.text_tensors(false)
    }

    /// The strings that elements of inputs stand for, to which those of a run are added.
    pub fn texts(&mut self) -> &mut Texts {
        &mut self.texts
    }

    /// The model's inputs in order.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.manifest.inputs
    }

    /// The model's outputs in order.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.manifest.outputs
    }

    /// The steps of the variant.
    pub fn steps(&self) -> &[Step] {
        &self.manifest.variants[self.variant].steps
    }

    /// Runs the model: the bytes of its inputs to those of its outputs, both in the model's order,
    /// dense and row major.
    ///
    /// # Errors
    /// Inputs that do not fit, code that crashes.
    pub fn run(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let Self { machine, manifest, memory, .. } = self;
        let (expected, found) = (manifest.inputs.len(), inputs.len());
        if expected != found {
            return Err(EmulatorError::Count { expected, found });
        }
        for ((tensor, bytes), address) in manifest.inputs.iter().zip(inputs).zip(&memory.inputs) {
            size(|| format!("input '{}'", tensor.name), tensor.bytes, bytes.len())?;
            machine.write(*address, bytes)?;
        }
        self.run_program()?;
        let Self { machine, manifest, memory, .. } = self;
        let outputs = manifest.outputs.iter().zip(&memory.outputs);
        outputs.map(|(tensor, address)| machine.read(*address, tensor.bytes)).collect()
    }

    /// Runs the model once more on the inputs that it has, and gives the nanoseconds of each step by the clock of the machine
    /// that it runs on: what is said to that machine in between is not in them.
    ///
    /// # Errors
    /// Code that crashes.
    pub fn run_timed(&mut self) -> Result<Vec<u64>> {
        self.times = Some(vec![0; self.steps().len()]);
        let run = self.run_program();
        let times = self.times.take().unwrap_or_default();
        run.map(|()| times)
    }

    /// The variant that was loaded.
    pub fn variant(&self) -> &Variant {
        &self.manifest.variants[self.variant]
    }

    /// Shapes of the outputs as the last run left them: those of [`Model::outputs`], but for axes whose extent is
    /// decided at run time.
    ///
    /// # Errors
    /// An emulated process that has ended.
    pub fn output_shapes(&mut self) -> Result<Vec<Vec<u64>>> {
        let outputs = self.manifest.outputs.iter();
        let mut shapes: Vec<Vec<u64>> = outputs.map(|output| output.shape.clone()).collect();
        for extent in self.manifest.variants[self.variant].extents.clone() {
            let actual = self.number(extent.slot)?.max(0) as u64;
            let declared = &mut shapes[extent.output as usize][extent.axis as usize];
            *declared = actual.min(*declared);
        }
        Ok(shapes)
    }

    /// Writes the bytes of a step's argument, as large as the step table says, where the step reads it.
    ///
    /// # Errors
    /// No such argument, another size, an emulated process that has ended.
    pub fn write_argument(&mut self, step: usize, argument: usize, bytes: &[u8]) -> Result<()> {
        let (address, expected) = self.argument(step, argument)?;
        size(|| format!("argument {argument} of step {step}"), expected, bytes.len())?;
        self.machine.write(address, bytes)
    }

    /// Reads the bytes of a step's argument from where the step leaves it.
    ///
    /// # Errors
    /// No such argument, an emulated process that has ended.
    pub fn read_argument(&mut self, step: usize, argument: usize) -> Result<Vec<u8>> {
        let (address, bytes) = self.argument(step, argument)?;
        self.machine.read(address, bytes)
    }

    /// Runs a step on its arguments as they are. Its tasks are done in two parts, the later one first,
    /// as those of several threads may be.
    ///
    /// # Errors
    /// No such step; code that crashes.
    pub fn call(&mut self, index: usize) -> Result<()> {
        let Some(step) = self.manifest.variants[self.variant].steps.get(index) else {
            return Err(EmulatorError::Step { step: index, argument: None });
        };
        let during = format!("step {index}, kernel '{}'", step.kernel);
        let (function, table) = self.calls[index];
        if let Some(times) = &mut self.times {
            let operands = [function, table, 0, step.tasks, self.memory.scratch];
            times[index] += self.machine.time(operands, &during)?;
            return Ok(());
        }
        let middle = step.tasks / 2;
        for (begin, end) in [(middle, step.tasks), (0, middle)] {
            if begin < end {
                let operands = [function, table, begin, end, self.memory.scratch];
                self.machine.call(operands, &during)?;
            }
        }
        Ok(())
    }

    /// Runs a step on its arguments as they are, and gives the nanoseconds that it took there.
    ///
    /// # Errors
    /// No such step; code that crashes.
    pub fn time(&mut self, index: usize) -> Result<u64> {
        self.times = Some(vec![0; self.steps().len()]);
        let called = self.call(index);
        let times = self.times.take().unwrap_or_default();
        called.map(|()| times.get(index).copied().unwrap_or_default())
    }

    /// Address and size of a step's argument.
    fn argument(&self, step: usize, argument: usize) -> Result<(u64, u64)> {
        let found = self.steps().get(step).and_then(|step| step.arguments.get(argument));
        let missing = || EmulatorError::Step { step, argument: Some(argument) };
        let found = found.ok_or_else(missing)?;
        Ok((self.memory.address(found.slot), found.bytes))
    }
}

impl Memory {
    fn reserve(machine: &mut Machine, manifest: &Manifest, variant: &Variant) -> Result<Self> {
        let mut tensors = |tensors: &[TensorInfo]| -> Result<Vec<u64>> {
            let reserve = |tensor: &TensorInfo| {
                // No better aligned than a caller's buffers have to be.
                let offset = tensor.dtype.alignment();
                Ok(machine.map(tensor.bytes + offset)? + offset)
            };
            tensors.iter().map(reserve).collect()
        };
        let (inputs, outputs) = (tensors(&manifest.inputs)?, tensors(&manifest.outputs)?);
        Ok(Self {
            inputs,
            outputs,
            arena: machine.map(variant.arena_bytes)?,
            weights: machine.map(variant.weights_bytes)?,
            scratch: machine.map(variant.scratch_bytes_per_thread + BUFFER_ALIGNMENT)?,
        })
    }

    pub(crate) fn address(&self, slot: Slot) -> u64 {
        match slot {
            Slot::Input { index, offset } => self.inputs[index as usize] + offset,
            Slot::Output { index, offset } => self.outputs[index as usize] + offset,
            Slot::Arena { offset } => self.arena + offset,
            Slot::Weight { offset } => self.weights + offset,
        }
    }
}

/// Writes the tables of pointers of all steps; of each step its kernel's address and its table's.
fn tables(
    machine: &mut Machine,
    image: &Image,
    memory: &Memory,
    steps: &[Step],
) -> Result<Vec<(u64, u64)>> {
    let mut pointers: Vec<u8> = Vec::new();
    let mut calls = Vec::with_capacity(steps.len());
    for step in steps {
        calls.push((image.function(&step.kernel)?, pointers.len() as u64));
        let addresses = step.arguments.iter().map(|argument| memory.address(argument.slot));
        addresses.for_each(|address| pointers.extend(address.to_le_bytes()));
    }
    let base = machine.map(pointers.len() as u64)?;
    machine.write(base, &pointers)?;
    calls.iter_mut().for_each(|(_, table)| *table += base);
    Ok(calls)
}

fn size(what: impl Fn() -> String, expected: u64, found: usize) -> Result<()> {
    let found = found as u64;
    match expected == found {
        true => Ok(()),
        false => Err(EmulatorError::Size { what: what(), expected, found }),
    }
}
