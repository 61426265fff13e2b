//! How much processor time everything takes, and what the API server is asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use hone_cluster_tests::Cluster;

use super::api::Api;
use super::metrics::Metrics;

/// Ticks of `/proc` a second, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// What makes the load is not what carries it.
const NOT_THE_PLANE: [&str; 4] = [ELSE, SUITE, PROXY, "owner"];
/// Everything on this machine that is not the suite's.
const ELSE: &str = "everything else";
/// The suite itself.
pub const SUITE: &str = "this suite";
/// What carries its requests.
pub const PROXY: &str = "kubectl proxy";

/// Seconds of processor time and numbers of requests up to a moment.
pub struct Load {
    seconds: BTreeMap<String, f64>,
    requests: BTreeMap<String, f64>,
}

impl Load {
    /// The load of the cluster's processes and of `others`, up to now.
    ///
    /// # Errors
    /// When `/proc` or the API server cannot be read.
    pub fn read(cluster: &Cluster, api: &Api, others: &[(&str, u32)]) -> Result<Self> {
        let mut seconds = BTreeMap::new();
        for folder in ["services", "outside/services"] {
            let Ok(entries) = fs::read_dir(cluster.directory().join(folder)) else {
                continue;
            };
            for path in entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()? {
                if path.extension().is_some_and(|extension| extension == "pid") {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy();
                    let id = fs::read_to_string(&path)?.trim().parse()?;
                    seconds.insert(name.into_owned(), process(id)?);
                }
            }
        }
        for (name, id) in others {
            seconds.insert((*name).to_owned(), process(*id)?);
        }
        let known: f64 = seconds.values().sum();
        seconds.insert(ELSE.to_owned(), machine()? - known);
        Ok(Self { seconds, requests: requests(&Metrics::of(api.get("/metrics")?)) })
    }

    /// Prints what was added since `before`, in all and for each of `count`. Returns the seconds of
    /// processor time that control plane and operator took for each.
    pub fn print_since(&self, before: &Self, count: usize) -> f64 {
        let each = |value: f64| value / count.max(1) as f64;
        println!("  processor time, in milliseconds each:");
        let mut plane = 0.0;
        for (name, seconds) in falling(&self.seconds, &before.seconds) {
            if !NOT_THE_PLANE.contains(&name.as_str()) {
                plane += each(seconds);
            }
            println!("    {:9.2}  {name} ({seconds:.1} s)", each(seconds) * 1000.0);
        }
        println!("  requests each:");
        for (name, requests) in falling(&self.requests, &before.requests) {
            if each(requests) >= 0.02 {
                println!("    {:9.2}  {name}", each(requests));
            }
        }
        plane
    }
}

/// What was added, most first.
fn falling(now: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let added = now.iter().map(|(name, value)| {
        let then = before.get(name).copied().unwrap_or(0.0);
        (name.clone(), value - then)
    });
    let mut added: Vec<(String, f64)> = added.filter(|(_, value)| *value > 0.0).collect();
    added.sort_by(|a, b| b.1.total_cmp(&a.1));
    added
}

/// Seconds of processor time of one process.
fn process(id: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))
        .with_context(|| format!("process {id} has ended"))?;
    // The name in parentheses may hold blanks.
    let (_, rest) = text.rsplit_once(')').context("no name in /proc/…/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let tick = |index: usize| -> Result<f64> {
        Ok(fields.get(index).context("too few fields in /proc/…/stat")?.parse()?)
    };
    Ok((tick(11)? + tick(12)?) / TICKS)
}

/// Seconds in which a processor of this machine was not idle.
fn machine() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, waiting for disks, interrupts (2); the rest is not this machine's.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index));
    Ok(busy.sum::<f64>() / TICKS)
}

/// Requests by verb and resource.
fn requests(metrics: &Metrics) -> BTreeMap<String, f64> {
    let mut requests = BTreeMap::new();
    for sample in metrics.samples("apiserver_request_total") {
        let label = |name| sample.label(name).unwrap_or_default();
        let mut name = format!("{} {}", label("verb"), label("resource"));
        if !label("subresource").is_empty() {
            name.push('/');
            name.push_str(label("subresource"));
        }
        if !label("code").starts_with('2') {
            name.push_str(&format!(" ({})", label("code")));
        }
        *requests.entry(name).or_insert(0.0) += sample.value;
    }
    requests
}
