//! Runs a program's text on host tensors.

use crate::device::{Device, Kernels, Memory, Value};
use anyhow::{Context, Result, ensure};
use hone_codegen_text::{Argument, Module, Step};
use hone_tensor::{BufferId, Program, Role, Scope, VarId};
use hone_types::{Id, Tensor, TensorType};
use std::collections::BTreeMap;

/// What memory holds before a program writes it: no number, and an integer that is easy to see.
const UNWRITTEN: u8 = 0xff;

/// Runs a module, whose text `kernels` were built of, on `inputs`, those of the program's inputs in the order of their numbers, and returns its
/// outputs in the order of theirs.
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
    let mut given = inputs.iter();
    let mut memory: BTreeMap<usize, Memory<'_>> = BTreeMap::new();
    for buffer in program.parameters() {
        let own = &program.buffers[buffer];
        let bytes = match own.role {
            Role::Input(_) => {
                let tensor = given.next().context("an input is missing")?;
                let expected = TensorType::new(own.dtype, own.shape.clone());
                ensure!(*tensor.tensor_type() == expected, "input '{}' is {expected}", own.name);
                tensor.bytes().to_vec()
            }
            _ => vec![UNWRITTEN; own.bytes()],
        };
        memory.insert(buffer.index(), device.memory(&bytes)?);
    }
    for (buffer, own) in program.buffers.iter() {
        if own.role == Role::Temporary && own.scope == Scope::Global {
            memory.insert(buffer.index(), device.memory(&vec![UNWRITTEN; own.bytes()])?);
        }
    }
    steps(kernels, &module.steps, &memory, &mut BTreeMap::new())?;
    device.finish()?;
    let outputs = program.parameters().into_iter();
    outputs
        .filter(|buffer| matches!(program.buffers[*buffer].role, Role::Output(_)))
        .map(|buffer| {
            let own = &program.buffers[buffer];
            let bytes = found(&memory, buffer)?.read(own.bytes())?;
            Ok(Tensor::from_bytes(TensorType::new(own.dtype, own.shape.clone()), bytes)?)
        })
        .collect()
}

fn found<'a, 'b>(
    memory: &'a BTreeMap<usize, Memory<'b>>,
    buffer: BufferId,
) -> Result<&'a Memory<'b>> {
    memory.get(&buffer.index()).with_context(|| format!("{buffer} has no memory"))
}

fn steps(
    kernels: &Kernels<'_>,
    steps_of: &[Step],
    memory: &BTreeMap<usize, Memory<'_>>,
    counters: &mut BTreeMap<usize, i64>,
) -> Result<()> {
    for step in steps_of {
        match step {
            Step::Launch(kernel) => {
                let value = |argument: &Argument| {
                    Ok(match argument {
                        Argument::Buffer(buffer) => Value::Memory(found(memory, *buffer)?),
                        Argument::Counter(var) => Value::Counter(value_of(counters, *var)?),
                    })
                };
                let arguments: Vec<Value<'_>> =
                    kernel.arguments.iter().map(value).collect::<Result<_>>()?;
                kernels.launch(&kernel.name, &arguments, kernel.groups, kernel.items)?;
            }
            Step::Repeat { counter, times, body } => {
                for round in 0..*times {
                    counters.insert(counter.index(), i64::try_from(round)?);
                    steps(kernels, body, memory, counters)?;
                }
            }
        }
    }
    Ok(())
}

fn value_of(counters: &BTreeMap<usize, i64>, var: VarId) -> Result<i64> {
    counters.get(&var.index()).copied().with_context(|| format!("{var} has no value"))
}
