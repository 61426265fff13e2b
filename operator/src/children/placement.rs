//! Lets pods through that waited for their device.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::apply::{ApplyError, Owner, jobs, kube_error};
use super::manifest::on_node;
use super::pods::JOB_LABEL;
use super::steps::Placement;
use super::{names, owner};
use crate::broker::pools::Grant;
use crate::context::Context;

/// Writes the device into the Job, then takes the gate from those of its pods that have it, together with the order to the
/// device's node. A Job that is gone is left alone.
///
/// # Errors
/// [`ApplyError`], a conflict with whoever changed a pod meanwhile included: the next look does what is left.
pub async fn place<K: Owner>(
    context: &Context,
    object: &K,
    placement: &Placement,
) -> Result<(), ApplyError> {
    let Placement { name, grant } = placement;
    let what = format!("give device '{}' to Job '{name}'", grant.slot);
    let mut patch = json!({"metadata": {"annotations": device(grant)}});
    let now = jiff::Timestamp::now().to_string();
    patch["metadata"]["annotations"][names::PLACED_ANNOTATION] = json!(now);
    let api = jobs(context, object);
    let job = match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(job) => job,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(kube_error(what)(error)),
    };
    let pods: Api<Pod> =
        Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let ours = ListParams::default().labels(&format!("{JOB_LABEL}={name}"));
    let list = pods.list(&ours).await.map_err(kube_error(what.clone()))?;
    for pod in list.items.iter().filter(|pod| is_of(pod, &job)) {
        let Some(patch) = release(pod, grant) else { continue };
        let params = PatchParams::default();
        match pods.patch(&pod.name_any(), &params, &Patch::Merge(&patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(kube_error(what)(error)),
        }
    }
    Ok(())
}

fn device(grant: &Grant) -> Value {
    json!({names::SLOT_ANNOTATION: grant.slot, names::FENCE_ANNOTATION: grant.fence.to_string()})
}

fn is_of(pod: &Pod, job: &Job) -> bool {
    let owner = owner::controller(pod.meta(), "batch", "Job");
    owner.is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}

/// The change that lets a pod through at exactly the version that was seen; none where it has no gate of ours.
fn release(pod: &Pod, grant: &Grant) -> Option<Value> {
    let spec = pod.spec.as_ref()?;
    let gates = spec.scheduling_gates.as_deref()?;
    let others: Vec<_> = gates.iter().filter(|gate| gate.name != names::DEVICE_GATE).collect();
    (others.len() < gates.len()).then(|| {
        json!({
            "metadata": {"resourceVersion": pod.resource_version(), "annotations": device(grant)},
            "spec": {"schedulingGates": others, "affinity": on_node(spec.affinity.clone(), &grant.node)},
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "resourceVersion": "4"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn our_gate_goes_and_what_others_asked_for_stays() {
        let (pool, slot, node) = ("p".to_owned(), "device-n1".to_owned(), "n1".to_owned());
        let grant = Grant { pool, slot, node, fence: 3 };
        let terms = json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
        let patch = release(
            &pod(json!({"containers": [],
                "schedulingGates": [{"name": "example.com/other"}, {"name": "hone.dev/device"}],
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})),
            &grant,
        );
        let patch = patch.unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "4");
        assert_eq!(patch["metadata"]["annotations"]["hone.dev/fence"], "3");
        assert_eq!(patch["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
        let terms = patch
            .pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
            .unwrap();
        assert_eq!(terms[0]["matchExpressions"][0]["key"], "a");
        assert_eq!(terms[0]["matchFields"][0]["values"], json!(["n1"]));
        assert!(release(&pod(json!({"containers": []})), &grant).is_none());
        let gates = json!([{"name": "example.com/other"}]);
        assert!(
            release(&pod(json!({"containers": [], "schedulingGates": gates})), &grant).is_none()
        );
    }
}
