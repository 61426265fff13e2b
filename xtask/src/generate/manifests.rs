//! `charts/hone/files/crds` and `manifests/`: both follow from other files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The manifests that come from the chart: the file and the further arguments of `helm template`.
/// `tests/cluster/harness/tests/chart.rs` renders them in the same way and compares.
const MANIFESTS: [(&str, &[&str]); 3] = [
    ("crds.yaml", &["--show-only", "templates/crds.yaml"]),
    ("operator.yaml", &["--set", "crds.install=false", "--no-hooks"]),
    ("tekton/rbac.yaml", &["--set", "tekton.enabled=true", "--show-only", "templates/tekton.yaml"]),
];

/// What the manifests' images are named: kustomize replaces them. And no Job of helm's uninstallation.
const IMAGES: [&str; 2] = [
    "--set",
    "operator.image.registry=registry.invalid,worker.image.registry=registry.invalid,uninstall.releaseObjects=false",
];

/// Gives the chart the CRDs as they are now; one that is gone goes there, too.
pub fn copy_crds(root: &Path) -> anyhow::Result<()> {
    let (from, to) = (root.join("crds"), root.join("charts/hone/files/crds"));
    for path in yaml_files(&to)? {
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    for path in yaml_files(&from)? {
        let name = path.file_name().context("a file has a name")?;
        fs::copy(&path, to.join(name)).with_context(|| format!("copy {}", path.display()))?;
    }
    Ok(())
}

fn yaml_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect())
}

/// Renders the chart into `manifests/`.
pub fn render(root: &Path) -> anyhow::Result<()> {
    let helm = helm(root)?;
    for (file, further) in MANIFESTS {
        let output = Command::new(&helm)
            .args(["template", "hone", "charts/hone", "--namespace", "hone-system"])
            .args(["--kube-version", "1.35.0"])
            .args(further)
            .args(IMAGES)
            .current_dir(root)
            .output()
            .with_context(|| format!("run {}", helm.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm could not render the chart: {said}");
        let text = String::from_utf8(output.stdout).context("helm printed no text")?;
        let head = "# Generated from charts/hone by `cargo xtask generate`: do not edit.\n";
        let path = root.join("manifests").join(file);
        fs::write(&path, format!("{head}{text}"))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The test cluster's helm, else the machine's.
fn helm(root: &Path) -> anyhow::Result<PathBuf> {
    let build = std::env::var_os("HONE_CLUSTER_BUILD")
        .map_or_else(|| root.join("tests/cluster/.build"), PathBuf::from);
    let ours = build.join("bin/helm");
    if ours.exists() {
        return Ok(ours);
    }
    let there = Command::new("helm").arg("version").output();
    ensure!(
        there.is_ok_and(|output| output.status.success()),
        "there is no helm to render manifests/ with: run tests/cluster/setup.sh tools"
    );
    Ok(PathBuf::from("helm"))
}
