//! Runs a program's text on host tensors.

use crate::{Global, Statistics, Text, UNWRITTEN, launch};
use anyhow::{Context, Result, ensure};
use hone_tensor::{Argument, Program, Role, Scope, Step};
use hone_types::{Id, Tensor, TensorType};
use std::collections::BTreeMap;

/// Runs the steps of a program on `inputs`, those of its inputs in the order of their numbers; its outputs in the order
/// of theirs. Kernels come from the text, and sizes and arguments of launches from the steps.
///
/// # Errors
/// Inputs that do not fit; what a kernel does that no device would.
pub fn run(
    text: &Text,
    program: &Program,
    steps: &[Step],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>> {
    run_counted(text, program, steps, inputs).map(|(outputs, _)| outputs)
}

/// [`run`], with what all launches took.
///
/// # Errors
/// As [`run`].
pub fn run_counted(
    text: &Text,
    program: &Program,
    steps: &[Step],
    inputs: &[Tensor],
) -> Result<(Vec<Tensor>, Statistics)> {
    let mut given = inputs.iter();
    let mut host = Host {
        text,
        global: Global::default(),
        values: BTreeMap::new(),
        took: Statistics::default(),
    };
    let mut addresses = BTreeMap::new();
    let mut add = |host: &mut Host<'_>, buffer: hone_tensor::BufferId, bytes| {
        let name = format!("'{}' ({buffer})", program.buffers[buffer].name);
        addresses.insert(buffer.index(), host.global.add(name, bytes));
    };
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
        add(&mut host, buffer, bytes);
    }
    for (buffer, entry) in program.buffers.iter() {
        if entry.role == Role::Temporary && entry.scope == Scope::Global {
            add(&mut host, buffer, vec![UNWRITTEN; entry.bytes()]);
        }
    }
    host.steps(steps, &addresses)?;
    let outputs = program.parameters().into_iter();
    let outputs = outputs
        .filter(|buffer| matches!(program.buffers[*buffer].role, Role::Output(_)))
        .map(|buffer| {
            let entry = &program.buffers[buffer];
            let bytes = host.global.bytes(addresses[&buffer.index()]).context("an output")?;
            Ok(Tensor::from_bytes(
                TensorType::new(entry.dtype, entry.shape.clone()),
                bytes.to_vec(),
            )?)
        })
        .collect::<Result<_>>()?;
    Ok((outputs, host.took))
}

struct Host<'a> {
    text: &'a Text,
    global: Global,
    /// Values of counters.
    values: BTreeMap<usize, u64>,
    took: Statistics,
}

impl Host<'_> {
    fn steps(&mut self, steps: &[Step], addresses: &BTreeMap<usize, u64>) -> Result<()> {
        for step in steps {
            match step {
                Step::Launch(kernel) => {
                    let value = |argument: &Argument| match argument {
                        Argument::Buffer(buffer) => addresses.get(&buffer.index()).copied(),
                        Argument::Counter(var) => self.values.get(&var.index()).copied(),
                    };
                    let arguments: Option<Vec<u64>> = kernel.arguments.iter().map(value).collect();
                    let arguments = arguments.context("an argument has no value")?;
                    let entry = self.text.kernels.get(&kernel.name);
                    let entry = entry.with_context(|| format!("no kernel '{}'", kernel.name))?;
                    let (groups, items) = (kernel.groups, kernel.items);
                    let requested = kernel.shared_bytes.saturating_sub(entry.shared);
                    let (global, sizes) = (&mut self.global, [groups, items]);
                    let took = launch(entry, global, &arguments, sizes, requested)?;
                    self.took.instructions += took.instructions;
                    self.took.conflicts += took.conflicts;
                }
                Step::Repeat { counter, times, body } => {
                    for round in 0..*times {
                        self.values.insert(counter.index(), round as u64);
                        self.steps(body, addresses)?;
                    }
                }
            }
        }
        Ok(())
    }
}
