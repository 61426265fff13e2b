//! `cargo xtask scale`: many compilations over many simulated nodes, with simulated workers. What is
//! real is the control plane and the operator.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hone_cluster_tests::{Cluster, product};

mod api;
mod load;
mod metrics;
mod objects;
mod operator;
mod plane;

pub use metrics::Metrics;

use api::{Api, parallel};
use load::{Load, PROXY, SUITE};
use operator::Operator;
use plane::{Figures, Round};

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
    /// Jobs with pods of the same form, to measure what the control plane itself bounds.
    #[arg(long, default_value_t = 2_000)]
    jobs: usize,
    /// One worker a node at a time, by leases of devices.
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
    let program = product::shipped("hone-operator");
    ensure!(program.exists(), "there is no {}: cargo xtask shipped", program.display());
    let cluster = plane::start(arguments)?;
    let api = Api::start(&cluster)?;
    let jobs = plane::alone(&cluster, &api, arguments, Round::Jobs)?;
    let floor = plane::alone(&cluster, &api, arguments, Round::Compilations)?;

    let operator = Operator::start(&cluster, arguments)?;
    std::thread::sleep(Duration::from_secs(5));
    let idle = operator.memory("VmRSS:")?;
    let burst = burst(&cluster, &api, &operator, arguments)?;
    let steady = steady(&api, &operator, arguments, burst.figures.rate)?;
    let writes_before = operator.metrics()?.writes();
    std::thread::sleep(Duration::from_secs(30));
    let idle_writes = operator.metrics()?.writes() - writes_before;

    println!("\ncompilations        {} over {} nodes", arguments.compilations, arguments.nodes);
    println!("created in          {:.1} s", burst.created);
    println!("all succeeded after {:.1} s", burst.took);
    print_rate("rate", burst.figures, None);
    print_rate("Jobs alone", jobs, Some(burst.figures));
    print_rate("and compilations", floor, Some(burst.figures));
    println!("operator memory     {:.1} MiB idle, {:.1} MiB at most", mib(idle), mib(burst.peak));
    println!(
        "API writes          {:.2} a compilation; {:.2} /s afterwards",
        burst.writes,
        idle_writes / 30.0
    );
    println!("event to reconcile  burst: p50 under {} s, p99 under {} s", burst.p50, burst.p99);
    let third = burst.figures.rate / 3.0;
    println!("                    steady at {third:.1} /s: p99 under {steady} s");
    Ok(())
}

/// A rate by the clock, and the one that this machine could do were nothing else running on it. The
/// ratios are those of the operator's rates to these.
fn print_rate(what: &str, figures: Figures, operator: Option<Figures>) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let Figures { rate, seconds } = figures;
    print!(
        "{what:<19} {rate:.1} /s; {:.1} ms of processor time each, so {:.1} /s at most",
        seconds * 1000.0,
        processors / seconds
    );
    match operator {
        Some(own) => println!("; ratios {:.2}, {:.2}", own.rate / rate, seconds / own.seconds),
        None => println!(),
    }
}

/// What was measured while all compilations were made at once.
struct Burst {
    created: f64,
    took: f64,
    figures: Figures,
    peak: u64,
    writes: f64,
    p50: f64,
    p99: f64,
}

fn burst(
    cluster: &Cluster,
    api: &Api,
    operator: &Operator,
    arguments: &Arguments,
) -> Result<Burst> {
    let count = arguments.compilations;
    println!("{count} compilations");
    let others = [(PROXY, api.id()), (SUITE, std::process::id()), ("hone-operator", operator.id())];
    let load = Load::read(cluster, api, &others)?;
    let before = operator.metrics()?;
    let start = Instant::now();
    create(api, 0..count)?;
    let created = start.elapsed().as_secs_f64();
    plane::until("compilations", count, arguments.limit, || {
        let finished = |phase| {
            let metrics = operator.metrics()?;
            anyhow::Ok(metrics.sum("hone_compilations_finished_total", "phase", phase))
        };
        ensure!(finished("Failed")? == 0.0, "a compilation failed: {}", failure(cluster)?);
        finished("Succeeded")
    })?;
    let took = start.elapsed().as_secs_f64();
    let metrics = operator.metrics()?;
    let peak = operator.memory("VmHWM:")?;
    let seconds = Load::read(cluster, api, &others)?.print_since(&load, count);
    // What the operator counts must be what everybody else sees.
    let phases = cluster.kubectl().in_namespace(NAMESPACE);
    let phases = phases.text("modelcompilations", "{.items[*].status.phase}")?;
    let succeeded = phases.split_whitespace().filter(|phase| *phase == "Succeeded").count();
    ensure!(succeeded == count, "only {succeeded} of {count} compilations say Succeeded");
    Ok(Burst {
        created,
        took,
        figures: Figures { rate: count as f64 / took, seconds },
        peak,
        writes: (metrics.writes() - before.writes()) / count as f64,
        p50: metrics.wait(&before, 0.5),
        p99: metrics.wait(&before, 0.99),
    })
}

/// The 99th percentile of the wait for a reconcile while compilations come at a third of the rate that
/// the burst reached.
fn steady(api: &Api, operator: &Operator, arguments: &Arguments, rate: f64) -> Result<f64> {
    println!("steady state for {} s", arguments.steady);
    let before = operator.metrics()?;
    let start = Instant::now();
    let mut made = 0;
    while start.elapsed() < Duration::from_secs(arguments.steady) {
        let due = (start.elapsed().as_secs_f64() * rate / 3.0) as usize;
        create(api, arguments.compilations + made..arguments.compilations + due)?;
        made = due;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(operator.metrics()?.wait(&before, 0.99))
}

/// What the failed compilations say, as far as it fits a line.
fn failure(cluster: &Cluster) -> Result<String> {
    let kubectl = cluster.kubectl().in_namespace(NAMESPACE);
    let said =
        kubectl.text("modelcompilations", "{.items[*].status.targets[*].failure.message}")?;
    Ok(said.chars().take(300).collect())
}

fn create(api: &Api, numbers: std::ops::Range<usize>) -> Result<()> {
    parallel(numbers, |number| {
        api.create(plane::COMPILATIONS, &objects::compilation(number)).map(drop)
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
