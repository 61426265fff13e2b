//! What is kept of a failed test: enough to see why without running it again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::{Cluster, Kubectl};

/// The longest part of a component's log that is copied, in bytes.
pub(crate) const LOG_TAIL: usize = 200_000;

/// Writes the namespace's objects, events and container logs and the ends of the components' logs
/// into a directory, and returns it. What cannot be had is left out.
pub(crate) fn collect(cluster: &Cluster, test: &str, kubectl: &Kubectl) -> Result<PathBuf> {
    let directory = cluster.evidence(test)?;
    let questions: [(&str, &[&str]); 4] = [
        ("objects.yaml", &["get", "all,configmaps,leases,events", "-o", "yaml"]),
        ("events.txt", &["get", "events", "--sort-by=.metadata.creationTimestamp"]),
        ("pods.txt", &["describe", "pods"]),
        ("nodes.txt", &["describe", "nodes"]),
    ];
    for (file, question) in questions {
        let answer = kubectl.run(question).unwrap_or_else(|error| format!("{error:#}\n"));
        fs::write(directory.join(file), answer)?;
    }
    if let Ok(pods) = kubectl.json("pods") {
        for name in names(&pods) {
            for (suffix, previous) in [("log", "--previous=false"), ("previous.log", "--previous")]
            {
                let log = kubectl.run(&["logs", &name, "--all-containers", previous]);
                if let Ok(log) = log
                    && !log.is_empty()
                {
                    fs::write(directory.join(format!("{name}.{suffix}")), log)?;
                }
            }
        }
    }
    keep_logs(cluster, &directory)?;
    Ok(directory)
}

/// Copies the ends of the logs of the cluster's processes into a directory.
///
/// # Errors
/// When the directory cannot be written.
pub fn keep_logs(cluster: &Cluster, directory: &Path) -> Result<()> {
    for entry in fs::read_dir(cluster.directory())?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log")
            && let Ok(text) = fs::read(&path)
        {
            let from = text.len().saturating_sub(LOG_TAIL);
            fs::write(directory.join(entry.file_name()), &text[from..])?;
        }
    }
    Ok(())
}

fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .map(str::to_owned)
        .collect()
}
