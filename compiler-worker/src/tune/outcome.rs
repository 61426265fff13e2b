//! What a search found, for people and programs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::confirm::Verdict;

/// What a search found.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The decisions about the graph, those that take longest first.
    pub decisions: Vec<DecisionOutcome>,
    /// Every comparison of them in the network; the last is of those that were kept, where any was.
    pub decision_rounds: Vec<Verdict>,
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
    /// Nanoseconds that a run is expected to take without tuning.
    #[serde(skip)]
    pub untuned: f64,
    /// After so many trials, the nanoseconds that a run is expected to take.
    pub curve: Vec<(usize, f64)>,
    /// The network with the schedules so far and with the new ones; `None` where no candidate came so far. The
    /// last of the rounds.
    pub verdict: Option<Verdict>,
    /// Every comparison in the network.
    pub rounds: Vec<Verdict>,
    /// New schedules that were kept.
    pub winners: usize,
    /// The programs that they are for.
    #[serde(skip)]
    pub won: BTreeSet<String>,
    /// How often schedules were kept before the end.
    #[serde(skip)]
    pub revisions: usize,
    /// The network with all schedules that are kept so far, beside the untuned one; only where that was asked for.
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

    /// Decisions about the graph that were kept.
    pub fn decided(&self) -> usize {
        self.decisions.iter().filter(|own| own.won.is_some()).count()
    }

    /// Nanoseconds of the network before and after, where something was kept, or tried.
    pub fn before_after(&self) -> Option<(u64, u64)> {
        let decided = self.decision_rounds.last();
        let scheduled = self.verdict.as_ref();
        let kept = |of: Option<&Verdict>, any: bool| of.filter(|_| any).map(|own| own.after);
        let decided_after = kept(decided, self.decided() > 0);
        let before = decided.or(scheduled)?.before;
        let after = kept(scheduled, self.winners > 0).or(decided_after);
        Some((before, after.unwrap_or(before)))
    }

    /// What each device measured, in words, where there were several.
    pub fn by_device(&self) -> Option<String> {
        let each = self.devices.iter().map(|(name, count)| format!("{name} {count}"));
        (self.devices.len() > 1).then(|| each.collect::<Vec<_>>().join(", "))
    }
}

/// What was found for a decision about the graph.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionOutcome {
    /// What is decided.
    pub kind: &'static str,
    /// The structure that it is about.
    pub structure: String,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Nanoseconds of a run that they take with the analytic value; 0 where nothing was measured this time.
    pub nanoseconds: f64,
    /// The value that the analytic model chooses.
    pub analytic: i64,
    /// Time with each other value over that with the analytic one, in a network where all decisions have others.
    pub ratios: BTreeMap<i64, f64>,
    /// The value that won in the network.
    pub won: Option<i64>,
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
