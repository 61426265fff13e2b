//! Pods on nodes that do not answer.
//!
//! For the API server such a pod stays what it was until Kubernetes evicts it (five minutes later, unless its tolerations
//! say otherwise), and then it is on its way out for as long as the node is away, since its kubelet alone could say that it
//! has ended. Its Job makes no other pod meanwhile, and a Job that is deleted stays, too.
//!
//! So a pod that was evicted is reported as failed and removed [`PATIENCE`] after it should have ended, as Kubernetes' own
//! garbage collector does with pods of nodes that no longer exist. Where the node is cut off and its worker goes on
//! unseen, nothing is harmed: artifacts are named by their content, a log takes segments of one writer, and a device of
//! that node is granted to nobody before the node is ready again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::apply::{ApplyError, Owner, kube_error};
use super::events::EventPlan;
use super::jobs::{JobFacts, JobView};
use super::names;
use super::owner;
use super::pods::{self, JOB_UID_LABEL, PodFacts};
use super::reasons::Reason;
use super::steps::{Action, Draft};
use crate::context::Context;
use crate::runtime::cache::Cached as _;
use crate::seen::SeenPod;

/// Seconds between the moment at which an evicted pod should have ended and its removal: a kubelet that answers late is
/// heard first.
const PATIENCE: i64 = 10;
/// Seconds after which a node that does not answer is looked at again.
const LOOK: u64 = 30;

/// A pod whose node does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LostPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The node.
    pub node: String,
    /// When it should have ended, where it was evicted or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Time>,
}

impl LostPod {
    /// What a status says of it.
    pub fn words(&self) -> String {
        let node = &self.node;
        match self.ends {
            None => format!(
                "node '{node}' does not answer: the worker goes on when it returns, and in another pod once Kubernetes has evicted this one"
            ),
            Some(_) => format!(
                "node '{node}' does not answer, and the worker was evicted: the work goes on in another pod"
            ),
        }
    }

    /// Whether it should have ended so long ago that it is removed.
    pub fn is_overdue(&self, now: &Time) -> bool {
        self.seconds_left(now).is_some_and(|left| left <= 0)
    }

    /// Seconds until it is removed, where it was evicted.
    fn seconds_left(&self, now: &Time) -> Option<i64> {
        Some(self.ends.as_ref()?.0.as_second() + PATIENCE - now.0.as_second())
    }
}

/// The pods of Jobs on nodes that do not answer, by the Job's uid. The API server is asked only where there is such a
/// node, about Jobs of which no pod is ready and none is known to wait. Where it does not answer nothing is lost.
pub async fn find(context: &Context, jobs: &[JobFacts]) -> BTreeMap<String, LostPod> {
    let mut lost = BTreeMap::new();
    let jobs: Vec<&JobFacts> = jobs.iter().filter(|job| job.view.may_be_lost()).collect();
    if jobs.is_empty() {
        return lost;
    }
    let silent: Vec<String> =
        context.stores.nodes.pick(|node| (!node.ready).then(|| node.name.clone()));
    if silent.is_empty() {
        return lost;
    }
    for job in jobs {
        let mut pods = context.stores.pods.group(&owner::group(&job.namespace, &job.uid));
        pods.retain(|pod| !pod.ended);
        if pods.is_empty() {
            pods = list(context, job).await;
        }
        let found = pods.iter().find_map(|pod| lost_pod(pod, job, &silent));
        lost.extend(found.map(|pod| (job.uid.clone(), pod)));
    }
    lost
}

/// The pods of a Job that run, which are not watched.
async fn list(context: &Context, job: &JobFacts) -> Vec<PodFacts> {
    let api: Api<SeenPod> = Api::namespaced(context.client.clone(), &job.namespace);
    let params = ListParams::default().labels(&format!("{JOB_UID_LABEL}={}", job.uid));
    match api.list(&params).await {
        Ok(list) => list.items.iter().filter_map(pods::facts).map(|(_, pod)| pod).collect(),
        Err(error) => {
            tracing::warn!(%error, job = job.view.name, "the pods of the Job cannot be listed");
            Vec::new()
        }
    }
}

/// The pod as a lost one: the Job's own, not ended, on one of the `silent` nodes.
fn lost_pod(pod: &PodFacts, job: &JobFacts, silent: &[String]) -> Option<LostPod> {
    let node = pod.node.clone()?;
    (pod.job_uid == job.uid && !pod.ended && silent.contains(&node)).then(|| LostPod {
        name: pod.name().to_owned(),
        uid: pod.uid.clone(),
        node,
        ends: pod.ends.clone(),
    })
}

/// Removes those lost pods of `jobs` that should have ended, and asks for another look at the others.
pub fn plan(jobs: &[JobView], now: &Time, draft: &mut Draft) {
    for pod in jobs.iter().filter_map(|job| job.lost.as_ref()) {
        if pod.is_overdue(now) {
            draft.actions.push(Action::RemovePod(pod.clone()));
            draft.event(EventPlan::of(Reason::NodeNotReady, pod.words()));
        } else {
            let left = pod.seconds_left(now).and_then(|left| u64::try_from(left).ok());
            draft.again(left.unwrap_or(LOOK));
        }
    }
}

/// Reports a lost pod as failed, which its kubelet cannot do, and removes it. The Job then makes another; that counts as
/// no try of it.
pub(super) async fn remove<K: Owner>(
    context: &Context,
    object: &K,
    pod: &LostPod,
) -> Result<(), ApplyError> {
    tracing::warn!(
        pod = pod.name,
        node = pod.node,
        "an evicted pod of a node that does not answer is removed"
    );
    let api: Api<Pod> =
        Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let what = || format!("remove pod '{}'", pod.name);
    let status = json!({
        // Of this very pod.
        "metadata": {"uid": pod.uid},
        "status": {
            "phase": "Failed", "reason": Reason::NodeNotReady.as_str(), "message": pod.words(),
            "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByHone",
                "message": pod.words(), "lastTransitionTime": jiff::Timestamp::now().to_string(),
            }],
        },
    });
    let params =
        PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&pod.name, &params, &Patch::Strategic(&status)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
        Err(error) => return Err(kube_error(what())(error)),
    }
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name, &at_once).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(kube_error(what())(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn job(ends: Option<Time>) -> JobView {
        let lost =
            LostPod { name: "p".to_owned(), uid: "1".to_owned(), node: "n".to_owned(), ends };
        JobView { name: "j".to_owned(), lost: Some(lost), ..JobView::default() }
    }

    #[test]
    fn a_lost_pod_is_removed_only_after_it_should_have_ended() {
        let planned = |job: &JobView, second| {
            let mut draft = Draft::default();
            plan(std::slice::from_ref(job), &at(second), &mut draft);
            (draft.actions.len(), draft.again_seconds)
        };
        assert_eq!(planned(&JobView::default(), 9999), (0, None));
        assert_eq!(planned(&job(None), 9999), (0, Some(LOOK)), "Kubernetes evicts, nobody else");
        assert_eq!(planned(&job(Some(at(1000))), 1001), (0, Some(9)));
        assert_eq!(planned(&job(Some(at(1000))), 1010), (2, None), "and an event");
    }

    #[test]
    fn pods_of_others_and_those_that_ended_or_have_a_node_that_answers_are_not_lost() {
        let pod = |uid: &str, phase: &str, node: &str| -> SeenPod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "uid": "7", "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}]},
                "spec": {"nodeName": node}, "status": {"phase": phase},
            }))
            .unwrap()
        };
        let job = JobFacts {
            namespace: "team".to_owned(),
            uid: "1".to_owned(),
            owner_kind: "ModelCompilation",
            owner: "a".to_owned(),
            owner_uid: "2".to_owned(),
            view: JobView::default(),
        };
        let silent = ["gone".to_owned()];
        let lost = |pod: SeenPod| {
            let (_, pod) = pods::facts(&pod).unwrap();
            lost_pod(&pod, &job, &silent).map(|lost| lost.uid)
        };
        assert_eq!(lost(pod("1", "Running", "gone")).as_deref(), Some("7"));
        assert_eq!(lost(pod("1", "Pending", "gone")).as_deref(), Some("7"));
        assert_eq!(lost(pod("3", "Running", "gone")), None);
        assert_eq!(lost(pod("1", "Succeeded", "gone")), None);
        assert_eq!(lost(pod("1", "Running", "there")), None);
    }
}
