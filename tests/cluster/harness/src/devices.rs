//! What a vendor installs on a node: a device plugin (`go/devices`), and the driver that it hands to containers. The
//! driver here is PoCL, which is OpenCL on the processor: neither the loader nor a library of it is in the worker's image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::scripts::{program, run};
use crate::{Cluster, eventually};

/// Where containers see what the vendor hands them.
const PREFIX: &str = "/usr/local/vendor";
/// Where plugins run.
const NAMESPACE: &str = "kube-system";
/// Longest time until a plugin runs and the node tells of its devices.
const SOON: Duration = Duration::from_secs(90);

/// What a container with a device is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Handed {
    /// Files and folders of the node, each read-only.
    pub mounts: BTreeSet<Mount>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
}

/// A file or a folder of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mount {
    /// Where the container sees it.
    pub container: PathBuf,
    /// Where it lies on the node.
    pub host: PathBuf,
}

impl Handed {
    /// OpenCL's loader and PoCL, with all that they load and call, but for the C library, which is the image's.
    ///
    /// # Errors
    /// Where this machine has no PoCL (`cargo xtask setup --tests` installs it).
    pub fn pocl() -> Result<Self> {
        let vendors = Path::new("/etc/OpenCL/vendors/pocl.icd");
        let driver = std::fs::read_to_string(vendors).context("PoCL is not installed")?;
        let driver = library(Path::new(driver.trim()))?;
        let folder = driver.parent().context("a library without a folder")?.to_owned();
        let mut handed = Self::default();
        // PoCL finds its parts by where it lies itself, so its folders keep their places beside each other.
        let libraries = Path::new("lib").join(folder.file_name().context("no name")?);
        handed.give("vendors/pocl.icd", vendors);
        handed.give("share/pocl", Path::new("/usr/share/pocl"));
        handed.give(libraries.join("pocl"), &folder.join("pocl"));
        let linker = Path::new("/usr/bin/ld");
        let loader = library(Path::new("libOpenCL.so.1"))?;
        let mut needed = loaded(linker)?;
        for file in [loader, driver] {
            needed.extend(loaded(&file)?);
            needed.push(file);
        }
        for file in &needed {
            handed.give(libraries.join(file.file_name().context("no name")?), file);
        }
        // It has clang link every kernel: by `ld`, against libraries that the linker looks for by these names.
        handed.give("bin/ld", linker);
        let link = ["libm.so.6", "libc.so.6", "libgcc_s.so.1"].map(|name| library(Path::new(name)));
        let [mathematics, c, exceptions] = link;
        handed.give("link/libm.so", &mathematics?);
        handed.give("link/libc.so", &c?);
        handed.give("link/libgcc_s.so", &exceptions?);
        handed.give("link/libgcc.a", &compiler_runtime()?);
        for (name, value) in [
            ("LD_LIBRARY_PATH", format!("{PREFIX}/{}", libraries.display())),
            ("LIBRARY_PATH", format!("{PREFIX}/link")),
            ("PATH", format!("/usr/bin:{PREFIX}/bin")),
            ("OCL_ICD_VENDORS", format!("{PREFIX}/vendors")),
        ] {
            handed.environment.insert(name.to_owned(), value);
        }
        Ok(handed)
    }

    fn give(&mut self, path: impl AsRef<Path>, host: &Path) {
        let container = Path::new(PREFIX).join(path);
        self.mounts.insert(Mount { container, host: host.to_owned() });
    }
}

/// Where the loader finds a library.
fn library(name: &Path) -> Result<PathBuf> {
    let mut command = Command::new("/sbin/ldconfig");
    command.arg("-p");
    let known = run(command, "")?;
    let name = name.to_string_lossy();
    // Drivers name the file, and the loader's list has the name that programs are linked with.
    let begins = |line: &&str| {
        let listed = line.split_whitespace().next().unwrap_or_default();
        !listed.is_empty()
            && (name == listed
                || name.strip_prefix(listed).is_some_and(|rest| rest.starts_with('.')))
    };
    let line = known.lines().find(begins).with_context(|| format!("this machine has no {name}"))?;
    let path = Path::new(line.rsplit("=> ").next().unwrap_or_default());
    let folder = path.parent().context("a library without a folder")?.canonicalize()?;
    let named = folder.join(&*name);
    Ok(if named.exists() { named } else { path.to_owned() })
}

/// The libraries that a program or a library loads, but for those of the C library.
fn loaded(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program);
    let text = run(command, "")?;
    let paths = text.lines().filter_map(|line| line.split("=> ").nth(1));
    let paths = paths.filter_map(|rest| rest.split_whitespace().next()).map(PathBuf::from);
    let of_c = ["libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so"];
    let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
    Ok(paths
        .filter(|path| path.is_absolute())
        .filter(|path| {
            name(path).is_some_and(|name| !of_c.iter().any(|begin| name.starts_with(begin)))
        })
        .collect())
}

/// The library that compilers of C link to every program.
fn compiler_runtime() -> Result<PathBuf> {
    let mut command = Command::new("cc");
    command.arg("-print-libgcc-file-name");
    Ok(PathBuf::from(run(command, "")?.trim()))
}

/// Runs a device plugin that gives the real node one device of `resource`, and a container with it `handed`; waits until
/// the node tells of it.
///
/// # Errors
/// Where it is not set up, or the kubelet does not take it.
pub fn install(cluster: &Cluster, resource: &str, handed: &Handed) -> Result<()> {
    let plugin = program("devices").canonicalize().context("run tests/cluster/setup.sh node")?;
    let name = resource.replace(['/', '.'], "-");
    let config = json!({
        "resource": resource, "devices": 1,
        "mounts": handed.mounts, "environment": handed.environment,
    });
    let sockets = "/var/lib/kubelet/device-plugins";
    let pod = json!({
        "containers": [{
            "name": "plugin", "image": "localhost/hone/toolbox:1",
            "command": ["/plugin", "/config/config.json"],
            "volumeMounts": [
                {"name": "plugin", "mountPath": "/plugin", "readOnly": true},
                {"name": "config", "mountPath": "/config", "readOnly": true},
                {"name": "sockets", "mountPath": sockets},
            ],
        }],
        "terminationGracePeriodSeconds": 0,
        "volumes": [
            {"name": "plugin", "hostPath": {"path": plugin, "type": "File"}},
            {"name": "config", "configMap": {"name": name}},
            {"name": "sockets", "hostPath": {"path": sockets, "type": "Directory"}},
        ],
    });
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"config.json": config.to_string()},
        },
        {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        },
    ]});
    let kubectl = cluster.kubectl();
    kubectl.apply(&objects.to_string())?;
    let allocatable = format!("{{.status.allocatable.{}}}", resource.replace('.', "\\."));
    eventually(&format!("the node to have {resource}"), SOON, || {
        let found = kubectl.text("node/node1", &allocatable)?;
        ensure!(found == "1", "it is {found:?}");
        Ok(Some(()))
    })
}
