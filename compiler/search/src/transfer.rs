//! Where a search begins that knows records of others: the decisions that were fastest there, for programs of other shapes and
//! networks and on other machines and processors as well. They are only candidates: each is measured like any other.
//!
//! A cost model that has learned from such records transfers what it knows of features (`model.rs`); this transfers the decisions
//! themselves, as AutoTVM's and TVM's "TopHub" do for equal programs. A value that the template does not have
//! here becomes the nearest that it has.

use crate::candidate::{Candidate, Space};
use crate::records::{Class, Kind, Record};
use crate::source::Towards;
use std::collections::{BTreeMap, HashSet};

/// Time over that without tuning from which on a record tells nothing.
const WORTH: f64 = 0.99;
/// Other programs whose decisions are tried on a space, those that gained most.
const OTHERS: usize = 64;

/// The records that a search may begin with, looked through once for all of its programs.
#[derive(Debug, Default)]
pub struct Transfer<'a> {
    /// The records that gained, by program, the fastest first.
    by_program: BTreeMap<&'a str, Vec<&'a Record>>,
    /// The fastest of each program, those that gained most first.
    best: Vec<&'a Record>,
}

impl<'a> Transfer<'a> {
    /// Of some records, whatever target and machine they are of.
    pub fn new(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut by_program: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records.into_iter().filter(|record| gained(record)) {
            by_program.entry(&record.program).or_default().push(record);
        }
        for records in by_program.values_mut() {
            records.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        }
        let mut best: Vec<&Record> = by_program.values().map(|records| records[0]).collect();
        best.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        Self { by_program, best }
    }

    /// Up to `count` distinct candidates for a program: by records of the program itself, the fastest first, then by the
    /// fastest of others.
    pub fn candidates(&self, space: &Space, program: &str, count: usize) -> Vec<Candidate> {
        let same_program = self.by_program.get(program).into_iter().flatten();
        let others = self.best.iter().filter(|record| record.program != program).take(OTHERS);
        let fits = |record: &&&Record| space.templates().contains(&record.template.as_str());
        let mut known = HashSet::new();
        let candidates = same_program.chain(others).filter(fits).filter_map(|record| {
            let choices = record.decisions.iter().map(|choice| (choice.0.as_str(), choice.1));
            let mut towards = Towards { wanted: choices.collect() };
            space.candidate(&record.template, &mut towards).ok()
        });
        candidates.filter(|candidate| known.insert(candidate.identity)).take(count).collect()
    }
}

fn ratio(record: &Record) -> f64 {
    record.ratio.unwrap_or(f64::INFINITY)
}

/// Whether a record is of a candidate that was faster than the schedule without tuning.
fn gained(record: &Record) -> bool {
    let is_schedule = matches!(record.kind, Kind::Trial | Kind::Winner);
    is_schedule && record.class == Class::Ok && ratio(record) < WORTH
}
