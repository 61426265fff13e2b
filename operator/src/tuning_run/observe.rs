//! Gathers what a plan depends on: from the watched caches, and for a finished Job from its pods.

use std::collections::{BTreeMap, BTreeSet};

use hone_crds::TuningRun;
use hone_crds::common::Log;
use hone_crds::tuning_run::WarmStart;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::model::Observed;
use super::{digest, warm_start};
use crate::broker::pools;
use crate::children::observe::{self as children, ObserveError};
use crate::children::{lost, owner};
use crate::context::Context;
use crate::runtime::worker::random;

/// What there is for `object`.
///
/// # Errors
/// [`ObserveError`].
pub async fn observe(context: &Context, object: &TuningRun) -> Result<Observed, ObserveError> {
    let namespace = object.namespace().unwrap_or_default();
    let uid = object.uid().unwrap_or_default();
    let name = digest::job_name(object);
    let jobs = context.stores.jobs.group(&owner::group(&namespace, &uid));
    let now = Time(jiff::Timestamp::now());
    let mut outcomes = BTreeMap::new();
    let reported = object.status.as_ref().is_some_and(|status| {
        status.job_ref.as_ref().is_some_and(|job| job.name == name) && status.phase.has_ended()
    });
    if let Some(job) = jobs.iter().find(|job| job.view.name == name && !reported) {
        let outcome = children::outcome(context, job).await?;
        outcomes.extend(outcome.map(|outcome| (name.clone(), outcome)));
    }
    let mut searching = jobs.iter().filter(|job| job.view.name == name && job.is_under_way());
    let progress = searching.find_map(|job| context.stores.posts.of(&job.uid));
    let waits = children::waits(context, &jobs, &now);
    let lost = lost::find(context, &jobs).await;
    let names = std::iter::once(name).chain(digest::session_names(object));
    let granted = |name: String| Some((name.clone(), pools::grant(context, &namespace, &name)?));
    Ok(Observed {
        now,
        random: random(),
        jobs: jobs.into_iter().map(|job| children::view(context, job, &lost)).collect(),
        outcomes,
        progress,
        waits,
        refusals: BTreeMap::new(),
        pools: pools::pools(context),
        namespace: pools::namespace_view(context, &namespace),
        grants: names.filter_map(granted).collect(),
        earlier_logs: earlier_logs(context, object),
        priority: pools::priority(context, object.spec.worker.as_ref()),
        object: object.clone(),
    })
}

/// The logs that `object` starts from besides its log.
fn earlier_logs(context: &Context, object: &TuningRun) -> Vec<Log> {
    if object.spec.search.warm_start == WarmStart::None {
        return Vec::new();
    }
    let runs = context.stores.tuning_runs.all();
    let namespaces: BTreeSet<String> = runs.iter().filter_map(|run| run.namespace()).collect();
    let view = |name: String| {
        let view = pools::namespace_view(context, &name);
        (name, view)
    };
    let namespaces: BTreeMap<_, _> = namespaces.into_iter().map(view).collect();
    let readable = |run: &&TuningRun| warm_start::is_readable(object, run, &namespaces);
    warm_start::logs(object, runs.iter().map(AsRef::as_ref).filter(readable))
}
