//! A comparison as a page.

use std::fmt::Write;

use super::machine::Machine;
use super::measure::Group;
use super::runs::{Pooled, Runs, is_ours, pool};
use super::statistics::median;

/// The largest error, relative to the largest output, of a peer that others are compared with.
pub fn exact(set: &str) -> f64 {
    // Models that round to 8 bits inside differ by steps between any two programs.
    if set == "quantized" { 5e-2 } else { 1e-3 }
}

/// The page that people read.
pub fn markdown(set: &str, runs: &Runs) -> String {
    let mut page = format!("# Hone beside others: {set}\n\n{}", heading(set, runs));
    page += &summary(set, runs);
    for key in runs.keys() {
        let Some(group) = runs.all().iter().rev().find_map(|run| run.group(&key)) else { continue };
        let _ = write!(page, "\n## {}\n\n{}", title(group), table(set, runs, &key, group));
    }
    let _ = write!(page, "\n![Latencies]({set}.svg)\n");
    page
}

/// What was measured, where, and how to read it.
fn heading(set: &str, runs: &Runs) -> String {
    let Some(run) = runs.all().last() else { return String::new() };
    let Machine { processor, processors, memory, kernel, features, .. } = &run.machine;
    let loads: Vec<String> = runs.all().iter().map(|r| format!("{:.1}", r.machine.load)).collect();
    let commits: Vec<&str> = runs.all().iter().map(|r| r.commit.as_str()).collect();
    let begins: Vec<String> = runs.all().iter().map(|r| r.machine.began.to_string()).collect();
    let dropped: usize = runs.all().iter().map(|run| run.dropped()).sum();
    let realtime = match run.machine.realtime {
        true => "; a peer precedes all other work on its processors during its turns",
        false => "",
    };
    format!(
        "Written by `cargo xtask bench-peers --set {set}`; every latency in `{set}.json`. Which networks \
         are in the set, and why: `tests/models/sets.py`.\n\n\
         - Processor: {processor}, {processors} usable; {} GiB of memory; Linux {kernel}\n\
         - Vector features: {}\n\
         - Runs: {} of the same programs ({}), at commits {}, begun {} seconds after 1970 (UTC)\n\
         - Highest load average of each run: {}{realtime}\n\
         - Rounds left out because the probed rate of FMAs or of integer additions was below 95 % of the run's best: {dropped}\n\n\
         One process a peer, pinned, rounds interleaved; host arrays in, host arrays out, from Python for \
         all of them: Hone through `libhone_runtime.so`, so that memory and the cost of a call are those \
         that users pay. Latency is the median of the runs' medians, the spread their lowest and highest. \
         *Behind* is how many times slower than the fastest peer a program was, paired within each run, \
         as the median of the runs (the worst run in brackets); only peers whose largest error is at most \
         {:.0e} of the largest output set the mark. The rate counts every convolution as direct work, \
         Winograd's too, so that it can pass the peak. Errors are against onnxruntime's outputs.\n",
        memory >> 30,
        features.join(" "),
        runs.all().len(),
        run.code,
        commits.join(", "),
        begins.join(", "),
        loads.join(", "),
        exact(set),
    )
}

/// Geometric mean and worst case of every form of Hone, by number of threads.
fn summary(set: &str, runs: &Runs) -> String {
    let mut text = String::from(
        "\n## All together\n\nTimes faster than the fastest peer: geometric mean, and the worst network.\n\n\
         | program | threads | networks | geometric mean | worst |\n|---|---|---|---|---|\n",
    );
    for (peer, threads) in forms(runs) {
        let leads: Vec<(f64, String)> = runs
            .keys()
            .into_iter()
            .filter(|(_, count)| *count == threads)
            .filter_map(|key| {
                let pooled = pool(runs, &key, exact(set));
                let ours = pooled.into_iter().find(|pooled| pooled.newest.peer == peer)?;
                let behind = median(&ours.behind).filter(|behind| *behind > 0.0)?;
                Some((1.0 / behind, key.0))
            })
            .collect();
        // Where no network has as many undisturbed runs as it takes, there is no figure.
        let Some((worst, model)) = leads.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
            continue;
        };
        let mean =
            (leads.iter().map(|(lead, _)| lead.ln()).sum::<f64>() / leads.len() as f64).exp();
        let count = leads.len();
        let _ =
            writeln!(text, "| {peer} | {threads} | {count} | {mean:.2} | {worst:.2} ({model}) |");
    }
    text
}

/// The forms of Hone and the numbers of threads that were measured.
fn forms(runs: &Runs) -> Vec<(String, usize)> {
    let mut forms = Vec::new();
    for group in runs.all().iter().rev().flat_map(|run| &run.groups) {
        for result in group.results.iter().filter(|result| is_ours(&result.peer)) {
            let form = (result.peer.clone(), group.threads);
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    forms.sort_by_key(|(_, threads)| *threads);
    forms
}

/// What a group is of.
pub fn title(group: &Group) -> String {
    let plural = if group.threads == 1 { "" } else { "s" };
    format!("{}, {} thread{plural}", group.model, group.threads)
}

/// One group's figures over all runs.
pub fn table(set: &str, runs: &Runs, key: &(String, usize), group: &Group) -> String {
    let mut text = String::new();
    // The highest probe is the machine undisturbed, as far as it ever was.
    let peak = runs.best(key.1).fma;
    let work = group.gflop.map_or(String::from("unknown work"), |g| format!("{g:.2} GFLOP"));
    let _ = writeln!(text, "{work} a run; probed FMA peak {peak:.0} GFLOP/s\n");
    text += "| peer | latency ms | spread ms | behind | rate, % of FMA peak (direct work) | compile ms \
             | load ms | first ms | peak MB | error |\n|---|---|---|---|---|---|---|---|---|---|\n";
    let peers = pool(runs, key, exact(set));
    if peers.is_empty() {
        return text + "\nThe machine was disturbed in every round.\n";
    }
    for pooled in peers {
        let rate = group.gflop.map_or(String::from("–"), |gflop| {
            format!("{:.0}", gflop / (pooled.latency * 1e-3) / peak * 100.0)
        });
        text += &row(&pooled, &rate);
    }
    for (peer, reason) in &group.left_out {
        let _ = writeln!(text, "\nLeft out: {peer}: {reason}");
    }
    text
}

fn row(pooled: &Pooled<'_>, rate: &str) -> String {
    let Pooled { newest, latency, spread: (low, high), behind } = pooled;
    let worst = behind.iter().copied().fold(0.0, f64::max);
    let behind = median(behind).unwrap_or(f64::NAN);
    format!(
        "| {} {} ({}) | {latency:.3} | {low:.3} – {high:.3} | {behind:.2} ({worst:.2}) | {rate} | {:.0} \
         | {:.0} | {:.1} | {:.0} | {:.0e} |\n",
        newest.peer,
        newest.ready.version,
        newest.ready.settings,
        newest.ready.compile_ms,
        newest.ready.load_ms,
        newest.first_ms,
        newest.peak_memory as f64 / 1e6,
        newest.error,
    )
}
