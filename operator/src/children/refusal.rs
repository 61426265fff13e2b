//! Refuses, before any pod is made, what a spec asks for in vain.

use hone_artifact::exit_code::Reason;
use hone_crds::model_compilation::{Resources, Worker};
use hone_crds::not_yet::NotYet;
use hone_crds::status::Failure;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{ended, quantity};
use crate::config::Config;

/// Why no pod can do what a spec asks for; `None` where one can. `not_yet` is what this release cannot do, `uris` are
/// those of the spec by their fields.
pub fn find(
    config: &Config,
    not_yet: Vec<NotYet>,
    uris: &[(&str, Option<&str>)],
    worker: Option<&Worker>,
) -> Option<Failure> {
    let lines = not_yet.into_iter().map(|refused| format!("{}: {}", refused.field, refused.advice));
    let mut lines: Vec<String> = lines.collect();
    let is_local = |uri: &Option<&str>| uri.is_some_and(|uri| uri.starts_with("file://"));
    let local =
        uris.iter().filter(|(_, uri)| is_local(uri) && config.shared_volume_claim.is_none());
    lines.extend(local.map(|(field, _)| {
        format!(
            "{field}: file:// needs a volume, and this cluster's operator was installed without a shared one: use s3, gs or az"
        )
    }));
    if !lines.is_empty() {
        return Some(failure(Reason::NotSupportedYet, &lines));
    }
    let resources = worker.and_then(|worker| worker.resources.as_ref());
    let lines = resources.map(improper).unwrap_or_default();
    (!lines.is_empty()).then(|| failure(Reason::InvalidSpec, &lines))
}

fn failure(reason: Reason, lines: &[String]) -> Failure {
    ended::failure(reason.as_str(), &lines.join("; "))
}

/// What is wrong with resources.
fn improper(resources: &Resources) -> Vec<String> {
    let mut lines = over_limits(resources);
    // Devices have their pools, which say who may use them and who holds them.
    let names = resources.requests.keys().chain(resources.limits.keys());
    let mut devices: Vec<&String> = names.filter(|name| name.contains('/')).collect();
    devices.sort();
    devices.dedup();
    lines.extend(devices.into_iter().map(|name| {
        format!(
            "spec.worker.resources: {name} is a device, which only a DevicePool grants: remove it"
        )
    }));
    lines
}

/// A line for each request that is more than its limit, which the API server would refuse in a pod.
fn over_limits(resources: &Resources) -> Vec<String> {
    let over = |(name, request): (&String, &IntOrString)| {
        let limit = resources.limits.get(name)?;
        let is_over = quantity::value(request)? > quantity::value(limit)?;
        is_over.then(|| {
            let (request, limit) = (quantity::text(request), quantity::text(limit));
            format!("spec.worker.resources: requests.{name} of {request} is more than limits.{name} of {limit}: lower the one or raise the other")
        })
    };
    resources.requests.iter().filter_map(over).collect()
}
