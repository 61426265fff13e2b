//! Starting and ending a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::evidence::LOG_TAIL;
use crate::scripts::{script, script_with};
use crate::{Capabilities, Capability, Kubectl, State};

/// What a cluster consists of. The default is a control plane alone.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// With one real node, `node1`.
    pub node: bool,
    /// With this many simulated nodes, `fake-0` and so on.
    pub simulated_nodes: Option<u32>,
    /// With an S3 server.
    pub s3: bool,
    /// With servers that speak Google Cloud Storage and Azure Blob Storage.
    pub azure: bool,
    /// OCI archives to import on the real node.
    pub images: Vec<PathBuf>,
    /// Environment variables of `up.sh`, such as `HONE_SCHEDULER_ARGS`.
    pub settings: Vec<(&'static str, String)>,
}

impl ClusterOptions {
    /// With an S3 server where one is set up, for test programs of which only some tests need it
    /// (those say so, and are left out without it).
    #[must_use]
    pub fn s3_where_set_up(mut self) -> Self {
        self.s3 = Capabilities::read().is_ok_and(|known| known.state(Capability::S3) == State::Yes);
        self
    }
}

/// A running cluster. Dropping it ends all of its processes; so does the end of this process.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    kubectl: Kubectl,
    ours: bool,
}

impl Cluster {
    /// Brings a cluster up (three seconds, seven with a real node), or uses that of
    /// `HONE_CLUSTER_DIR`.
    ///
    /// # Errors
    /// When it does not come up; the message names the component and the end of its log.
    pub fn start(options: &ClusterOptions) -> Result<Self> {
        if let Some(directory) = std::env::var_os("HONE_CLUSTER_DIR") {
            return Ok(Self::at(PathBuf::from(directory), false));
        }
        let directory = tempfile::Builder::new()
            .prefix("hone-cluster-")
            .tempdir()
            .context("cannot make a directory for the cluster")?
            .keep();
        let path = directory.to_string_lossy().into_owned();
        let owner = std::process::id().to_string();
        let mut arguments = vec!["--owner".to_owned(), owner];
        if options.node {
            arguments.push("--node".into());
        }
        if let Some(count) = options.simulated_nodes {
            arguments.extend(["--kwok".into(), count.to_string()]);
        }
        if options.s3 {
            arguments.push("--s3".into());
        }
        if options.azure {
            arguments.push("--azure".into());
        }
        for image in &options.images {
            arguments.extend(["--image".into(), image.to_string_lossy().into_owned()]);
        }
        arguments.push(path);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut cluster = Self::at(directory, true);
        if let Err(error) = script_with("up.sh", &arguments, &options.settings) {
            // up.sh has ended what it had started; the logs are worth keeping.
            cluster.ours = false;
            let shown = cluster.directory.display();
            return Err(error.context(format!("the cluster did not come up; logs are in {shown}")));
        }
        Ok(cluster)
    }

    fn at(directory: PathBuf, ours: bool) -> Self {
        let kubectl = Kubectl::new(&directory.join("kubeconfig"));
        Self { directory, kubectl, ours }
    }

    /// The cluster's directory: logs, kubeconfig, `env`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `kubectl` against this cluster, in no particular namespace.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// A variable of the cluster's `env` file, such as `HONE_S3_ENDPOINT`.
    ///
    /// # Errors
    /// When it is not set there, because the cluster was started without that part.
    pub fn variable(&self, name: &str) -> Result<String> {
        let path = self.directory.join("env");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let prefix = format!("export {name}=");
        match text.lines().find_map(|line| line.strip_prefix(&prefix)) {
            Some(value) => Ok(value.to_owned()),
            None => bail!("the cluster has no {name}; was it started with that part?"),
        }
    }

    /// Runs `service.sh`: `kill`, `stop`, `start` or `restart` of one of the cluster's processes.
    ///
    /// # Errors
    /// When there is no such process, or it does not end.
    pub fn service(&self, action: &str, name: &str) -> Result<()> {
        let directory = self.directory.to_string_lossy();
        script("service.sh", &[&directory, action, name]).map(drop)
    }

    /// Those of the cluster's processes that are to run and have ended.
    ///
    /// # Errors
    /// When the node's processes cannot be listed.
    pub fn ended_services(&self) -> Result<Vec<String>> {
        let list = script("service.sh", &[&self.directory.to_string_lossy(), "list"])?;
        let ended = |line: &str| {
            let mut columns = line.split('\t');
            let name = columns.next()?;
            (columns.nth(1)? == "ended").then(|| name.to_owned())
        };
        Ok(list.lines().filter_map(ended).collect())
    }

    /// The end of the log of one of the cluster's processes.
    ///
    /// # Errors
    /// When there is no such log.
    pub fn service_log(&self, name: &str) -> Result<String> {
        let file = format!("{name}.log");
        let inside = self.directory.join(&file);
        let path = if inside.exists() { inside } else { self.directory.join("outside").join(file) };
        let text =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let from = text.len().saturating_sub(LOG_TAIL);
        Ok(String::from_utf8_lossy(&text[from..]).into_owned())
    }

    /// Ends the real node at once, as a loss of power does: kubelet, container runtime and every container.
    ///
    /// # Errors
    /// When there is no real node, or something of it does not end.
    pub fn crash_node(&self) -> Result<()> {
        script("crash.sh", &[&self.directory.to_string_lossy(), "kill"]).map(drop)
    }

    /// Starts a node that was ended by [`Cluster::crash_node`].
    ///
    /// # Errors
    /// When the container runtime does not come up.
    pub fn start_node(&self) -> Result<()> {
        script("crash.sh", &[&self.directory.to_string_lossy(), "start"]).map(drop)
    }

    /// Compacts etcd up to its newest revision, which is returned: watches cannot go on from an earlier one.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn compact(&self) -> Result<String> {
        let revision = script("compact.sh", &[&self.directory.to_string_lossy()])?;
        Ok(revision.trim().to_owned())
    }

    /// Imports an OCI archive on the real node.
    ///
    /// # Errors
    /// When there is no real node, or the archive is not one.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        let directory = self.directory.to_string_lossy();
        script("load.sh", &[&directory, &archive.to_string_lossy()]).map(drop)
    }

    /// Writes JSON schemas of every kind that the cluster serves into `out`, and returns the value of
    /// kubeconform's `-schema-location` for them.
    ///
    /// # Errors
    /// When the program that makes them is not built, or the API server does not answer.
    pub fn write_schemas(&self, out: &Path) -> Result<String> {
        let out = out.to_string_lossy();
        script("schemas.sh", &[&self.directory.to_string_lossy(), &out])?;
        Ok(format!("{out}/{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}_{{{{.ResourceKind}}}}.json"))
    }

    /// Whether controllers run: ours are told by their service file, those of a given cluster assumed.
    pub(crate) fn has_controllers(&self) -> bool {
        let services = self.directory.join("services");
        services.join("kube-controller-manager").exists()
            || !services.join("kube-apiserver").exists()
    }

    /// The directory into which evidence of a failed test goes; it outlives the cluster.
    pub(crate) fn evidence(&self, test: &str) -> Result<PathBuf> {
        let base = std::env::var_os("HONE_CLUSTER_EVIDENCE")
            .map_or_else(|| std::env::temp_dir().join("hone-cluster-evidence"), PathBuf::from);
        let directory = base.join(test);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let directory = self.directory.to_string_lossy();
        let keep = std::env::var_os("HONE_CLUSTER_KEEP").is_some();
        let arguments: &[&str] = if keep { &[&directory] } else { &["--remove", &directory] };
        if let Err(error) = script("down.sh", arguments) {
            eprintln!("cluster: {error:#}");
        }
    }
}
