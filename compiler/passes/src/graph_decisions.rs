//! Decisions of passes that measurements may overrule, such as the algorithm of a convolution.
//!
//! A decision is known by the structure of what it is about (shapes, strides, the target's block), never by names, so
//! that one that was measured in a network holds for an equal part of any other. What was measured goes before the
//! analytic model; a value that is none of the alternatives counts as not measured.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What is decided, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphDecision {
    /// What it is about.
    pub kind: &'static str,
    /// The nodes that it is taken for, by name, in the order of the graph.
    pub nodes: Vec<String>,
    /// The values that it may have.
    pub alternatives: Vec<i64>,
    /// The value that the analytic model chooses.
    pub analytic: i64,
    /// The value that was taken.
    pub taken: i64,
}

/// The algorithm of a convolution of 3 × 3 elements: the side of the tiles that Winograd's filtering computes, or 0 for
/// the direct way.
pub const CONVOLUTION_ALGORITHM: &str = "convolution-algorithm";

/// Every kind of decision.
pub const GRAPH_DECISIONS: &[&str] = &[CONVOLUTION_ALGORITHM];

/// The decisions of a compilation: those that were measured before, and all that passes took.
#[derive(Debug, Default)]
pub struct GraphDecisions {
    measured: BTreeMap<String, i64>,
    taken: Mutex<BTreeMap<String, GraphDecision>>,
}

impl GraphDecisions {
    /// With values that were measured, by the structure that each is about.
    pub fn new(measured: BTreeMap<String, i64>) -> Self {
        Self { measured, taken: Mutex::default() }
    }

    /// The decisions that were taken, by the structure that each is about.
    pub fn into_taken(self) -> BTreeMap<String, GraphDecision> {
        self.taken.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a decision about a node of this structure.
    pub(crate) fn decide(
        &self,
        kind: &'static str,
        (structure, node): (String, &str),
        alternatives: &[i64],
        analytic: i64,
    ) -> i64 {
        let measured = self.measured.get(&structure).copied();
        let value = measured.filter(|value| alternatives.contains(value)).unwrap_or(analytic);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = taken.entry(structure).or_insert_with(|| GraphDecision {
            kind,
            nodes: Vec::new(),
            alternatives: alternatives.to_vec(),
            analytic,
            taken: value,
        });
        decision.nodes.push(node.to_owned());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_goes_before_the_model() {
        let measured = [("one", 4), ("two", 7)].map(|(name, value)| (name.to_owned(), value));
        let decisions = GraphDecisions::new(measured.into());
        let decide = |structure: &str, node| {
            decisions.decide(CONVOLUTION_ALGORITHM, (structure.to_owned(), node), &[0, 2, 4], 2)
        };
        assert_eq!((decide("one", "a"), decide("one", "b")), (4, 4));
        assert_eq!(decide("two", "c"), 2, "7 is no alternative");
        assert_eq!(decide("three", "d"), 2);
        let taken = decisions.into_taken();
        assert_eq!(taken["one"].nodes, ["a", "b"]);
        assert_eq!((taken["one"].analytic, taken["one"].taken), (2, 4));
        assert_eq!(taken.len(), 3);
    }
}
