//! Decides what to do for an object that is being deleted and that holds our finalizer.

use hone_crds::model_compilation::DeletionPolicy;

use super::model::{
    Action, EventPlan, Finish, JobBounds, JobPlan, JobView, Observed, Outcome, Plan, PoolView,
    Purpose,
};
use super::{digest, pools, request, result};
use crate::children::bounds::{EVENT_NOTE, bounded};
use crate::children::forgotten;
use crate::children::names::FINALIZER;
use crate::children::reasons::Reason;
use crate::children::steps::Draft;
use crate::config::Config;

/// The pods of the compilation first, then what they stored, then the finalizer; the finalizer alone where that cannot
/// go. The finalizer is there since before the first worker, so a worker may have stored what no status tells of: one of
/// an earlier spec, or one that was suspended, or one whose end no replica has read. What others own stays: the worker
/// that cleans up looks at the owners beside each artifact.
pub fn plan(config: &Config, observed: &Observed) -> Plan {
    let metadata = &observed.object.metadata;
    if !metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) {
        return done(Vec::new());
    }
    if observed.object.spec.output.deletion_policy != DeletionPolicy::Delete {
        return done(vec![Action::RemoveFinalizer]);
    }
    let since = metadata.deletion_timestamp.as_ref();
    let since = since.map_or(0, |time| time.0.as_second());
    let left = since + config.cleanup_deadline_seconds - observed.now.0.as_second();
    let uris = uris(observed);
    if !observed.namespace.terminating && left > 0 {
        // While a worker runs it may store more.
        if let Some(actions) = stop_workers(observed) {
            return wait(actions, 2);
        }
    }
    if observed.namespace.terminating {
        let why = "the namespace is going away: no pod is made in it to delete artifacts";
        return give_up(why, observed, &uris);
    }
    if left <= 0 {
        return give_up("deleting the artifacts took too long", observed, &uris);
    }
    clean_up(observed, &uris, left)
}

/// Deletes Jobs that store or own something, and tuning runs, whose logs lie beside it; `None` when none is left.
fn stop_workers(observed: &Observed) -> Option<Vec<Action>> {
    let searches = observed.runs.iter().filter(|run| !run.deleting);
    let searches = searches.map(|run| Action::DeleteRun(run.name.clone()));
    let works = |job: &&JobView| job.purpose != Purpose::Cleanup && job.finish.is_none();
    let workers: Vec<&JobView> = observed.jobs.iter().filter(works).collect();
    let to_delete = workers.iter().filter(|job| !job.deleting);
    let to_delete = to_delete.map(|job| Action::DeleteJob(job.name.clone()));
    let actions = to_delete.chain(searches).collect();
    let any = !workers.is_empty() || !observed.runs.is_empty();
    any.then_some(actions)
}

/// The Job that deletes what was stored, and what follows from how it ends.
fn clean_up(observed: &Observed, uris: &[String], left: i64) -> Plan {
    let name = digest::cleanup_name(&observed.object, uris);
    let again = u64::try_from(left).unwrap_or(1).min(30);
    let Some(job) = observed.jobs.iter().find(|job| job.name == name) else {
        let plan = JobPlan {
            gated: false,
            suspended: false,
            optional_secrets: Vec::new(),
            bounds: JobBounds {
                name: name.clone(),
                active_deadline_seconds: left.max(1),
                backoff_limit: 3,
            },
            name,
            purpose: Purpose::Cleanup,
            target: None,
            pool: any_pool(observed),
            grant: None,
            request: request::delete(&observed.object, uris, &observed.heirs),
        };
        return wait(vec![Action::CreateJob(Box::new(plan))], again);
    };
    match &job.finish {
        Some(Finish::Complete) => {
            let note = format!(
                "{} artifacts given up: those that nobody else owns are deleted",
                uris.len()
            );
            let event = EventPlan::of(Reason::ArtifactsDeleted, note);
            done(vec![Action::Event(event), Action::RemoveFinalizer])
        }
        Some(Finish::Failed(reason)) => give_up(
            &format!("Job '{name}' could not delete the artifacts ({reason})"),
            observed,
            uris,
        ),
        None => match observed.waits.get(&name).filter(|wait| wait.reason.is_hopeless()) {
            Some(why) => give_up(
                &format!("Job '{name}' cannot start ({}): {}", why.reason, why.message),
                observed,
                uris,
            ),
            None => {
                let mut draft = Draft::default();
                forgotten::wake(job, &observed.now, &mut draft);
                wait(draft.actions, again)
            }
        },
    }
}

fn give_up(why: &str, observed: &Observed, uris: &[String]) -> Plan {
    let left = match uris.is_empty() {
        true => format!("anything of uid {} in {}", uid(observed), observed.object.spec.output.uri),
        false => uris.join(", "),
    };
    let note = format!("{why}; still stored: {left}");
    let event = EventPlan::of(Reason::ArtifactsLeft, bounded(&note, EVENT_NOTE));
    done(vec![Action::Event(event), Action::RemoveFinalizer])
}

fn uid(observed: &Observed) -> &str {
    observed.object.metadata.uid.as_deref().unwrap_or_default()
}

/// Artifacts that this object stored: those of its targets, those of workers whose status is not written yet, and
/// those of earlier specs and removed targets.
pub fn uris(observed: &Observed) -> Vec<String> {
    let status = observed.object.status.as_ref();
    let targets = status.into_iter().flat_map(|status| &status.targets);
    let of_targets = targets.filter_map(|target| target.artifact.as_ref()).map(|a| a.uri.clone());
    let superseded = status.into_iter().flat_map(|status| status.superseded.clone());
    let output = &observed.object.spec.output.uri;
    let unwritten = observed.outcomes.values().filter_map(|outcome| match outcome {
        Outcome::Ended(ended) => result::stored(ended, output),
        Outcome::NoPod => None,
    });
    let mut uris: Vec<String> = of_targets.chain(superseded).chain(unwritten).collect();
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
        let found =
            pools::candidates(&observed.pools, target, None, namespace, &observed.namespace);
        found.ok()?.first().copied()
    })?;
    Some(pool.clone())
}

fn done(actions: Vec<Action>) -> Plan {
    Plan { actions, requests: Vec::new(), status: None, again_seconds: None }
}

fn wait(actions: Vec<Action>, seconds: u64) -> Plan {
    Plan { actions, requests: Vec::new(), status: None, again_seconds: Some(seconds) }
}
