//! Single steps on a device, on given contents of their buffers: as [`crate::Model::run_steps`] for a processor.

use std::ops::Range;

use hone_artifact::Argument;

use super::memory::{Space, location};
use super::session::Session;
use crate::plan::Plan;
use crate::step::{GUARD_BYTE, StepArgument, guards};
use crate::{RunError, profile::Profile};

impl Session {
    /// Runs consecutive steps that have `table` as their arguments, filled with `arguments`, which fit.
    pub(crate) fn run_steps(
        &mut self,
        plan: &Plan,
        steps: Range<usize>,
        table: &[Argument],
        arguments: &mut [StepArgument<'_>],
    ) -> Result<(), RunError> {
        let guards = guards(table, plan.variant().arena_bytes as usize);
        self.guarded(|session| {
            for (argument, content) in table.iter().zip(arguments.iter()) {
                let bytes: &[u8] = match content {
                    StepArgument::Leave => continue,
                    StepArgument::Fill(bytes) => bytes,
                    StepArgument::Exchange(bytes) => bytes,
                };
                session.write(location(argument.slot), bytes)?;
            }
            for guard in &guards {
                let at = (Space::Arena, guard.start as u64);
                session.fill(at, &[GUARD_BYTE], guard.len() as u64)?;
            }
            session.launches(plan, steps.clone(), &mut None::<&mut Profile>)?;
            for (argument, content) in table.iter().zip(arguments) {
                if let StepArgument::Exchange(bytes) = content {
                    session.read(location(argument.slot), bytes)?;
                }
            }
            for guard in &guards {
                let mut found = vec![0; guard.len()];
                session.read((Space::Arena, guard.start as u64), &mut found)?;
                if found.iter().any(|byte| *byte != GUARD_BYTE) {
                    return Err(RunError::Stray { step: steps.start });
                }
            }
            Ok(())
        })
    }
}
