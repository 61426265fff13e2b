//! How a search is done.

use std::time::Duration;

/// Widest confidence interval of a round's candidates, as a share, at the median.
pub const NOISE: f64 = 0.15;

/// How to search.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most trials: of this call, or of all that the records hold where `whole` is set.
    pub trials: Option<usize>,
    /// Longest time of searching.
    pub budget: Option<Duration>,
    /// Time that earlier calls of the same run searched for; beside the budget it says what share is used up.
    pub earlier: Duration,
    /// Nanoseconds of a run at which the search ends.
    pub goal: Option<f64>,
    /// Trials in a row, those of earlier calls included, that may bring nothing.
    pub patience: Option<usize>,
    /// Threads; 0 for all.
    pub threads: usize,
    /// Where random numbers start.
    pub seed: u64,
    /// Name of the strategy.
    pub strategy: String,
    /// Name of the cost model.
    pub cost_model: String,
    /// Seconds of measuring for each batch of candidates.
    pub seconds: f64,
    /// Longest time that a candidate may run; what the measuring process allows where it is not given.
    pub timeout: Option<Duration>,
    /// Widest confidence interval of a round's candidates, as a share, at the median; a noisier round is measured
    /// once more, for longer.
    pub noise: f64,
    /// Whether trials of earlier calls and of other models are used.
    pub warm: bool,
    /// Whether this call is a part of a run that the records hold: then their trials count, and in the end the network
    /// is compared with its untuned form.
    pub whole: bool,
}
