//! A program under change, and the record of the changes.

use crate::argument::{Handle, Results};
use crate::error::{Outcome, ScheduleError};
use crate::{Step, Trace};
use hone_tensor::{BlockId, BufferId, Limits, Program, Scope, VarId};

/// A program and the steps that made it.
#[derive(Clone, Debug)]
pub struct Schedule {
    program: Program,
    trace: Trace,
    /// Whether the program is verified after each step.
    verifies_steps: bool,
}

impl Schedule {
    /// A schedule that has changed nothing yet. Builds with debug assertions verify the program after each step.
    pub fn new(program: Program) -> Self {
        Self { program, trace: Trace::default(), verifies_steps: cfg!(debug_assertions) }
    }

    /// The same whose steps are not verified one by one, in no build: for searches, which draw thousands of schedules,
    /// of which those that are built are verified as a whole.
    pub fn without_verifying_steps(self) -> Self {
        Self { verifies_steps: false, ..self }
    }

    /// Takes the steps of a trace on the plain program it was recorded on.
    pub fn replay(program: Program, trace: &Trace) -> Result<Self, ScheduleError> {
        let mut schedule = Self::new(program);
        for (place, entry) in trace.entries.iter().enumerate() {
            let results = schedule.apply(&entry.step)?;
            if results != entry.results {
                let (expected, actual) = (list(&entry.results), list(&results));
                return Err(ScheduleError::Diverged { place, expected, actual });
            }
        }
        Ok(schedule)
    }

    /// The program as it is now.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program as it is now.
    pub fn into_program(self) -> Program {
        self.program
    }

    /// Checks the program as it is now in full, its register buffers too: before code is made of it.
    ///
    /// # Errors
    /// [`ScheduleError::Unsound`] with what the verifier found.
    pub fn verify(&self) -> Result<(), ScheduleError> {
        hone_tensor::verify(&self.program)
            .and_then(|()| hone_tensor::verify_registers(&self.program))
            .map_err(|source| ScheduleError::Unsound(Box::new(source)))
    }

    /// As [`Schedule::verify`], and what launches on a device with the given limits need.
    ///
    /// # Errors
    /// [`ScheduleError::Unsound`] with what the verifier found.
    pub fn verify_for(&self, limits: &Limits) -> Result<(), ScheduleError> {
        self.verify()?;
        hone_tensor::verify_launches(&self.program, limits)
            .map_err(|source| ScheduleError::Unsound(Box::new(source)))
    }

    /// The steps taken.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Takes one step and returns what it made.
    pub fn apply(&mut self, step: &Step) -> Result<Vec<Handle>, ScheduleError> {
        self.change(step.clone(), |program| {
            let handles = step.run(program)?;
            Ok((handles.clone(), handles))
        })
    }

    /// The block of the loop tree called `name`.
    pub fn block(&self, name: &str) -> Result<BlockId, ScheduleError> {
        let blocks = self.program.blocks_in_order();
        let found = blocks.iter().find(|block| self.program.blocks[**block].name == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> =
                blocks.iter().map(|block| self.program.blocks[*block].name.as_str()).collect();
            ScheduleError::NoSuchBlock { name: name.to_string(), known: names.join(", ") }
        })
    }

    /// The buffer a block computes.
    pub fn buffer(&self, block: BlockId) -> BufferId {
        self.program.blocks[block].buffer
    }

    /// The loops around a block, outermost first; empty where it no longer stands in the tree.
    pub fn loops(&self, block: BlockId) -> Vec<VarId> {
        let path = self.program.find_block(block).unwrap_or_default();
        self.program.enclosing(&path).into_iter().map(|own| own.var).collect()
    }

    /// The extent of a loop, where it is a constant.
    pub fn extent(&self, target: VarId) -> Option<usize> {
        let extent = self.program.loop_of(target)?.extent.as_integer()?;
        usize::try_from(extent).ok()
    }

    /// The blocks that compute what a block reads, in order of execution.
    pub fn producers(&self, block: BlockId) -> Vec<BlockId> {
        let own = &self.program.blocks[block];
        let mut blocks = self.program.blocks_in_order();
        blocks.retain(|other| *other != block && own.reads(self.program.blocks[*other].buffer));
        blocks
    }

    /// The blocks that read what a block computes, in order of execution.
    pub fn consumers(&self, block: BlockId) -> Vec<BlockId> {
        let mut readers = self.program.readers(self.program.blocks[block].buffer);
        readers.retain(|reader| *reader != block);
        readers
    }

    /// Splits several loops and puts all outer parts in front of all inner ones; returns the outer
    /// ones and the inner ones. A convenience over [`Schedule::split`] and [`Schedule::reorder`].
    pub fn tile(
        &mut self,
        loops: &[VarId],
        factors: &[usize],
    ) -> Result<(Vec<VarId>, Vec<VarId>), ScheduleError> {
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        for (target, factor) in loops.iter().zip(factors) {
            let parts = self.split(*target, *factor)?;
            outer.push(parts.0);
            inner.push(parts.1);
        }
        self.reorder(&[outer.clone(), inner.clone()].concat())?;
        Ok((outer, inner))
    }

    pub(crate) fn take<T: Results>(
        &mut self,
        step: Step,
        change: impl FnOnce(&mut Program) -> Outcome<T>,
    ) -> Result<T, ScheduleError> {
        self.change(step, |program| {
            let result = change(program)?;
            let handles = result.handles();
            Ok((result, handles))
        })
    }

    /// Works on a copy, so that a refused step leaves nothing behind.
    fn change<T>(
        &mut self,
        step: Step,
        change: impl FnOnce(&mut Program) -> Outcome<(T, Vec<Handle>)>,
    ) -> Result<T, ScheduleError> {
        let mut program = self.program.clone();
        let (result, handles) = change(&mut program).map_err(|refusal| ScheduleError::Refused {
            primitive: step.primitive(),
            object: refusal.object,
            reason: refusal.reason,
        })?;
        if self.verifies_steps {
            hone_tensor::verify(&program).map_err(|source| ScheduleError::Broken {
                step: step.to_string(),
                source: Box::new(source),
            })?;
        }
        self.program = program;
        self.trace.record(step, handles);
        Ok(result)
    }
}

pub(crate) fn list(handles: &[Handle]) -> String {
    let texts: Vec<String> = handles.iter().map(Handle::to_string).collect();
    if texts.is_empty() { "nothing".to_string() } else { texts.join(", ") }
}

/// The scope that a buffer of a loop's body gets by itself.
pub(crate) const PRIVATE: Scope = Scope::Scratch;
