//! Decides what to do for an object that is being deleted and that holds our finalizer.

use hone_crds::model_compilation::DeletionPolicy;

use super::model::{
    Action, EventPlan, Finish, JobBounds, JobPlan, Observed, Plan, PoolView, Purpose,
};
use super::names::FINALIZER;
use super::{digest, pools, request};
use crate::config::Config;

/// Stored artifacts first, then the finalizer; the finalizer alone where they stay or cannot go.
pub fn plan(config: &Config, observed: &Observed) -> Plan {
    let metadata = &observed.object.metadata;
    if !metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
        return done(Vec::new());
    }
    let uris = uris(observed);
    if observed.object.spec.output.deletion_policy != DeletionPolicy::Delete || uris.is_empty() {
        return done(vec![Action::RemoveFinalizer]);
    }
    let give_up = |why: &str| {
        let note = format!("{why}; still stored: {}", uris.join(", "));
        let note = hone_crds::conditions::bounded(&note, 1000).to_owned();
        done(vec![EventPlan::warning("ArtifactsLeft", note), Action::RemoveFinalizer])
    };
    if observed.namespace.terminating {
        return give_up("the namespace is going away: no pod is made in it to delete artifacts");
    }
    let since = metadata.deletion_timestamp.as_ref();
    let since = since.map_or(0, |time| time.0.as_second());
    let left = since + config.cleanup_deadline_seconds - observed.now.0.as_second();
    if left <= 0 {
        return give_up("deleting the artifacts took too long");
    }
    let name = digest::cleanup_name(&observed.object, &uris);
    let mut actions: Vec<Action> = observed
        .jobs
        .iter()
        .filter(|job| job.purpose == Purpose::Compile && job.finish.is_none() && !job.deleting)
        .map(|job| Action::DeleteJob(job.name.clone()))
        .collect();
    let again = u64::try_from(left).unwrap_or(1).min(30);
    match observed.jobs.iter().find(|job| job.name == name) {
        Some(job) => match &job.finish {
            Some(Finish::Complete) => {
                actions.push(EventPlan::normal(
                    "ArtifactsDeleted",
                    format!("{} artifacts deleted", uris.len()),
                ));
                actions.push(Action::RemoveFinalizer);
                done(actions)
            }
            Some(Finish::Failed(reason)) => {
                give_up(&format!("Job '{name}' could not delete the artifacts ({reason})"))
            }
            None => wait(actions, again),
        },
        None => {
            actions.push(Action::CreateJob(Box::new(JobPlan {
                bounds: JobBounds {
                    name: name.clone(),
                    active_deadline_seconds: left.max(1),
                    backoff_limit: 3,
                },
                name,
                purpose: Purpose::Cleanup,
                target: None,
                pool: any_pool(observed),
                request: request::delete(&observed.object, &uris),
            })));
            wait(actions, again)
        }
    }
}

/// Artifacts of this object that no other names.
fn uris(observed: &Observed) -> Vec<String> {
    let targets = observed.object.status.iter().flat_map(|s| &s.targets);
    let mut uris: Vec<String> = targets
        .filter_map(|target| target.artifact.as_ref())
        .map(|artifact| artifact.uri.clone())
        .filter(|uri| !observed.shared_artifacts.contains(uri))
        .collect();
    uris.sort();
    uris.dedup();
    uris
}

/// A pool whose nodes take the clean-up: one that a target may use, so that its taints are
/// tolerated; none where that needs a device.
fn any_pool(observed: &Observed) -> Option<PoolView> {
    let namespace = observed.object.metadata.namespace.as_deref();
    let mut targets = observed.object.spec.targets.iter();
    let pool = targets.find_map(|target| {
        let namespace = namespace.unwrap_or_default();
        pools::choose(&observed.pools, target, None, namespace, &observed.namespace).ok()
    })?;
    Some(pool.clone())
}

fn done(actions: Vec<Action>) -> Plan {
    Plan { actions, status: None, again_seconds: None }
}

fn wait(actions: Vec<Action>, seconds: u64) -> Plan {
    Plan { actions, status: None, again_seconds: Some(seconds) }
}
