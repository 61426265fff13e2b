//! Runs a variant's program, the list of [`hone_artifact::Part`]s, with copies where it passes values on.

use crate::error::{EmulatorError, Result};
use crate::images::TOOLS;
use crate::model::Model;
use hone_artifact::{Host, HostValue, Loop, Part, Slot};

impl Model {
    /// Runs the steps of the variant as its program says, or one after another where it has none.
    pub(crate) fn run_program(&mut self) -> Result<()> {
        let variant = &self.manifest.variants[self.variant];
        let steps = Part::Steps { first: 0, count: variant.steps.len() as u32 };
        let program = match variant.program.is_empty() {
            true => vec![steps],
            false => variant.program.clone(),
        };
        self.parts(&program)
    }

    fn parts(&mut self, parts: &[Part]) -> Result<()> {
        for part in parts {
            match part {
                Part::Steps { first, count } => {
                    let first = *first as usize;
                    (first..first + *count as usize).try_for_each(|index| self.call(index))?;
                }
                Part::If(branch) => match self.is_true(branch.condition)? {
                    true => self.parts(&branch.then)?,
                    false => self.parts(&branch.otherwise)?,
                },
                Part::Loop(loop_) => self.repeat(loop_)?,
                Part::Host(host) => self.host(host)?,
            }
        }
        Ok(())
    }

    /// On this machine: no code of the artifact's takes part.
    fn host(&mut self, host: &Host) -> Result<()> {
        let mut contents = Vec::with_capacity(host.inputs.len());
        for input in &host.inputs {
            contents.push(match input {
                None => None,
                Some(input) => {
                    let bytes = input.of.bytes().unwrap_or(0);
                    Some(self.machine.read(self.memory.address(input.slot), bytes)?)
                }
            });
        }
        let inputs: Vec<Option<HostValue<'_>>> = host
            .inputs
            .iter()
            .zip(&contents)
            .map(|(input, bytes)| {
                Some(HostValue { of: &input.as_ref()?.of, bytes: bytes.as_deref()? })
            })
            .collect();
        let results = host.function.compute_with(&inputs, &mut self.texts, &TOOLS);
        let results =
            results.map_err(|reason| EmulatorError::Host { node: host.node.clone(), reason })?;
        for (output, bytes) in host.outputs.iter().zip(results) {
            self.machine.write(self.memory.address(output.slot), &bytes)?;
        }
        Ok(())
    }

    fn repeat(&mut self, loop_: &Loop) -> Result<()> {
        let trips = loop_.trips.map(|slot| self.number(slot)).transpose()?;
        let trips = trips.map(|trips| trips.max(0) as u64);
        let bound = loop_.most.into_iter().chain(trips).min().unwrap_or(u64::MAX);
        let mut goes_on = loop_.condition.map_or(Ok(true), |slot| self.is_true(slot))?;
        for carried in &loop_.carried {
            self.copy(carried.initial, (carried.current, 0), carried.bytes)?;
        }
        let mut count = 0;
        while goes_on && count < bound {
            if loop_.capacity.is_some_and(|capacity| count >= capacity) {
                return Err(EmulatorError::Overrun { node: loop_.node.clone(), capacity: count });
            }
            self.store(loop_.number, count)?;
            self.parts(&loop_.body)?;
            for collected in &loop_.collected {
                let index = if collected.reversed { bound - 1 - count } else { count };
                self.copy(
                    collected.from,
                    (collected.all, index * collected.bytes),
                    collected.bytes,
                )?;
            }
            goes_on = loop_.goes_on.map_or(Ok(true), |slot| self.is_true(slot))?;
            for carried in &loop_.carried {
                self.copy(carried.next, (carried.current, 0), carried.bytes)?;
            }
            count += 1;
        }
        for carried in &loop_.carried {
            self.copy(carried.current, (carried.result, 0), carried.bytes)?;
        }
        for collected in &loop_.collected {
            let rest = loop_.capacity.unwrap_or(count) - count;
            let zeros = vec![0; (rest * collected.bytes) as usize];
            let address = self.memory.address(collected.all) + count * collected.bytes;
            self.machine.write(address, &zeros)?;
        }
        self.store(loop_.count, count)
    }

    fn copy(&mut self, from: Slot, (to, offset): (Slot, u64), bytes: u64) -> Result<()> {
        let (from, to) = (self.memory.address(from), self.memory.address(to) + offset);
        let content = self.machine.read(from, bytes)?;
        self.machine.write(to, &content)
    }

    fn is_true(&mut self, slot: Slot) -> Result<bool> {
        let bytes = self.machine.read(self.memory.address(slot), 1)?;
        Ok(bytes.first().is_some_and(|byte| *byte != 0))
    }

    pub(crate) fn number(&mut self, slot: Slot) -> Result<i64> {
        let bytes = self.machine.read(self.memory.address(slot), 8)?;
        let bytes = <[u8; 8]>::try_from(bytes.as_slice()).unwrap_or_default();
        Ok(i64::from_le_bytes(bytes))
    }

    fn store(&mut self, slot: Slot, number: u64) -> Result<()> {
        let address = self.memory.address(slot);
        self.machine.write(address, &number.to_le_bytes())
    }
}
