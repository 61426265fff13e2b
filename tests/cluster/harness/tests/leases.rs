//! Leases of devices: the operator as a process against a real API server, scheduler and controllers, with simulated
//! nodes, on which a worker takes as long as an annotation says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::simulated::{
    Operator, SOON, begin, begin_with, compilation, count, holders, items, says,
};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, eventually};
use serde_json::Value;

/// Never two workers on one node, each as its Lease says, and at the end nobody holds anything.
fn devices_are_held_one_at_a_time(context: &Context<'_>) -> Result<()> {
    const COUNT: usize = 8;
    let _operator = begin(context, "")?;
    let all: Vec<String> = (0..COUNT).map(|n| compilation(context, n, "1s", "")).collect();
    context.kubectl.apply(&all.join("---\n"))?;
    let (mut most, mut wrong) = (0, Vec::new());
    eventually("all to succeed", SOON, || {
        let pods = items(context, "pods")?;
        let ended = |pod: &&Value| pod["status"]["phase"] == "Succeeded";
        let under_way: Vec<&Value> = pods.iter().filter(|pod| !ended(pod)).collect();
        let slot = |pod: &&Value| pod["metadata"]["annotations"]["hone.dev/slot"].to_string();
        let slots: BTreeSet<String> = under_way.iter().map(slot).collect();
        if slots.len() != under_way.len() {
            wrong.push(format!("two pods in one slot: {under_way:?}"));
        }
        for pod in &pods {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let slot = pod["metadata"]["annotations"]["hone.dev/slot"].as_str().unwrap_or_default();
            if !node.is_empty() && slot != format!("device-{node}") {
                wrong.push(format!("{slot} on {node}"));
            }
        }
        most = most.max(under_way.len());
        Ok((count(context, "Succeeded")? == COUNT).then_some(()))
    })?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(most == 2, "{most} of 2 devices were used at once");
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))?;
    let leases = items(context, "leases -l hone.dev/lease=device")?;
    let grants = leases.iter().filter_map(|lease| lease["spec"]["leaseTransitions"].as_u64());
    ensure!(grants.sum::<u64>() == COUNT as u64, "{leases:?}");
    let pool = format!("devicepool/{}", context.namespace);
    eventually("the pool's counts", SOON, || {
        let capacity = context.kubectl.json(&pool)?["status"]["capacity"].clone();
        Ok((capacity["total"] == 2 && capacity["leased"] == 0 && capacity["waiting"] == 0)
            .then_some(()))
    })
}

/// Workers that no node has room for do not stand before one that fits.
fn what_does_not_fit_delays_nobody(context: &Context<'_>) -> Result<()> {
    let _operator = begin(context, "")?;
    let large = ", worker: {resources: {requests: {memory: 900Gi}}}";
    let bad: Vec<String> = (0..6).map(|n| compilation(context, n, "1s", large)).collect();
    context.kubectl.apply(&bad.join("---\n"))?;
    eventually("a device in vain", SOON, || Ok((!holders(context)?.is_empty()).then_some(())))?;
    let start = Instant::now();
    context.kubectl.apply(&compilation(context, 9, "100ms", ""))?;
    context.kubectl.wait("modelcompilation/c9", "Succeeded", SOON)?;
    let took = start.elapsed();
    println!("a right one beside six that do not fit: {:.1} s", took.as_secs_f64());
    ensure!(took < Duration::from_secs(30), "it took {took:?}");
    eventually("the scheduler's words", SOON, || {
        let reason = "{.status.targets[0].failure.reason}";
        let found = context.kubectl.text("modelcompilation/c0", reason)?;
        Ok((found == "Unschedulable").then_some(()))
    })
}

/// An operator that is killed leaves everything in the Leases: the next one neither grants twice nor forgets.
fn a_fresh_operator_knows_who_holds_what(context: &Context<'_>) -> Result<()> {
    let operator = begin(context, ", maxPerNamespace: 1")?;
    context.kubectl.apply(&compilation(context, 0, "8s", ""))?;
    eventually("the first to run", SOON, || Ok((count(context, "Running")? == 1).then_some(())))?;
    let before = holders(context)?;
    ensure!(before.len() == 1, "{before:?}");
    drop(operator);
    context.kubectl.apply(&compilation(context, 1, "1s", ""))?;
    let _operator = Operator::start(context)?;
    eventually("the second to wait", SOON, || {
        let reason = "{.status.targets[0].failure.reason}";
        let found = context.kubectl.text("modelcompilation/c1", reason)?;
        Ok((found == "WaitingForDevice").then_some(()))
    })?;
    ensure!(holders(context)? == before, "{:?}", holders(context)?);
    eventually("both to succeed", SOON, || Ok((count(context, "Succeeded")? == 2).then_some(())))?;
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))
}

/// Suspends a compilation's only Job or lets it go, as Kueue does.
fn suspend(context: &Context<'_>, name: &str, suspend: bool) -> Result<()> {
    let label = format!("hone.dev/compilation={name}");
    let job = context.kubectl.run(&["get", "jobs", "-l", &label, "-o", "name"])?;
    let patch = format!("{{\"spec\": {{\"suspend\": {suspend}}}}}");
    context.kubectl.run(&["patch", job.trim(), "--type", "merge", "-p", &patch]).map(drop)
}

/// The test is Kueue: a Job that it holds has no device, and one that it lets go gets one when its turn comes.
fn a_suspended_job_holds_no_device(context: &Context<'_>) -> Result<()> {
    let _operator = begin(context, "")?;
    let queued = compilation(context, 9, "6s", "");
    let label = "{name: c9, labels: {kueue.x-k8s.io/queue-name: models}, ";
    context.kubectl.apply(&queued.replace("{name: c9, ", label))?;
    eventually("it to run", SOON, || Ok((count(context, "Running")? == 1).then_some(())))?;
    let pod = items(context, "pods")?.pop().context("a pod")?;
    let slot = pod["metadata"]["annotations"]["hone.dev/slot"].as_str().unwrap_or_default();
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    ensure!(slot == format!("device-{node}"), "{pod}");
    ensure!(pod["spec"]["schedulingGates"].is_null(), "{pod}");

    suspend(context, "c9", true)?;
    says(context, "c9", "Queued")?;
    eventually("the device back", SOON, || Ok(holders(context)?.is_empty().then_some(())))?;
    let others = [0, 1].map(|number| compilation(context, number, "8s", "")).join("---\n");
    context.kubectl.apply(&others)?;
    eventually("others to have it", SOON, || Ok((holders(context)?.len() == 2).then_some(())))?;
    suspend(context, "c9", false)?;
    says(context, "c9", "WaitingForDevice")?;
    let held = holders(context)?;
    ensure!(held.iter().all(|holder| !holder.contains("/c9-")), "{held:?}");
    eventually("all to succeed", SOON, || Ok((count(context, "Succeeded")? == 3).then_some(())))?;
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))
}

/// A node of the pool that no kubelet and no simulator looks after: what is on it stays as the test says.
fn node_of_the_test(context: &Context<'_>, name: &str, ready: &str) -> Result<()> {
    let kubectl = &context.kubectl;
    let label = &context.namespace;
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{lost: {label}}}}}}}"
    ))?;
    let amounts = r#"{"cpu":"8","memory":"32Gi","pods":"110"}"#;
    let time = "2026-01-01T00:00:00Z";
    let condition = format!(
        r#"{{"type":"Ready","status":"{ready}","reason":"x","message":"x","lastHeartbeatTime":"{time}","lastTransitionTime":"{time}"}}"#
    );
    let status = format!(
        r#"{{"status":{{"capacity":{amounts},"allocatable":{amounts},"conditions":[{condition}]}}}}"#
    );
    kubectl.run(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status])?;
    // The API server taints each new node; the controllers take the taint away when a kubelet reports.
    eventually("the node to be free of not-ready taints", SOON, || {
        let taints = kubectl.text(&format!("node/{name}"), "{.spec.taints[*].key}")?;
        if ready == "True" && taints.contains("node.kubernetes.io/not-ready") {
            kubectl.run(&["taint", "node", name, "node.kubernetes.io/not-ready-"])?;
            return Ok(None);
        }
        Ok(Some(()))
    })
}

/// Says of a pod what its kubelet would.
fn pod_is(context: &Context<'_>, name: &str, ready: &str) -> Result<()> {
    let status = format!(
        r#"{{"status": {{"phase": "Running", "conditions": [{{"type": "Ready", "status": "{ready}"}}]}}}}"#
    );
    let patch = ["patch", "pod", name, "--subresource=status", "--type=strategic", "-p", &status];
    context.kubectl.run(&patch).map(drop)
}

/// The node of a worker stops answering for good. The status says so; once Kubernetes has evicted the pod, the work goes on
/// on another node, although nobody ever says that the pod has ended.
fn a_lost_node_keeps_nothing(context: &Context<'_>) -> Result<()> {
    let (kubectl, label) = (&context.kubectl, &context.namespace);
    let lost = format!("{label}-lost");
    node_of_the_test(context, &lost, "True")?;
    let _operator = begin(context, "")?;
    let pool = format!(r#"{{"spec": {{"nodeSelector": {{"type": null, "lost": "{label}"}}}}}}"#);
    kubectl.run(&["patch", "devicepool", label, "--type=merge", "-p", &pool])?;
    kubectl.apply(&compilation(context, 0, "1s", ""))?;
    let pod = eventually("a pod on the node", SOON, || {
        let pods = items(context, "pods")?;
        let on_it = pods.iter().find(|pod| pod["spec"]["nodeName"] == lost.as_str());
        Ok(on_it.and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)))
    })?;
    pod_is(context, &pod, "True")?;
    eventually("it to run", SOON, || Ok((count(context, "Running")? == 1).then_some(())))?;

    node_of_the_test(context, &lost, "Unknown")?;
    pod_is(context, &pod, "False")?;
    says(context, "c0", "NodeNotReady")?;
    ensure!(count(context, "Running")? == 1, "it may still be at work");
    let path = "{.status.conditions[?(@.type=='Ready')].message}";
    let message = kubectl.text("modelcompilation/c0", path)?;
    ensure!(message.contains(&lost), "{message}");

    let simulated = kubectl.run(&["get", "nodes", "-l", "type=simulated", "-o", "name"])?;
    let simulated = simulated.lines().next().context("a simulated node")?.to_owned();
    kubectl.run(&["label", &simulated, &format!("lost={label}")])?;
    // As the taint manager does.
    kubectl.run(&["delete", "pod", &pod, "--grace-period=1", "--wait=false"])?;
    kubectl.wait("modelcompilation/c0", "Succeeded", SOON)?;
    ensure!(kubectl.run(&["get", "pod", &pod]).is_err(), "the evicted pod is still there");
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))?;
    kubectl.run(&["label", &simulated, "lost-"])?;
    kubectl.run(&["delete", "node", &lost]).map(drop)
}

/// A namespace that is deleted goes with all that is at work, waits or is done in it, holds no device, and may be made anew.
fn a_namespace_that_goes_keeps_nothing(context: &Context<'_>) -> Result<()> {
    let going = format!("{}-going", context.namespace);
    let _operator = begin_with(context, "", &[("HONE_WATCH_NAMESPACE", &going)])?;
    let cluster = context.cluster.kubectl();
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {going}}}}}");
    cluster.apply(&namespace)?;
    // The pool and its Leases stay in the test's own namespace.
    let inside = Context {
        cluster: context.cluster,
        kubectl: cluster.in_namespace(&going),
        namespace: context.namespace.clone(),
    };
    let given_up = |number, duration: &str| {
        let plain = compilation(&inside, number, duration, "");
        plain.replace("{uri: 's3://artifacts'}", "{uri: 's3://artifacts', deletionPolicy: Delete}")
    };
    let apply = |yaml: String| eventually("it", SOON, || Ok(inside.kubectl.apply(&yaml).ok()));
    apply(given_up(0, "1s"))?;
    inside.kubectl.wait("modelcompilation/c0", "Succeeded", SOON)?;
    apply(given_up(1, "10m"))?;
    apply(tuning_run(&inside))?;
    eventually("both devices to be held", SOON, || {
        Ok((holders(context)?.len() == 2).then_some(()))
    })?;
    apply(given_up(2, "10m"))?;
    says(&inside, "c2", "WaitingForDevice")?;

    cluster.run(&["delete", "namespace", &going, "--wait=false"])?;
    eventually("the namespace to go", SOON, || {
        let found =
            cluster.run(&["get", "namespace", &going, "--ignore-not-found", "-o", "name"])?;
        Ok(found.trim().is_empty().then_some(()))
    })?;
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))?;

    cluster.apply(&namespace)?;
    apply(given_up(1, "1s"))?;
    inside.kubectl.wait("modelcompilation/c1", "Succeeded", SOON)?;
    cluster.run(&["delete", "namespace", &going, "--wait=false"]).map(drop)
}

/// A tuning run in the test's pool whose worker does not end by itself.
fn tuning_run(context: &Context<'_>) -> String {
    let pool = &context.namespace;
    format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: TuningRun, metadata: {{name: r0, annotations: \
         {{simulate.hone.dev/duration: 10m}}}}, spec: {{model: {{uri: 's3://models/r.onnx'}}, pool: {pool}, \
         target: {{arch: amd64}}, stop: {{maxTrials: 10}}, log: {{uri: 's3://tuning/r'}}}}}}\n"
    )
}

fn main() {
    let options = ClusterOptions { simulated_nodes: Some(2), ..ClusterOptions::default() };
    Suite::new("leases", options)
        .needs(&[Capability::Plane, Capability::Kwok, Capability::Product])
        .alone("devices_are_held_one_at_a_time", devices_are_held_one_at_a_time)
        .alone("what_does_not_fit_delays_nobody", what_does_not_fit_delays_nobody)
        .alone("a_fresh_operator_knows_who_holds_what", a_fresh_operator_knows_who_holds_what)
        .alone("a_suspended_job_holds_no_device", a_suspended_job_holds_no_device)
        .alone("a_lost_node_keeps_nothing", a_lost_node_keeps_nothing)
        .alone("a_namespace_that_goes_keeps_nothing", a_namespace_that_goes_keeps_nothing)
        .main();
}
