//! Runs artifacts for WebGPU, as `examples/web/hone.js` does: arena, weights, inputs and outputs are a buffer each, and
//! the launches of the steps get parts of them.

use crate::device::{Device, Kernels, Part};
use anyhow::{Context, Result, bail, ensure};
use hone_artifact::{
    Access, Argument, Command, DeviceCode, Language, Launch, LaunchArgument, Reader, Slot, Step,
    TensorInfo, Variant,
};
use std::collections::BTreeMap;
use wgpu::{Buffer, BufferUsages, CommandEncoder};

/// Commands that are put together before they are submitted.
const TOGETHER: usize = 64;

/// A model on a device.
pub struct Artifact<'d> {
    device: &'d Device,
    kernels: Kernels<'d>,
    variant: Variant,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    arena: Buffer,
    weights: Buffer,
    /// The numbers that counters have, each a buffer.
    counters: BTreeMap<u64, Buffer>,
}

/// What is kept of a run.
struct Run {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    commands: Option<(CommandEncoder, usize)>,
}

impl<'d> Artifact<'d> {
    /// Loads the bytes of an artifact.
    ///
    /// # Errors
    /// One that is not for WebGPU or needs more storage buffers than the device has; what the device says of its text.
    pub fn load(device: &'d Device, bytes: &[u8]) -> Result<Self> {
        let reader = Reader::new(bytes)?;
        reader.verify()?;
        let manifest = reader.manifest();
        let is_wgsl = |own: &&Variant| {
            own.device.as_ref().is_some_and(|code| code.language == Language::Wgsl)
        };
        let variant = manifest.variants.iter().find(is_wgsl).context("no variant is for WebGPU")?;
        ensure!(variant.program.is_empty(), "steps run one after another here");
        let code = variant.device.as_ref().context("a variant without launches")?;
        let needed = code.limits.storage_buffers.unwrap_or(0);
        let most = device.storage_buffers() as u64;
        ensure!(needed <= most, "launches have {needed} storage buffers, the device has {most}");
        let text = std::str::from_utf8(reader.code(variant.code).context("no code")?)?;
        let weights = reader.weights(variant.weights).context("no weights")?;
        Ok(Self {
            device,
            kernels: device.build_named(text, &launched(code))?,
            inputs: manifest.inputs_of(variant),
            outputs: manifest.outputs_of(variant),
            arena: device.empty(variant.arena_bytes)?,
            weights: device.memory(weights, BufferUsages::STORAGE)?,
            variant: variant.clone(),
            counters: BTreeMap::new(),
        })
    }

    /// The outputs' bytes, for the bytes of the inputs.
    ///
    /// # Errors
    /// What the device says; a launch whose results overlap.
    pub fn run(&mut self, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        ensure!(inputs.len() == self.inputs.len(), "{} inputs are given", inputs.len());
        let given = inputs.iter().map(|bytes| self.device.memory(bytes, BufferUsages::STORAGE));
        let given = given.collect::<Result<_>>()?;
        let outputs = self.outputs.iter().map(|output| self.device.empty(output.bytes));
        let outputs = outputs.collect::<Result<_>>()?;
        let mut run = Run { inputs: given, outputs, commands: None };
        for step in self.variant.steps.clone() {
            let code = self.variant.device.as_ref().context("a variant without launches")?;
            let commands = code.commands(&step.kernel).context("a step without a kernel")?.to_vec();
            self.commands(&mut run, &step, &commands, &mut Vec::new())
                .with_context(|| format!("{:?}", step.nodes))?;
        }
        if let Some((commands, _)) = run.commands.take() {
            self.kernels.submit(commands)?;
        }
        let results = run.outputs.iter().zip(&self.outputs);
        results.map(|(buffer, output)| self.device.read(buffer, output.bytes as usize)).collect()
    }

    fn commands(
        &mut self,
        run: &mut Run,
        step: &Step,
        commands: &[Command],
        counters: &mut Vec<u64>,
    ) -> Result<()> {
        for command in commands {
            match command {
                Command::Launch(launch) => self.launch(run, step, launch, counters)?,
                Command::Repeat { times, body } => {
                    for round in 0..*times {
                        counters.push(round);
                        self.commands(run, step, body, counters)?;
                        counters.pop();
                    }
                }
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        run: &mut Run,
        step: &Step,
        launch: &Launch,
        counters: &[u64],
    ) -> Result<()> {
        let (mut encoder, count) =
            run.commands.take().unwrap_or_else(|| (self.kernels.commands(), 0));
        let arguments = arguments_of(step, launch)?;
        let mut parts = Vec::with_capacity(launch.arguments.len());
        for (number, argument) in launch.arguments.iter().enumerate() {
            parts.push(match (argument, arguments[number]) {
                (LaunchArgument::Counter(depth), _) => {
                    let value = counters.get(*depth as usize).context("no such repetition")?;
                    self.counter(*value)?
                }
                (_, Some(argument)) => {
                    let part = self.part(run, argument);
                    match shared(&arguments, number, argument)? {
                        true => self.device.copied(&mut encoder, &part)?,
                        false => part,
                    }
                }
                (_, None) => bail!("a launch without an argument"),
            });
        }
        self.kernels.launch_parts(&mut encoder, (&launch.kernel, launch.grid), &parts)?;
        run.commands = match count + 1 < TOGETHER {
            true => Some((encoder, count + 1)),
            false => self.kernels.submit(encoder).map(|()| None)?,
        };
        Ok(())
    }

    fn part(&self, run: &Run, argument: &Argument) -> Part {
        let (buffer, offset) = match argument.slot {
            Slot::Arena { offset } => (&self.arena, offset),
            Slot::Weight { offset } => (&self.weights, offset),
            Slot::Input { index, offset } => (&run.inputs[index as usize], offset),
            Slot::Output { index, offset } => (&run.outputs[index as usize], offset),
        };
        Part { buffer: buffer.clone(), offset, bytes: argument.bytes.max(1).next_multiple_of(8) }
    }

    fn counter(&mut self, value: u64) -> Result<Part> {
        if !self.counters.contains_key(&value) {
            let bytes = i32::try_from(value)?.to_le_bytes();
            let buffer = self.device.memory(&bytes, BufferUsages::UNIFORM)?;
            self.counters.insert(value, buffer);
        }
        Ok(Part { buffer: self.counters[&value].clone(), offset: 0, bytes: 8 })
    }
}

/// The names of all kernels that are launched.
fn launched(code: &DeviceCode) -> Vec<&str> {
    fn add<'a>(commands: &'a [Command], names: &mut Vec<&'a str>) {
        for command in commands {
            match command {
                Command::Launch(launch) => names.push(&launch.kernel),
                Command::Repeat { body, .. } => add(body, names),
            }
        }
    }
    let mut names = Vec::new();
    code.kernels.iter().for_each(|kernel| add(&kernel.commands, &mut names));
    names.sort_unstable();
    names.dedup();
    names
}

/// The step's arguments that a launch is given; none in the place of a counter.
fn arguments_of<'a>(step: &'a Step, launch: &Launch) -> Result<Vec<Option<&'a Argument>>> {
    let argument = |own: &LaunchArgument| match own {
        LaunchArgument::Buffer(place) => {
            let found = step.arguments.get(*place as usize).context("no such argument")?;
            Ok(Some(found))
        }
        LaunchArgument::Counter(_) => Ok(None),
    };
    launch.arguments.iter().map(argument).collect()
}

/// Whether an argument that is only read has bytes in common with another one of its launch: WebGPU lets no two bindings
/// of `read_write` access have them, so it is copied first.
fn shared(all: &[Option<&Argument>], number: usize, argument: &Argument) -> Result<bool> {
    let others = all.iter().enumerate().filter(|(other, _)| *other != number);
    let others = others.filter_map(|(other, own)| Some((other, (*own)?)));
    let mut found = false;
    for (other, own) in others.filter(|(_, own)| overlap(argument, own)) {
        match (argument.access, own.access) {
            // Of two that are read, the second is copied.
            (Access::Read, Access::Read) => found |= other < number,
            (Access::Read, _) => found = true,
            (_, Access::Read) => {}
            _ => bail!("a launch writes two buffers that overlap"),
        }
    }
    Ok(found)
}

/// Whether two arguments have bytes in common.
fn overlap(one: &Argument, other: &Argument) -> bool {
    let (begin, other_begin) = match (one.slot, other.slot) {
        (Slot::Arena { offset: a }, Slot::Arena { offset: b })
        | (Slot::Weight { offset: a }, Slot::Weight { offset: b }) => (a, b),
        (Slot::Input { index: a, .. }, Slot::Input { index: b, .. })
        | (Slot::Output { index: a, .. }, Slot::Output { index: b, .. }) => return a == b,
        _ => return false,
    };
    begin < other_begin + other.bytes.max(1) && other_begin < begin + one.bytes.max(1)
}
