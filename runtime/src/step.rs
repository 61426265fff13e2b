//! Runs some steps of a loaded model alone, on given contents of their buffers: how each kernel is checked
//! by itself. Code, weights, offsets and threads are those of a whole run.

use std::ffi::c_void;
use std::ops::Range;

use hone_artifact::{Argument, Slot};

use crate::engine::Engine;
use crate::{Model, RunError};

/// What a run of some steps does with one of their arguments.
#[derive(Debug)]
pub enum StepArgument<'a> {
    /// The argument stays as it lies: weights.
    Leave,
    /// These bytes are put there before the steps run.
    Fill(&'a [u8]),
    /// These bytes are put there before the steps run, and replaced by what is there afterwards.
    Exchange(&'a mut [u8]),
}

/// Bytes in front of and behind a buffer that must not change while a step runs.
const GUARD: usize = 1024;
/// What they hold meanwhile.
pub(crate) const GUARD_BYTE: u8 = 0xA5;

impl Model {
    /// Runs the consecutive steps `steps`, which must all have the same arguments, over the arena that a
    /// whole run uses. `arguments` are those of the steps, in order; each `Fill` and `Exchange` has as many
    /// bytes as the step table says.
    ///
    /// # Errors
    /// Steps or arguments that are not those of the model, and then nothing has run; a kernel that
    /// stores outside of its buffers ([`RunError::Stray`]).
    pub fn run_steps(
        &mut self,
        steps: Range<usize>,
        arguments: &mut [StepArgument<'_>],
    ) -> Result<(), RunError> {
        let table = self.arguments_of(steps.clone())?;
        check(&table, arguments)?;
        let mut buffers = Buffers::new(self, &table);
        let (plan, engine) = self.engine();
        let context = match engine {
            Engine::Processor(context) => context,
            Engine::Device(session) => return session.run_steps(plan, steps, &table, arguments),
        };
        let arena = Arena { base: context.arena(), bytes: plan.variant().arena_bytes as usize };
        for (place, content) in table.iter().zip(arguments.iter()) {
            let bytes: &[u8] = match content {
                StepArgument::Leave => continue,
                StepArgument::Fill(bytes) => bytes,
                StepArgument::Exchange(bytes) => bytes,
            };
            buffers.slice(&arena, place).copy_from_slice(bytes);
        }
        let guards = guards(&table, arena.bytes);
        guards.iter().for_each(|guard| arena.slice(guard.clone()).fill(GUARD_BYTE));
        let (inputs, outputs) = buffers.pointers();
        // SAFETY: the buffers have their tensors' sizes, the largest alignment of an element, and outlive
        // the call; the steps touch no input or output but those among their arguments.
        unsafe { context.run_calls(plan, steps.clone(), &inputs, &outputs) };
        for (place, content) in table.iter().zip(arguments) {
            if let StepArgument::Exchange(bytes) = content {
                bytes.copy_from_slice(buffers.slice(&arena, place));
            }
        }
        let kept = |guard: &Range<usize>| {
            arena.slice(guard.clone()).iter().all(|byte| *byte == GUARD_BYTE)
        };
        match guards.iter().all(kept) {
            true => Ok(()),
            false => Err(RunError::Stray { step: steps.start }),
        }
    }

    /// The arguments that all of `steps` have in common.
    fn arguments_of(&self, steps: Range<usize>) -> Result<Vec<Argument>, RunError> {
        let known = self.variant().steps.len();
        let refused = || RunError::Steps { first: steps.start, end: steps.end, known };
        let chosen = self.variant().steps.get(steps.clone()).ok_or_else(refused)?;
        let first = chosen.first().ok_or_else(refused)?;
        match chosen.iter().all(|step| step.arguments == first.arguments) {
            true => Ok(first.arguments.clone()),
            false => Err(refused()),
        }
    }
}

fn check(table: &[Argument], arguments: &[StepArgument<'_>]) -> Result<(), RunError> {
    let (expected, found) = (table.len(), arguments.len());
    if expected != found {
        return Err(RunError::Count { role: "step argument", expected, found });
    }
    for (number, (place, content)) in table.iter().zip(arguments).enumerate() {
        let found = match content {
            StepArgument::Leave => continue,
            StepArgument::Fill(bytes) => bytes.len() as u64,
            StepArgument::Exchange(bytes) => bytes.len() as u64,
        };
        let writable = !matches!(place.slot, Slot::Weight { .. });
        if found != place.bytes || !writable {
            let expected = if writable { place.bytes } else { 0 };
            let name = format!("argument {number}");
            return Err(RunError::Size { role: "step", name, expected, found });
        }
    }
    Ok(())
}

/// The model's arena.
struct Arena {
    base: *mut u8,
    bytes: usize,
}

impl Arena {
    /// Part of it. No two of these slices live at the same time.
    #[allow(clippy::mut_from_ref)]
    fn slice(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes, "the manifest was validated");
        // SAFETY: the range is in the arena, which the model that is borrowed for the whole run holds,
        // no kernel runs while a slice is in use, and no two slices are.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}

/// Memory in the place of the caller's inputs and outputs, for those that the steps touch.
struct Buffers {
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
}

impl Buffers {
    fn new(model: &Model, table: &[Argument]) -> Self {
        let words = |bytes: u64| vec![0u64; bytes.div_ceil(8) as usize];
        let mut inputs = vec![Vec::new(); model.inputs().len()];
        let mut outputs = vec![Vec::new(); model.outputs().len()];
        for argument in table {
            match argument.slot {
                Slot::Input { index, .. } => {
                    inputs[index as usize] = words(model.inputs()[index as usize].bytes);
                }
                Slot::Output { index, .. } => {
                    outputs[index as usize] = words(model.outputs()[index as usize].bytes);
                }
                Slot::Arena { .. } | Slot::Weight { .. } => {}
            }
        }
        Self { inputs, outputs }
    }

    fn slice<'a>(&'a mut self, arena: &'a Arena, argument: &Argument) -> &'a mut [u8] {
        let length = argument.bytes as usize;
        match argument.slot {
            Slot::Input { index, offset } => {
                part(&mut self.inputs[index as usize], offset as usize, length)
            }
            Slot::Output { index, offset } => {
                part(&mut self.outputs[index as usize], offset as usize, length)
            }
            Slot::Arena { offset } => arena.slice(offset as usize..offset as usize + length),
            Slot::Weight { .. } => &mut [],
        }
    }

    fn pointers(&mut self) -> (Vec<*const c_void>, Vec<*mut c_void>) {
        let inputs = self.inputs.iter().map(|words| words.as_ptr().cast()).collect();
        let outputs = self.outputs.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        (inputs, outputs)
    }
}

fn part(words: &mut [u64], offset: usize, length: usize) -> &mut [u8] {
    assert!(offset + length <= size_of_val(words), "the manifest was validated");
    // SAFETY: the range lies in `words`, and any bytes are words.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>().add(offset), length) }
}

/// Parts of the arena beside the buffers of a step that belong to none of them.
pub(crate) fn guards(table: &[Argument], arena: usize) -> Vec<Range<usize>> {
    let mut used: Vec<Range<usize>> = table
        .iter()
        .filter_map(|argument| match argument.slot {
            Slot::Arena { offset } => Some(offset as usize..(offset + argument.bytes) as usize),
            _ => None,
        })
        .collect();
    used.sort_by_key(|range| range.start);
    let mut guards = Vec::new();
    let mut end = 0;
    for range in &used {
        let (from, to) = (end, range.start);
        if from + 2 * GUARD < to {
            guards.push(if from == 0 { to - GUARD..to } else { from..from + GUARD });
            if from > 0 {
                guards.push(to - GUARD..to);
            }
        } else if from < to {
            guards.push(from..to);
        }
        end = end.max(range.end);
    }
    if !used.is_empty() && end < arena {
        guards.push(end..arena.min(end + GUARD));
    }
    guards
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_artifact::Access;

    #[test]
    fn guards_lie_beside_buffers_and_in_none() {
        let at =
            |offset, bytes| Argument { slot: Slot::Arena { offset }, bytes, access: Access::Write };
        let table = [at(4096, 100), at(64, 64), at(0, 10)];
        assert_eq!(guards(&table, 10_000), [10..64, 128..1152, 3072..4096, 4196..5220]);
        assert_eq!(guards(&table, 4196), [10..64, 128..1152, 3072..4096]);
        assert_eq!(guards(&[at(8192, 8)], 9000), [7168..8192, 8200..9000]);
        assert!(guards(&[], 4096).is_empty());
    }
}
