//! How long each step of a run took.

use std::time::Duration;

use hone_artifact::Part;

use crate::Model;

/// Times of one run, step by step. Made before the run, so that the run allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// One entry per step of [`Model::variant`], in order.
    pub steps: Vec<StepProfile>,
    /// One entry per function that the runtime computes itself, in the order of `hone_artifact::Part::hosts`.
    pub hosts: Vec<StepProfile>,
    /// From the first step's start to the last one's end.
    pub total: Duration,
    /// Parts that each step is timed in; 0 where steps run as in any other run.
    parts: usize,
    /// Times of the parts, step by step.
    part_times: Vec<Duration>,
}

/// One step of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepProfile {
    /// From hand-over to the last thread's end, all times that the step ran in this run together. Reading the
    /// clock adds some 30 ns to each.
    pub time: Duration,
    /// Threads that worked on it, at most.
    pub threads: usize,
    /// How many times it ran: once, but for steps of branches and loops.
    pub runs: u64,
}

impl Profile {
    /// An empty profile for runs of `model`.
    pub fn new(model: &Model) -> Self {
        let steps = vec![StepProfile::default(); model.variant().steps.len()];
        let hosts = vec![StepProfile::default(); Part::hosts(&model.variant().program).len()];
        Self { steps, hosts, total: Duration::ZERO, parts: 0, part_times: Vec::new() }
    }

    /// An empty profile for runs of `model` on the caller's thread alone, each step in `parts` kernel calls
    /// one after another: how its time is spread over its tasks. Part `i` of a step of `n` tasks has the
    /// tasks `n * i / parts` to `n * (i + 1) / parts`, rounded down; reading the clock adds some 30 ns to each.
    pub fn in_parts(model: &Model, parts: usize) -> Self {
        let part_times = vec![Duration::ZERO; parts * model.variant().steps.len()];
        Self { parts, part_times, ..Self::new(model) }
    }

    /// Forgets the times of the last run.
    pub(crate) fn clear(&mut self) {
        self.steps.fill(StepProfile::default());
        self.hosts.fill(StepProfile::default());
        self.part_times.fill(Duration::ZERO);
    }

    /// Times of a step's parts, in order; empty where the profile is not in parts.
    pub fn parts(&self, step: usize) -> &[Duration] {
        let begin = step.saturating_mul(self.parts);
        self.part_times.get(begin..begin.saturating_add(self.parts)).unwrap_or_default()
    }

    /// The same, to be written by a run.
    pub(crate) fn parts_mut(&mut self, step: usize) -> &mut [Duration] {
        let begin = step.saturating_mul(self.parts);
        self.part_times.get_mut(begin..begin.saturating_add(self.parts)).unwrap_or_default()
    }
}
