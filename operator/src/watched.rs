//! The facts that are kept of Jobs, pods and nodes.

use std::collections::BTreeMap;

use hone_crds::ModelCompilation;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use crate::facts::Fact;
use crate::model_compilation::model::{Finish, JobView, Purpose};
use crate::model_compilation::names;
use crate::seen::{SeenJob, SeenNode, SeenPod};

/// Label, set by the Job controller: the Job that a pod belongs to.
pub const JOB_LABEL: &str = "batch.kubernetes.io/job-name";

/// One of our Jobs. Its group is the uid of its compilation.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// Its namespace.
    pub namespace: String,
    /// What planning sees of it.
    pub view: JobView,
    /// The pool in which it compiles.
    pub pool: Option<String>,
    /// When it began.
    pub since: Option<Time>,
}

impl Fact for JobFacts {
    fn name(&self) -> &str {
        &self.view.name
    }
}

impl JobFacts {
    /// Whether its first pod runs, and that is all there is to say.
    pub fn runs(&self) -> bool {
        let view = &self.view;
        view.ready > 0 && view.failed == 0 && view.finish.is_none() && !view.deleting
    }
}

/// Group and facts of a Job.
pub fn job(job: &SeenJob) -> (String, JobFacts) {
    let label = |key: &str| job.labels().get(key).cloned();
    let cleanup = label(names::PURPOSE_LABEL).as_deref() == Some(names::PURPOSE_CLEANUP);
    let view = JobView {
        name: job.name_any(),
        purpose: if cleanup { Purpose::Cleanup } else { Purpose::Compile },
        created: job.meta().creation_timestamp.clone(),
        deleting: job.meta().deletion_timestamp.is_some(),
        ready: job.status.ready.unwrap_or(0),
        fresh: false,
        failed: job.status.failed.unwrap_or(0),
        finish: finish(job),
        active_deadline_seconds: job.spec.active_deadline_seconds,
        backoff_limit: job.spec.backoff_limit,
    };
    let facts = JobFacts {
        namespace: job.namespace().unwrap_or_default(),
        view,
        pool: label(names::POOL_LABEL),
        since: job.status.start_time.clone(),
    };
    (uid(job), facts)
}

/// The uid of the compilation that a Job is for.
pub fn uid(job: &SeenJob) -> String {
    job.labels().get(names::UID_LABEL).cloned().unwrap_or_default()
}

/// How a Job ended; `None` while it is under way.
fn finish(job: &SeenJob) -> Option<Finish> {
    let conditions = job.status.conditions.as_ref()?;
    let is = |kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
    };
    if is("Complete").is_some() {
        return Some(Finish::Complete);
    }
    let failed = is("Failed")?;
    Some(Finish::Failed(failed.reason.clone().unwrap_or_default()))
}

/// The compilation that owns a Job.
pub fn owner(job: &SeenJob) -> Option<ObjectRef<ModelCompilation>> {
    let owners = job.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.kind == ModelCompilation::kind(&()));
    let name = &owners.next()?.name;
    Some(ObjectRef::new(name).within(&job.namespace().unwrap_or_default()))
}

/// A worker's pod that ended. Its group is that of [`pods_of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    name: String,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// When the worker ended, where that is known.
    pub at: Option<Time>,
    /// The worker's exit code.
    pub exit_code: i32,
    /// Why it ended, where more than the exit code says, such as `OOMKilled` or `Evicted`.
    pub reason: String,
    /// What the worker left behind.
    pub message: String,
}

impl Fact for PodFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The group of the pods of a Job.
pub fn pods_of(namespace: &str, job: &str) -> String {
    format!("{namespace}/{job}")
}

/// Group and facts of a pod that ended.
pub fn pod(pod: &SeenPod) -> (String, PodFacts) {
    let end = terminated(pod);
    let reason = end.and_then(|end| end.reason.clone());
    let facts = PodFacts {
        name: pod.name_any(),
        succeeded: pod.status.phase == "Succeeded",
        at: end.and_then(|end| end.finished_at.clone()),
        exit_code: end.map_or(0, |end| end.exit_code),
        reason: reason
            .filter(|reason| reason != "Error" && reason != "Completed")
            .or_else(|| pod.status.reason.clone())
            .unwrap_or_default(),
        message: end.and_then(|end| end.message.clone()).unwrap_or_default(),
    };
    let job = pod.labels().get(JOB_LABEL).cloned().unwrap_or_default();
    (pods_of(&pod.namespace().unwrap_or_default(), &job), facts)
}

fn terminated(pod: &SeenPod) -> Option<&ContainerStateTerminated> {
    let containers = &pod.status.container_statuses;
    let worker = containers.iter().find(|c| c.name == names::CONTAINER)?;
    worker.state.as_ref()?.terminated.as_ref()
}

/// A node. Its group is its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is ready and takes pods.
    pub usable: bool,
    /// What keeps pods away.
    pub taints: Vec<Taint>,
    /// How many it has of each resource that is counted in whole pieces and is not every node's.
    pub devices: Vec<(String, i64)>,
}

impl Fact for NodeFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Group and facts of a node.
pub fn node(node: &SeenNode) -> (String, NodeFacts) {
    let ready = node.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let extended = node.status.allocatable.iter().filter(|(name, _)| name.contains('/'));
    let devices = extended.filter_map(|(name, count)| Some((name.clone(), count.0.parse().ok()?)));
    let facts = NodeFacts {
        name: node.name_any(),
        labels: node.labels().clone(),
        usable: ready && !node.spec.unschedulable,
        taints: node.spec.taints.clone(),
        devices: devices.collect(),
    };
    (facts.name.clone(), facts)
}
