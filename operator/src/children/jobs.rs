//! Our Jobs: what planning sees of one, and what the cache keeps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::lost::LostPod;
use super::names;
use super::owner;
use crate::runtime::cache::Cached;
use crate::seen::SeenJob;

/// A child Job, as far as planning needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Whether it compiles or cleans up.
    #[serde(default)]
    pub purpose: Purpose,
    /// The pool in which it compiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The slot that it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The span that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// Whether it is being deleted.
    #[serde(default)]
    pub deleting: bool,
    /// Whether somebody suspended it, such as Kueue until there is quota.
    #[serde(default)]
    pub suspended: bool,
    /// Whether it is suspended and none of its pods is left.
    #[serde(default)]
    pub at_rest: bool,
    /// Whether its pods wait at [`names::DEVICE_GATE`] for their device.
    #[serde(default)]
    pub gated: bool,
    /// When its pods were given their device, where they waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Time>,
    /// When it was changed last to have the Job controller look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken: Option<Time>,
    /// When it was started, which is after each resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// Since when its pod has a node and has not started, or lacks one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    /// Pods that wait or run.
    #[serde(default)]
    pub active: i32,
    /// Pods that run and are ready.
    #[serde(default)]
    pub ready: i32,
    /// Pods that are on their way out.
    #[serde(default)]
    pub terminating: i32,
    /// One of its pods whose node does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostPod>,
    /// Whether they run for less than a second, which is not worth a status yet.
    #[serde(default)]
    pub fresh: bool,
    /// Pods that failed.
    #[serde(default)]
    pub failed: i32,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// Its deadline, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Its retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
}

impl JobView {
    /// Whether it has pods of which none is ready, so that their node may not answer.
    pub fn may_be_lost(&self) -> bool {
        self.finish.is_none() && self.ready == 0 && self.active + self.terminating > 0
    }
}

/// What a Job is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Compiles one target.
    #[default]
    Compile,
    /// Deletes what was stored.
    Cleanup,
    /// Looks whether what another compilation stored is there.
    Adopt,
    /// Searches for schedules and measures.
    Tune,
    /// Measures for a search.
    Measure,
}

impl Purpose {
    /// Whether it runs on a device of its pool.
    pub fn uses_a_device(self) -> bool {
        matches!(self, Self::Compile | Self::Tune | Self::Measure)
    }
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// Its pod succeeded.
    Complete,
    /// It failed, for the reason that the Job controller gives, such as `DeadlineExceeded`.
    Failed(String),
}

/// One of our Jobs. Its group is that of its owner's children.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// The kind of the object that owns it.
    pub owner_kind: &'static str,
    /// That object's name.
    pub owner: String,
    /// That object's uid.
    pub owner_uid: String,
    /// What planning sees of it.
    pub view: JobView,
}

impl Cached for JobFacts {
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

    /// Whether it has not ended and is not being deleted.
    pub fn is_under_way(&self) -> bool {
        self.view.finish.is_none() && !self.view.deleting
    }

    /// Whether it holds no device any more: it has ended, or its next pod asks for one anew.
    pub fn gave_back(&self) -> bool {
        let view = &self.view;
        view.finish.is_some() || (view.gated && view.at_rest)
    }

    /// Whether it waits for a pod to start.
    pub fn waits(&self) -> bool {
        let view = &self.view;
        view.ready == 0 && view.finish.is_none() && !view.deleting && !view.suspended
    }
}

/// Group and facts of a Job that an object of one of the `kinds` owns; none of other Jobs, whatever their labels are.
pub fn facts(job: &SeenJob, kinds: &[&'static str]) -> Option<(String, JobFacts)> {
    let mut owners = kinds
        .iter()
        .filter_map(|kind| Some((*kind, owner::controller(job.meta(), hone_crds::GROUP, kind)?)));
    let (owner_kind, owner) = owners.next()?;
    let namespace = job.namespace().unwrap_or_default();
    let facts = JobFacts {
        uid: job.uid().unwrap_or_default(),
        owner_kind,
        owner: owner.name.clone(),
        owner_uid: owner.uid.clone(),
        view: view(job),
        namespace,
    };
    Some((owner::group(&facts.namespace, &facts.owner_uid), facts))
}

fn view(job: &SeenJob) -> JobView {
    let purpose = job.labels().get(names::PURPOSE_LABEL).map(String::as_str);
    let pool = job.annotations().get(names::POOL_ANNOTATION);
    let finish = finish(job);
    let suspended = job.spec.suspend && finish.is_none();
    let active = job.status.active.unwrap_or(0);
    let terminating = job.status.terminating.unwrap_or(0);
    JobView {
        name: job.name_any(),
        purpose: match purpose {
            Some(names::PURPOSE_CLEANUP) => Purpose::Cleanup,
            Some(names::PURPOSE_ADOPT) => Purpose::Adopt,
            Some(names::PURPOSE_TUNE) => Purpose::Tune,
            Some(names::PURPOSE_MEASURE) => Purpose::Measure,
            _ => Purpose::Compile,
        },
        pool: pool.or_else(|| job.labels().get(names::POOL_LABEL)).cloned(),
        slot: job.annotations().get(names::SLOT_ANNOTATION).cloned(),
        traceparent: job.annotations().get(names::TRACEPARENT_ANNOTATION).cloned(),
        created: job.meta().creation_timestamp.clone(),
        deleting: job.meta().deletion_timestamp.is_some(),
        suspended,
        at_rest: suspended && active + terminating == 0,
        placed: time_of(job, names::PLACED_ANNOTATION),
        woken: time_of(job, names::WOKEN_ANNOTATION),
        gated: job.annotations().contains_key(names::GATED_ANNOTATION),
        started: job.status.start_time.clone(),
        waiting_since: None,
        active,
        ready: job.status.ready.unwrap_or(0),
        terminating,
        lost: None,
        fresh: false,
        failed: job.status.failed.unwrap_or(0),
        finish,
        active_deadline_seconds: job.spec.active_deadline_seconds,
        backoff_limit: job.spec.backoff_limit,
    }
}

/// The time in an annotation.
fn time_of(job: &SeenJob, annotation: &str) -> Option<Time> {
    let time = job.annotations().get(annotation)?;
    Some(Time(time.parse().ok()?))
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
    // An event without a reason would be refused.
    let reason = failed.reason.clone().filter(|reason| !reason.is_empty());
    Some(Finish::Failed(reason.unwrap_or_else(|| "JobFailed".to_owned())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(namespace: &str, owners: &str) -> SeenJob {
        serde_json::from_str(&format!(
            r#"{{"metadata": {{"name": "j", "namespace": "{namespace}", "uid": "9", "ownerReferences": {owners},
            "labels": {{"hone.dev/compilation-uid": "1", "hone.dev/purpose": "compile"}}}},
            "spec": {{"suspend": true}}, "status": {{"active": 1}}}}"#
        ))
        .unwrap()
    }

    const OWNED: &str = r#"[{"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "name": "a",
        "uid": "1", "controller": true}]"#;

    /// The label with the uid of somebody's compilation makes no Job a child of it.
    #[test]
    fn jobs_are_owned_by_reference_and_not_by_label() {
        assert!(facts(&job("other", "[]"), &["ModelCompilation"]).is_none());
        let (group, facts_) =
            facts(&job("team", OWNED), &["TuningRun", "ModelCompilation"]).unwrap();
        assert_eq!((group.as_str(), facts_.owner.as_str()), ("team/1", "a"));
        assert_eq!(facts_.owner_kind, "ModelCompilation");
        assert!(facts_.view.suspended && facts_.view.active == 1);
        // The same uid in another namespace is another group.
        let (elsewhere, _) = facts(&job("other", OWNED), &["ModelCompilation"]).unwrap();
        assert_ne!(elsewhere, group);
        assert!(facts(&job("team", OWNED), &["TuningRun"]).is_none());
    }
}
