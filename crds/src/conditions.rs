//! The conditions that every kind may carry, and how one is set.
//!
//! `Ready`, `Reconciling` and `Stalled` follow kstatus; `Finished` exists because
//! `kubectl wait` can only ask for "and".

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The result can be used.
pub const READY: &str = "Ready";
/// Work is under way; kstatus reads this as "in progress".
pub const RECONCILING: &str = "Reconciling";
/// No further progress without a change by a person; kstatus reads this as "failed".
pub const STALLED: &str = "Stalled";
/// Nothing more will be done for this generation, whether it went well or not.
pub const FINISHED: &str = "Finished";
/// Every target has its artifact, verified and within its goals.
pub const SUCCEEDED: &str = "Succeeded";
/// Tuning records decided schedules of every target.
pub const TUNED: &str = "Tuned";
/// Every target's answers were compared with the reference and are within tolerance.
pub const VERIFIED: &str = "Verified";

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `"True"`.
    True,
    /// `"False"`.
    False,
    /// `"Unknown"`.
    Unknown,
}

impl State {
    /// The text in `status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for State {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// Sets the condition `kind`, keeping `lastTransitionTime` where the state did not change.
///
/// Messages are cut at 1024 bytes, because `status` must stay small.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    state: State,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) {
    let fresh = Condition {
        type_: kind.to_owned(),
        status: state.as_str().to_owned(),
        reason: reason.to_owned(),
        message: bounded(message, 1024).to_owned(),
        observed_generation: generation,
        last_transition_time: now.clone(),
    };
    match conditions.iter_mut().find(|old| old.type_ == kind) {
        Some(old) if old.status == fresh.status => {
            let last_transition_time = old.last_transition_time.clone();
            *old = Condition { last_transition_time, ..fresh };
        }
        Some(old) => *old = fresh,
        None => conditions.push(fresh),
    }
}

/// Whether the condition `kind` is there and `"True"`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// The longest prefix of `text` of at most `limit` bytes that ends at a character.
pub fn bounded(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn transition_time_moves_only_with_the_state() {
        let (early, late) =
            (Time(Timestamp::from_second(10).unwrap()), Time(Timestamp::from_second(20).unwrap()));
        let mut conditions = Vec::new();
        set(&mut conditions, READY, State::False, "A", "a", None, &early);
        set(&mut conditions, READY, State::False, "B", "b", None, &late);
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].reason, "B");
        assert_eq!(conditions[0].last_transition_time, early);
        set(&mut conditions, READY, State::True, "C", "", None, &late);
        assert_eq!(conditions[0].last_transition_time, late);
        assert!(is_true(&conditions, READY));
    }

    #[test]
    fn cuts_at_a_character() {
        assert_eq!(bounded("aé", 2), "a");
        assert_eq!(bounded("aé", 3), "aé");
    }
}
