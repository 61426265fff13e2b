//! What a search found, for people and programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::confirm::Verdict;

/// What a search found.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The programs, those that take longest first.
    pub tasks: Vec<TaskOutcome>,
    /// Candidates measured by this call.
    pub trials: usize,
    /// Those that failed, by class.
    pub failed: BTreeMap<String, usize>,
    /// Rounds that were too noisy and were measured once more.
    pub noisy: usize,
    /// Trials taken over from records.
    pub resumed: usize,
    /// Trials of the model's programs in the records, on whatever machine: those with a time, and those without.
    #[serde(skip)]
    pub logged: (usize, usize),
    /// Trials since one that shortened the run, those of earlier calls included.
    #[serde(skip)]
    pub in_vain: usize,
    /// Seconds of the search without its confirmation.
    pub seconds: f64,
    /// Candidates that each device measured, by its name; `here` is this machine.
    pub devices: BTreeMap<String, usize>,
    /// Seconds in which code of candidates was made on this machine.
    pub building: f64,
    /// Seconds in which they were executed on it.
    pub executing: f64,
    /// Seconds in which candidates were proposed and the model learned.
    pub proposing: f64,
    /// After so many trials, the nanoseconds that a run is expected to take.
    pub curve: Vec<(usize, f64)>,
    /// The network with the schedules so far and with the new ones; `None` where no candidate came so far. The
    /// last of the rounds.
    pub verdict: Option<Verdict>,
    /// Every comparison in the network.
    pub rounds: Vec<Verdict>,
    /// New schedules that were kept.
    pub winners: usize,
    /// The network with all schedules that are kept, beside the untuned one; only where that was asked for.
    #[serde(skip)]
    pub whole: Option<Verdict>,
    /// Programs of the network that have a schedule of records then.
    #[serde(skip)]
    pub tuned: usize,
    /// Why the search ended.
    pub ended: &'static str,
}

impl Outcome {
    /// A trial was taken up that shortens the run, or does not.
    pub(super) fn note_gain(&mut self, gains: bool) {
        self.in_vain = if gains { 0 } else { self.in_vain + 1 };
    }

    /// What each device measured, in words, where there were several.
    pub fn by_device(&self) -> Option<String> {
        let each = self.devices.iter().map(|(name, count)| format!("{name} {count}"));
        (self.devices.len() > 1).then(|| each.collect::<Vec<_>>().join(", "))
    }
}

/// What was found for one program.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOutcome {
    /// Its nodes.
    pub nodes: String,
    /// Its digest.
    pub program: String,
    /// How often a run computes it.
    pub uses: usize,
    /// Nanoseconds of a run that it takes without tuning.
    pub nanoseconds: f64,
    /// Trials, those of earlier calls too.
    pub trials: usize,
    /// Time of the best candidate over that of the schedule without tuning, measured alone.
    pub best: f64,
    /// Template of the best candidate.
    pub template: String,
    /// Whether the network is faster with it.
    pub won: bool,
}
