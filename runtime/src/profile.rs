//! How long each step of a run took.

use std::time::Duration;

use crate::Model;

/// Times of one run, step by step. Made before the run, so that the run allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// One entry per step of [`Model::variant`], in order.
    pub steps: Vec<StepProfile>,
    /// From the first step's start to the last one's end.
    pub total: Duration,
}

/// One step of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepProfile {
    /// From hand-over to the last thread's end. Reading the clock adds some 30 ns.
    pub time: Duration,
    /// Threads that worked on it.
    pub threads: usize,
}

impl Profile {
    /// An empty profile for runs of `model`.
    pub fn new(model: &Model) -> Self {
        let steps = vec![StepProfile::default(); model.variant().steps.len()];
        Self { steps, total: Duration::ZERO }
    }
}
