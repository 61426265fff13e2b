//! Holds a result against the goals. Done on every plan, so that a change of a goal needs no new work.

use hone_crds::model_compilation::{Goal, Metric};
use hone_crds::{Phase, TargetStatus};

use crate::children::ended::failure;

/// The status, failed where a goal is missed. The artifact stays.
pub fn judge(goals: &[Goal], status: TargetStatus) -> TargetStatus {
    if status.phase != Phase::Succeeded {
        return status;
    }
    let missed = missed(goals, &status);
    if missed.is_empty() {
        return status;
    }
    TargetStatus {
        phase: Phase::Failed,
        failure: Some(failure("GoalMissed", &missed.join("; "))),
        ..status
    }
}

/// The words for each goal that `status` misses.
pub fn missed(goals: &[Goal], status: &TargetStatus) -> Vec<String> {
    goals.iter().filter_map(|goal| miss(goal, status)).collect()
}

/// The words for a missed goal.
fn miss(goal: &Goal, status: &TargetStatus) -> Option<String> {
    let latency = status.latency.as_ref();
    let (name, value) = match goal.metric {
        Metric::LatencyP50 => ("latency-p50", latency.map(|l| l.p50)),
        Metric::LatencyP90 => ("latency-p90", latency.and_then(|l| l.p90)),
    };
    match value {
        Some(value) if value <= goal.max => None,
        Some(value) => Some(format!("{name} is {value}, the goal is {}", goal.max)),
        None => Some(format!(
            "{name} was not measured, the goal is {}: choose a pool whose devices run the target",
            goal.max
        )),
    }
}
