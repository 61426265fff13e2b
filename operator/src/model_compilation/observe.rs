//! Gathers what a plan depends on: from the watched caches, and for finished Jobs from their pods.

use std::collections::BTreeMap;

use hone_crds::model_compilation::{DeletionPolicy, Target};
use hone_crds::status::Artifact;
use hone_crds::{ModelCompilation, Phase, TargetStatus, TuningRun};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};

use super::model::{Grant, Observed, Outcome, PoolView, RunView};
use super::{digest, result};
use crate::broker::pools;
use crate::children::jobs::JobFacts;
use crate::children::observe::{self as children, ObserveError};
use crate::children::{lost, owner};
use crate::context::Context;
use crate::runtime::cache::Object;
use crate::runtime::worker::random;

/// What there is for `object`. Reads the cluster only for Jobs that failed and are not in the status yet, and for
/// events of those whose pod does not start.
///
/// # Errors
/// [`ObserveError`].
pub async fn observe(
    context: &Context,
    object: &ModelCompilation,
) -> Result<Observed, ObserveError> {
    let namespace = object.namespace().unwrap_or_default();
    let uid = object.uid().unwrap_or_default();
    let jobs = context.stores.jobs.group(&owner::group(&namespace, &uid));
    let now = Time(jiff::Timestamp::now());
    let runs = runs(context, object);
    let outcomes = outcomes(context, object, &jobs, &runs).await?;
    let waits = children::waits(context, &jobs, &now);
    let lost = lost::find(context, &jobs).await;
    let deleting = object.metadata.deletion_timestamp.is_some();
    let heirs = if deleting { heirs(context, object) } else { BTreeMap::new() };
    let pools = pools::pools(context);
    let cached = cached(context, object, &namespace, &pools);
    Ok(Observed {
        now,
        random: random(),
        jobs: jobs.into_iter().map(|job| children::view(context, job, &lost)).collect(),
        outcomes,
        waits,
        refusals: BTreeMap::new(),
        pools,
        grants: grants(context, object, &runs, &namespace),
        runs,
        priority: pools::priority(context, object.spec.worker.as_ref()),
        namespace: pools::namespace_view(context, &namespace),
        cached,
        heirs,
        object: object.clone(),
    })
}

/// The tuning runs that the object made. Others than these are not looked for where it never made one.
fn runs(context: &Context, object: &ModelCompilation) -> Vec<RunView> {
    let mut targets = object.status.iter().flat_map(|status| &status.targets);
    if object.spec.tuning.is_none() && !targets.any(|target| target.tuning_run_ref.is_some()) {
        return Vec::new();
    }
    let owned = |run: &Object<TuningRun>| {
        let kind = ModelCompilation::kind(&());
        let owner = owner::controller(run.0.meta(), hone_crds::GROUP, &kind)?;
        (Some(&owner.uid) == object.metadata.uid.as_ref()).then(|| RunView::of(&run.0))
    };
    let mut runs = context.stores.tuning_runs.pick(owned);
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    runs
}

/// The names of the Jobs that compile: of each target, and of each target with what its run found.
fn compile_jobs(object: &ModelCompilation, runs: &[RunView]) -> Vec<String> {
    let of_target = |target: &Target| {
        let run = digest::run_name(object, target);
        let run = runs.iter().find(|own| own.name == run);
        let checkpoint = run.and_then(|run| run.checkpoint.as_ref());
        let told = |own: &&String| !is_told(object, &target.name, own);
        let revision =
            checkpoint.filter(told).map(|own| digest::revision_name(object, target, own));
        let meanwhile = compiling(object, &target.name);
        let meanwhile = meanwhile.map(|own| digest::revision_name(object, target, &own));
        let meanwhile = meanwhile.filter(|name| Some(name) != revision.as_ref());
        std::iter::once(digest::job_name(object, target)).chain(revision).chain(meanwhile)
    };
    object.spec.targets.iter().flat_map(of_target).collect()
}

/// The checkpoint of the revision that is compiled while the run of `target` goes on.
fn compiling(object: &ModelCompilation, target: &str) -> Option<String> {
    let mut targets = object.status.iter().flat_map(|status| &status.targets);
    let tuning = targets.find(|own| own.name == target)?.tuning.as_ref()?;
    tuning.compiling.as_ref().map(|own| own.checkpoint.clone())
}

/// Whether the status tells of the end of compiling with what the run had found up to `checkpoint`.
fn is_told(object: &ModelCompilation, target: &str, checkpoint: &String) -> bool {
    let mut targets = object.status.iter().flat_map(|status| &status.targets);
    let target = targets.find(|own| own.name == target);
    target.and_then(|own| own.tuning.as_ref()).is_some_and(|tuning| {
        let over = tuning.phase.has_ended();
        over && tuning.checkpoint.as_ref() == Some(checkpoint)
    })
}

/// What the pods of finished compile Jobs left, for those that the status does not tell of yet.
async fn outcomes(
    context: &Context,
    object: &ModelCompilation,
    jobs: &[JobFacts],
    runs: &[RunView],
) -> Result<BTreeMap<String, Outcome>, ObserveError> {
    let mut outcomes = BTreeMap::new();
    for name in compile_jobs(object, runs) {
        let Some(job) = jobs.iter().find(|job| job.view.name == name) else {
            continue;
        };
        let reported = object.status.iter().flat_map(|s| &s.targets).any(|status| {
            status.job_ref.as_ref().is_some_and(|job| job.name == name)
                && (result::is_complete(status) || status.phase == Phase::Failed)
        });
        if !reported && let Some(outcome) = children::outcome(context, job).await? {
            outcomes.insert(name, outcome);
        }
    }
    Ok(outcomes)
}

/// The devices that the object's Jobs were granted.
fn grants(
    context: &Context,
    object: &ModelCompilation,
    runs: &[RunView],
    namespace: &str,
) -> BTreeMap<String, Grant> {
    let jobs = compile_jobs(object, runs).into_iter();
    jobs.filter_map(|job| Some((job.clone(), pools::grant(context, namespace, &job)?))).collect()
}

/// Most equal results that are looked at, for the one whose artifact was found last.
const RESULTS: usize = 16;

/// Results in the namespace that equal what this object asks for.
fn cached(
    context: &Context,
    object: &ModelCompilation,
    namespace: &str,
    pools: &[PoolView],
) -> BTreeMap<String, TargetStatus> {
    let own = object.name_any();
    let keys = object
        .spec
        .targets
        .iter()
        .filter_map(|target| digest::content_key(&context.config, object, target, pools));
    let find = |key: String| {
        let scoped = format!("{namespace}/{key}");
        let owners = context.stores.results.get(&scoped);
        let results = owners.iter().filter(|owner| **owner != own).take(RESULTS);
        let results = results.filter_map(|owner| {
            let owner = context.stores.compilations.get(namespace, owner)?;
            // What is about to be deleted may take its artifact along.
            if owner.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let status = owner.status.as_ref()?;
            let found = status.targets.iter().find(|target| {
                target.content_key.as_ref() == Some(&key) && result::is_complete(target)
            })?;
            Some(found.clone())
        });
        let checked = |found: &TargetStatus| found.artifact.as_ref()?.checked.as_ref().map(|t| t.0);
        let latest = results.max_by_key(checked)?;
        Some((key, latest))
    };
    keys.filter_map(find).collect()
}

/// The uids of other compilations that name an artifact in the same output folder and may not have entered themselves as
/// its owners yet, whatever their namespace, by the artifact's URI.
fn heirs(context: &Context, object: &ModelCompilation) -> BTreeMap<String, Vec<String>> {
    let mut heirs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let folder = format!("{}/", object.spec.output.uri.trim_end_matches('/'));
    for other in context.stores.compilations.all() {
        let Some(uid) = other.uid().filter(|uid| Some(uid) != object.uid().as_ref()) else {
            continue;
        };
        // What is about to go needs nothing any more.
        let gives_up = other.spec.output.deletion_policy == DeletionPolicy::Delete;
        let deleting = other.metadata.deletion_timestamp.is_some();
        let going = deleting && (gives_up || other.finalizers().is_empty());
        let may_inherit = |artifact: &Artifact| !going && artifact.owned != Some(true);
        let targets = other.status.iter().flat_map(|status| &status.targets);
        let artifacts = targets.filter_map(|target| target.artifact.as_ref());
        for artifact in artifacts.filter(|a| may_inherit(a) && a.uri.starts_with(&folder)) {
            let uids = heirs.entry(artifact.uri.clone()).or_default();
            if !uids.contains(&uid) && uids.len() < HEIRS {
                uids.push(uid.clone());
            }
        }
    }
    heirs
}

/// Most heirs of one artifact: one is enough to keep it.
const HEIRS: usize = 8;
