//! A real Kubernetes for tests: started by the scripts of `tests/cluster`, driven with `kubectl`.
//!
//! What this crate holds, from the outside in:
//!
//! - [`Suite`]: a test program. It says what it [needs](Capability), starts one [`Cluster`] for all of
//!   its tests, gives each test a namespace of its own, keeps the evidence of failures, and ends the
//!   cluster. Tests whose needs are not met are reported as left out, with the reason.
//! - [`Cluster`]: a control plane, with a real node or simulated ones. It ends when it is dropped, and
//!   also when this process is killed.
//! - [`Kubectl`]: one namespace (or none) of a cluster.
//! - [`eventually`]: waits for what a controller does in its own time.
//!
//! A test program has `harness = false` in its `Cargo.toml` and
//!
//! ```no_run
//! use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite};
//!
//! fn config_map_is_kept(context: &Context) -> anyhow::Result<()> {
//!     context.kubectl.run(&["create", "configmap", "a", "--from-literal=k=v"])?;
//!     anyhow::ensure!(context.kubectl.text("configmap/a", "{.data.k}")? == "v");
//!     Ok(())
//! }
//!
//! Suite::new("example", ClusterOptions::default())
//!     .needs(&[Capability::Plane])
//!     .test("config_map_is_kept", config_map_is_kept)
//!     .main();
//! ```
//!
//! Environment: `HONE_CLUSTER_TESTS=required` makes what is not set up (though it could be) a failure
//! and not an omission; `HONE_CLUSTER_DIR` names a running cluster of `up.sh` to use, which is then
//! left running; `HONE_CLUSTER_KEEP=1` keeps the directory (logs, evidence) of a cluster of ours.

mod capability;
mod cluster;
pub mod devices;
mod evidence;
mod helm;
mod kubectl;
pub mod product;
mod scripts;
pub mod simulated;
mod suite;
mod wait;

pub use capability::{Capabilities, Capability, State};
pub use cluster::{Cluster, ClusterOptions};
pub use evidence::keep_logs;
pub use helm::{Helm, IMAGES, chart, render, repository};
pub use kubectl::Kubectl;
pub use scripts::{program, scripts_dir, tool};
pub use suite::{Context, Suite};
pub use wait::eventually;
