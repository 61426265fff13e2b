//! The chart and the manifests: what they render, what they refuse, and what a real API server says
//! of it. Nothing of the product runs here; `product.rs` installs the chart with real images.
//!
//! Cases are files of `tests/chart`: `rendered/NAME.values.yaml` renders to `NAME.expected.yaml`
//! (`HONE_UPDATE_EXPECT=1` writes these), `refused/NAME.yaml` is refused with what its first line says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hone_cluster_tests::{
    Capability, ClusterOptions, Context, Helm, IMAGES, Suite, chart, eventually, render,
    repository, tool,
};
use regex::Regex;

const SOON: Duration = Duration::from_secs(60);
/// Longer than a round of the server's finalizer of CRDs, which looks every 5 s.
const NUDGE: Duration = Duration::from_secs(8);
const ALL: &str = "everything";

fn cases(folder: &str) -> PathBuf {
    repository().join("tests/chart").join(folder)
}

fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.to_string_lossy().ends_with(end));
    files.sort();
    ensure!(!files.is_empty(), "no case *{end} in {}", folder.display());
    Ok(files)
}

/// Installs the chart as release `hone`, without the CRDs that the test made.
fn install(helm: &Helm, further: &[&str]) -> Result<()> {
    let chart = chart();
    let common = ["install", "hone", &chart, "--set", "crds.install=false"];
    helm.run(&[&common, IMAGES, further].concat()).map(drop)
}

/// The first line that differs, for messages that fit a screen.
fn same(what: &str, found: &str, expected: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let mut lines = found.lines().zip(expected.lines()).enumerate();
    match lines.find(|(_, (found, expected))| found != expected) {
        Some((number, (found, expected))) => {
            bail!("{what}: line {} is {found:?}, expected {expected:?}", number + 1)
        }
        None => bail!("{what}: one is longer than the other"),
    }
}

fn lints(_: &Context<'_>) -> Result<()> {
    tool("helm", &["lint", "--strict", &chart()], "").map(drop)
}

/// All of the values of a case, but the CRDs, which `manifests/crds.yaml` shows already.
fn renders_as_committed(_: &Context<'_>) -> Result<()> {
    for values in files(&cases("rendered"), ".values.yaml")? {
        let name = values.to_string_lossy().into_owned();
        let found = render(&["--values", &name, "--set", "crds.install=false"])?;
        let expected = PathBuf::from(name.replace(".values.yaml", ".expected.yaml"));
        if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
            fs::write(&expected, &found)?;
        }
        let expected = fs::read_to_string(&expected).with_context(|| {
            format!("read {}; HONE_UPDATE_EXPECT=1 writes it", expected.display())
        })?;
        same(&name, &found, &expected)?;
    }
    Ok(())
}

fn manifests_are_those_of_the_chart(_: &Context<'_>) -> Result<()> {
    let head = "# Generated from charts/hone by `cargo xtask generate`: do not edit.\n";
    for (file, further) in [
        ("crds.yaml", &["--show-only", "templates/crds.yaml"][..]),
        ("operator.yaml", &["--set", "crds.install=false", "--no-hooks"][..]),
        (
            "tekton/rbac.yaml",
            &["--set", "tekton.enabled=true", "--show-only", "templates/tekton.yaml"][..],
        ),
    ] {
        let found = fs::read_to_string(repository().join("manifests").join(file))?;
        let expected = format!("{head}{}", render(further)?);
        same(&format!("manifests/{file} (cargo xtask generate writes it)"), &found, &expected)?;
    }
    for crd in files(&repository().join("crds"), ".yaml")? {
        let name = crd.file_name().context("a file has a name")?;
        let copy = repository().join("charts/hone/files/crds").join(name);
        let what = format!("{} (cargo xtask generate writes it)", copy.display());
        same(&what, &fs::read_to_string(&copy)?, &fs::read_to_string(&crd)?)?;
    }
    Ok(())
}

fn wrong_values_are_refused(_: &Context<'_>) -> Result<()> {
    for case in files(&cases("refused"), ".yaml")? {
        let text = fs::read_to_string(&case)?;
        let name = case.to_string_lossy();
        let wanted = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let wanted = wanted.with_context(|| format!("{name}: its first line must say why"))?;
        match render(&["--values", &name]) {
            Ok(_) => bail!("{name} is accepted"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains(wanted), "{name}: want {wanted:?} in {said}");
            }
        }
    }
    Ok(())
}

/// The dashboard and the alerts ask only for metrics that the operator has.
fn dashboards_ask_for_metrics_that_exist(_: &Context<'_>) -> Result<()> {
    let root = repository();
    let source = fs::read_to_string(root.join("operator/src/metrics.rs"))?;
    let word =
        Regex::new(r"\b(?:hone|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+")?;
    let mut asked = BTreeSet::new();
    for file in ["dashboards/hone.json", "alerts.yaml"] {
        let text = fs::read_to_string(root.join("charts/hone/files").join(file))?;
        asked.extend(word.find_iter(&text).map(|found| found.as_str().to_owned()));
    }
    ensure!(asked.len() > 8, "only {asked:?} are asked for");
    for name in asked {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let there = |name: &str| source.contains(&format!("\"{name}\""));
        ensure!(there(&name) || base.is_some_and(there), "the operator has no metric {name}");
    }
    Ok(())
}

/// Every object of every case against the schemas of this API server, unknown fields included.
/// Those of the Prometheus operator are not served here.
fn kubeconform_finds_nothing(context: &Context<'_>) -> Result<()> {
    let helm = Helm::of(context);
    with_crds(&helm, context, || {
        let directory = tempfile::tempdir()?;
        let location = context.cluster.write_schemas(directory.path())?;
        for values in files(&cases("rendered"), ".values.yaml")? {
            let yaml = render(&["--values", &values.to_string_lossy()])?;
            let arguments = [
                "-strict",
                "-schema-location",
                &location,
                "-skip",
                "monitoring.coreos.com/v1/ServiceMonitor,monitoring.coreos.com/v1/PrometheusRule",
                "-",
            ];
            tool("kubeconform", &arguments, &yaml)
                .with_context(|| values.to_string_lossy().into_owned())?;
        }
        Ok(())
    })
}

/// Installs nothing but the CRDs, and takes them away again: the tests share a cluster.
fn with_crds(helm: &Helm, context: &Context<'_>, body: impl FnOnce() -> Result<()>) -> Result<()> {
    remove_crds(context)?;
    let crds = render(&["--show-only", "templates/crds.yaml"])?;
    context.kubectl.run_with(&["apply", "--server-side", "-f", "-"], &crds)?;
    let crds = ["modelcompilations", "tuningruns", "devicepools"];
    for crd in crds {
        context.kubectl.wait(&format!("crd/{crd}.hone.dev"), "Established", SOON)?;
    }
    let outcome = body();
    // A release that a failed test left would own the CRDs of the next.
    let _ = helm.run(&["uninstall", "hone", "--ignore-not-found"]);
    outcome.and(remove_crds(context))
}

/// Deletes the CRDs and waits until they are gone. The server's finalizer of CRDs does not try again
/// after a write that lost against another one: it rests until something else changes the CRD. So
/// those that stay are changed, rarely enough for the finalizer to end its round undisturbed.
fn remove_crds(context: &Context<'_>) -> Result<()> {
    let names = ["modelcompilations.hone.dev", "tuningruns.hone.dev", "devicepools.hone.dev"];
    let delete = [&["delete", "crd", "--ignore-not-found", "--wait=false"][..], &names].concat();
    context.kubectl.run(&delete)?;
    let (mut nudged, mut nudges) = (Instant::now(), 0);
    eventually("the CRDs to be gone", SOON, || {
        let get = [&["get", "crd", "--ignore-not-found", "-o", "name"][..], &names].concat();
        let left = context.kubectl.run(&get)?;
        if !left.is_empty() && nudged.elapsed() >= NUDGE {
            nudged = Instant::now();
            nudges += 1;
            for crd in left.lines() {
                let nudge = format!("hone.dev/nudge={nudges}");
                // It may be gone by now.
                drop(context.kubectl.run(&["annotate", "--overwrite", crd, &nudge]));
            }
        }
        Ok(left.is_empty().then_some(()))
    })
}

/// A dry run on the server: defaults, validation and admission, for the case with everything on.
fn server_accepts_everything(context: &Context<'_>) -> Result<()> {
    let helm = Helm::of(context);
    with_crds(&helm, context, || {
        let values = cases("rendered").join(format!("{ALL}.values.yaml"));
        let yaml = helm.run(&[
            "template",
            "hone",
            &chart(),
            "--kube-version",
            "1.35.0",
            "--no-hooks",
            "--values",
            &values.to_string_lossy(),
            "--set",
            "metrics.serviceMonitor.enabled=false,metrics.rules.enabled=false,crds.install=false",
            "--set",
            &format!("operator.watchNamespace={}", context.namespace),
            "--set",
            &format!("worker.networkPolicy.namespaces={{{}}}", context.namespace),
        ])?;
        let dry = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
        let said = context.kubectl.run_with(&dry, &yaml)?;
        ensure!(said.lines().count() >= 14, "{said}");
        Ok(())
    })
}

/// `manifests/` as kustomize builds them, accepted by the server.
fn kustomize_builds_what_the_server_accepts(context: &Context<'_>) -> Result<()> {
    let kubectl = context.cluster.kubectl();
    remove_crds(context)?;
    let folder = repository().join("manifests").to_string_lossy().into_owned();
    let outcome = (|| {
        kubectl.run(&["apply", "--server-side", "-k", &folder])?;
        let of = "deployment/hone --namespace hone-system";
        let replicas = kubectl.text(of, "{.spec.replicas}")?;
        ensure!(replicas == "2", "{replicas}");
        Ok(())
    })();
    kubectl.run(&["delete", "--ignore-not-found", "--wait=false", "-k", &folder])?;
    outcome.and(remove_crds(context))
}

/// The component beside `manifests/` lets the operator work for Tekton, in an overlay anywhere.
fn kustomize_adds_tekton(context: &Context<'_>) -> Result<()> {
    let overlay = tempfile::tempdir()?;
    let folder = fs::canonicalize(overlay.path())?;
    let up = "../".repeat(folder.components().count() - 1);
    let manifests = fs::canonicalize(repository().join("manifests"))?;
    let manifests = format!("{up}{}", manifests.strip_prefix("/")?.display());
    let text = format!("resources: [{manifests}]\ncomponents: [{manifests}/tekton]\n");
    fs::write(folder.join("kustomization.yaml"), text)?;
    let built = context.kubectl.run(&["kustomize", &folder.to_string_lossy()])?;
    for wanted in ["name: HONE_TEKTON", "- customruns/status", "name: hone-system-hone-tekton"] {
        ensure!(built.contains(wanted), "no {wanted}");
    }
    let plain =
        context.kubectl.run(&["kustomize", &repository().join("manifests").to_string_lossy()])?;
    ensure!(!plain.contains("customruns") && !plain.contains("HONE_TEKTON"), "it is not left out");
    Ok(())
}

/// From nothing to installed, upgraded from the chart before, and gone again; what users made stays.
fn install_upgrade_uninstall(context: &Context<'_>) -> Result<()> {
    remove_crds(context)?;
    let (helm, kubectl) = (Helm::of(context), &context.kubectl);
    let previous = previous_chart()?;
    let crd = "crd/modelcompilations.hone.dev";
    let version = r"{.metadata.labels.helm\.sh/chart}";
    let outcome = (|| {
        helm.run(&["install", "hone", &previous, "--set", "operator.replicas=1"])?;
        kubectl.wait(crd, "Established", SOON)?;
        let before = kubectl.text(crd, version)?;
        apply_eventually(context, &compilation("kept", "s3://models/x.onnx"))?;

        let ours = chart();
        let upgrade = ["upgrade", "hone", ours.as_str(), "--reset-then-reuse-values"];
        helm.run(&[&upgrade[..], IMAGES].concat())?;
        let after = kubectl.text(crd, version)?;
        ensure!(before != after, "the CRD was not upgraded: {before}");
        let replicas = kubectl.text("deployment/hone", "{.spec.replicas}")?;
        ensure!(replicas == "1", "the upgrade forgot the values: {replicas} replicas");
        let schema = kubectl.json(crd)?["spec"]["versions"].clone();
        let wanted = committed_crd("hone.dev_modelcompilations.yaml", context)?;
        ensure!(schema == wanted, "the schema after the upgrade is not that of crds/");

        helm.run(&["rollback", "hone", "1"])?;
        ensure!(kubectl.text(crd, version)? == before, "the CRD was not rolled back");
        helm.run(&["uninstall", "hone", "--wait", "--timeout", "60s"])?;
        kubectl.text("modelcompilation/kept", "{.metadata.name}").context("it was not kept")?;
        nothing_left(context)
    })();
    let _ = helm.run(&["uninstall", "hone", "--ignore-not-found"]);
    outcome.and(remove_crds(context))
}

/// The chart as it was packaged before this version.
fn previous_chart() -> Result<String> {
    let packages = files(&cases("previous"), ".tgz")?;
    let newest = packages.last().context("a package")?;
    Ok(newest.to_string_lossy().into_owned())
}

/// What the server makes of a committed CRD: with its defaults.
fn committed_crd(file: &str, context: &Context<'_>) -> Result<serde_json::Value> {
    let path = repository().join("crds").join(file);
    let dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json"];
    let from = ["-f", &path.to_string_lossy()];
    let said = context.kubectl.run(&[&dry[..], &from].concat())?;
    Ok(serde_json::from_str::<serde_json::Value>(&said)?["spec"]["versions"].clone())
}

fn nothing_left(context: &Context<'_>) -> Result<()> {
    let of = ["-l", "app.kubernetes.io/instance=hone", "-o", "name"];
    let kinds = "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,configmaps";
    let cluster = "clusterroles,clusterrolebindings,validatingadmissionpolicies";
    eventually("everything to be gone", SOON, || {
        let left = context.kubectl.run(&[&["get", kinds][..], &of].concat())?;
        let wide = context.kubectl.run(&[&["get", cluster][..], &of].concat())?;
        // Other tests install into other namespaces under the same name.
        let wide = wide.lines().filter(|line| line.contains(&context.namespace)).count();
        ensure!(left.is_empty() && wide == 0, "left: {left}");
        Ok(Some(()))
    })
}

fn compilation(name: &str, model: &str) -> String {
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: {name}}}
spec:
  model: {{uri: '{model}'}}
  targets: [{{name: t, pool: p}}]
  output: {{uri: 's3://artifacts/{name}'}}
"
    )
}

/// A kind that is just established may be unknown to kubectl for a moment.
fn apply_eventually(context: &Context<'_>, yaml: &str) -> Result<()> {
    eventually("the kind to be served", SOON, || context.kubectl.apply(yaml).map(Some)).map(drop)
}

/// The operator's account may do what the operator does, and nothing beyond.
fn account_has_least_rights(context: &Context<'_>) -> Result<()> {
    let helm = Helm::of(context);
    with_crds(&helm, context, || {
        install(&helm, &[])?;
        let account = format!("--as=system:serviceaccount:{}:hone", context.namespace);
        let may = |words: &str| {
            let words: Vec<&str> = words.split_whitespace().collect();
            let asked = [&["auth", "can-i"][..], &words, &[&account]].concat();
            // It exits with 1 for "no".
            let said = context.kubectl.run(&asked);
            said.is_ok_and(|said| said.trim() == "yes")
        };
        for words in [
            "list modelcompilations.hone.dev -A",
            "patch modelcompilations.hone.dev --subresource=status -n default",
            "create jobs.batch -n default",
            "list pods -n default",
            "watch pods -n default",
            "delete pods -n default",
            "patch pods --subresource=status -n default",
            "watch nodes",
            "create events.events.k8s.io -n default",
            "list events -n default",
            "create leases.coordination.k8s.io",
            "patch leases.coordination.k8s.io/hone-operator",
            "delete leases.coordination.k8s.io/device-node",
            "list priorityclasses.scheduling.k8s.io",
        ] {
            eventually(words, SOON, || Ok(may(words).then_some(())))?;
        }
        for words in [
            "get secrets -A",
            "list secrets",
            "get secrets -n default",
            "create pods -n default",
            "create pods --subresource=exec -n default",
            "get configmaps -n default",
            "create modelcompilations.hone.dev -n default",
            "update devicepools.hone.dev",
            "patch nodes",
            "patch leases.coordination.k8s.io -n default",
            "get leases.coordination.k8s.io -n kube-system",
            "create serviceaccounts --subresource=token",
            "create clusterrolebindings.rbac.authorization.k8s.io",
            "impersonate users",
            "list deployments.apps -A",
        ] {
            ensure!(!may(words), "the operator may {words}");
        }
        Ok(())
    })
}

/// The operator's pod is let into a namespace that enforces the restricted standard.
fn operator_pod_is_restricted(context: &Context<'_>) -> Result<()> {
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    context.kubectl.run(&["label", "namespace", &context.namespace, enforce])?;
    let helm = Helm::of(context);
    let yaml = helm.run(&[
        "template",
        "hone",
        &chart(),
        "--kube-version",
        "1.35.0",
        "--show-only",
        "templates/deployment.yaml",
        "--set",
        "serviceAccount.create=false",
        IMAGES[0],
        IMAGES[1],
    ])?;
    context.kubectl.apply(&yaml)?;
    // Only a pod is refused; of a Deployment the server merely warns.
    eventually("a pod of the operator", SOON, || {
        let pods = context.kubectl.text("pods", "{.items[*].metadata.name}")?;
        let refused =
            context.kubectl.text("events", "{.items[?(@.reason=='FailedCreate')].message}")?;
        ensure!(refused.is_empty(), "{refused}");
        Ok((!pods.is_empty()).then_some(()))
    })
}

/// URIs that the administrator does not allow are refused at admission.
fn administrator_limits_what_is_used(context: &Context<'_>) -> Result<()> {
    let helm = Helm::of(context);
    with_crds(&helm, context, || {
        let allowed = "admission.allowedUriPrefixes={s3://models/,s3://artifacts/}";
        install(&helm, &["--set", allowed])?;
        // Policies take effect a moment after they are made.
        eventually("the policy to refuse", SOON, || {
            match context.kubectl.apply(&compilation("bad", "s3://other/x.onnx")) {
                Ok(_) => {
                    context.kubectl.run(&["delete", "modelcompilation", "bad"])?;
                    Ok(None)
                }
                Err(error) => {
                    let said = format!("{error:#}");
                    ensure!(said.contains("allows only URIs that begin with one of"), "{said}");
                    Ok(Some(()))
                }
            }
        })?;
        apply_eventually(context, &compilation("good", "s3://models/x.onnx"))?;
        limits_of_a_namespace(context, &helm)
    })
}

/// What compilations of a namespace may use is the administrator's list for that namespace, Secrets, accounts and
/// priority classes as well as URIs; other namespaces have their own or none. By an upgrade: the API server of
/// Kubernetes 1.35 finds no parameters for a policy that was deleted and made again until it is started anew.
fn limits_of_a_namespace(context: &Context<'_>, helm: &Helm) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let policies = format!(
        "admission: {{allowedUriPrefixes: ['s3://others/'], policies: [{{name: here, namespaces: [{}], \
             uriPrefixes: ['s3://here/'], secrets: [store], serviceAccounts: [], priorityClasses: [batch]}}]}}",
        context.namespace
    );
    fs::write(file.path(), policies)?;
    let (chart, values) = (chart(), file.path().to_string_lossy().into_owned());
    let upgrade = ["upgrade", "hone", &chart, "--set", "crds.install=false"];
    helm.run(&[&upgrade, IMAGES, &["--values", &values]].concat())?;
    let with = |model: &str, rest: &str| {
        format!(
            "{{apiVersion: hone.dev/v1alpha1, kind: ModelCompilation, metadata: {{name: tried}}, spec: \
                 {{model: {model}, targets: [{{name: t, pool: p}}], output: {{uri: 's3://here/out'}}{rest}}}}}"
        )
    };
    let good = "{uri: 's3://here/x.onnx', credentialsSecretRef: {name: store}}";
    for (model, rest, wanted) in [
        ("{uri: 's3://here-too/x.onnx'}", "", "only URIs that begin with"),
        ("{uri: 's3://here/../x.onnx'}", "", "only URIs that begin with"),
        ("{uri: 's3://here/x', credentialsSecretRef: {name: root}}", "", "only the Secrets: store"),
        (good, ", worker: {serviceAccountName: cloud}", "only the ServiceAccounts"),
        (good, ", worker: {priorityClassName: urgent}", "only the PriorityClasses: batch"),
    ] {
        eventually(wanted, SOON, || match context.kubectl.apply(&with(model, rest)) {
            Ok(_) => {
                context.kubectl.run(&["delete", "modelcompilation", "tried"])?;
                Ok(None)
            }
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains(wanted), "{said}");
                Ok(Some(()))
            }
        })?;
    }
    apply_eventually(context, &with(good, ", worker: {priorityClassName: batch}"))
}

fn main() {
    let plane = Capability::Plane;
    Suite::new("chart", ClusterOptions::default())
        .needs(&[plane, Capability::Helm])
        .test("lints", lints)
        .test("renders_as_committed", renders_as_committed)
        .test("manifests_are_those_of_the_chart", manifests_are_those_of_the_chart)
        .test("wrong_values_are_refused", wrong_values_are_refused)
        .test("dashboards_ask_for_metrics_that_exist", dashboards_ask_for_metrics_that_exist)
        .alone("server_accepts_everything", server_accepts_everything)
        .alone("install_upgrade_uninstall", install_upgrade_uninstall)
        .alone("account_has_least_rights", account_has_least_rights)
        .alone("administrator_limits_what_is_used", administrator_limits_what_is_used)
        .needs(&[plane, Capability::Helm, Capability::Controllers])
        .test("operator_pod_is_restricted", operator_pod_is_restricted)
        .needs(&[plane])
        .test("kustomize_adds_tekton", kustomize_adds_tekton)
        .alone("kustomize_builds_what_the_server_accepts", kustomize_builds_what_the_server_accepts)
        .needs(&[plane, Capability::Helm, Capability::Kubeconform])
        .alone("kubeconform_finds_nothing", kubeconform_finds_nothing)
        .main();
}
