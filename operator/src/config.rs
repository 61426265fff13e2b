//! What the administrator sets: read once, the same for every object.

use serde::{Deserialize, Serialize};

/// Settings that planning depends on. They are values, so that plans can be tested from text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The operator's own namespace, where the Leases of devices are, and its name among several operators.
    pub namespace: String,
    /// Image of the worker pods.
    pub worker_image: String,
    /// Its pull policy; Kubernetes' default when absent.
    pub worker_image_pull_policy: Option<String>,
    /// Secrets that the image is pulled with, in each namespace that compiles.
    pub worker_image_pull_secrets: Vec<String>,
    /// Version of the compiler in that image: part of the key of the result cache.
    pub compiler_version: String,
    /// Hosts, networks and buckets that workers may fetch from although they are private; handed
    /// to them as they stand.
    pub fetch_allow: Vec<String>,
    /// Whether workers may ask the platform for their pod's identity, where no Secret says who they are.
    pub workload_identity: bool,
    /// Claim mounted into workers at `shared_volume_path`, for `file://` URIs.
    pub shared_volume_claim: Option<String>,
    /// Where that claim is mounted.
    pub shared_volume_path: String,
    /// Prefixes of annotations that are copied from a compilation to its pods, for meshes,
    /// autoscalers and simulated nodes.
    pub copied_annotations: Vec<String>,
    /// Seconds that a finished Job is kept for its log.
    pub job_ttl_seconds: i32,
    /// Where workers send their spans; nowhere when absent.
    pub traces_endpoint: Option<String>,
    /// Where workers that search post how far they are; nowhere when absent.
    pub progress_endpoint: Option<String>,
    /// Seconds for which it counts that a worker has found an artifact in its place, before another compilation's result
    /// is taken from it.
    pub cache_trust_seconds: i64,
    /// Seconds that deleting stored artifacts may hold up the deletion of an object.
    pub cleanup_deadline_seconds: i64,
    /// Seconds after which an object at work is looked at again even if nothing happened.
    pub resync_seconds: u64,
    /// What a worker asks for where the spec says nothing.
    pub default_cpu: String,
    /// As `default_cpu`, for memory; without a limit in the spec it is also the limit.
    pub default_memory: String,
    /// What a clean-up asks for.
    pub cleanup_cpu: String,
    /// As `cleanup_cpu`, for memory.
    pub cleanup_memory: String,
    /// Size of a worker's scratch space.
    pub scratch_size: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            worker_image: "hone-worker".to_owned(),
            worker_image_pull_policy: None,
            worker_image_pull_secrets: Vec::new(),
            compiler_version: env!("CARGO_PKG_VERSION").to_owned(),
            fetch_allow: Vec::new(),
            workload_identity: false,
            shared_volume_claim: None,
            shared_volume_path: "/models".to_owned(),
            copied_annotations: Vec::new(),
            job_ttl_seconds: 600,
            traces_endpoint: None,
            progress_endpoint: None,
            cache_trust_seconds: 600,
            cleanup_deadline_seconds: 600,
            resync_seconds: 300,
            default_cpu: "1".to_owned(),
            default_memory: "2Gi".to_owned(),
            cleanup_cpu: "50m".to_owned(),
            cleanup_memory: "128Mi".to_owned(),
            scratch_size: "20Gi".to_owned(),
        }
    }
}
