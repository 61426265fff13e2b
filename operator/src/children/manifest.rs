//! The Job of a plan as an object: a restricted pod, and retries by exit code.

use std::collections::BTreeMap;

use hone_artifact::request::REQUEST_VARIABLE;
use hone_artifact::{exit_code, progress};
use hone_crds::Platform;
use hone_crds::device_pool::{DeviceKind, DevicePoolSpec};
use hone_crds::model_compilation::Worker;
use hone_telemetry::{PARENT_VARIABLE, TRACES_ENDPOINT_VARIABLE, TraceContext};
use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicy};
use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, NodeSelectorRequirement, NodeSelectorTerm,
    PodSchedulingGate, PodSpec, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use serde_json::{Value, json};

use super::jobs::Purpose;
use super::steps::JobPlan;
use super::{bounds, names, owner};
use crate::broker::pools::PoolView;
use crate::config::Config;
use crate::traces;

/// Where credentials are mounted in the worker, a folder each.
pub const CREDENTIALS: &str = "/etc/hone/credentials";

/// Where the token is mounted that a worker posts its progress with, and the token's file.
const PROGRESS_TOKEN: &str = "/etc/hone/progress";
const PROGRESS_TOKEN_FILE: &str = "token";

/// What the pod of a Job needs, from its owner's spec.
#[derive(Debug, Default)]
pub struct Needs<'a> {
    /// What the spec says of the pod.
    pub worker: Option<&'a Worker>,
    /// The Secrets that are mounted: the folder's name and the Secret's.
    pub secrets: Vec<(&'static str, &'a str)>,
    /// Whether the work may read or write on the shared volume.
    pub shared_volume: bool,
    /// What the code is made for; the pool's platform where it is not said.
    pub platform: Option<&'a Platform>,
    /// The span of the work that the Job is part of.
    pub span: Option<TraceContext>,
}

/// Why a Job cannot be written down.
#[derive(Debug, thiserror::Error)]
#[error("the Job '{name}' cannot be written: please report this")]
pub struct JobError {
    name: String,
    #[source]
    source: serde_json::Error,
}

/// The Job of `plan` for `object`, its owner.
///
/// # Errors
/// [`JobError`] when our own values have no JSON form, which would be our bug.
pub fn manifest<K: Resource<DynamicType = ()>>(
    config: &Config,
    object: &K,
    plan: &JobPlan,
    needs: &Needs<'_>,
) -> Result<Job, JobError> {
    let labels = labels(object.meta(), plan);
    let pod =
        pod(config, plan, needs).map_err(|source| JobError { name: plan.name.clone(), source })?;
    Ok(Job {
        metadata: ObjectMeta {
            name: Some(plan.name.clone()),
            namespace: object.meta().namespace.clone(),
            labels: Some(labels.clone()),
            annotations: job_annotations(config, plan, needs),
            owner_references: Some(vec![owner::reference(object)]),
            // When its owner goes first, the garbage collector would delete it in the background: it would be gone,
            // and its device granted to the next, while its pod still runs.
            finalizers: Some(vec![names::FOREGROUND_DELETION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(plan.bounds.active_deadline_seconds),
            backoff_limit: Some(plan.bounds.backoff_limit),
            completions: Some(1),
            parallelism: Some(1),
            pod_failure_policy: Some(
                failure_policy().map_err(|source| JobError { name: plan.name.clone(), source })?,
            ),
            suspend: plan.suspended.then_some(true),
            // A pod is replaced only when it has ended: a device is never asked for twice.
            pod_replacement_policy: Some("Failed".to_owned()),
            ttl_seconds_after_finished: Some(config.job_ttl_seconds),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: annotations(config, object.meta(), plan),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}

fn labels(metadata: &ObjectMeta, plan: &JobPlan) -> BTreeMap<String, String> {
    let copied = metadata.labels.iter().flatten();
    let mut labels: BTreeMap<String, String> = copied
        .filter(|(key, _)| key.starts_with(names::COPIED_LABELS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut set = |key: &str, value: &str| {
        // Names may be longer than labels.
        labels.insert(key.to_owned(), bounds::label(value));
    };
    set(names::MANAGED_BY, names::MANAGER);
    set(names::UID_LABEL, metadata.uid.as_deref().unwrap_or_default());
    let (name_label, purpose) = match plan.purpose {
        Purpose::Compile => (names::NAME_LABEL, names::PURPOSE_COMPILE),
        Purpose::Cleanup => (names::NAME_LABEL, names::PURPOSE_CLEANUP),
        Purpose::Adopt => (names::NAME_LABEL, names::PURPOSE_ADOPT),
        Purpose::Tune => (names::RUN_LABEL, names::PURPOSE_TUNE),
        Purpose::Measure => (names::RUN_LABEL, names::PURPOSE_MEASURE),
    };
    set(name_label, metadata.name.as_deref().unwrap_or_default());
    set(names::PURPOSE_LABEL, purpose);
    if let Some(target) = &plan.target {
        set(names::TARGET_LABEL, target);
    }
    if let Some(pool) = plan.pool.as_ref().filter(|_| plan.purpose.uses_a_device()) {
        set(names::POOL_LABEL, &pool.name);
    }
    labels
}

/// The name of the pool, whatever its length, the device that was granted, and the span that the Job is part of.
fn job_annotations(
    config: &Config,
    plan: &JobPlan,
    needs: &Needs<'_>,
) -> Option<BTreeMap<String, String>> {
    let pool = plan.pool.as_ref().filter(|_| plan.purpose.uses_a_device())?;
    let mut annotations = device_annotations(plan);
    annotations.insert(names::POOL_ANNOTATION.to_owned(), pool.name.clone());
    if plan.gated {
        annotations.insert(names::GATED_ANNOTATION.to_owned(), "true".to_owned());
    }
    if let Some(whole) = needs.span.as_ref().filter(|_| config.traces_endpoint.is_some()) {
        annotations.insert(names::TRACEPARENT_ANNOTATION.to_owned(), whole.to_string());
    }
    Some(annotations)
}

/// The device that was granted.
fn device_annotations(plan: &JobPlan) -> BTreeMap<String, String> {
    let Some(grant) = &plan.grant else { return BTreeMap::new() };
    BTreeMap::from([
        (names::SLOT_ANNOTATION.to_owned(), grant.slot.clone()),
        (names::FENCE_ANNOTATION.to_owned(), grant.fence.to_string()),
    ])
}

/// The device, and annotations of the object that the administrator wants on its pods.
fn annotations(
    config: &Config,
    metadata: &ObjectMeta,
    plan: &JobPlan,
) -> Option<BTreeMap<String, String>> {
    let all = metadata.annotations.iter().flatten();
    let wanted = |key: &str| config.copied_annotations.iter().any(|prefix| key.starts_with(prefix));
    let copied =
        all.filter(|(key, _)| wanted(key)).map(|(key, value)| (key.clone(), value.clone()));
    let mut annotations: BTreeMap<String, String> = copied.collect();
    annotations.extend(device_annotations(plan));
    (!annotations.is_empty()).then_some(annotations)
}

/// The user's mistakes and our bugs end the Job; evictions do not count; the rest is tried again.
fn failure_policy() -> Result<PodFailurePolicy, serde_json::Error> {
    serde_json::from_value(json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {
            "containerName": names::CONTAINER,
            "operator": "In",
            "values": exit_code::terminal_codes(),
        }},
    ]}))
}

fn pod(config: &Config, plan: &JobPlan, needs: &Needs<'_>) -> Result<PodSpec, serde_json::Error> {
    let worker = needs.worker.cloned().unwrap_or_default();
    let device = plan.purpose.uses_a_device();
    let pool = plan.pool.as_ref();
    let (volumes, mounts) = volumes(config, plan, needs);
    let container = json!({
        "name": names::CONTAINER,
        "image": config.worker_image,
        "imagePullPolicy": config.worker_image_pull_policy,
        "args": ["worker"],
        "env": environment(config, plan, needs)?,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let mut container: Container = serde_json::from_value(container)?;
    let spec = pool.map(|pool| &pool.spec).filter(|_| device);
    container.resources = Some(resources(config, &worker, spec, device));
    let mut pod: PodSpec = serde_json::from_value(json!({
        "containers": [],
        "volumes": volumes,
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }))?;
    pod.containers = vec![container];
    let pull = config.worker_image_pull_secrets.iter();
    let pull: Vec<LocalObjectReference> =
        pull.map(|name| LocalObjectReference { name: name.clone() }).collect();
    pod.image_pull_secrets = (!pull.is_empty()).then_some(pull);
    // A clean-up needs the identity that wrote what it deletes, and nobody waits for it.
    pod.service_account_name = worker.service_account_name;
    pod.priority_class_name = worker.priority_class_name.filter(|_| device);
    if let Some(pool) = pool {
        place(&mut pod, needs, plan, pool, device)?;
    }
    Ok(pod)
}

/// Where the pod may run, and with which devices.
fn place(
    pod: &mut PodSpec,
    needs: &Needs<'_>,
    plan: &JobPlan,
    pool: &PoolView,
    device: bool,
) -> Result<(), serde_json::Error> {
    let spec = &pool.spec;
    pod.tolerations = Some(serde_json::from_value(json!(spec.tolerations))?);
    if !device {
        // A clean-up runs on any node: those of the pool may be scaled down to none.
        return Ok(());
    }
    let mut selector = spec.node_selector.clone().unwrap_or_default();
    // What only searches for devices outside of the cluster runs on any node.
    let platform = needs.platform.or(spec.platform.as_ref());
    if let Some(platform) = platform.filter(|_| spec.kind != DeviceKind::External) {
        selector.entry("kubernetes.io/arch".to_owned()).or_insert_with(|| platform.arch.clone());
    }
    if !selector.is_empty() {
        pod.node_selector = Some(selector);
    }
    pod.runtime_class_name.clone_from(&spec.runtime_class_name);
    if let Some(template) = &spec.resource_claim_template {
        pod.resource_claims = Some(serde_json::from_value(json!([
            {"name": "device", "resourceClaimTemplateName": template.name}
        ]))?);
    }
    if let Some(grant) = &plan.grant {
        pod.affinity = Some(on_node(None, &grant.node));
    }
    if plan.gated {
        pod.scheduling_gates =
            Some(vec![PodSchedulingGate { name: names::DEVICE_GATE.to_owned() }]);
    }
    Ok(())
}

/// Keeps a pod on the node of its device, besides what was asked of nodes before. The scheduler still looks whether it fits.
pub fn on_node(before: Option<Affinity>, node: &str) -> Affinity {
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let mut affinity = before.unwrap_or_default();
    let required = affinity
        .node_affinity
        .get_or_insert_default()
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    // A pod may run where any of the terms holds.
    for term in &mut required.node_selector_terms {
        term.match_fields.get_or_insert_default().push(field.clone());
    }
    affinity
}

fn resources(
    config: &Config,
    worker: &Worker,
    pool: Option<&DevicePoolSpec>,
    device: bool,
) -> ResourceRequirements {
    // The resources are those of compiling.
    let asked = worker.resources.clone().filter(|_| device).unwrap_or_default();
    let quantity = |value: &IntOrString| match value {
        IntOrString::Int(number) => Quantity(number.to_string()),
        IntOrString::String(text) => Quantity(text.clone()),
    };
    let convert = |map: &BTreeMap<String, IntOrString>| -> BTreeMap<String, Quantity> {
        map.iter().map(|(key, value)| (key.clone(), quantity(value))).collect()
    };
    let (mut requests, mut limits) = (convert(&asked.requests), convert(&asked.limits));
    let defaults = match device {
        true => [("cpu", &config.default_cpu), ("memory", &config.default_memory)],
        false => [("cpu", &config.cleanup_cpu), ("memory", &config.cleanup_memory)],
    };
    for (key, value) in defaults {
        if !requests.contains_key(key) && !limits.contains_key(key) {
            requests.insert(key.to_owned(), Quantity(value.clone()));
        }
    }
    // What is not bounded takes memory from neighbours: without a limit the request is one.
    if let (Some(memory), false) = (requests.get("memory"), limits.contains_key("memory")) {
        limits.insert("memory".to_owned(), memory.clone());
    }
    if let Some(resource) = pool.and_then(|pool| pool.extended_resource.as_ref()) {
        limits.insert(resource.name.clone(), Quantity(resource.count.to_string()));
        requests.insert(resource.name.clone(), Quantity(resource.count.to_string()));
    }
    let claimed = pool.is_some_and(|pool| pool.resource_claim_template.is_some());
    ResourceRequirements {
        claims: claimed.then(|| {
            vec![k8s_openapi::api::core::v1::ResourceClaim {
                name: "device".to_owned(),
                request: None,
            }]
        }),
        limits: (!limits.is_empty()).then_some(limits),
        requests: (!requests.is_empty()).then_some(requests),
    }
}

/// Scratch space, credentials and the shared volume: volumes and their mounts.
fn volumes(config: &Config, plan: &JobPlan, needs: &Needs<'_>) -> (Vec<Value>, Vec<Value>) {
    let mut volumes = vec![json!({
        "name": "scratch", "emptyDir": {"sizeLimit": config.scratch_size},
    })];
    let mut mounts = vec![
        json!({"name": "scratch", "mountPath": "/scratch"}),
        json!({"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"}),
    ];
    let needed = needs.secrets.iter().map(|(use_, secret)| (*use_, *secret, false));
    let optional = plan.optional_secrets.iter();
    let optional = optional.map(|(use_, secret)| (use_.as_str(), secret.as_str(), true));
    for (use_, secret, may_miss) in needed.chain(optional) {
        let name = format!("credentials-{use_}");
        let mut volume = json!({
            "name": name, "secret": {"secretName": secret, "defaultMode": 0o440},
        });
        if may_miss {
            volume["secret"]["optional"] = json!(true);
        }
        volumes.push(volume);
        mounts.push(json!({
            "name": name, "mountPath": format!("{CREDENTIALS}/{use_}"), "readOnly": true,
        }));
    }
    if let Some(claim) = config.shared_volume_claim.as_ref().filter(|_| needs.shared_volume) {
        volumes.push(json!({
            "name": "shared", "persistentVolumeClaim": {"claimName": claim},
        }));
        mounts.push(json!({"name": "shared", "mountPath": config.shared_volume_path}));
    }
    if progress_endpoint(config, plan).is_some() {
        let token = json!({"serviceAccountToken": {
            "audience": progress::AUDIENCE, "expirationSeconds": 3600, "path": PROGRESS_TOKEN_FILE,
        }});
        volumes.push(json!({"name": "progress", "projected": {"sources": [token]}}));
        mounts.push(json!({"name": "progress", "mountPath": PROGRESS_TOKEN, "readOnly": true}));
    }
    (volumes, mounts)
}

/// Where the pod posts how far it is: one that searches.
fn progress_endpoint<'a>(config: &'a Config, plan: &JobPlan) -> Option<&'a str> {
    config.progress_endpoint.as_deref().filter(|_| plan.purpose == Purpose::Tune)
}

fn environment(
    config: &Config,
    plan: &JobPlan,
    needs: &Needs<'_>,
) -> Result<Vec<Value>, serde_json::Error> {
    let mut environment = vec![
        json!({"name": REQUEST_VARIABLE, "value": plan.request.to_json()?}),
        json!({"name": "HONE_SCRATCH", "value": "/scratch"}),
        json!({"name": "HOME", "value": "/scratch"}),
    ];
    if config.shared_volume_claim.is_some() {
        // Where `file://` may lead is where the volume is.
        environment.push(json!({"name": "HONE_FILE_ROOT", "value": config.shared_volume_path}));
    }
    if config.workload_identity {
        environment.push(json!({"name": "HONE_WORKLOAD_IDENTITY", "value": "true"}));
    }
    if !config.fetch_allow.is_empty() {
        let allow = config.fetch_allow.join(",");
        environment.push(json!({"name": "HONE_FETCH_ALLOW", "value": allow}));
    }
    if let Some(endpoint) = progress_endpoint(config, plan) {
        environment.push(json!({"name": progress::ENDPOINT_VARIABLE, "value": endpoint}));
        let file = format!("{PROGRESS_TOKEN}/{PROGRESS_TOKEN_FILE}");
        environment.push(json!({"name": progress::TOKEN_VARIABLE, "value": file}));
    }
    let device = plan.purpose.uses_a_device();
    let span = needs.span.filter(|_| device);
    if let (Some(endpoint), Some(whole)) = (config.traces_endpoint.as_ref(), span) {
        let parent = traces::of_job(whole, &plan.name).to_string();
        environment.push(json!({"name": TRACES_ENDPOINT_VARIABLE, "value": endpoint}));
        environment.push(json!({"name": PARENT_VARIABLE, "value": parent}));
    }
    Ok(environment)
}
