//! What a run asks for: the kind, and the object that its attempt is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kinds::{self, Kind};
use super::model::{Child, ChildPlan, Observed};
use super::params;
use super::reason::Reason;
use super::resource::{CustomRun, GROUP};
use crate::children::bounds::{NAME, bounded};
use crate::children::names;
use crate::config::Config;

/// Why nothing is made: a reason and what to do.
pub type Fault = (Reason, String);

/// The service account that Tekton writes down where nobody names one; it is what a pod has anyway.
const DEFAULT_ACCOUNT: &str = "default";

/// The object of the attempt at hand, by its name: the run's for the first one, and with a number after that.
///
/// # Errors
/// Where there is no such kind.
pub fn child(run: &CustomRun) -> Result<Child, Fault> {
    let (version, kind) = run.runner();
    let found = Kind::of(version, kind).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::as_str).join(" or ");
        let known = format!("{} {known}", hone_crds::API_VERSION);
        (Reason::InvalidSpec, format!("'{version} {kind}' runs no task: use {known}"))
    })?;
    let name = run.metadata.name.clone().unwrap_or_default();
    let name = match run.status.attempts() {
        0 => name,
        number => {
            let end = format!("-retry{number}");
            let start = bounded(&name, NAME - end.len()).trim_end_matches(['-', '.']);
            format!("{start}{end}")
        }
    };
    Ok(Child { kind: found, name })
}

/// The object of the attempt at hand as it is to be made.
///
/// # Errors
/// What is wrong with the run.
pub fn plan(config: &Config, observed: &Observed) -> Result<ChildPlan, Fault> {
    let run = &observed.object;
    let child = child(run)?;
    let invalid = |why: String| (Reason::InvalidSpec, why);
    let mut spec = spec(observed, &child)?;
    params::set_all(&mut spec, &child.kind.schema(), &run.spec.params).map_err(invalid)?;
    set_account(&mut spec, &run.spec.service_account_name);
    let (labels, annotations) = head(config, run);
    let plan = ChildPlan { child, labels, annotations, spec };
    match plan.child.kind.fault(object(&plan)) {
        Some(fault) => Err(invalid(fault)),
        None => Ok(plan),
    }
}

/// The object of a plan, without the head that only its owner can give it.
pub fn object(plan: &ChildPlan) -> Value {
    json!({
        "apiVersion": kinds::api_version(),
        "kind": plan.child.kind.as_str(),
        "metadata": {
            "name": plan.child.name, "labels": plan.labels, "annotations": plan.annotations,
        },
        "spec": plan.spec,
    })
}

/// The spec before parameters: the one in the run, that of the object which it names, or none.
fn spec(observed: &Observed, child: &Child) -> Result<Value, Fault> {
    let spec = &observed.object.spec;
    let whole = spec.custom_spec.as_ref().map(|own| own.spec.clone());
    if let Some(whole) = whole {
        // An absent spec is empty.
        return Ok(if whole.is_null() { json!({}) } else { whole });
    }
    let name = spec.custom_ref.as_ref().map(|own| own.name.as_str()).unwrap_or_default();
    match (&observed.template, name) {
        (_, "") => Ok(json!({})),
        (Some(template), _) => Ok(template.clone()),
        (None, name) => Err((
            Reason::TemplateNotFound,
            format!(
                "there is no {} '{name}' in the namespace: make it, suspended if it is to be a template alone",
                child.kind.as_str()
            ),
        )),
    }
}

/// Gives the workers the account that the pipeline's run names for this task, where the spec names none.
fn set_account(spec: &mut Value, account: &str) {
    if matches!(account, "" | DEFAULT_ACCOUNT) || !spec.is_object() {
        return;
    }
    let worker = &mut spec["worker"];
    if worker.is_null() || worker.is_object() && worker["serviceAccountName"].is_null() {
        worker["serviceAccountName"] = json!(account);
    }
}

/// Labels and annotations: those that the task asks for, Tekton's and Kueue's labels of the run, and what is copied to
/// workers.
fn head(config: &Config, run: &CustomRun) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let asked = run.spec.custom_spec.as_ref().map(|own| own.metadata.clone()).unwrap_or_default();
    let tekton = format!("{GROUP}/");
    let has = |key: &str| key.starts_with(&tekton) || key.starts_with(names::COPIED_LABELS);
    let of_run = run.metadata.labels.iter().flatten().filter(|(key, _)| has(key));
    let mut labels: BTreeMap<_, _> = of_run.map(|(k, v)| (k.clone(), v.clone())).collect();
    labels.extend(asked.labels);
    labels.insert(names::MANAGED_BY.to_owned(), names::MANAGER.to_owned());
    let copied = |key: &str| config.copied_annotations.iter().any(|own| key.starts_with(&**own));
    let of_run = run.metadata.annotations.iter().flatten().filter(|(key, _)| copied(key));
    let mut annotations: BTreeMap<_, _> = of_run.map(|(k, v)| (k.clone(), v.clone())).collect();
    annotations.extend(asked.annotations);
    (labels, annotations)
}
