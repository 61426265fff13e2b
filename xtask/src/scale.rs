//! `cargo xtask scale`: many compilations over many simulated nodes, with simulated workers. What is
//! real is the control plane and the operator.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, ClusterOptions, eventually, product, program, render};

use crate::repository;

mod metrics;
mod objects;

use metrics::Metrics;

/// Where the objects are.
const NAMESPACE: &str = "default";

/// Arguments of `scale`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Compilations.
    #[arg(long, default_value_t = 10_000)]
    compilations: usize,
    /// Simulated nodes.
    #[arg(long, default_value_t = 1_000)]
    nodes: u32,
    /// Plain Jobs with pods of the same form, to measure what the control plane itself bounds.
    #[arg(long, default_value_t = 2_000)]
    jobs: usize,
    /// One worker a node at a time, which costs the scheduler dearly.
    #[arg(long)]
    exclusive: bool,
    /// Reconciles at once.
    #[arg(long, default_value_t = 16)]
    concurrency: u16,
    /// Seconds of steady state after the burst.
    #[arg(long, default_value_t = 60)]
    steady: u64,
    /// Longest time for each of both, in seconds.
    #[arg(long, default_value_t = 3600)]
    limit: u64,
}

/// Runs the suite and prints its figures.
pub fn run(arguments: &Arguments) -> Result<()> {
    let operator = product::shipped("hone-operator");
    ensure!(operator.exists(), "there is no {}: cargo xtask shipped", operator.display());
    let cluster = start(arguments.nodes)?;
    prepare(&cluster, arguments)?;
    let limit = Duration::from_secs(arguments.limit);
    let bound = control_plane_bound(&cluster, arguments, limit)?;

    let mut operator = Operator::start(&cluster, arguments)?;
    std::thread::sleep(Duration::from_secs(5));
    let idle = operator.memory("VmRSS:")?;
    let before = Metrics::read(&operator.address)?;
    let start = Instant::now();
    let objects = (0..arguments.compilations).map(objects::compilation);
    create(&cluster, "compilations", objects)?;
    let created = start.elapsed();
    wait(
        &cluster,
        "modelcompilations",
        "{.items[*].status.phase}",
        "Succeeded",
        arguments.compilations,
        limit,
    )?;
    let took = start.elapsed();
    let metrics = Metrics::read(&operator.address)?;
    let peak = operator.memory("VmHWM:")?;
    let rate = arguments.compilations as f64 / took.as_secs_f64();
    let steady = steady(&cluster, &operator, arguments, rate)?;
    let writes_before = Metrics::read(&operator.address)?.writes();
    std::thread::sleep(Duration::from_secs(30));
    let idle_writes = Metrics::read(&operator.address)?.writes() - writes_before;
    operator.stop()?;

    println!("\ncompilations        {} over {} nodes", arguments.compilations, arguments.nodes);
    println!("created in          {:.1} s", created.as_secs_f64());
    println!("all succeeded after {:.1} s", took.as_secs_f64());
    println!("rate                {rate:.1} /s");
    println!("control plane alone {bound:.1} Jobs/s; ratio {:.2}", rate / bound);
    println!("operator memory     {:.1} MiB idle, {:.1} MiB at most", mib(idle), mib(peak));
    let writes = metrics.writes() / arguments.compilations as f64;
    println!(
        "API writes          {writes:.2} a compilation; {:.2} /s afterwards",
        idle_writes / 30.0
    );
    println!(
        "event to reconcile  burst: p50 under {} s, p99 under {} s",
        metrics.wait(&before, 0.5),
        metrics.wait(&before, 0.99)
    );
    println!("                    steady at {:.1} /s: p99 under {steady} s", rate / 3.0);
    Ok(())
}

/// The 99th percentile of the wait for a reconcile while compilations come at a third of the rate that
/// the burst reached.
fn steady(cluster: &Cluster, operator: &Operator, arguments: &Arguments, rate: f64) -> Result<f64> {
    println!("steady state for {} s", arguments.steady);
    let before = Metrics::read(&operator.address)?;
    let start = Instant::now();
    let mut made = 0;
    while start.elapsed() < Duration::from_secs(arguments.steady) {
        let due = (start.elapsed().as_secs_f64() * rate / 3.0) as usize;
        if due > made {
            let first = arguments.compilations + made;
            let objects = (first..first + due - made).map(objects::compilation);
            create(cluster, "steady", objects)?;
            made = due;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(Metrics::read(&operator.address)?.wait(&before, 0.99))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A plane whose clients are not throttled, and nodes that renew their leases seldom.
fn start(nodes: u32) -> Result<Cluster> {
    let settings = vec![
        ("HONE_KWOK_LEASE_SECONDS", "600".to_owned()),
        (
            "HONE_CONTROLLER_ARGS",
            "--node-monitor-grace-period=700s --concurrent-job-syncs=50 --kube-api-qps=5000 --kube-api-burst=5000".to_owned(),
        ),
        ("HONE_SCHEDULER_ARGS", "--kube-api-qps=5000 --kube-api-burst=5000".to_owned()),
    ];
    println!("starting a control plane with {nodes} simulated nodes");
    let options =
        ClusterOptions { simulated_nodes: Some(nodes), settings, ..ClusterOptions::default() };
    let cluster = Cluster::start(&options)?;
    wait(
        &cluster,
        "nodes",
        "{.items[*].status.conditions[?(@.type=='Ready')].status}",
        "True",
        nodes as usize,
        Duration::from_secs(600),
    )?;
    Ok(cluster)
}

fn prepare(cluster: &Cluster, arguments: &Arguments) -> Result<()> {
    let kubectl = cluster.kubectl();
    let crds = render(&["--show-only", "templates/crds.yaml"])?;
    kubectl.run_with(&["apply", "--server-side", "-f", "-"], &crds)?;
    kubectl.wait("crd/devicepools.hone.dev", "Established", Duration::from_secs(60))?;
    eventually("the pool", Duration::from_secs(60), || {
        kubectl.apply(&objects::pool(arguments.exclusive)).map(Some)
    })?;
    Ok(())
}

/// Jobs a second, of the same form as the operator's, without the operator.
fn control_plane_bound(cluster: &Cluster, arguments: &Arguments, limit: Duration) -> Result<f64> {
    if arguments.jobs == 0 {
        return Ok(f64::NAN);
    }
    println!("measuring the control plane alone: {} Jobs", arguments.jobs);
    let start = Instant::now();
    create(cluster, "jobs", (0..arguments.jobs).map(|n| objects::job(n, arguments.exclusive)))?;
    wait(
        cluster,
        "jobs",
        "{.items[*].status.conditions[?(@.type=='Complete')].status}",
        "True",
        arguments.jobs,
        limit,
    )?;
    let rate = arguments.jobs as f64 / start.elapsed().as_secs_f64();
    println!("  {rate:.1} /s");
    let all = ["delete", "jobs", "--all", "--wait=false", "--namespace", NAMESPACE];
    cluster.kubectl().run(&all)?;
    Ok(rate)
}

/// Creates objects by several kubectls at once.
fn create(cluster: &Cluster, what: &str, objects: impl Iterator<Item = String>) -> Result<()> {
    const PARTS: usize = 4;
    let folder = repository::scratch().join("scale").join(what);
    fs::create_dir_all(&folder)?;
    let mut parts = vec![String::new(); PARTS];
    for (number, object) in objects.enumerate() {
        parts[number % PARTS].push_str(&object);
    }
    let mut running = Vec::new();
    for (number, text) in parts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        let path = folder.join(format!("{number}.yaml"));
        fs::write(&path, text)?;
        let mut command = Command::new(program("kubectl"));
        command.arg("--kubeconfig").arg(cluster.kubectl().kubeconfig());
        command.args(["--namespace", NAMESPACE, "create", "--validate=false", "-f"]).arg(&path);
        running.push(command.stdout(Stdio::null()).spawn().context("run kubectl")?);
    }
    for mut child in running {
        ensure!(child.wait()?.success(), "kubectl create failed");
    }
    Ok(())
}

/// Waits until a template finds `word` `count` times, and says how far it is.
fn wait(
    cluster: &Cluster,
    kind: &str,
    template: &str,
    word: &str,
    count: usize,
    limit: Duration,
) -> Result<()> {
    let start = Instant::now();
    let mut told = Instant::now();
    loop {
        let found = cluster.kubectl().in_namespace(NAMESPACE).text(kind, template)?;
        let found = found.split_whitespace().filter(|found| *found == word).count();
        if found >= count {
            return Ok(());
        }
        if start.elapsed() > limit {
            bail!("only {found} of {count} {kind} after {} s", limit.as_secs());
        }
        if told.elapsed() > Duration::from_secs(10) {
            println!("  {:5.0} s  {found} of {count} {kind}", start.elapsed().as_secs_f64());
            told = Instant::now();
        }
        // Listing thousands of objects costs the API server time that is measured here.
        let pause = (count / 500).clamp(1, 10);
        std::thread::sleep(Duration::from_millis(pause as u64 * 500));
    }
}

/// The operator as a process of this machine.
struct Operator {
    child: Child,
    address: String,
}

impl Operator {
    fn start(cluster: &Cluster, arguments: &Arguments) -> Result<Self> {
        let address = {
            let free = std::net::TcpListener::bind("127.0.0.1:0")?;
            free.local_addr()?.to_string()
        };
        let log = fs::File::create(log_path()?)?;
        let child = Command::new(product::shipped("hone-operator"))
            .env("KUBECONFIG", cluster.kubectl().kubeconfig())
            .env("HONE_WORKER_IMAGE", "simulated")
            .env("HONE_LISTEN", &address)
            .env("HONE_ADMIN_LISTEN", "127.0.0.1:0")
            .env("HONE_CONCURRENCY", arguments.concurrency.to_string())
            .env("POD_NAMESPACE", NAMESPACE)
            .stdout(log)
            .spawn()
            .context("run hone-operator")?;
        let operator = Self { child, address };
        eventually("the operator", Duration::from_secs(30), || {
            Metrics::read(&operator.address).map(Some)
        })?;
        Ok(operator)
    }

    /// A line of the process's status, in bytes.
    fn memory(&self, line: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let value = text.lines().find_map(|l| l.strip_prefix(line)).context("no such line")?;
        let kib: u64 = value.split_whitespace().next().context("no number")?.parse()?;
        Ok(kib << 10)
    }

    fn stop(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn log_path() -> Result<PathBuf> {
    let folder = repository::scratch().join("scale");
    fs::create_dir_all(&folder)?;
    Ok(folder.join("operator.log"))
}
