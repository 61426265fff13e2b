//! What comes out: the text, and how a host runs it.

use crate::Dialect;
use hone_tensor::{Kernel, Step};

/// A program as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The text of all kernels, without what has to stand in front of it ([`source`]).
    pub text: String,
    /// What the host runs, in order.
    pub steps: Vec<Step>,
}

/// The whole text of several modules, whose kernels have different names.
pub fn source(dialect: &dyn Dialect, modules: &[&Module]) -> String {
    let text: String = modules.iter().map(|module| module.text.as_str()).collect();
    format!("{}{text}", dialect.prelude(&text))
}

impl Module {
    /// Every kernel, in the order in which they first run.
    pub fn kernels(&self) -> Vec<&Kernel> {
        Step::kernels(&self.steps)
    }
}
