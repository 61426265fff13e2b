//! How a host runs a bound program: its kernels with their arguments and sizes, and the order of launches.
//!
//! Every generator of code for devices asks for these steps and makes code of one launch at a time, so that
//! names, arguments and order are the same in every language.

use crate::{BufferId, Launch, Level, Loop, Program, Scope, Statement, VarId};

/// A part of a program's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A launch, complete before the next step.
    Launch(Kernel),
    /// Steps that are run again for each value of a counter.
    Repeat {
        /// The counter.
        counter: VarId,
        /// How often: it counts from 0.
        times: usize,
        /// What is repeated.
        body: Vec<Step>,
    },
}

/// A kernel, and how it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the code.
    pub name: String,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
    /// Work-groups along `x`, `y` and `z`.
    pub groups: [usize; 3],
    /// Work-items of a work-group along `x`, `y` and `z`.
    pub items: [usize; 3],
    /// Bytes of memory that the work-items of a work-group share.
    pub shared_bytes: usize,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer in global memory.
    Buffer(BufferId),
    /// The value of a counter, in 64 bits.
    Counter(VarId),
}

impl Step {
    /// Every kernel of these steps, in the order in which they first run.
    pub fn kernels(steps: &[Step]) -> Vec<&Kernel> {
        let mut kernels = Vec::new();
        for step in steps {
            match step {
                Step::Launch(kernel) => kernels.push(kernel),
                Step::Repeat { body, .. } => kernels.extend(Self::kernels(body)),
            }
        }
        kernels
    }
}

/// Makes code of one launch.
type Emit<'e, E> = dyn FnMut(&Launch<'_>, &Kernel) -> Result<(), E> + 'e;

impl Program {
    /// The steps by which a host runs the program. `emit` is called for each launch in order and makes the code
    /// of its kernel; kernels are called `stem_0`, `stem_1` and so on. A launch of no blocks is left out.
    ///
    /// # Errors
    /// The first error of `emit`.
    pub fn launch_steps<E>(&self, stem: &str, emit: &mut Emit<'_, E>) -> Result<Vec<Step>, E> {
        let mut walk = Walk { program: self, stem, kernels: 0, emit };
        walk.steps(&self.body, &mut vec![])
    }
}

struct Walk<'a, 'e, E> {
    program: &'a Program,
    stem: &'a str,
    kernels: usize,
    emit: &'a mut Emit<'e, E>,
}

impl<'a, E> Walk<'a, '_, E> {
    fn steps(
        &mut self,
        body: &'a [Statement],
        repeated: &mut Vec<&'a Loop>,
    ) -> Result<Vec<Step>, E> {
        let mut steps = Vec::new();
        for statement in body {
            match statement {
                Statement::Loop(loop_) if loop_.is_bound_to(Level::Grid) => {
                    let times =
                        loop_.extent.as_integer().and_then(|extent| usize::try_from(extent).ok());
                    repeated.push(loop_);
                    let body = self.steps(&loop_.body, repeated)?;
                    repeated.pop();
                    let (counter, times) = (loop_.var, times.unwrap_or(0));
                    steps.push(Step::Repeat { counter, times, body });
                }
                Statement::Sync(_) => {}
                _ => {
                    let launch = Launch::of(statement, repeated.clone());
                    if launch.grid().iter().all(|extent| *extent > 0) {
                        let kernel = self.kernel(&launch);
                        (self.emit)(&launch, &kernel)?;
                        steps.push(Step::Launch(kernel));
                    }
                }
            }
        }
        Ok(steps)
    }

    fn kernel(&mut self, launch: &Launch<'_>) -> Kernel {
        let name = format!("{}_{}", self.stem, self.kernels);
        self.kernels += 1;
        let program = self.program;
        let buffers = launch.buffers(program);
        let of_scope = |scope| {
            let in_scope = move |buffer: &&BufferId| program.buffers[**buffer].scope == scope;
            buffers.iter().filter(in_scope).copied()
        };
        let shared = of_scope(Scope::Shared).map(|buffer| program.buffers[buffer].bytes());
        let shared_bytes = shared.sum();
        let mut arguments: Vec<Argument> = of_scope(Scope::Global).map(Argument::Buffer).collect();
        arguments.extend(launch.repeated.iter().map(|loop_| Argument::Counter(loop_.var)));
        Kernel { name, arguments, groups: launch.grid(), items: launch.lanes(), shared_bytes }
    }
}

impl Launch<'_> {
    /// Every buffer that the launch reads or writes, in order of their handles.
    pub fn buffers(&self, program: &Program) -> Vec<BufferId> {
        let blocks: Vec<_> = self.body.iter().flat_map(Statement::blocks).collect();
        let uses = |buffer: BufferId| {
            let mut blocks = blocks.iter().map(|block| &program.blocks[*block]);
            blocks.any(|block| block.buffer == buffer || block.reads(buffer))
        };
        program.buffers.ids().filter(|buffer| uses(*buffer)).collect()
    }

    /// Whether the launch writes a buffer.
    pub fn writes(&self, program: &Program, buffer: BufferId) -> bool {
        let mut blocks = self.body.iter().flat_map(Statement::blocks);
        blocks.any(|block| program.blocks[block].buffer == buffer)
    }

    /// Whether lanes run apart, or wait, somewhere in a statement of the launch. What has none of it is run by the
    /// first lane alone.
    pub fn has_lanes(statement: &Statement) -> bool {
        let mut found = false;
        statement.visit(&mut |inner| {
            found |= match inner {
                Statement::Loop(loop_) => loop_.axis().is_some(),
                Statement::Sync(_) => true,
                Statement::Realize(_) => false,
            };
        });
        found
    }
}
