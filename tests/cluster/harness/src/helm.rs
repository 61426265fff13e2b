//! Helm, and the chart of this repository.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::scripts::{scripts_dir, tool};
use crate::{Cluster, Context};

/// The root of this checkout.
pub fn repository() -> PathBuf {
    // tests/cluster lies two below the root.
    scripts_dir().ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The folder of the chart `hone`.
pub fn chart() -> String {
    repository().join("charts/hone").to_string_lossy().into_owned()
}

/// Helm against one cluster, in one namespace.
#[derive(Clone, Debug)]
pub struct Helm {
    kubeconfig: String,
    namespace: String,
}

impl Helm {
    /// Helm in the test's own namespace.
    pub fn of(context: &Context<'_>) -> Self {
        Self::in_namespace(context.cluster, &context.namespace)
    }

    /// Helm in any namespace.
    pub fn in_namespace(cluster: &Cluster, namespace: &str) -> Self {
        let kubeconfig = cluster.kubectl().kubeconfig().to_string_lossy().into_owned();
        Self { kubeconfig, namespace: namespace.to_owned() }
    }

    /// Runs helm and returns its standard output.
    ///
    /// # Errors
    /// When it fails; the error holds its standard error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let common = ["--kubeconfig", &self.kubeconfig, "--namespace", &self.namespace];
        tool("helm", &[arguments, &common].concat(), "")
    }
}

/// Where the images are, which no default says; and no Job at the end of an uninstallation, which would need a node.
pub const IMAGES: &[&str] = &[
    "--set",
    "operator.image.registry=registry.invalid,worker.image.registry=registry.invalid,uninstall.releaseObjects=false",
];

/// The chart rendered without a cluster, as release `hone` in namespace `hone-system`: the way in
/// which `cargo xtask generate` renders `manifests/`. Without a file of values, with [`IMAGES`].
///
/// # Errors
/// When helm refuses the values.
pub fn render(further: &[&str]) -> Result<String> {
    let chart = chart();
    let common =
        ["template", "hone", &chart, "--namespace", "hone-system", "--kube-version", "1.35.0"];
    let images: &[&str] = if further.contains(&"--values") { &[] } else { IMAGES };
    tool("helm", &[&common, further, images].concat(), "")
}
