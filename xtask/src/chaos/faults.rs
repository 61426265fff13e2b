//! What is killed, and how it comes back.

use std::time::Duration;

use anyhow::{Context, Result};
use hone_cluster_tests::{Cluster, Kubectl, product};

use hone_types::Random;

use super::first_line;

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
    /// The API server, and while it is away etcd is compacted: every watch must list again.
    Compaction,
    /// The node with its agent, its container runtime and every container at once; it is then started again.
    Node,
}

/// Each with how likely it is. The node ends every pod, and after the API server was away the scheduler and the
/// kubelet back off for up to a minute: where these were as likely as the others, nothing would run that could be hit.
const ALL: [(Fault, usize); 9] = [
    (Fault::Leader, 3),
    (Fault::OperatorPod, 3),
    (Fault::Worker, 4),
    (Fault::WorkerPod, 4),
    (Fault::Kubelet, 2),
    (Fault::ApiServer, 1),
    (Fault::Store, 2),
    (Fault::Compaction, 1),
    (Fault::Node, 1),
];

impl Fault {
    /// One of all, as likely as the table says.
    pub fn draw(random: &mut Random) -> Self {
        let all = ALL.iter().flat_map(|(fault, weight)| std::iter::repeat_n(*fault, *weight));
        let all: Vec<Self> = all.collect();
        random.pick(&all).copied().unwrap_or(Self::Leader)
    }

    /// Kills, and tells what was hit. It is no error that nothing of the kind was there: the text tells so.
    ///
    /// # Errors
    /// When what was killed cannot be started again.
    pub fn strike(self, cluster: &Cluster, random: &mut Random) -> Result<String> {
        let system = cluster.kubectl().in_namespace(product::SYSTEM);
        // Drawn in any case, so that the sequence does not depend on what was there.
        let (choice, downtime) = (random.bits(), random.below(3000) as u64);
        let hit = match self {
            Self::Leader => product::leader(cluster).and_then(|pod| {
                product::container(cluster, &pod, "operator", "kill -s SIGKILL")?;
                Ok(pod)
            }),
            Self::OperatorPod => delete(&system, "app.kubernetes.io/name=hone", choice),
            Self::Worker => pick(cluster.kubectl(), WORKERS, choice).and_then(|(_, pod)| {
                product::container(cluster, &pod, "worker", "kill -s SIGKILL")?;
                Ok(pod)
            }),
            Self::WorkerPod => delete(cluster.kubectl(), WORKERS, choice),
            Self::Kubelet => Ok(restart(cluster, "kubelet", downtime)?),
            Self::ApiServer => Ok(restart(cluster, "kube-apiserver", downtime)?),
            Self::Store => Ok(restart(cluster, "s3", downtime)?),
            Self::Compaction => Ok(compact(cluster, downtime)?),
            Self::Node => Ok(crash(cluster, downtime)?),
        };
        Ok(match hit {
            Ok(what) => format!("{self:?} {what}"),
            Err(error) => format!("{self:?}: nothing hit ({})", first_line(&error)),
        })
    }
}

const WORKERS: &str = "app.kubernetes.io/managed-by=hone-operator";

/// Namespace and name of a running pod with a label.
fn pick(kubectl: &Kubectl, label: &str, choice: u64) -> Result<(String, String)> {
    let scope = kubectl.namespace().map_or("--all-namespaces", |_| "");
    let words = format!("pods {scope} -l {label} --field-selector=status.phase=Running");
    let template = r#"{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}"#;
    let text = kubectl.text(&words, template)?;
    let pods: Vec<(&str, &str)> =
        text.split_whitespace().filter_map(|pod| pod.split_once('/')).collect();
    let index = choice.checked_rem(pods.len() as u64).context("no such pod runs")?;
    let (namespace, pod) = pods[index as usize];
    Ok((namespace.to_owned(), pod.to_owned()))
}

fn delete(kubectl: &Kubectl, label: &str, choice: u64) -> Result<String> {
    let (namespace, pod) = pick(kubectl, label, choice)?;
    let kubectl = kubectl.in_namespace(&namespace);
    kubectl.run(&["delete", "pod", &pod, "--grace-period=0", "--force", "--wait=false"])?;
    Ok(pod)
}

fn restart(cluster: &Cluster, service: &str, downtime: u64) -> Result<String> {
    cluster.service("kill", service)?;
    std::thread::sleep(Duration::from_millis(downtime));
    cluster.service("start", service)?;
    Ok(format!("for {downtime} ms"))
}

/// While the API server is away nothing can be written, so that the compaction covers all that watches have seen.
fn compact(cluster: &Cluster, downtime: u64) -> Result<String> {
    cluster.service("kill", "kube-apiserver")?;
    let revision = cluster.compact()?;
    std::thread::sleep(Duration::from_millis(downtime));
    cluster.service("start", "kube-apiserver")?;
    Ok(format!("at revision {revision}, for {downtime} ms"))
}

fn crash(cluster: &Cluster, downtime: u64) -> Result<String> {
    cluster.crash_node()?;
    std::thread::sleep(Duration::from_millis(downtime));
    cluster.start_node()?;
    Ok(format!("for {downtime} ms"))
}
