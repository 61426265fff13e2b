//! Looks at the children of an object: its Jobs, their pods, and what events say of those that do not start.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::ListParams;

use super::ended::{Ended, Outcome};
use super::jobs::{Finish, JobFacts, JobView};
use super::lost::LostPod;
use super::owner;
use super::pods::{self, JOB_UID_LABEL, PodFacts, Wait};
use super::warnings;
use crate::context::Context;
use crate::seen::SeenPod;

/// Why the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The pods of a finished Job cannot be listed.
    #[error("cannot list the pods of Job '{job}'")]
    Pods {
        /// The Job.
        job: String,
        /// What the API server returned.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What planning sees of a Job, where these pods are lost, by the Job's uid.
pub fn view(context: &Context, job: JobFacts, lost: &BTreeMap<String, LostPod>) -> JobView {
    let fresh = job.runs() && !context.stores.running.is_settled(&job.uid);
    let pods = known_pods(context, &job);
    let waiting_since = pods.iter().find_map(|pod| pod.waiting.as_ref()?.since.clone());
    JobView { fresh, waiting_since, lost: lost.get(&job.uid).cloned(), ..job.view }
}

/// The pods of a Job that the cache knows: those that wait or succeeded.
fn known_pods(context: &Context, job: &JobFacts) -> Vec<PodFacts> {
    context.stores.pods.group(&owner::group(&job.namespace, &job.uid))
}

/// What events say of a wait counts after so many seconds: until then it may pass by itself.
const PATIENCE: i64 = 1;

/// Why workers do not start: from their pods, else from what the Job controller and the kubelet say in events.
pub fn waits(context: &Context, jobs: &[JobFacts], now: &Time) -> BTreeMap<String, Wait> {
    let mut waits = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.waits()) {
        let pods = known_pods(context, job);
        let pod = pods.iter().find_map(|pod| Some((pod, pod.waiting.as_ref()?)));
        let (about, since, status) = match pod {
            Some((pod, waiting)) => (&pod.uid, waiting.since.as_ref(), waiting.classify()),
            None => (&job.uid, job.view.started.as_ref().or(job.view.created.as_ref()), None),
        };
        let age = since.map_or(0, |since| now.0.as_second() - since.0.as_second());
        let wait = match status {
            Some(wait) => Some(wait),
            None if age >= PATIENCE => warnings::newest(context.stores.warnings.group(about)),
            None => None,
        };
        waits.extend(wait.map(|wait| (job.view.name.clone(), wait)));
    }
    waits
}

/// What the pods of a finished Job left; nothing while it is under way.
///
/// # Errors
/// [`ObserveError`] where they have to be listed and cannot be.
pub async fn outcome(context: &Context, job: &JobFacts) -> Result<Option<Outcome>, ObserveError> {
    let Some(finish) = &job.view.finish else { return Ok(None) };
    let complete = *finish == Finish::Complete;
    let mut ended = known_pods(context, job);
    ended.retain(|pod| pod.ended);
    // The watch brings those that succeeded, nearly always before the Job that counts them. Why a Job
    // failed is told by the last of several pods, so none may be missing.
    if !complete || ended.is_empty() {
        ended = list(context, job).await?;
    }
    Ok(Some(decisive(&ended, complete)))
}

/// The pods of a Job that ended, from the API server: those that the Job controls, not those that carry its labels.
async fn list(context: &Context, job: &JobFacts) -> Result<Vec<PodFacts>, ObserveError> {
    let api: Api<SeenPod> = Api::namespaced(context.client.clone(), &job.namespace);
    let selector = format!("{JOB_UID_LABEL}={}", job.uid);
    let list = api.list(&ListParams::default().labels(&selector)).await.map_err(|source| {
        ObserveError::Pods { job: job.view.name.clone(), source: Box::new(source) }
    })?;
    let owned = list.items.iter().filter_map(pods::facts).map(|(_, pod)| pod);
    Ok(owned.filter(|pod| pod.ended && pod.job_uid == job.uid).collect())
}

/// What the decisive pod left: the one that succeeded, else the one that ended last.
fn decisive(pods: &[PodFacts], complete: bool) -> Outcome {
    let ended = pods.iter().filter(|pod| pod.succeeded == complete);
    let Some(pod) = ended.max_by_key(|pod| pod.at.as_ref().map(|time| time.0)) else {
        return Outcome::NoPod;
    };
    let report = pod.report();
    Outcome::Ended(Box::new(Ended {
        exit_code: pod.exit_code,
        reason: pod.reason.clone(),
        other_message: if report.is_some() { String::new() } else { pod.message.clone() },
        report,
    }))
}
