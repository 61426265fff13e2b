//! A comparison as a table and as JSON.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::machine::Machine;
use super::measure::{Group, Measured};
use super::statistics::quantile;

/// The largest error, relative to the largest output, of a peer that others are compared with.
const LARGEST_ERROR: f64 = 1e-3;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    machine: &'a Machine,
    groups: &'a [Group],
}

/// Everything, every single latency included.
pub fn json(machine: &Machine, groups: &[Group]) -> Result<String> {
    Ok(serde_json::to_string(&Document { schema: 1, machine, groups })? + "\n")
}

/// The page that people read.
pub fn markdown(name: &str, machine: &Machine, groups: &[Group]) -> String {
    let mut page = format!(
        "# Hone beside others\n\n\
         Written by `cargo xtask bench-peers`; single latencies in `{name}.json`.\n\n\
         - Processor: {}, {} usable; {} GiB of memory; Linux {}\n\
         - Vector features: {}\n\
         - Highest load average meanwhile: {:.1}{}\n\
         - Began {} seconds after 1970 began (UTC)\n\n\
         One process a peer, pinned, rounds interleaved; batch 1, host arrays in, host arrays out. \
         Latency is the median of all calls; the spread is that of the rounds' medians, lowest to \
         highest. The ratio is to the fastest of those \
         whose error is at most 1e-3: reduced precision races, but does not set the mark. Peak memory includes \
         compiling where the peer does it in the process that runs; Hone does it in one before that, or finds \
         it done. The error is the largest difference \
         from onnxruntime's outputs over their largest value.\n",
        machine.processor,
        machine.processors,
        machine.memory >> 30,
        machine.kernel,
        machine.features.join(" "),
        machine.load,
        disturbance(machine),
        machine.began,
    );
    for group in groups {
        let _ = write!(page, "\n## {}\n\n{}", title(group), table(group));
    }
    let _ = write!(page, "\n![Latencies]({name}.svg)\n");
    page
}

/// What the load meant for the measurements.
fn disturbance(machine: &Machine) -> &'static str {
    if machine.load <= machine.processors as f64 + 1.0 {
        ""
    } else if machine.realtime {
        " (others used the machine: runs preceded them, compiling and loading did not)"
    } else {
        " (**others used the machine: read ratios, not milliseconds**)"
    }
}

/// What a group is of.
pub fn title(group: &Group) -> String {
    let plural = if group.threads == 1 { "" } else { "s" };
    format!("{}, {} thread{plural}", group.model, group.threads)
}

/// One group's figures.
pub fn table(group: &Group) -> String {
    let mut text = String::new();
    // The highest probe is the machine undisturbed, as far as it ever was.
    let peak = quantile(&group.fma_peaks, 1.0).unwrap_or(f64::NAN);
    let work = group.gflop.map_or(String::from("unknown work"), |g| format!("{g:.2} GFLOP"));
    let _ = writeln!(text, "{work} a run; probed FMA peak {peak:.0} GFLOP/s\n");
    text += "| peer | latency ms | spread ms | ratio | % of FMA peak | compile ms | load ms \
             | first ms | peak MB | error |\n|---|---|---|---|---|---|---|---|---|---|\n";
    let exact = group.results.iter().filter(|result| result.error <= LARGEST_ERROR);
    let best = exact.map(Measured::latency).fold(f64::INFINITY, f64::min);
    for result in &group.results {
        let (low, high) = result.spread();
        let latency = result.latency();
        let share = group.gflop.map_or(String::from("–"), |gflop| {
            format!("{:.0}", gflop / (latency * 1e-3) / peak * 100.0)
        });
        let _ = writeln!(
            text,
            "| {} {} ({}) | {latency:.3} | {low:.3} – {high:.3} | {:.2} | {share} | {:.0} | {:.0} \
             | {:.1} | {:.0} | {:.0e} |",
            result.peer,
            result.ready.version,
            result.ready.settings,
            latency / best,
            result.ready.compile_ms,
            result.ready.load_ms,
            result.first_ms,
            result.peak_memory as f64 / 1e6,
            result.error,
        );
    }
    for (peer, reason) in &group.left_out {
        let _ = writeln!(text, "\nLeft out: {peer}: {reason}");
    }
    text
}
