//! `cargo xtask chaos`: kills at random moments while compilations and tuning runs are under way, and a judgement of what
//! is left: every compilation ended right, no artifact twice, no trial lost or counted twice, no finalizer stuck.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, Kubectl, eventually, product};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::repository;

mod faults;
mod searches;

use faults::Fault;
use hone_types::Random;
use searches::Searches;

/// Compilations that are under way at once.
const UNDER_WAY: usize = 4;
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
    product::install(&cluster)?;
    let shared = r#"{"spec":{"exclusivity":"Shared"}}"#;
    cluster.kubectl().run(&["patch", "devicepool/amd64", "--type=merge", "-p", shared])?;
    let kubectl = cluster.kubectl().in_namespace("default");
    product::store_secret(&cluster, &kubectl)?;
    let model = repository::root().join("examples/digits/digits.onnx");
    product::upload(&cluster, &model, "models/digits.onnx")?;

    let mut work = Work { kubectl: kubectl.clone(), made: 0 };
    let mut searches = Searches::new(&cluster, kubectl.clone());
    let mut random = Random::new(arguments.seed);
    let mut killed: BTreeMap<Fault, usize> = BTreeMap::new();
    let start = Instant::now();
    for number in 0..arguments.kills {
        work.top_up()?;
        searches.top_up()?;
        searches.look()?;
        std::thread::sleep(Duration::from_millis(random.below(arguments.pause as usize) as u64));
        let fault = Fault::draw(&mut random);
        let hit = fault.strike(&cluster, &kubectl, &mut random)?;
        println!(
            "{:6.1} s  kill {:3} of {}: {hit}",
            start.elapsed().as_secs_f64(),
            number + 1,
            arguments.kills
        );
        *killed.entry(fault).or_default() += 1;
    }
    println!(
        "{:6.1} s  no more kills; waiting for {} compilations and {} tuning runs",
        start.elapsed().as_secs_f64(),
        work.made,
        searches.made()
    );
    let verdict = searches.judge().and_then(|()| judge(&cluster, &work, start));
    println!("\nseed {}, {} kills: {killed:?}", arguments.seed, arguments.kills);
    if let Err(error) = &verdict {
        keep_evidence(&cluster, &kubectl, error)?;
    }
    verdict
}

/// The compilations.
struct Work {
    kubectl: Kubectl,
    made: usize,
}

impl Work {
    /// Makes new ones for those that are finished.
    fn top_up(&mut self) -> Result<()> {
        let phases = eventually("the compilations", PATIENCE, || {
            self.kubectl.text("modelcompilations", "{.items[*].status.phase}").map(Some)
        })?;
        let ended = |phase: &&str| matches!(*phase, "Succeeded" | "Failed");
        let done = phases.split_whitespace().filter(ended).count();
        while self.made < done + UNDER_WAY {
            let yaml = compilation(self.made);
            eventually("a compilation", PATIENCE, || self.kubectl.apply(&yaml).map(Some))?;
            self.made += 1;
        }
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.made).map(|number| format!("c{number}"))
    }
}

/// Whether a compilation asks for tuning.
fn is_tuned(number: usize) -> bool {
    number % 8 == 3
}

/// Each has a folder of its own, so that none is another's; every second deletes what it stored, and some are tuned.
fn compilation(number: usize) -> String {
    let policy = if number.is_multiple_of(2) { "Retain" } else { "Delete" };
    let tuning = if is_tuned(number) { "  tuning: {maxTrials: 40}\n" } else { "" };
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: c{number}}}
spec:
  model: {{uri: 's3://models/digits.onnx', credentialsSecretRef: {{name: store}}}}
  targets: [{{name: main, pool: amd64}}]
  output:
    uri: 's3://artifacts/chaos/c{number}'
    credentialsSecretRef: {{name: store}}
    deletionPolicy: {policy}
  limits: {{retries: 10}}
{tuning}  worker: {{resources: {{requests: {{cpu: 100m, memory: 256Mi}}}}}}
"
    )
}

fn judge(cluster: &Cluster, work: &Work, start: Instant) -> Result<()> {
    eventually("all compilations to finish", SETTLE, || {
        let finished = r#"{.items[*].status.conditions[?(@.type=="Finished")].status}"#;
        let states = work.kubectl.text("modelcompilations", finished)?;
        let done = states.split_whitespace().filter(|state| *state == "True").count();
        ensure!(done == work.made, "{done} of {}", work.made);
        Ok(Some(()))
    })?;
    println!("{:6.1} s  all are finished", start.elapsed().as_secs_f64());
    let mut wrong = Vec::new();
    for (number, name) in work.names().enumerate() {
        let status = work.kubectl.json(&format!("modelcompilation/{name}"))?["status"].clone();
        if let Err(error) = artifact_once(cluster, (number, &name), &status) {
            wrong.push(format!("{name}: {error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), work.made, wrong.join("\n"));
    work.kubectl.run(&["delete", "modelcompilations", "--all", "--wait=false"])?;
    eventually("all compilations to go", SETTLE, || {
        let left = work.kubectl.text("modelcompilations", "{.items[*].metadata.name}")?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(Some(()))
    })?;
    for (number, name) in work.names().enumerate() {
        let left = stored(cluster, &name)?.len();
        let right = if number.is_multiple_of(2) { left > 0 } else { left == 0 };
        ensure!(right, "{name} has {left} files after its deletion");
    }
    println!(
        "{:6.1} s  {} compilations ended right, each artifact is there once, no finalizer is stuck",
        start.elapsed().as_secs_f64(),
        work.made
    );
    Ok(())
}

/// Files of a compilation in the store, but for its tuning log, which stays.
fn stored(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let folder = cluster.directory().join("s3/artifacts/chaos").join(name);
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<Result<Vec<String>>>()?;
    Ok(names.into_iter().filter(|name| name != "tuning").collect())
}

fn artifact_once(cluster: &Cluster, (number, name): (usize, &str), status: &Value) -> Result<()> {
    if status["phase"] != "Succeeded" {
        bail!("{} ({})", status["phase"], status["failure"]);
    }
    let artifact = &status["targets"][0]["artifact"];
    let uri = artifact["uri"].as_str().context("it has no artifact")?;
    let folder = repository::scratch().join("chaos");
    fs::create_dir_all(&folder)?;
    let file = folder.join("artifact.hone");
    product::download(cluster, uri, &file)?;
    let hash = Sha256::digest(fs::read(&file)?);
    let digest: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(artifact["digest"] == format!("sha256:{digest}"), "digest {digest}, status {artifact}");
    let files = stored(cluster, name)?;
    let artifacts = files.iter().filter(|file| file.ends_with(".hone")).count();
    // What was published before tuning stays beside what won.
    let most = if is_tuned(number) { 2 } else { 1 };
    ensure!((1..=most).contains(&artifacts), "{artifacts} artifacts: {files:?}");
    if is_tuned(number) {
        let tuning = &status["targets"][0]["tuning"];
        ensure!(tuning["phase"] == "Succeeded", "its tuning: {tuning}");
    }
    Ok(())
}

fn keep_evidence(cluster: &Cluster, kubectl: &Kubectl, error: &anyhow::Error) -> Result<()> {
    let folder = repository::scratch().join("chaos");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("error.txt"), format!("{error:#}"))?;
    let system = cluster.kubectl().in_namespace(product::SYSTEM);
    for (name, said) in [
        (
            "objects.yaml",
            kubectl.run(&["get", "modelcompilations,tuningruns,jobs,pods,events", "-o", "yaml"]),
        ),
        (
            "operator.log",
            system.run(&["logs", "-l", "app.kubernetes.io/name=hone", "--tail=5000", "--prefix"]),
        ),
    ] {
        fs::write(folder.join(name), said.unwrap_or_else(|error| format!("{error:#}")))?;
    }
    println!("evidence is in {}", folder.display());
    Ok(())
}
