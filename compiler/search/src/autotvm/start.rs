//! Candidates of our templates that decide as AutoTVM's did, as far as both decide the same.
//!
//! | AutoTVM | here |
//! |---|---|
//! | `tile_ow` (times `tile_oh` for windows of one element), `tile_y` | rows of the register tile |
//! | `tile_oc`, `tile_x` | vectors of the register tile |
//! | `unroll_kw` | columns of the window innermost and unrolled, else the last axis, not unrolled |
//! | depthwise `tile_ow` | vectors of results |
//!
//! `tile_ic` and the outer factors are the layout's and the order of loops outside of the tile, which the analytic model
//! answers here; `tile_k` of products is what vectors hold in one of AutoTVM's templates and unrolled points in the other.

use super::workload::Workload;
use crate::candidate::{Candidate, Space};
use crate::records::{Kind, Record};
use crate::source::Towards;
use std::collections::HashSet;

/// Templates whose decisions are meant where one operand is read along vectors and the other is not.
const TILES: &[&str] = &["contraction", "deep_contraction"];
/// Those where every lane has sums of its own.
const DEPTHWISE: &[&str] = &["lanes"];

/// Up to `count` distinct candidates by what AutoTVM measured of the same computation, the fastest there first; none where no
/// record is of it.
pub fn starts(records: &[Record], space: &Space, count: usize) -> Vec<Candidate> {
    let mut fitting: Vec<(&Record, Workload)> = records
        .iter()
        .filter(|record| record.kind == Kind::Foreign)
        .filter_map(|record| Some((record, record.program.parse::<Workload>().ok()?)))
        .filter(|(_, workload)| workload.matches(space.program()))
        .collect();
    let time = |record: &Record| record.nanoseconds.unwrap_or(f64::INFINITY);
    fitting.sort_by(|a, b| time(a.0).total_cmp(&time(b.0)));
    let mut known = HashSet::new();
    let mut found = Vec::new();
    for (record, workload) in fitting {
        let wanted = wanted(record, &workload, space);
        let templates = if workload.is_depthwise() { DEPTHWISE } else { TILES };
        for template in templates.iter().filter(|name| space.templates().contains(name)) {
            let candidate = space.candidate(template, &mut Towards { wanted: wanted.clone() });
            found.extend(candidate.ok().filter(|candidate| known.insert(candidate.identity)));
        }
        if found.len() >= count {
            break;
        }
    }
    found.truncate(count);
    found
}

/// What our templates' questions would be answered with.
fn wanted(record: &Record, workload: &Workload, space: &Space) -> Vec<(&'static str, i64)> {
    let knob = |name: &str| {
        let choice = record.decisions.iter().find(|choice| choice.0 == name);
        choice.map(|choice| choice.1)
    };
    let lanes = space.lanes().max(1) as i64;
    let vectors = |elements: i64| (elements + lanes - 1) / lanes;
    let mut wanted = Vec::new();
    let Workload::Convolution { window, .. } = workload else {
        wanted.extend(knob("tile_y").map(|rows| ("rows", rows)));
        wanted.extend(knob("tile_x").map(|columns| ("vectors", vectors(columns))));
        return wanted;
    };
    let columns = knob("tile_ow").map(|columns| columns * knob("tile_oh").unwrap_or(1));
    if workload.is_depthwise() {
        wanted.extend(columns.map(|columns| ("vectors", columns)));
        return wanted;
    }
    wanted.extend(columns.map(|columns| ("rows", columns)));
    wanted.extend(knob("tile_oc").map(|channels| ("vectors", vectors(channels))));
    let axis = workload.window_axis(space.program()).filter(|_| window[1] > 1);
    match (knob("unroll_kw"), axis) {
        (Some(1), Some(axis)) => {
            wanted.extend([("innermost sum", axis as i64), ("unrolled points", window[1] as i64)]);
        }
        (Some(0), _) => wanted.push(("unrolled points", 1)),
        _ => {}
    }
    wanted
}
