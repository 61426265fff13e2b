//! The control plane does what the operator will rely on: custom resources with CEL, server-side
//! apply, jobs, scheduling, garbage collection, access control.

use std::time::Duration;

use anyhow::{Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, eventually};

const SOON: Duration = Duration::from_secs(60);

/// A custom resource of the tests' own, with the features that ours have. Its group carries the
/// namespace's name, so that tests can run side by side.
fn widgets(context: &Context<'_>) -> Result<String> {
    let group = format!("{}.example.com", context.namespace);
    context.kubectl.apply(&format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {{rule: 'self.replicas <= self.max', message: replicas above max}}
            - {{rule: '!has(oldSelf.mode) || self.mode == oldSelf.mode', message: mode is immutable}}
            properties:
              replicas: {{type: integer, default: 1}}
              max: {{type: integer, default: 5}}
              mode: {{type: string}}
              items:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {{type: object, required: [name], properties: {{name: {{type: string}}, v: {{type: string}}}}}}
          status: {{type: object, properties: {{replicas: {{type: integer}}}}}}
"
    ))?;
    context.kubectl.wait(&format!("crd/widgets.{group}"), "Established", SOON)?;
    Ok(group)
}

fn widget(group: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
    )
}

/// The first object of a kind that was just established may come too early for the server's caches.
fn first_widget(context: &Context<'_>, group: &str, name: &str, spec: &str) -> Result<()> {
    eventually("the new kind to be served", SOON, || {
        context.kubectl.apply(&widget(group, name, spec)).map(Some)
    })
    .map(drop)
}

fn custom_resource_defaults_and_cel(context: &Context<'_>) -> Result<()> {
    let (kubectl, group) = (&context.kubectl, widgets(context)?);
    first_widget(context, &group, "a", "mode: x")?;
    let object = format!("widgets.{group}/a");
    ensure!(kubectl.text(&object, "{.spec.max}")? == "5", "no default");
    let refusal = kubectl.refused(&widget(&group, "b", "replicas: 9"))?;
    ensure!(refusal.contains("replicas above max"), "{refusal}");
    let refusal = kubectl.refused(&widget(&group, "a", "mode: other"))?;
    ensure!(refusal.contains("mode is immutable"), "{refusal}");
    kubectl.run(&["explain", &format!("widgets.{group}.spec")])?;
    Ok(())
}

fn custom_resource_status_and_scale(context: &Context<'_>) -> Result<()> {
    let (kubectl, group) = (&context.kubectl, widgets(context)?);
    first_widget(context, &group, "a", "replicas: 2")?;
    let object = format!("widgets.{group}/a");
    kubectl.run(&[
        "patch",
        &object,
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"replicas":1},"spec":{"replicas":4}}"#,
    ])?;
    ensure!(kubectl.text(&object, "{.status.replicas}")? == "1");
    ensure!(
        kubectl.text(&object, "{.spec.replicas}")? == "2",
        "the status subresource wrote the spec"
    );
    kubectl.run(&["scale", &object, "--replicas=3"])?;
    ensure!(kubectl.text(&object, "{.spec.replicas}")? == "3");
    Ok(())
}

fn server_side_apply_merges_and_conflicts(context: &Context<'_>) -> Result<()> {
    let (kubectl, group) = (&context.kubectl, widgets(context)?);
    first_widget(context, &group, "other", "")?;
    let first = widget(&group, "s", r#"replicas: 2, items: [{name: p, v: "1"}]"#);
    kubectl.apply_as("m1", &first)?;
    kubectl.apply_as("m2", &widget(&group, "s", r#"items: [{name: q, v: "2"}]"#))?;
    let items = kubectl.text(&format!("widgets.{group}/s"), "{.spec.items[*].name}")?;
    ensure!(items == "p q", "merged to {items:?}");
    let conflict = kubectl.apply_as("m2", &widget(&group, "s", "replicas: 3"));
    let message = conflict.map_or_else(|error| format!("{error:#}"), |_| String::new());
    ensure!(message.contains(r#"conflict with "m1""#), "{message:?}");
    Ok(())
}

fn leases_and_events(context: &Context<'_>) -> Result<()> {
    context.kubectl.apply(
        "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, \
          spec: {holderIdentity: me, leaseDurationSeconds: 15}}",
    )?;
    let event = format!(
        "{{apiVersion: events.k8s.io/v1, kind: Event, metadata: {{name: e}}, \
          eventTime: '2026-01-01T00:00:00.000000Z', action: Did, reason: Test, type: Normal, note: hi, \
          reportingController: t/x, reportingInstance: t-1, \
          regarding: {{kind: Lease, name: l, namespace: {}, apiVersion: coordination.k8s.io/v1}}}}",
        context.namespace
    );
    context.kubectl.run_with(&["create", "-f", "-"], &event)?;
    ensure!(context.kubectl.text("events.events.k8s.io/e", "{.note}")? == "hi");
    Ok(())
}

fn owned_objects_are_collected(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&["create", "configmap", "owner"])?;
    let uid = kubectl.text("configmap/owner", "{.metadata.uid}")?;
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, ownerReferences: \
          [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}, controller: true, blockOwnerDeletion: true}}]}}}}"
    ))?;
    kubectl.run(&["delete", "configmap", "owner"])?;
    kubectl.run(&["wait", "--for=delete", "configmap/owned", "--timeout=60s"]).map(drop)
}

/// Nodes by hand: no kubelet and no simulator, only what the scheduler looks at.
fn hand_made_node(context: &Context<'_>, name: &str, taint: &str, resources: &str) -> Result<()> {
    let (kubectl, pool) = (&context.kubectl, &context.namespace);
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{pool: {pool}}}}}, spec: {{taints: [{taint}]}}}}"
    ))?;
    let amounts = format!(r#"{{"cpu":"8","memory":"32Gi","pods":"110"{resources}}}"#);
    let time = "2026-01-01T00:00:00Z";
    let status = format!(
        r#"{{"status":{{"capacity":{amounts},"allocatable":{amounts},"conditions":[{{"type":"Ready","status":"True","reason":"x","message":"x","lastHeartbeatTime":"{time}","lastTransitionTime":"{time}"}}]}}}}"#
    );
    kubectl.run(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status])?;
    // The API server taints each new node; the controllers take the taint away when a kubelet reports.
    eventually("the node to be free of not-ready taints", SOON, || {
        let taints = kubectl.text(&format!("node/{name}"), "{.spec.taints[*].key}")?;
        if taints.contains("node.kubernetes.io/not-ready") {
            kubectl.run(&["taint", "node", name, "node.kubernetes.io/not-ready-"])?;
            return Ok(None);
        }
        Ok(Some(()))
    })
}

fn extended_resources_are_scheduled(context: &Context<'_>) -> Result<()> {
    let (kubectl, pool) = (&context.kubectl, &context.namespace);
    let node = format!("{pool}-gpu");
    let taint = "{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}";
    hand_made_node(context, &node, taint, r#","nvidia.com/gpu":"1""#)?;
    kubectl.apply(&format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: gpu}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {{pool: {pool}}}
      tolerations: [{{key: nvidia.com/gpu, operator: Exists}}]
      containers: [{{name: c, image: x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"
    ))?;
    let pods = "pods -l job-name=gpu";
    kubectl.until(pods, "{.items[*].spec.nodeName}", &node, SOON)?;
    eventually("the other pod to say what it lacks", SOON, || {
        let messages = kubectl.text(pods, "{.items[*].status.conditions[*].message}")?;
        Ok(messages.contains("Insufficient nvidia.com/gpu").then_some(()))
    })?;
    kubectl.run(&["delete", "node", &node]).map(drop)
}

fn job_follows_its_pods(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&["create", "job", "j", "--image=x"])?;
    let pods = "pods -l job-name=j";
    let pod = eventually("the job's pod", SOON, || {
        let name = kubectl.text(pods, "{.items[*].metadata.name}")?;
        Ok((!name.is_empty()).then_some(name))
    })?;
    let done = r#"{"status":{"phase":"Succeeded"}}"#;
    kubectl.run(&["patch", "pod", &pod, "--subresource=status", "--type=merge", "-p", done])?;
    kubectl.wait("job/j", "Complete", SOON)
}

fn deployment_makes_pods(context: &Context<'_>) -> Result<()> {
    context.kubectl.run(&["create", "deployment", "d", "--image=x", "--replicas=2"])?;
    context.kubectl.until("pods -l app=d", "{.items[*].metadata.labels.app}", "d d", SOON)
}

fn roles_allow_and_deny(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&["create", "serviceaccount", "limited"])?;
    kubectl.run(&["create", "role", "r", "--verb=get", "--resource=configmaps"])?;
    let subject = format!("--serviceaccount={}:limited", context.namespace);
    kubectl.run(&["create", "rolebinding", "rb", "--role=r", &subject])?;
    let token = kubectl.run(&["create", "token", "limited"])?;
    let server = kubectl.run(&[
        "config",
        "view",
        "--raw",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ])?;
    // Without a kubeconfig: its client certificate would outrank the token.
    let as_limited = |object: &[&str]| {
        let mut arguments = vec![
            "--kubeconfig=/dev/null",
            "--insecure-skip-tls-verify",
            "--server",
            &server,
            "--token",
            &token,
            "get",
        ];
        arguments.extend(object);
        kubectl.run(&arguments)
    };
    eventually("the role to allow", SOON, || {
        as_limited(&["configmap", "kube-root-ca.crt"]).map(Some)
    })?;
    let denied = as_limited(&["secrets"]);
    let message = denied.map_or_else(|error| format!("{error:#}"), |_| String::new());
    ensure!(message.contains("forbidden"), "{message:?}");
    Ok(())
}

fn admission_policy_denies(context: &Context<'_>) -> Result<()> {
    let (kubectl, name) = (&context.kubectl, &context.namespace);
    kubectl.apply(&format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}
  validations: [{{expression: \"object.metadata.name != 'forbidden-name'\"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}
"
    ))?;
    eventually("the policy to deny", SOON, || {
        match kubectl.run(&["create", "configmap", "forbidden-name"]) {
            Ok(_) => {
                kubectl.run(&["delete", "configmap", "forbidden-name"])?;
                Ok(None)
            }
            Err(error) => Ok(format!("{error:#}").contains("denied").then_some(())),
        }
    })
}

fn namespaces_are_deleted(context: &Context<'_>) -> Result<()> {
    let (kubectl, name) = (&context.kubectl, format!("{}-gone", context.namespace));
    kubectl.run(&["create", "namespace", &name])?;
    let inside = kubectl.in_namespace(&name);
    inside.run(&["create", "configmap", "x"])?;
    kubectl.run(&["delete", "namespace", &name, "--timeout=60s"]).map(drop)
}

fn device_claims_are_served(context: &Context<'_>) -> Result<()> {
    let classes =
        context.kubectl.run(&["get", "--raw", "/apis/resource.k8s.io/v1/deviceclasses"])?;
    ensure!(classes.contains("DeviceClassList"), "{classes}");
    Ok(())
}

fn main() {
    Suite::new("plane", ClusterOptions::default())
        .needs(&[Capability::Plane])
        .test("custom_resource_defaults_and_cel", custom_resource_defaults_and_cel)
        .test("custom_resource_status_and_scale", custom_resource_status_and_scale)
        .test("server_side_apply_merges_and_conflicts", server_side_apply_merges_and_conflicts)
        .test("leases_and_events", leases_and_events)
        .test("admission_policy_denies", admission_policy_denies)
        .test("device_claims_are_served", device_claims_are_served)
        .needs(&[Capability::Controllers])
        .test("owned_objects_are_collected", owned_objects_are_collected)
        .test("extended_resources_are_scheduled", extended_resources_are_scheduled)
        .test("job_follows_its_pods", job_follows_its_pods)
        .test("deployment_makes_pods", deployment_makes_pods)
        .test("roles_allow_and_deny", roles_allow_and_deny)
        .test("namespaces_are_deleted", namespaces_are_deleted)
        .main();
}
