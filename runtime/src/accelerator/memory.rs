//! Where operands lie in a device's memory: the buffers of a session, and the parts of them that kernels get.

use std::collections::HashMap;
use std::sync::Arc;

use hone_artifact::Slot;

use super::DeviceError;
use super::code::Code;
use super::driver::Handle;
use super::objects::Buffer;
use crate::plan::Plan;
use crate::program::Part;

/// Buffers of a session, and the parts of them that kernels get.
pub(super) struct Memory {
    arena: Buffer,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    code: Arc<Code>,
    /// What the handles of the table are.
    _parts: Vec<Buffer>,
}

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Arena,
    Weights,
    Input(usize),
    Output(usize),
}

/// Where an operand lies.
pub(super) struct Entry {
    pub(super) space: Space,
    pub(super) offset: u64,
    /// What a kernel gets, where the operand is an argument of a step.
    pub(super) handle: Handle,
    /// The same of the other buffer of a carried value.
    pub(super) other: Option<(u64, Handle)>,
}

/// The buffer of a slot, and the offset into it.
pub(super) fn location(slot: Slot) -> (Space, u64) {
    match slot {
        Slot::Input { index, offset } => (Space::Input(index as usize), offset),
        Slot::Output { index, offset } => (Space::Output(index as usize), offset),
        Slot::Arena { offset } => (Space::Arena, offset),
        Slot::Weight { offset } => (Space::Weights, offset),
    }
}

impl Memory {
    /// Reserves the buffers, and says where each operand of `plan` lies in them and how many bytes they have.
    ///
    /// # Errors
    /// Too little memory.
    pub(super) fn new(
        plan: &Plan,
        code: &Arc<Code>,
    ) -> Result<(Self, Vec<Entry>, u64), DeviceError> {
        let (variant, context) = (plan.variant(), &code.context);
        // Parts of no bytes at the end of a buffer have a place as well.
        let room = variant.device.as_ref().map_or(0, |device| device.limits.alignment);
        let arena = variant.arena_bytes + room;
        let ports = |output: bool, what| -> Result<Vec<Buffer>, DeviceError> {
            let tensors = plan.tensors(output).iter();
            tensors.map(|tensor| Buffer::new(context, tensor.bytes, what)).collect()
        };
        let mut memory = Self {
            arena: Buffer::new(context, arena, "values between steps")?,
            inputs: ports(false, "an input")?,
            outputs: ports(true, "an output")?,
            code: code.clone(),
            _parts: Vec::new(),
        };
        let (table, parts) = table(plan, &memory)?;
        memory._parts = parts;
        let tensors = plan.tensors(false).iter().chain(plan.tensors(true));
        let bytes = arena + tensors.map(|tensor| tensor.bytes).sum::<u64>();
        Ok((memory, table, bytes))
    }

    pub(super) fn of(&self, space: Space) -> &Buffer {
        match space {
            Space::Arena => &self.arena,
            Space::Weights => &self.code.weights,
            // The manifest was validated: every input and output is there.
            Space::Input(index) => &self.inputs[index],
            Space::Output(index) => &self.outputs[index],
        }
    }
}

/// Makes each part of a buffer once.
#[derive(Default)]
struct Parts {
    known: HashMap<(Space, u64, u64), Handle>,
    made: Vec<Buffer>,
}

impl Parts {
    fn handle(
        &mut self,
        memory: &Memory,
        (space, offset, bytes): (Space, u64, u64),
    ) -> Result<Handle, DeviceError> {
        if matches!(space, Space::Input(_) | Space::Output(_)) {
            return Ok(memory.of(space).handle());
        }
        if let Some(known) = self.known.get(&(space, offset, bytes)) {
            return Ok(*known);
        }
        let part = memory.of(space).part(offset, bytes)?;
        let handle = part.handle();
        self.known.insert((space, offset, bytes), handle);
        self.made.push(part);
        Ok(handle)
    }
}

/// Where each operand lies, with the parts of buffers that arguments of steps are.
fn table(plan: &Plan, memory: &Memory) -> Result<(Vec<Entry>, Vec<Buffer>), DeviceError> {
    let mut parts = Parts::default();
    let steps = plan.variant().steps.iter().flat_map(|step| &step.arguments);
    let bytes: Vec<u64> = steps.map(|argument| argument.bytes).collect();
    let mut apart: HashMap<usize, isize> = HashMap::new();
    exchanges(&plan.program, &mut apart);
    let mut table = Vec::new();
    for (entry, slot) in plan.slots().enumerate() {
        let (space, offset) = location(slot);
        let mut handle = |offset: u64| match bytes.get(entry) {
            Some(bytes) => parts.handle(memory, (space, offset, *bytes)),
            None => Ok(0),
        };
        let first = handle(offset)?;
        let other = apart.get(&entry).map(|apart| offset.wrapping_add_signed(*apart as i64));
        let other = other.map(|offset| Ok((offset, handle(offset)?))).transpose()?;
        table.push(Entry { space, offset, handle: first, other });
    }
    Ok((table, parts.made))
}

/// Of all loops, the entries that lead to the other buffer of a carried value in every second iteration, and how far
/// that is from their own.
fn exchanges(parts: &[Part], found: &mut HashMap<usize, isize>) {
    for part in parts {
        match part {
            Part::Calls(_) | Part::Host(_) => {}
            Part::If { then, otherwise, .. } => {
                exchanges(then, found);
                exchanges(otherwise, found);
            }
            Part::Loop(repeated) => {
                found.extend(repeated.exchanges.iter().copied());
                exchanges(&repeated.body, found);
            }
        }
    }
}
