//! The operator as a process of this machine.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};
use hone_cluster_tests::{Cluster, eventually, product};

use super::metrics::Metrics;
use super::{Arguments, NAMESPACE};
use crate::repository;

/// A process that is ended when this is dropped.
pub struct Operator {
    child: Child,
    address: String,
}

impl Operator {
    /// Starts it and waits until it serves metrics.
    ///
    /// # Errors
    /// When it cannot be run, or does not come up.
    pub fn start(cluster: &Cluster, arguments: &Arguments) -> Result<Self> {
        let address = {
            let free = std::net::TcpListener::bind("127.0.0.1:0")?;
            free.local_addr()?.to_string()
        };
        let folder = repository::scratch().join("scale");
        fs::create_dir_all(&folder)?;
        let log = fs::File::create(folder.join("operator.log"))?;
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

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its metrics.
    ///
    /// # Errors
    /// When it has ended.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(&self.address)
    }

    /// A line of the process's status, such as `VmRSS:`, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self, line: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let value = text.lines().find_map(|l| l.strip_prefix(line)).context("no such line")?;
        let kib: u64 = value.split_whitespace().next().context("no number")?.parse()?;
        Ok(kib << 10)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
