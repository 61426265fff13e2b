//! Statements that run in waves: steps in order, of which each is one or several stages of independent parts. A part may
//! read what any part of an earlier stage or step has stored, so threads may divide the parts of each stage where all
//! wait for the last of them before the next stage begins.
//!
//! ```text
//! for step                         (in order)
//!   for part      parallel         (a stage; its parts are a wave)
//!   for part      parallel         (the next one)
//! ```

use crate::{Loop, LoopKind, Statement};

/// Numbers of a statement that runs in waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waves {
    /// Iterations of the outermost loop.
    pub steps: u64,
    /// Parallel loops in each of them.
    pub stages: u64,
    /// Iterations of each of those.
    pub parts: u64,
}

impl Waves {
    /// The waves of a top-level statement: a serial loop around parallel loops of the same constant extent, and nothing
    /// else. `None` of any other.
    pub fn of(statement: &Statement) -> Option<Self> {
        let Statement::Loop(outer) = statement else { return None };
        let stages = Self::stages(outer)?;
        let extent = |own: &Loop| own.extent.as_integer().and_then(|own| u64::try_from(own).ok());
        let parts = extent(stages.first()?)?;
        let alike = stages.iter().all(|stage| extent(stage) == Some(parts));
        let steps = extent(outer)?;
        (alike && steps > 0 && parts > 0).then_some(Self {
            steps,
            stages: stages.len() as u64,
            parts,
        })
    }

    /// The parallel loops in a serial one that has nothing else in it.
    fn stages(outer: &Loop) -> Option<Vec<&Loop>> {
        let loops = outer.body.iter().map(|inner| match inner {
            Statement::Loop(own) if own.kind == LoopKind::Parallel => Some(&**own),
            _ => None,
        });
        if outer.kind == LoopKind::Serial { loops.collect() } else { None }
    }

    /// Number of waves.
    pub fn count(&self) -> u64 {
        self.steps.saturating_mul(self.stages)
    }
}
