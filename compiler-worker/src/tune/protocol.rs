//! What the tuner and its measuring process say to one another: JSON, a line each.

use hone_driver::Prescription;
use hone_search::Class;
use serde::{Deserialize, Serialize};

/// What the measuring process is asked, on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase")]
pub enum Ask {
    /// Build, check and time candidates of one program beside the schedule without tuning.
    Trials(Trials),
    /// Time two artifacts in turn, as wholes and step by step.
    Compare(Compare),
    /// Say whether the board answers.
    Reach,
}

/// Candidates of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// The plain program's text form.
    pub program: String,
    /// Its digest, under which the plain program's answers are kept.
    pub digest: String,
    /// The candidates.
    pub candidates: Vec<Prescription>,
    /// Seconds of measuring.
    pub seconds: f64,
    /// Nanoseconds that no machine of the target can be faster than, of each candidate; empty where nobody asks.
    #[serde(skip)]
    pub least: Vec<f64>,
}

/// Two artifacts of one model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compare {
    /// The one that is judged.
    pub ours: std::path::PathBuf,
    /// The one that it is judged against.
    pub theirs: std::path::PathBuf,
    /// Seconds of measuring.
    pub seconds: f64,
}

/// What the measuring process answers, on its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "camelCase")]
pub enum Answer {
    /// Code is made; from here on timeouts count.
    Started,
    /// One for each candidate, in their order.
    Trials {
        /// What became of them.
        trials: Vec<Measured>,
    },
    /// Both artifacts were timed.
    Compared(Compared),
    /// The board answers.
    Reached,
    /// The request could not be done at all.
    Failed {
        /// Why.
        cause: String,
    },
}

/// What became of a candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// How it ended.
    pub class: Class,
    /// Median time in nanoseconds.
    pub nanoseconds: Option<f64>,
    /// Median, over runs, of its time by that of the schedule without tuning, and its 95 % confidence interval.
    pub ratio: Option<(f64, f64, f64)>,
    /// Why it failed.
    pub cause: Option<String>,
}

impl Measured {
    /// A candidate that has no time.
    pub fn failed(class: Class, cause: impl Into<String>) -> Self {
        Self { class, nanoseconds: None, ratio: None, cause: Some(cause.into()) }
    }
}

/// Times of two artifacts whose runs took turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Latencies in nanoseconds of the one that is judged.
    pub ours: Vec<u64>,
    /// Those of the other, run by run.
    pub theirs: Vec<u64>,
    /// The steps of ours.
    pub our_steps: Vec<StepTimes>,
    /// Those of the other.
    pub their_steps: Vec<StepTimes>,
}

/// Times of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepTimes {
    /// Its kernel.
    pub kernel: String,
    /// The nodes that it computes.
    pub nodes: Vec<String>,
    /// Nanoseconds of each run.
    pub times: Vec<u64>,
}
