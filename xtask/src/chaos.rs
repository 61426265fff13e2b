//! `cargo xtask chaos`: kills at random moments while compilations and tuning runs are under way and users change them,
//! and a judgement of what is left: every compilation ended right, no artifact lost that somebody owns, none left that
//! nobody owns, no trial lost or counted twice, no device leased to what is gone, no finalizer stuck.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use hone_cluster_tests::{Cluster, keep_logs, product};
use hone_types::Random;
use sha2::{Digest, Sha256};

use crate::repository;

mod compilations;
mod faults;
mod judgement;
mod leases;
mod searches;
mod store;
mod supervisor;
mod work;

use compilations::{EXCLUSIVE_POOL, NAMESPACES, SHARED_POOL};
use faults::Fault;
use leases::Leases;
use searches::Searches;
use supervisor::Supervisor;
use work::Work;

/// Makes unrelated seeds of one seed.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Longest time that everything may take to settle after the last kill.
const SETTLE: Duration = Duration::from_secs(900);
/// Longest time that an answer of the API server is waited for while it may be down.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments of `chaos`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Decides what is killed when; the same seed kills the same things after the same pauses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many kills.
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// Longest pause between two, in milliseconds.
    #[arg(long, default_value_t = 3000)]
    pause: u64,
}

/// Runs the suite; fails when anything is left wrong.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cluster = Cluster::start(&product::options()?)?;
    let digest = prepare(&cluster)?;
    let mut chaos = Chaos {
        work: Work::new(&cluster, arguments.seed, digest),
        searches: Searches::new(&cluster, cluster.kubectl().in_namespace(NAMESPACES[0])),
        leases: Leases::default(),
        start: Instant::now(),
    };
    let supervisor = Supervisor::default();
    let verdict = supervisor.while_running(&cluster, || {
        chaos.kill(&cluster, arguments, &supervisor)?;
        chaos.judge(&cluster)
    });
    println!("\nseed {}: {}", arguments.seed, chaos.work.summary());
    if let Err(error) = &verdict {
        keep_evidence(&cluster, &chaos.work, error)?;
    }
    verdict
}

/// The product, two pools over the one node, and two namespaces with the store's Secret. Returns the model's digest.
fn prepare(cluster: &Cluster) -> Result<String> {
    product::install(cluster)?;
    let shared = r#"{"spec":{"exclusivity":"Shared"}}"#;
    let object = format!("devicepool/{SHARED_POOL}");
    cluster.kubectl().run(&["patch", &object, "--type=merge", "-p", shared])?;
    cluster.kubectl().apply(&format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: DevicePool, metadata: {{name: {EXCLUSIVE_POOL}}}, spec: \
          {{kind: CPU, exclusivity: Device, nodeSelector: {{kubernetes.io/arch: amd64}}}}}}"
    ))?;
    for namespace in NAMESPACES {
        cluster.kubectl().run(&["create", "namespace", namespace])?;
        product::store_secret(cluster, &cluster.kubectl().in_namespace(namespace))?;
    }
    let model = repository::root().join("examples/digits/digits.onnx");
    product::upload(cluster, &model, "models/digits.onnx")?;
    let hash = Sha256::digest(fs::read(&model)?);
    let digest: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digest}"))
}

/// A run of the suite.
struct Chaos {
    work: Work,
    searches: Searches,
    leases: Leases,
    start: Instant,
}

impl Chaos {
    /// Kills, while users go on.
    fn kill(
        &mut self,
        cluster: &Cluster,
        arguments: &Arguments,
        supervisor: &Supervisor,
    ) -> Result<()> {
        let mut random = Random::new(arguments.seed);
        // Another generator, so that what is killed does not depend on what users do.
        let mut users = Random::new(arguments.seed ^ HASH);
        let mut killed: BTreeMap<Fault, usize> = BTreeMap::new();
        for number in 1..=arguments.kills {
            let seen = self.work.look()?;
            self.work.top_up(&seen)?;
            self.searches.top_up()?;
            self.searches.look()?;
            self.leases.look(cluster)?;
            let done = self.work.disturb(&seen, &mut users)?;
            std::thread::sleep(
                Duration::from_millis(random.below(arguments.pause as usize) as u64),
            );
            let fault = Fault::draw(&mut random);
            let hit = supervisor.without(|| fault.strike(cluster, &mut random))?;
            let seconds = self.start.elapsed().as_secs_f64();
            println!("{seconds:6.1} s  kill {number:3} of {}: {hit}; {done}", arguments.kills);
            *killed.entry(fault).or_default() += 1;
        }
        println!("killed: {killed:?}");
        Ok(())
    }

    /// Waits for everything to come to rest and judges what is left.
    fn judge(&mut self, cluster: &Cluster) -> Result<()> {
        println!(
            "{:6.1} s  no more kills; waiting for {} compilations and {} tuning runs",
            self.start.elapsed().as_secs_f64(),
            self.work.compilations.len(),
            self.searches.made()
        );
        self.searches.judge()?;
        judgement::judge(cluster, &mut self.work, self.start)?;
        self.leases.judge(cluster)
    }
}

/// The first line of an error, as much as fits a line of the suite.
fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().chars().take(100).collect()
}

fn keep_evidence(cluster: &Cluster, work: &Work, error: &anyhow::Error) -> Result<()> {
    let folder = repository::scratch().join("chaos");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("error.txt"), format!("{error:#}"))?;
    let system = cluster.kubectl().in_namespace(product::SYSTEM);
    let kinds = "modelcompilations,tuningruns,jobs,pods,events,leases";
    let objects = cluster.kubectl().run(&["get", kinds, "--all-namespaces", "-o", "yaml"]);
    let log = ["logs", "-l", "app.kubernetes.io/name=hone", "--tail=20000", "--prefix"];
    let asked: Vec<String> = work.compilations.iter().map(|one| format!("{one:?}\n")).collect();
    let files = [
        ("objects.yaml", objects),
        ("operator.log", system.run(&log)),
        ("compilations.txt", Ok(asked.concat())),
        ("store.txt", work.stored()),
    ];
    for (name, text) in files {
        fs::write(folder.join(name), text.unwrap_or_else(|error| format!("{error:#}")))?;
    }
    keep_logs(cluster, &folder)?;
    println!("evidence is in {}", folder.display());
    Ok(())
}
