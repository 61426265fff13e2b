//! The real node does what worker pods will rely on: containers run, with limits, exit codes, logs,
//! volumes, network, DNS and credentials.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, eventually, program, tool};

const SOON: Duration = Duration::from_secs(90);
const IMAGE: &str = "localhost/hone/toolbox:1";

/// A job of one container that runs a shell script, with further lines of its container and its spec.
fn job(name: &str, script: &str, container: &str, spec: &str) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  backoffLimit: 0
  {spec}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      containers:
      - name: c
        image: {IMAGE}
        command: [sh, -c, {script:?}]
        {container}
"
    )
}

const POD: &str = "{.items[0].status.containerStatuses[0].state.terminated";

fn job_runs_and_logs(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&job(
        "ok",
        "echo out; echo err >&2; echo said > /dev/termination-log",
        "",
        "",
    ))?;
    kubectl.wait("job/ok", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/ok"])?;
    ensure!(log.contains("out") && log.contains("err"), "{log:?}");
    let message = kubectl.text("pods -l job-name=ok", &format!("{POD}.message}}"))?;
    ensure!(message.trim() == "said", "termination message {message:?}");
    Ok(())
}

fn exit_code_decides_the_job(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    let policy = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {containerName: c, operator: In, values: [42]}}]}";
    // With retries left, only the policy can end the job at the first failure.
    let yaml = job("fail", "exit 42", "", policy).replace("backoffLimit: 0", "backoffLimit: 5");
    kubectl.apply(&yaml)?;
    kubectl.wait("job/fail", "Failed", SOON)?;
    let code = kubectl.text("pods -l job-name=fail", &format!("{POD}.exitCode}}"))?;
    ensure!(code == "42", "exit code {code}");
    let reason = kubectl.text("job/fail", "{.status.conditions[?(@.type=='Failed')].reason}")?;
    ensure!(reason == "PodFailurePolicy", "reason {reason}");
    Ok(())
}

fn memory_limit_kills(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&job("oom", "tail /dev/zero", "resources: {limits: {memory: 32Mi}}", ""))?;
    kubectl.wait("job/oom", "Failed", SOON)?;
    let pods = "pods -l job-name=oom";
    let reason = kubectl.text(pods, &format!("{POD}.reason}}"))?;
    let code = kubectl.text(pods, &format!("{POD}.exitCode}}"))?;
    ensure!(reason == "OOMKilled" && code == "137", "{reason}, exit code {code}");
    Ok(())
}

fn restricted_pod_runs(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&[
        "label",
        "namespace",
        &context.namespace,
        "pod-security.kubernetes.io/enforce=restricted",
    ])?;
    let security = "securityContext: {runAsNonRoot: true, runAsUser: 65532, readOnlyRootFilesystem: true, \
        allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}";
    let script = "id -u; touch /x 2>/dev/null && echo writable || echo read-only; grep Seccomp: /proc/self/status";
    kubectl.apply(&job("restricted", script, security, ""))?;
    kubectl.wait("job/restricted", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/restricted"])?;
    ensure!(log.contains("65532") && log.contains("read-only"), "{log}");
    ensure!(log.contains("Seccomp:\t2"), "no seccomp filter: {log}");
    let refusal = kubectl.refused(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: root}}, spec: {{containers: [{{name: c, image: {IMAGE}}}]}}}}"
    ))?;
    ensure!(refusal.contains("violates PodSecurity"), "{refusal}");
    Ok(())
}

fn volumes_and_init_containers(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&format!(
        "
apiVersion: v1
kind: ConfigMap
metadata: {{name: cm}}
data: {{k: from-config}}
---
apiVersion: v1
kind: Secret
metadata: {{name: sec}}
stringData: {{s: from-secret}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: volumes}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      initContainers: [{{name: i, image: '{IMAGE}', command: [sh, -c, 'echo from-init > /e/f'], volumeMounts: [{{name: e, mountPath: /e}}]}}]
      containers:
      - name: c
        image: {IMAGE}
        command: [sh, -c, 'cat /c/k /s/s; echo; cat /e/f; echo $V']
        env: [{{name: V, valueFrom: {{secretKeyRef: {{name: sec, key: s}}}}}}]
        volumeMounts: [{{name: c, mountPath: /c}}, {{name: s, mountPath: /s}}, {{name: e, mountPath: /e}}]
      volumes: [{{name: c, configMap: {{name: cm}}}}, {{name: s, secret: {{secretName: sec}}}}, {{name: e, emptyDir: {{}}}}]
"
    ))?;
    kubectl.wait("job/volumes", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/volumes"])?;
    ensure!(log == "from-configfrom-secret\nfrom-init\nfrom-secret\n", "{log:?}");
    Ok(())
}

fn service_is_reached_by_name(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: srv, labels: {{app: srv}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: {IMAGE}
    command: [sh, -c, 'mkdir /www; echo served > /www/index.html; exec httpd -f -p 8080 -h /www']
    readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: srv}}
spec: {{selector: {{app: srv}}, ports: [{{port: 80, targetPort: 8080}}]}}
"
    ))?;
    kubectl.wait("pod/srv", "Ready", SOON)?;
    // The short name goes through the search list, the long one to the cluster's DNS as it is.
    let script = format!(
        "for i in $(seq 30); do curl -sfm 2 http://srv/ && curl -sfm 2 http://srv.{}.svc.cluster.local/ && exit 0; sleep 0.5; done; exit 1",
        context.namespace
    );
    kubectl.apply(&job("client", &script, "", ""))?;
    kubectl.wait("job/client", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/client"])?;
    ensure!(log.ends_with("served\nserved\n"), "{log:?}");
    Ok(())
}

/// kubectl in a pod, with nothing but the pod's own credentials: put in by a host path, because the
/// test image has no client of the API server.
fn pod_reaches_the_api_server_with_its_token(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    let account = format!("--serviceaccount={}:default", context.namespace);
    kubectl.run(&["create", "role", "r", "--verb=get", "--resource=configmaps"])?;
    kubectl.run(&["create", "rolebinding", "rb", "--role=r", &account])?;
    let client = program("plane").canonicalize()?;
    let yaml = job(
        "in-cluster",
        "/plane kubectl get configmap kube-root-ca.crt -o name && ! /plane kubectl get secrets 2>&1",
        "volumeMounts: [{name: plane, mountPath: /plane, readOnly: true}]",
        "",
    );
    let volume = format!(
        "      volumes: [{{name: plane, hostPath: {{path: {:?}, type: File}}}}]\n",
        client.display().to_string()
    );
    kubectl.apply(&(yaml + &volume))?;
    kubectl.wait("job/in-cluster", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/in-cluster"])?;
    ensure!(log.contains("configmap/kube-root-ca.crt") && log.contains("forbidden"), "{log}");
    Ok(())
}

fn exec_passes_the_exit_code_on(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{terminationGracePeriodSeconds: 0, \
          containers: [{{name: c, image: '{IMAGE}', command: [sleep, '600']}}]}}}}"
    ))?;
    kubectl.wait("pod/p", "Ready", SOON)?;
    ensure!(kubectl.run(&["exec", "p", "--", "echo", "hi"])? == "hi\n");
    let failed = kubectl.run(&["exec", "p", "--", "sh", "-c", "exit 7"]);
    let message = failed.map_or_else(|error| format!("{error:#}"), |_| String::new());
    ensure!(message.contains("exit code 7"), "{message:?}");
    Ok(())
}

fn deletion_sends_sigterm(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{terminationGracePeriodSeconds: 30, \
          containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done']}}]}}}}"
    ))?;
    kubectl.wait("pod/p", "Ready", SOON)?;
    let start = Instant::now();
    kubectl.run(&["delete", "pod", "p", "--timeout=60s"])?;
    let taken = start.elapsed();
    ensure!(taken < Duration::from_secs(20), "SIGTERM was not heeded: {taken:?}");
    Ok(())
}

fn extended_resource_of_the_node(context: &Context<'_>) -> Result<()> {
    let kubectl = &context.kubectl;
    kubectl.run(&[
        "patch",
        "node",
        "node1",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"capacity":{"hone.dev/test-device":"1"}}}"#,
    ])?;
    kubectl.until("node/node1", r"{.status.allocatable.hone\.dev/test-device}", "1", SOON)?;
    kubectl.apply(&job(
        "device",
        "echo ran",
        "resources: {limits: {hone.dev/test-device: 1}}",
        "",
    ))?;
    kubectl.wait("job/device", "Complete", SOON)
}

/// An image of a dynamically linked program, made twice to the same digest, loaded while the node
/// runs, and run as the unprivileged user that images of ours have.
fn image_of_a_linked_program_runs(context: &Context<'_>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let reference = format!("localhost/hone/{}:test", context.namespace);
    let write = |name: &str| {
        let archive = directory.path().join(name);
        let arguments = [
            "-out",
            &archive.to_string_lossy(),
            "-ref",
            &reference,
            "-entrypoint",
            "/usr/bin/id",
            "-text",
            "/etc/passwd=hone:x:65532:65532:hone:/:/nologin",
            "-layer",
            "-binary",
            "/usr/bin/id:/usr/bin/id",
        ];
        tool("ociimage", &arguments, "").map(|said| (archive.clone(), said))
    };
    let ((archive, first), (_, second)) = (write("a.tar")?, write("b.tar")?);
    ensure!(first == second && first.contains("sha256:"), "{first:?}, then {second:?}");
    context.cluster.load_image(&archive)?;
    let kubectl = &context.kubectl;
    kubectl.apply(&format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: id}}, spec: {{backoffLimit: 0, template: {{spec: \
          {{restartPolicy: Never, containers: [{{name: c, image: '{reference}'}}]}}}}}}}}"
    ))?;
    kubectl.wait("job/id", "Complete", SOON)?;
    let log = kubectl.run(&["logs", "job/id"])?;
    ensure!(log.starts_with("uid=65532(hone)"), "{log:?}");
    Ok(())
}

fn s3_is_reached_from_pods(context: &Context<'_>) -> Result<()> {
    let endpoint = context.cluster.variable("HONE_S3_ENDPOINT_IN_CLUSTER")?;
    let script = format!("curl -sm 5 -w '%{{http_code}}' {endpoint}/artifacts/x");
    context.kubectl.apply(&job("s3", &script, "", ""))?;
    context.kubectl.wait("job/s3", "Complete", SOON)?;
    let log = context.kubectl.run(&["logs", "job/s3"])?;
    // Without a signature it must refuse, and only a server that is reached can.
    ensure!(log.ends_with("403"), "{log:?}");
    Ok(())
}

/// Kills the API server; the plane must answer again and go on working.
fn api_server_comes_back(context: &Context<'_>) -> Result<()> {
    context.kubectl.run(&["create", "configmap", "kept"])?;
    context.cluster.service("kill", "kube-apiserver")?;
    ensure!(context.kubectl.run(&["get", "configmap", "kept", "--request-timeout=2s"]).is_err());
    context.cluster.service("start", "kube-apiserver")?;
    eventually("the API server to answer", SOON, || {
        context.kubectl.run(&["get", "configmap", "kept"]).map(Some)
    })?;
    context.kubectl.apply(&job("after", "true", "", ""))?;
    context.kubectl.wait("job/after", "Complete", SOON)
}

fn main() {
    let options = ClusterOptions { node: true, ..ClusterOptions::default() }.s3_where_set_up();
    Suite::new("node", options)
        .needs(&[Capability::Node])
        .test("job_runs_and_logs", job_runs_and_logs)
        .test("exit_code_decides_the_job", exit_code_decides_the_job)
        .test("memory_limit_kills", memory_limit_kills)
        .test("restricted_pod_runs", restricted_pod_runs)
        .test("volumes_and_init_containers", volumes_and_init_containers)
        .test("service_is_reached_by_name", service_is_reached_by_name)
        .test(
            "pod_reaches_the_api_server_with_its_token",
            pod_reaches_the_api_server_with_its_token,
        )
        .test("exec_passes_the_exit_code_on", exec_passes_the_exit_code_on)
        .test("deletion_sends_sigterm", deletion_sends_sigterm)
        .test("extended_resource_of_the_node", extended_resource_of_the_node)
        .alone("api_server_comes_back", api_server_comes_back)
        .needs(&[Capability::Node, Capability::Images])
        .test("image_of_a_linked_program_runs", image_of_a_linked_program_runs)
        .needs(&[Capability::Node, Capability::S3])
        .test("s3_is_reached_from_pods", s3_is_reached_from_pods)
        .main();
}
