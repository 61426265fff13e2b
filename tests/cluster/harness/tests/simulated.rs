//! Simulated nodes: jobs on them end as their annotations say, as fast as the control plane can.

use std::time::Duration;

use anyhow::{Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite};

const SOON: Duration = Duration::from_secs(90);

fn job(name: &str, annotations: &str) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{set: jobs}}}}
spec:
  backoffLimit: 0
  template:
    metadata: {{annotations: {{{annotations}}}}}
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: not-pulled, resources: {{requests: {{cpu: '1'}}}}}}]
"
    )
}

fn nodes_are_ready(context: &Context<'_>) -> Result<()> {
    let nodes = "nodes -l type=simulated";
    context.kubectl.until(
        nodes,
        "{.items[*].status.conditions[?(@.type=='Ready')].status}",
        "True True True",
        SOON,
    )
}

fn jobs_complete(context: &Context<'_>) -> Result<()> {
    let names: Vec<String> = (0..20).map(|i| format!("j{i}")).collect();
    let yaml: Vec<String> = names.iter().map(|name| job(name, "")).collect();
    context.kubectl.apply(&yaml.join("---"))?;
    context.kubectl.wait("jobs -l set=jobs", "Complete", SOON)
}

fn a_failure_is_told_as_annotated(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&job(
        "fails",
        "simulate.hone.dev/exit-code: '3', simulate.hone.dev/duration: 500ms, simulate.hone.dev/message: '{\"class\":\"user\"}'",
    ))?;
    kubectl.wait("job/fails", "Failed", SOON)?;
    let state = "{.items[0].status.containerStatuses[0].state.terminated";
    let pods = "pods -l job-name=fails";
    let code = kubectl.text(pods, &format!("{state}.exitCode}}"))?;
    let message = kubectl.text(pods, &format!("{state}.message}}"))?;
    ensure!(code == "3" && message == r#"{"class":"user"}"#, "{code} {message}");
    Ok(())
}

fn a_deleted_pod_goes(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&["run", "p", "--image=not-pulled"])?;
    kubectl.wait("pod/p", "Ready", SOON)?;
    kubectl.run(&["delete", "pod", "p", "--timeout=60s"]).map(drop)
}

fn main() {
    let options = ClusterOptions { simulated_nodes: Some(3), ..ClusterOptions::default() };
    Suite::new("simulated", options)
        .needs(&[Capability::Controllers, Capability::Kwok])
        .test("nodes_are_ready", nodes_are_ready)
        .test("jobs_complete", jobs_complete)
        .test("a_failure_is_told_as_annotated", a_failure_is_told_as_annotated)
        .test("a_deleted_pod_goes", a_deleted_pod_goes)
        .main();
}
