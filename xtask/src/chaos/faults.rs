//! What is killed, and how it comes back.

use std::time::Duration;

use anyhow::{Result, bail};
use hone_cluster_tests::{Cluster, Kubectl, product};

use hone_types::Random;

/// A kind of kill. None of them is announced to the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The replica that leads.
    Leader,
    /// Any pod of the operator, deleted without grace.
    OperatorPod,
    /// A worker's process.
    Worker,
    /// A worker's pod, deleted without grace.
    WorkerPod,
    /// The node's agent, which is then started again.
    Kubelet,
    /// The API server, which is then started again.
    ApiServer,
    /// The object store, which is then started again.
    Store,
}

const ALL: [Fault; 7] = [
    Fault::Leader,
    Fault::OperatorPod,
    Fault::Worker,
    Fault::WorkerPod,
    Fault::Kubelet,
    Fault::ApiServer,
    Fault::Store,
];

impl Fault {
    /// One of all, each as likely as the other.
    pub fn draw(random: &mut Random) -> Self {
        ALL[random.below(ALL.len())]
    }

    /// Kills, and says what was hit. That nothing of the kind was there is no error: it is said.
    pub fn strike(
        self,
        cluster: &Cluster,
        kubectl: &Kubectl,
        random: &mut Random,
    ) -> Result<String> {
        let system = cluster.kubectl().in_namespace(product::SYSTEM);
        // Drawn in any case, so that the sequence does not depend on what was there.
        let (choice, downtime) = (random.bits(), random.below(3000) as u64);
        let hit = match self {
            Self::Leader => product::leader(cluster).and_then(|pod| {
                product::container(cluster, &pod, "operator", "kill -s SIGKILL")?;
                Ok(pod)
            }),
            Self::OperatorPod => delete(&system, "app.kubernetes.io/name=hone", choice),
            Self::Worker => pick(kubectl, WORKERS, choice).and_then(|pod| {
                product::container(cluster, &pod, "worker", "kill -s SIGKILL")?;
                Ok(pod)
            }),
            Self::WorkerPod => delete(kubectl, WORKERS, choice),
            Self::Kubelet => restart(cluster, "kubelet", downtime),
            Self::ApiServer => restart(cluster, "kube-apiserver", downtime),
            Self::Store => restart(cluster, "s3", downtime),
        };
        Ok(match hit {
            Ok(what) => format!("{self:?} {what}"),
            Err(error) => format!("{self:?}: nothing hit ({})", first_line(&error)),
        })
    }
}

const WORKERS: &str = "app.kubernetes.io/managed-by=hone-operator";

fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().chars().take(100).collect()
}

/// The name of a running pod with a label.
fn pick(kubectl: &Kubectl, label: &str, choice: u64) -> Result<String> {
    let words = format!("pods -l {label} --field-selector=status.phase=Running");
    let names = kubectl.text(&words, "{.items[*].metadata.name}")?;
    let names: Vec<&str> = names.split_whitespace().collect();
    match names.len() {
        0 => bail!("no such pod runs"),
        count => Ok(names[(choice % count as u64) as usize].to_owned()),
    }
}

fn delete(kubectl: &Kubectl, label: &str, choice: u64) -> Result<String> {
    let pod = pick(kubectl, label, choice)?;
    kubectl.run(&["delete", "pod", &pod, "--grace-period=0", "--force", "--wait=false"])?;
    Ok(pod)
}

fn restart(cluster: &Cluster, service: &str, downtime: u64) -> Result<String> {
    cluster.service("kill", service)?;
    std::thread::sleep(Duration::from_millis(downtime));
    cluster.service("start", service)?;
    Ok(format!("for {downtime} ms"))
}
