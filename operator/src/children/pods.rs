//! Our Jobs' pods: how one ended, and why one does not start.

use hone_artifact::termination::Termination;
use k8s_openapi::api::core::v1::ContainerStateTerminated;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::bounds::bounded;
use super::reasons::Reason;
use super::{names, owner};
use crate::runtime::cache::Cached;
use crate::seen::SeenPod;

/// Label, set by the Job controller: the uid of the Job that a pod belongs to.
pub const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// Label, set by the Job controller: the name of the Job that a pod belongs to.
pub const JOB_LABEL: &str = "batch.kubernetes.io/job-name";

/// A pod of one of our Jobs. Its group is that of the Job's children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    name: String,
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// The uid of its Job.
    pub job_uid: String,
    /// The uid of the compilation, as its label says.
    pub owner_uid: String,
    /// Its node, where it has one.
    pub node: Option<String>,
    /// When it should have ended, where it was evicted or deleted.
    pub ends: Option<Time>,
    /// Why it waits, where it does.
    pub waiting: Option<Waiting>,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Whether all its containers ended.
    pub ended: bool,
    /// When the worker ended, where that is known.
    pub at: Option<Time>,
    /// The worker's exit code.
    pub exit_code: i32,
    /// Why it ended, where more than the exit code says, such as `OOMKilled` or `Evicted`.
    pub reason: String,
    /// What the worker left behind.
    pub message: String,
}

/// A pod that has not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Whether it has a node, and so holds its device.
    pub scheduled: bool,
    /// Since when it has a node, or lacks one.
    pub since: Option<Time>,
    /// Whether it waits at our gate for its device.
    pub gated: bool,
    /// The container's or the scheduler's reason.
    pub reason: String,
    /// What goes with it.
    pub message: String,
}

/// Why no worker runs for a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    /// The word.
    pub reason: Reason,
    /// The words of whoever said so: the scheduler, the kubelet or the API server.
    pub message: String,
}

impl Cached for PodFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Group and facts of a pod; none of pods that no Job controls.
pub fn facts(pod: &SeenPod) -> Option<(String, PodFacts)> {
    let job = owner::controller(pod.meta(), "batch", "Job")?;
    let end = terminated(pod);
    let reason = end.and_then(|end| end.reason.clone());
    let namespace = pod.namespace().unwrap_or_default();
    let facts = PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        job_uid: job.uid.clone(),
        owner_uid: pod.labels().get(names::UID_LABEL).cloned().unwrap_or_default(),
        node: pod.spec.node_name.clone(),
        ends: pod.meta().deletion_timestamp.clone(),
        waiting: (pod.status.phase == "Pending").then(|| waiting(pod)),
        succeeded: pod.status.phase == "Succeeded",
        ended: pod.status.phase == "Succeeded" || pod.status.phase == "Failed",
        at: end.and_then(|end| end.finished_at.clone()),
        exit_code: end.map_or(0, |end| end.exit_code),
        reason: reason
            .filter(|reason| reason != "Error" && reason != "Completed")
            .or_else(|| pod.status.reason.clone())
            .unwrap_or_default(),
        message: end.and_then(|end| end.message.clone()).unwrap_or_default(),
        namespace,
    };
    Some((owner::group(&facts.namespace, &facts.job_uid), facts))
}

fn terminated(pod: &SeenPod) -> Option<&ContainerStateTerminated> {
    let containers = &pod.status.container_statuses;
    let worker = containers.iter().find(|c| c.name == names::CONTAINER)?;
    worker.state.as_ref()?.terminated.as_ref()
}

fn waiting(pod: &SeenPod) -> Waiting {
    let scheduled = pod.status.conditions.iter().find(|c| c.type_ == "PodScheduled");
    let has_node = scheduled.is_some_and(|condition| condition.status == "True");
    let containers = pod.status.container_statuses.iter();
    let container = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref()).next();
    let (reason, message) = match (has_node, container) {
        (true, Some(waiting)) => (waiting.reason.clone(), waiting.message.clone()),
        (true, None) => (None, None),
        (false, _) => scheduled.map_or((None, None), |c| (c.reason.clone(), c.message.clone())),
    };
    Waiting {
        scheduled: has_node,
        gated: pod.spec.scheduling_gates.iter().any(|gate| gate.name == names::DEVICE_GATE),
        since: scheduled.and_then(|condition| condition.last_transition_time.clone()),
        reason: reason.unwrap_or_default(),
        message: bounded(&message.unwrap_or_default(), MESSAGE).to_owned(),
    }
}

/// Most bytes of a message that are kept.
const MESSAGE: usize = 800;

/// What an error message contains, and what that means; the first that fits counts.
type Words = &'static [(&'static str, Reason)];

/// What the scheduler says of pods that it cannot place.
const SCHEDULER: Words = &[
    ("persistentvolumeclaim", Reason::VolumeClaimNotFound),
    ("resourceclaim", Reason::ResourceClaimMissing),
];

/// What the API server says to the Job controller.
const CREATION: Words = &[
    ("exceeded quota", Reason::QuotaExceeded),
    ("failed quota", Reason::QuotaExceeded),
    ("violates PodSecurity", Reason::PodSecurityViolation),
    ("service account", Reason::ServiceAccountNotFound),
    ("serviceaccount", Reason::ServiceAccountNotFound),
    ("no PriorityClass with name", Reason::PriorityClassNotFound),
    ("RuntimeClass", Reason::RuntimeClassNotFound),
    ("is invalid", Reason::PodInvalid),
];

/// What the kubelet says of volumes and claims.
const KUBELET: Words = &[
    ("secret", Reason::SecretNotFound),
    ("configmap", Reason::ConfigMapNotFound),
    ("persistentvolumeclaim", Reason::VolumeClaimNotFound),
];

fn find(words: Words, message: &str) -> Option<Reason> {
    words.iter().find(|(word, _)| message.contains(word)).map(|(_, reason)| *reason)
}

impl Waiting {
    /// Why the pod waits, as far as its status says; `None` where only events could.
    pub fn classify(&self) -> Option<Wait> {
        let message = self.message.as_str();
        let reason = match self.reason.as_str() {
            _ if self.gated => Reason::WaitingForDevice,
            // Another's gate, or ours until the scheduler looks again.
            "SchedulingGated" => return None,
            _ if !self.scheduled => {
                let absent = message.contains("not found") || message.contains("resourceclaim");
                let known = find(SCHEDULER, message).filter(|_| absent);
                match self.reason.as_str() {
                    "" => return None,
                    _ => known.unwrap_or(Reason::Unschedulable),
                }
            }
            "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "RegistryUnavailable" => {
                Reason::ImagePullFailed
            }
            "InvalidImageName" => Reason::InvalidImageName,
            "CreateContainerConfigError" => match find(KUBELET, message) {
                Some(reason) if message.contains("not found") => reason,
                _ => Reason::ContainerConfigInvalid,
            },
            "CreateContainerError" | "RunContainerError" => Reason::ContainerConfigInvalid,
            _ => return None,
        };
        Some(Wait { reason, message: self.message.clone() })
    }
}

/// What a Warning event about a Job or its pod says of why it does not start.
pub fn classify_event(reason: &str, message: &str) -> Option<Wait> {
    let found = match reason {
        "FailedCreate" => find(CREATION, message).unwrap_or(Reason::PodRefused),
        "FailedMount" | "FailedAttachVolume" => match find(KUBELET, message) {
            Some(reason) if message.contains("not found") => reason,
            _ => Reason::VolumeNotMounted,
        },
        "FailedResourceClaimCreation" => Reason::ResourceClaimMissing,
        "FailedCreatePodSandBox" => Reason::SandboxFailed,
        _ => return None,
    };
    Some(Wait { reason: found, message: bounded(message, MESSAGE).to_owned() })
}

impl PodFacts {
    /// The worker's report, where it left one.
    pub fn report(&self) -> Option<Termination> {
        Termination::from_message(&self.message).ok()
    }
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
