//! Leases of devices: while everything is killed, never two Jobs in one slot; in the end, none is held.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use hone_cluster_tests::{Cluster, eventually, product};
use serde_json::Value;

use super::SETTLE;

/// What was seen of slots.
#[derive(Default)]
pub struct Leases {
    /// How many looks found a slot in use.
    pub in_use: usize,
}

impl Leases {
    /// Looks at the pods that are not over: those of one slot must be of one Job. Nothing is learned while the API server
    /// is down.
    ///
    /// # Errors
    /// When two Jobs are in one slot.
    pub fn look(&mut self, cluster: &Cluster) -> Result<()> {
        let words = "pods --all-namespaces -l app.kubernetes.io/managed-by=hone-operator";
        let Ok(pods) = cluster.kubectl().json(words) else { return Ok(()) };
        let mut slots: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let metadata = &pod["metadata"];
            let slot = metadata["annotations"]["hone.dev/slot"].as_str();
            let job = metadata["labels"]["batch.kubernetes.io/job-name"].as_str();
            if let (false, Some(slot), Some(job)) = (over, slot, job) {
                slots.entry(slot).or_default().insert(job);
            }
        }
        self.in_use += usize::from(!slots.is_empty());
        let crowded = slots.iter().find(|(_, jobs)| jobs.len() > 1);
        ensure!(crowded.is_none(), "two Jobs are in one slot: {crowded:?}");
        Ok(())
    }

    /// Waits until no device is leased, since nothing is at work, and until a replica that is there leads.
    ///
    /// # Errors
    /// When a Lease stays with a holder that is gone.
    pub fn judge(&self, cluster: &Cluster) -> Result<()> {
        ensure!(self.in_use > 0, "no device was ever leased: the suite tests no leases");
        let system = cluster.kubectl().in_namespace(product::SYSTEM);
        eventually("every lease of a device to end", SETTLE, || {
            let leases = system.json("leases -l hone.dev/lease=device")?;
            let holder =
                |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
            let leases = leases["items"].as_array().cloned().unwrap_or_default();
            ensure!(!leases.is_empty(), "there is no Lease of a device");
            let held: Vec<String> = leases.iter().filter_map(holder).collect();
            let held: Vec<&String> = held.iter().filter(|holder| !holder.is_empty()).collect();
            ensure!(held.is_empty(), "held by {held:?}");
            Ok(Some(()))
        })?;
        eventually("a replica that is there to lead", SETTLE, || {
            let leader = product::leader(cluster)?;
            system.run(&["get", "pod", &leader]).map(Some)
        })
        .map(drop)
    }
}
