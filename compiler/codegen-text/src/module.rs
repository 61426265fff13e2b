//! What comes out: the text, and how a host runs it.

use crate::Dialect;
use hone_tensor::{BufferId, VarId};

/// A program as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The text of all kernels, without what has to stand in front of it ([`source`]).
    pub text: String,
    /// What the host runs, in order.
    pub steps: Vec<Step>,
}

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
    /// Its name in the text.
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

/// The whole text of several modules, whose kernels have different names.
pub fn source(dialect: &dyn Dialect, modules: &[&Module]) -> String {
    let text: String = modules.iter().map(|module| module.text.as_str()).collect();
    format!("{}{text}", dialect.prelude(&text))
}

impl Module {
    /// Every kernel, in the order in which they first run.
    pub fn kernels(&self) -> Vec<&Kernel> {
        fn collect<'a>(steps: &'a [Step], kernels: &mut Vec<&'a Kernel>) {
            for step in steps {
                match step {
                    Step::Launch(kernel) => kernels.push(kernel),
                    Step::Repeat { body, .. } => collect(body, kernels),
                }
            }
        }
        let mut kernels = Vec::new();
        collect(&self.steps, &mut kernels);
        kernels
    }
}
