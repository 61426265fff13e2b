//! `hone records accuracy`: how well the cost model judges what it did not learn from.

use std::path::PathBuf;

use hone_artifact::exit_code::Reason;
use hone_search::{Accuracy, Class, FEATURES, FIRST, Features, Kind, MIN_TRIALS, Record, Sample};

use super::common::{print, print_json};
use super::records::records_of;
use crate::failure::{Failure, Result};
use crate::show::{table, units};

/// Judges the trials in some files, each of which is taken for a network of its own.
///
/// # Errors
/// Files that cannot be read, or too few trials.
pub fn run(files: &[PathBuf], json: bool) -> Result<()> {
    let group = |file: &PathBuf| Ok(records_of(file)?.into_iter().filter_map(sample).collect());
    let groups: Vec<Vec<Sample>> = files.iter().map(group).collect::<Result<_>>()?;
    let all = hone_search::judgements(&groups);
    if all.is_empty() {
        let message = format!(
            "no program in the {} files has {MIN_TRIALS} trials that ran and differ: tune with --strategy random first",
            files.len()
        );
        return Err(Failure::new(Reason::InvalidInput, message));
    }
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|one| {
                let Accuracy { tasks, trials, pairwise, peak } = one.accuracy;
                serde_json::json!({
                    "judge": one.judge, "tasks": tasks, "trials": trials, "pairwise": pairwise,
                    "peak": FIRST.iter().zip(peak).map(|(k, peak)| (k.to_string(), peak.into()))
                        .collect::<serde_json::Map<_, _>>(),
                })
            })
            .collect();
        return print_json(&rows);
    }
    let peaks = FIRST.map(|count| format!("peak@{count}"));
    let mut head = vec!["judge", "tasks", "trials", "pairwise"];
    head.extend(peaks.iter().map(String::as_str));
    let mut table = table::table(&head);
    for one in &all {
        let Accuracy { tasks, trials, pairwise, peak } = one.accuracy;
        let mut row = vec![one.judge.to_owned(), tasks.to_string(), trials.to_string()];
        row.extend([pairwise].into_iter().chain(peak).map(units::share));
        table.add_row(row);
    }
    print(&table.to_string())
}

/// What a trial teaches; nothing where it did not run or an earlier version wrote other features.
fn sample(record: Record) -> Option<Sample> {
    let told = record.kind == Kind::Trial
        && record.class == Class::Ok
        && record.features.len() == FEATURES.len();
    let ratio = record.ratio.filter(|_| told)?;
    let features = Features { counts: record.features, nest: record.nest };
    Some(Sample { features, ratio, task: record.program })
}
