//! Results as tables.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use hone_artifact::report::SizesReport;

use super::units;
use crate::verify::KernelCheck;
use crate::work::{Details, Outcome, StepDetail};

/// An empty table with a head; all columns but the first are to the right.
pub fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    let line = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(line));
    table.set_header(head.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// One line a target: before, after, speed-up, share of the peak, error, size.
pub fn results(outcomes: &[Outcome]) -> String {
    let mut table = table(&[
        "target",
        "naive",
        "hone",
        "95 % sure within",
        "speed-up",
        "of FMA peak",
        "max abs error",
        "max rel error",
        "artifact",
        "cache",
    ]);
    for outcome in outcomes {
        table.add_row(row(outcome));
    }
    table.to_string()
}

const NONE: &str = "–";

fn row(Outcome { report, details, .. }: &Outcome) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let latency = report.latency.as_ref();
    let naive = latency.and_then(|latency| latency.untuned);
    let interval = latency
        .and_then(|l| Some(format!("{}–{}", units::time(l.ci_low?), units::time(l.ci_high?))));
    let gain = latency.and_then(|l| Some(l.untuned? as f64 / l.p50 as f64));
    let correctness = report.correctness.as_ref();
    vec![
        report.target.clone(),
        or_none(naive.map(units::time)),
        or_none(latency.map(|latency| units::time(latency.p50))),
        or_none(interval),
        or_none(gain.map(|gain| format!("{}×", units::digits(gain)))),
        or_none(latency.and_then(|l| details.share_of_peak(l.p50)).map(units::share)),
        or_none(correctness.map(|c| units::error(c.max_abs))),
        or_none(correctness.map(|c| units::error(c.max_rel))),
        or_none(report.artifact.as_ref().map(|artifact| units::bytes(artifact.size_bytes))),
        if report.cache_hit { "Hit" } else { "Miss" }.to_owned(),
    ]
}

/// One line for each of the sizes of an artifact; nothing where it is for one.
pub fn sizes(sizes: &[SizesReport]) -> Option<Table> {
    let mut table = table(&["sizes", "naive", "hone", "95 % sure within"]);
    for SizesReport { sizes, latency } in sizes {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let latency = latency.as_ref();
        let interval = latency
            .and_then(|l| Some(format!("{}–{}", units::time(l.ci_low?), units::time(l.ci_high?))));
        table.add_row(vec![
            sizes.clone(),
            or_none(latency.and_then(|latency| latency.untuned).map(units::time)),
            or_none(latency.map(|latency| units::time(latency.p50))),
            or_none(interval),
        ]);
    }
    (!sizes.is_empty()).then_some(table)
}

/// One line a step, slowest first, with what bounds it.
pub fn steps(details: &Details) -> String {
    let mut table = table(&[
        "nodes",
        "time",
        "share",
        "work",
        "rate",
        "traffic",
        "bandwidth",
        "of roofline",
        "bound by",
    ]);
    let total: u64 = details.steps.iter().map(|step| step.nanoseconds).sum();
    let mut steps: Vec<&StepDetail> = details.steps.iter().collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.nanoseconds));
    for step in steps {
        let seconds = step.nanoseconds.max(1) as f64 * 1e-9;
        let roofline = step.roofline(details.peaks.as_ref());
        table.add_row(vec![
            short(&step.nodes),
            units::time(step.nanoseconds),
            units::share(step.nanoseconds as f64 / total.max(1) as f64),
            units::digits(step.flops as f64 / 1e6) + " MFLOP",
            units::rate(step.flops as f64 / seconds, "FLOP"),
            units::bytes(step.bytes),
            units::rate(step.bytes as f64 / seconds, "B"),
            roofline.as_ref().map_or(NONE.into(), |r| units::share(r.seconds / seconds)),
            roofline.as_ref().map_or(NONE, |r| r.bound_by).to_owned(),
        ]);
    }
    table.to_string()
}

/// One line a kernel call, those with the largest errors first, `most` at most.
pub fn kernels(checks: &[KernelCheck], most: usize) -> String {
    let mut table =
        table(&["nodes", "step", "kernel", "elements", "error", "a step off", "verdict"]);
    let mut checks: Vec<&KernelCheck> = checks.iter().collect();
    checks.sort_by(|a, b| b.error.total_cmp(&a.error));
    for check in checks.into_iter().take(most) {
        table.add_row(vec![
            short(&check.nodes),
            check.step.to_string(),
            check.kernel.clone(),
            check.elements.to_string(),
            format!("{} of its bound", units::error(check.error)),
            check.steps_off.to_string(),
            if check.fault.is_some() { "wrong" } else { "right" }.to_owned(),
        ]);
    }
    table.to_string()
}

/// The first node's name and how many follow, short enough for a column.
pub fn short(nodes: &[String]) -> String {
    const WIDTH: usize = 40;
    let first = nodes.first().map_or("", String::as_str);
    let length = first.chars().count();
    // The end of a path says more than its beginning.
    let first = match length > WIDTH {
        true => format!("…{}", first.chars().skip(length + 1 - WIDTH).collect::<String>()),
        false => first.to_owned(),
    };
    match nodes.len() {
        0 | 1 => first,
        more => format!("{first} +{}", more - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_are_counted_and_long_names_cut_in_front() {
        assert_eq!(short(&["a".into(), "b".into(), "c".into()]), "a +2");
        let long = format!("/{}/end", "x".repeat(60));
        assert!(short(&[long]).starts_with('…'));
        assert_eq!(short(&[]), "");
    }
}
