//! Tuning runs under kills: each is searched by one pod and one session, and its log is looked at all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hone_cluster_tests::{Cluster, Kubectl, eventually};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{PATIENCE, SETTLE};
use crate::tuning_log;

/// Trials of each run.
const TRIALS: usize = 300;

/// The runs, and what was seen of their logs.
pub struct Searches {
    kubectl: Kubectl,
    store: PathBuf,
    made: usize,
    /// Digests of segments when they were seen first, by run and name.
    seen: BTreeMap<(usize, String), String>,
    /// When a segment was seen last, and the longest time between two of one run.
    last: Option<(usize, Instant)>,
    longest: Duration,
}

impl Searches {
    /// None yet.
    pub fn new(cluster: &Cluster, kubectl: Kubectl) -> Self {
        Self {
            kubectl,
            store: cluster.directory().join("s3/artifacts/chaos-runs"),
            made: 0,
            seen: BTreeMap::new(),
            last: None,
            longest: Duration::ZERO,
        }
    }

    /// How many were made.
    pub fn made(&self) -> usize {
        self.made
    }

    /// Makes another run once all are finished.
    pub fn top_up(&mut self) -> Result<()> {
        let phases = eventually("the tuning runs", PATIENCE, || {
            let words = format!("tuningruns -l {OURS}");
            self.kubectl.text(&words, "{.items[*].status.phase}").map(Some)
        })?;
        let ended = |phase: &&str| matches!(*phase, "Succeeded" | "Failed");
        if phases.split_whitespace().filter(ended).count() == self.made {
            let yaml = run(self.made);
            eventually("a tuning run", PATIENCE, || self.kubectl.apply(&yaml).map(Some))?;
            self.made += 1;
        }
        Ok(())
    }

    /// Remembers which segments there are: whatever is in one was acknowledged.
    pub fn look(&mut self) -> Result<()> {
        for number in 0..self.made {
            for (name, bytes) in self.segments(number)? {
                let digest = digest(&bytes);
                let key = (number, name);
                if let Some(before) = self.seen.get(&key) {
                    ensure!(*before == digest, "segment {key:?} has changed");
                    continue;
                }
                self.seen.insert(key, digest);
                let now = Instant::now();
                if let Some((_, then)) = self.last.filter(|(run, _)| *run == number) {
                    self.longest = self.longest.max(now - then);
                }
                self.last = Some((number, now));
            }
        }
        Ok(())
    }

    /// The segments of a run's log, by name.
    fn segments(&self, number: usize) -> Result<Vec<(String, Vec<u8>)>> {
        tuning_log::segments(&self.store.join(format!("r{number}")))
    }

    /// Waits for all runs and judges them.
    pub fn judge(&mut self) -> Result<()> {
        eventually("all tuning runs to finish", SETTLE, || {
            let finished = r#"{.items[*].status.conditions[?(@.type=="Finished")].status}"#;
            let states = self.kubectl.text(&format!("tuningruns -l {OURS}"), finished)?;
            let done = states.split_whitespace().filter(|state| *state == "True").count();
            ensure!(done == self.made, "{done} of {} tuning runs", self.made);
            Ok(Some(()))
        })?;
        self.look()?;
        let mut trials = 0;
        for number in 0..self.made {
            let name = format!("r{number}");
            let status = self.kubectl.json(&format!("tuningrun/{name}"))?["status"].clone();
            trials += self.judge_one(number, &status).with_context(|| name.clone())?;
        }
        println!(
            "{} tuning runs ended right: {trials} trials, none lost, none twice; {} segments, at most {:.0} s between two",
            self.made,
            self.seen.len(),
            self.longest.as_secs_f64()
        );
        self.kubectl.run(&["delete", "tuningruns", "-l", OURS, "--wait=false"]).map(drop)
    }

    fn judge_one(&self, number: usize, status: &Value) -> Result<usize> {
        ensure!(status["phase"] == "Succeeded", "{}", status["failure"]);
        let segments = self.segments(number)?;
        let names: BTreeSet<&String> = segments.iter().map(|(name, _)| name).collect();
        let seen = self.seen.keys().filter(|(run, _)| *run == number);
        for (_, name) in seen {
            ensure!(names.contains(name), "segment {name} is gone");
        }
        let counted = tuning_log::judge(&segments, status)?;
        ensure!(counted == TRIALS, "{counted} of {TRIALS}");
        Ok(counted)
    }
}

/// The label of the runs that are made here.
const OURS: &str = "chaos=run";

fn run(number: usize) -> String {
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: TuningRun
metadata: {{name: r{number}, labels: {{chaos: run}}}}
spec:
  model: {{uri: 's3://models/digits.onnx', credentialsSecretRef: {{name: store}}}}
  target: {{os: linux, arch: amd64, cpu: host}}
  pool: amd64
  parallelDevices: 2
  search: {{strategy: Random, seed: {number}}}
  stop: {{maxTrials: {TRIALS}}}
  log: {{uri: 's3://artifacts/chaos-runs/r{number}', credentialsSecretRef: {{name: store}}}}
  limits: {{retries: 10}}
  worker: {{resources: {{requests: {{cpu: 100m, memory: 1Gi}}}}}}
"
    )
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
