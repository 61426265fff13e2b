//! Runs a program's text on host tensors.

use crate::device::{Device, Kernels};
use anyhow::{Context, Result, ensure};
use hone_codegen_text::{Argument, Module, Step};
use hone_tensor::{Program, Role, Scope};
use hone_types::{Id, Tensor, TensorType};
use std::collections::BTreeMap;
use wgpu::BufferUsages;

/// What memory holds before a program writes it: no number, and an integer that is easy to see.
const UNWRITTEN: u8 = 0xff;

/// Runs a module, whose text `kernels` were built of, on `inputs`, those of the program's inputs in the order of their
/// numbers, and returns its outputs in the order of theirs.
///
/// # Errors
/// Inputs that do not fit; what the device says.
pub fn run(
    device: &Device,
    kernels: &Kernels<'_>,
    program: &Program,
    module: &Module,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>> {
    let memory = memory(device, program, inputs)?;
    let mut launches =
        Launches { device, kernels, memory: &memory, counters: BTreeMap::new(), commands: None };
    launches.steps(&module.steps)?;
    launches.submit()?;
    let outputs = program.parameters().into_iter();
    outputs
        .filter(|buffer| matches!(program.buffers[*buffer].role, Role::Output(_)))
        .map(|buffer| {
            let entry = &program.buffers[buffer];
            let output = memory.get(&buffer.index()).context("an output has no memory")?;
            let bytes = device.read(output, entry.bytes())?;
            Ok(Tensor::from_bytes(TensorType::new(entry.dtype, entry.shape.clone()), bytes)?)
        })
        .collect()
}

/// Memory of every buffer in global memory, by its number; inputs have their values.
fn memory(
    device: &Device,
    program: &Program,
    inputs: &[Tensor],
) -> Result<BTreeMap<usize, wgpu::Buffer>> {
    let mut given = inputs.iter();
    let mut memory = BTreeMap::new();
    for buffer in program.parameters() {
        let entry = &program.buffers[buffer];
        let bytes = match entry.role {
            Role::Input(_) => {
                let tensor = given.next().context("an input is missing")?;
                let expected = TensorType::new(entry.dtype, entry.shape.clone());
                ensure!(*tensor.tensor_type() == expected, "input '{}' is {expected}", entry.name);
                tensor.bytes().to_vec()
            }
            _ => vec![UNWRITTEN; entry.bytes()],
        };
        memory.insert(buffer.index(), device.memory(&bytes, BufferUsages::STORAGE)?);
    }
    for (buffer, entry) in program.buffers.iter() {
        if entry.role == Role::Temporary && entry.scope == Scope::Global {
            let bytes = vec![UNWRITTEN; entry.bytes()];
            memory.insert(buffer.index(), device.memory(&bytes, BufferUsages::STORAGE)?);
        }
    }
    Ok(memory)
}

/// Most launches that are handed over at once.
const TOGETHER: usize = 256;

struct Launches<'a> {
    device: &'a Device,
    kernels: &'a Kernels<'a>,
    memory: &'a BTreeMap<usize, wgpu::Buffer>,
    counters: BTreeMap<usize, i32>,
    commands: Option<(wgpu::CommandEncoder, usize)>,
}

impl Launches<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Launch(kernel) => {
                    let arguments: Vec<wgpu::Buffer> = kernel
                        .arguments
                        .iter()
                        .map(|argument| self.argument(argument))
                        .collect::<Result<_>>()?;
                    let (mut commands, count) =
                        self.commands.take().unwrap_or_else(|| (self.kernels.commands(), 0));
                    self.kernels.launch(&mut commands, kernel, &arguments)?;
                    self.commands = Some((commands, count + 1));
                    if count + 1 == TOGETHER {
                        self.submit()?;
                    }
                }
                Step::Repeat { counter, times, body } => {
                    for round in 0..*times {
                        self.counters.insert(counter.index(), i32::try_from(round)?);
                        self.steps(body)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn argument(&self, argument: &Argument) -> Result<wgpu::Buffer> {
        match argument {
            Argument::Buffer(buffer) => {
                let memory = self.memory.get(&buffer.index());
                memory.cloned().with_context(|| format!("{buffer} has no memory"))
            }
            Argument::Counter(var) => {
                let value = self.counters.get(&var.index());
                let value = value.with_context(|| format!("{var} has no value"))?;
                self.device.memory(&value.to_le_bytes(), BufferUsages::UNIFORM)
            }
        }
    }

    fn submit(&mut self) -> Result<()> {
        match self.commands.take() {
            Some((commands, _)) => self.kernels.submit(commands),
            None => Ok(()),
        }
    }
}
