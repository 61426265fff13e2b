//! The control plane of the suite, and what it can do by itself.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, ClusterOptions, eventually, render};
use serde_json::Value;

use super::api::{Api, parallel};
use super::load::{Load, PROXY, SUITE};
use super::metrics::Metrics;
use super::objects::Stage;
use super::{Arguments, NAMESPACE, objects};

/// Where Jobs are.
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// Where compilations are.
pub const COMPILATIONS: &str = "/apis/hone.dev/v1alpha1/namespaces/default/modelcompilations";

/// Where leases of devices are in a round.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// What one round of the control plane alone makes for each Job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Nothing but the Job.
    Jobs,
    /// What any operator has to write as well: a compilation, its first and its last status; where devices are leased,
    /// the lease and that the compilation waited for it too.
    Compilations,
}

/// A plane whose clients are not throttled, and nodes that renew their leases seldom.
///
/// # Errors
/// When it does not come up.
pub fn start(arguments: &Arguments) -> Result<Cluster> {
    let nodes = arguments.nodes;
    let settings = vec![
        ("HONE_KWOK_LEASE_SECONDS", "600".to_owned()),
        (
            "HONE_CONTROLLER_ARGS",
            "--node-monitor-grace-period=700s --concurrent-job-syncs=50 --kube-api-qps=5000 --kube-api-burst=5000".to_owned(),
        ),
        ("HONE_SCHEDULER_ARGS", "--kube-api-qps=5000 --kube-api-burst=5000".to_owned()),
        // All of these are in Go, and spent a third of their time on looking for garbage.
        ("GOGC", "400".to_owned()),
    ];
    println!("starting a control plane with {nodes} simulated nodes");
    let options =
        ClusterOptions { simulated_nodes: Some(nodes), settings, ..ClusterOptions::default() };
    let cluster = Cluster::start(&options)?;
    let ready = "{.items[*].status.conditions[?(@.type=='Ready')].status}";
    eventually("the nodes", Duration::from_secs(600), || {
        let states = cluster.kubectl().text("nodes", ready)?;
        let found = states.split_whitespace().filter(|state| *state == "True").count();
        ensure!(found >= nodes as usize, "{found} of {nodes} are ready");
        Ok(Some(()))
    })?;
    let kubectl = cluster.kubectl();
    let crds = render(&["--show-only", "templates/crds.yaml"])?;
    kubectl.run_with(&["apply", "--server-side", "-f", "-"], &crds)?;
    kubectl.wait("crd/devicepools.hone.dev", "Established", Duration::from_secs(60))?;
    eventually("the pool", Duration::from_secs(60), || {
        kubectl.apply(&objects::pool(arguments.exclusive)).map(Some)
    })?;
    Ok(cluster)
}

/// What a round came to.
#[derive(Clone, Copy)]
pub struct Figures {
    /// Finished a second.
    pub rate: f64,
    /// Seconds of processor time that the control plane, and the operator, took for each.
    pub seconds: f64,
}

/// One round without the operator, after which nothing of it is left.
///
/// # Errors
/// When something is refused or not done in time.
pub fn alone(cluster: &Cluster, api: &Api, arguments: &Arguments, round: Round) -> Result<Figures> {
    let count = arguments.jobs;
    if count == 0 {
        return Ok(Figures { rate: f64::NAN, seconds: f64::NAN });
    }
    let what = match (round, arguments.exclusive) {
        (Round::Jobs, _) => "",
        (Round::Compilations, false) => ", each with a compilation and two statuses",
        (Round::Compilations, true) => ", each with a compilation, three statuses and a lease",
    };
    println!("the control plane alone: {count} Jobs{what}");
    let names = cluster.kubectl().text("nodes", "{.items[*].metadata.name}")?;
    let nodes: Vec<&str> = names.split_whitespace().collect();
    ensure!(!nodes.is_empty(), "there is no node");
    let others = [(PROXY, api.id()), (SUITE, std::process::id())];
    let load = Load::read(cluster, api, &others)?;
    let before = finished(cluster)?;
    let start = Instant::now();
    parallel(0..count, |number| {
        let node = arguments.exclusive.then(|| nodes[number % nodes.len()]);
        let owner = match round {
            Round::Jobs => None,
            Round::Compilations => Some(begin(api, number, node)?),
        };
        api.create(JOBS, &objects::job(number, owner.as_ref(), node))?;
        match owner {
            Some(made) => set_status(api, number, made, Stage::Done).map(drop),
            None => Ok(()),
        }
    })?;
    println!("  all made after {:.1} s", start.elapsed().as_secs_f64());
    until("Jobs", count, arguments.limit, || Ok(finished(cluster)? - before))?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("  {rate:.1} /s");
    let seconds = Load::read(cluster, api, &others)?.print_since(&load, count);
    clean(cluster, api, arguments)?;
    Ok(Figures { rate, seconds })
}

/// Makes a compilation and writes that its Job is made; before it, where its device is on a `node` and leased, that
/// it waits, and the lease.
fn begin(api: &Api, number: usize, node: Option<&str>) -> Result<Value> {
    let mut made = api.create(COMPILATIONS, &objects::compilation(number))?;
    if let Some(node) = node {
        made = set_status(api, number, made, Stage::Waiting)?;
        api.create(LEASES, &objects::lease(number, node))?;
    }
    set_status(api, number, made, Stage::Started)
}

fn set_status(api: &Api, number: usize, mut object: Value, stage: Stage) -> Result<Value> {
    object["status"] = objects::status(number, stage);
    api.replace(&format!("{COMPILATIONS}/c{number}/status"), &object)
}

/// Deletes everything of a round, so that the next one does not pay for it.
fn clean(cluster: &Cluster, api: &Api, arguments: &Arguments) -> Result<()> {
    let kubectl = cluster.kubectl().in_namespace(NAMESPACE);
    for kind in ["modelcompilations", "jobs", "leases"] {
        kubectl.run(&["delete", kind, "--all", "--wait=false"])?;
    }
    eventually("everything to be deleted", Duration::from_secs(arguments.limit), || {
        for path in [COMPILATIONS, JOBS, LEASES, "/api/v1/namespaces/default/pods"] {
            let list: Value = serde_json::from_str(&api.get(&format!("{path}?limit=1"))?)?;
            let left = list["items"].as_array().map_or(0, Vec::len);
            ensure!(left == 0, "{path} is not empty");
        }
        Ok(Some(()))
    })
}

/// Jobs that the Job controller has seen succeed.
fn finished(cluster: &Cluster) -> Result<f64> {
    let ports = std::fs::read_to_string(cluster.directory().join("ports.env"))?;
    let variable = |name: &str| {
        let mut lines = ports.lines().map(|line| line.trim_start_matches("export "));
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('\'').to_owned()).context(format!("no {name}"))
    };
    let url = format!("https://127.0.0.1:{}/metrics", variable("CONTROLLERS_PORT")?);
    let token = format!("Authorization: Bearer {}", variable("TOKEN")?);
    let output = Command::new("curl").args(["-sSfk", "-H", &token, &url]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the metrics of the controllers: {said}");
    let metrics = Metrics::of(String::from_utf8(output.stdout)?);
    Ok(metrics.sum("job_controller_jobs_finished_total", "result", "succeeded"))
}

/// Waits until `found` says `count`, and says how far it is.
///
/// # Errors
/// When it does not within `limit` seconds.
pub fn until(what: &str, count: usize, limit: u64, found: impl Fn() -> Result<f64>) -> Result<()> {
    let start = Instant::now();
    let mut told = Instant::now();
    loop {
        let found = found()?;
        if found >= count as f64 {
            return Ok(());
        }
        if start.elapsed().as_secs() > limit {
            bail!("only {found} of {count} {what} after {limit} s");
        }
        if told.elapsed() > Duration::from_secs(15) {
            println!("  {:5.0} s  {found} of {count} {what}", start.elapsed().as_secs_f64());
            told = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
