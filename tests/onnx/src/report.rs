//! What came of the cases.

use crate::Case;
use std::collections::BTreeMap;
use std::fmt;

/// What came of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The outputs are as expected.
    Passed {
        /// Inputs that had to be stored in the model.
        fixed: usize,
    },
    /// The code was made, and there is nothing to run it on.
    Compiled,
    /// They are not, or there are none.
    Failed(String),
    /// The case has values of a kind that Hone does not have.
    NotApplicable(String),
}

/// What came of many.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    fixed: usize,
    compiled: usize,
    not_applicable: BTreeMap<String, usize>,
    ignored: BTreeMap<&'static str, usize>,
    /// Cases that failed and are not expected to, with why.
    pub failed: Vec<(String, String)>,
    /// Cases that passed and are expected to fail.
    pub stale: Vec<String>,
}

impl Report {
    /// Adds a case.
    pub fn add(&mut self, case: &Case, outcome: Outcome, expected: Option<&'static str>) {
        match (outcome, expected) {
            (Outcome::NotApplicable(reason), _) => {
                let kind = reason.rsplit(": ").next().unwrap_or_default();
                let kind = kind.split(';').next().unwrap_or_default().to_string();
                *self.not_applicable.entry(kind).or_default() += 1;
            }
            (Outcome::Passed { fixed }, None) => {
                self.passed += 1;
                self.fixed += usize::from(fixed > 0);
            }
            (Outcome::Compiled, None) => self.compiled += 1,
            // Whether it fails as it should shows only where it runs.
            (Outcome::Compiled, Some(reason)) => *self.ignored.entry(reason).or_default() += 1,
            (Outcome::Passed { .. }, Some(_)) => self.stale.push(case.name.clone()),
            (Outcome::Failed(_), Some(reason)) => *self.ignored.entry(reason).or_default() += 1,
            (Outcome::Failed(reason), None) => self.failed.push((case.name.clone(), reason)),
        }
    }

    /// Adds what came of other cases.
    pub fn merge(&mut self, other: Report) {
        self.passed += other.passed;
        self.fixed += other.fixed;
        self.compiled += other.compiled;
        for (reason, count) in other.not_applicable {
            *self.not_applicable.entry(reason).or_default() += count;
        }
        for (reason, count) in other.ignored {
            *self.ignored.entry(reason).or_default() += count;
        }
        self.failed.extend(other.failed);
        self.stale.extend(other.stale);
    }

    /// Number of cases that passed.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Number of cases that were compiled and could not be run.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// Whether every case came out as expected.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.stale.is_empty() && self.passed + self.compiled > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, reason) in &self.failed {
            writeln!(formatter, "failed: {name}: {reason}")?;
        }
        for name in &self.stale {
            writeln!(formatter, "passes, but is in ignored.txt: {name}")?;
        }
        for (reason, count) in &self.ignored {
            writeln!(formatter, "ignored: {count} cases: {reason}")?;
        }
        for (reason, count) in &self.not_applicable {
            writeln!(formatter, "not applicable: {count} cases: {reason}")?;
        }
        let ignored: usize = self.ignored.values().sum();
        let not_applicable: usize = self.not_applicable.values().sum();
        if self.compiled > 0 {
            write!(formatter, "{} compiled and not run, ", self.compiled)?;
        }
        write!(
            formatter,
            "{} passed ({} with inputs stored in the model), {} failed, {ignored} ignored, {} stale, \
             {not_applicable} not applicable",
            self.passed,
            self.fixed,
            self.failed.len(),
            self.stale.len(),
        )
    }
}
