//! The command line; each option is an environment variable as well.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::cloud_events::Webhook;
use crate::cloud_events::delivery::Policy;
use crate::config::Config;

/// Reconciles `hone.dev` resources; as `hone-operator release-objects` takes its finalizer from them instead.
#[derive(Clone, Debug, Parser)]
#[command(name = "hone-operator", version, about)]
pub struct Arguments {
    /// Image of the worker pods.
    #[arg(long, env = "HONE_WORKER_IMAGE")]
    pub worker_image: String,
    /// Pull policy of that image.
    #[arg(long, env = "HONE_WORKER_IMAGE_PULL_POLICY")]
    pub worker_image_pull_policy: Option<String>,
    /// Secrets in each namespace that the worker's image is pulled with.
    #[arg(long, env = "HONE_WORKER_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    pub worker_image_pull_secrets: Vec<String>,
    /// Version of the compiler in that image: results of another version are not reused.
    #[arg(long, env = "HONE_COMPILER_VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    pub compiler_version: String,
    /// Hosts, networks and buckets that workers may fetch from although they are private.
    #[arg(long, env = "HONE_FETCH_ALLOW", value_delimiter = ',')]
    pub fetch_allow: Vec<String>,
    /// Whether workers may ask the platform for their pod's identity.
    #[arg(long, env = "HONE_WORKLOAD_IDENTITY")]
    pub workload_identity: bool,
    /// Persistent volume claim, in each namespace, behind `file://`.
    #[arg(long, env = "HONE_SHARED_VOLUME_CLAIM")]
    pub shared_volume_claim: Option<String>,
    /// Where that claim is mounted in workers.
    #[arg(long, env = "HONE_SHARED_VOLUME_PATH", default_value = "/models")]
    pub shared_volume_path: String,
    /// Prefixes of annotations that are copied from a compilation to its pods.
    #[arg(long, env = "HONE_COPY_ANNOTATIONS", value_delimiter = ',')]
    pub copy_annotations: Vec<String>,
    /// Seconds that a finished Job and its log are kept.
    #[arg(long, env = "HONE_JOB_TTL", default_value_t = 600)]
    pub job_ttl: i32,
    /// Seconds for which it counts that a worker has found an artifact in its place, before another compilation takes the
    /// result; 0 to look each time.
    #[arg(long, env = "HONE_CACHE_TRUST", default_value_t = 600)]
    pub cache_trust: u32,
    /// Only watch this namespace; all when absent.
    #[arg(long, env = "HONE_WATCH_NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// The operator's namespace: of its own Lease and of those of devices.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of this replica.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// Work without a Lease: only where there is never a second replica.
    #[arg(long, env = "HONE_NO_LEADER_ELECTION")]
    pub no_leader_election: bool,
    /// Whether Tekton's CustomRuns whose task is of a kind of ours are worked on, where the cluster serves them.
    #[arg(long, env = "HONE_TEKTON")]
    pub tekton: bool,
    /// Objects of a kind that are worked on at once.
    #[arg(long, env = "HONE_CONCURRENCY", default_value_t = 16)]
    pub concurrency: u16,
    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, env = "HONE_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Where /metrics is served over TLS, to those alone whom the API server lets `get` it; then it is served nowhere else.
    #[arg(long, env = "HONE_SECURE_METRICS_LISTEN")]
    pub secure_metrics_listen: Option<SocketAddr>,
    /// Folder with tls.crt and tls.key for it; without one it signs a certificate itself.
    #[arg(long, env = "HONE_METRICS_CERTIFICATE")]
    pub metrics_certificate: Option<PathBuf>,
    /// Where workers post how far searches are; nowhere when absent.
    #[arg(long, env = "HONE_PROGRESS_LISTEN")]
    pub progress_listen: Option<SocketAddr>,
    /// The URL by which workers reach it, such as http://hone.hone-system.svc:8082/progress; they post nothing when absent.
    #[arg(long, env = "HONE_PROGRESS_ENDPOINT")]
    pub progress_endpoint: Option<String>,
    /// Where /loglevel is served: loopback, so that only who may enter the pod changes it.
    #[arg(long, env = "HONE_ADMIN_LISTEN", default_value = "127.0.0.1:8081")]
    pub admin_listen: SocketAddr,
    /// The collector that traces are sent to by OTLP over HTTP, such as http://collector:4318; none when absent. Workers
    /// are told it as well.
    #[arg(long, env = hone_telemetry::ENDPOINT_VARIABLE)]
    pub otlp_endpoint: Option<String>,
    /// Where traces go in whole, such as http://collector:4318/v1/traces: goes before the collector.
    #[arg(long, env = hone_telemetry::TRACES_ENDPOINT_VARIABLE)]
    pub otlp_traces_endpoint: Option<String>,
    /// The webhook that CloudEvents are sent to; none when absent.
    #[arg(long, env = "HONE_CLOUD_EVENTS_ENDPOINT")]
    pub cloud_events_endpoint: Option<String>,
    /// The value of its header Authorization.
    #[arg(long, env = "HONE_CLOUD_EVENTS_AUTHORIZATION", hide_env_values = true)]
    pub cloud_events_authorization: Option<String>,
    /// What the sources of CloudEvents begin with, such as https://cluster-a.example.com.
    #[arg(long, env = "HONE_CLOUD_EVENTS_SOURCE", default_value = "")]
    pub cloud_events_source: String,
    /// What is logged, such as `info,hone_operator=debug`.
    #[arg(long, env = "HONE_LOG", default_value = "info")]
    pub log: String,
}

/// The first argument by which the program releases objects instead of operating.
pub const RELEASE_OBJECTS: &str = "release-objects";

/// Takes the operator's finalizer from all compilations, after it was uninstalled: what they stored stays.
#[derive(Clone, Debug, Parser)]
#[command(name = RELEASE_OBJECTS, version, about)]
pub struct ReleaseArguments {
    /// Only in this namespace; in all when absent.
    #[arg(long, env = "HONE_WATCH_NAMESPACE")]
    pub watch_namespace: Option<String>,
}

impl Arguments {
    /// The webhook for CloudEvents, where there is one.
    pub fn webhook(&self) -> Option<Webhook> {
        let endpoint = self.cloud_events_endpoint.clone().filter(|endpoint| !endpoint.is_empty());
        endpoint.map(|endpoint| Webhook {
            endpoint,
            authorization: self.cloud_events_authorization.clone(),
            cluster: self.cloud_events_source.clone(),
            policy: Policy::default(),
        })
    }

    /// The settings that planning depends on.
    pub fn config(&self) -> Config {
        Config {
            namespace: self.namespace.clone(),
            worker_image: self.worker_image.clone(),
            worker_image_pull_policy: self.worker_image_pull_policy.clone(),
            worker_image_pull_secrets: self.worker_image_pull_secrets.clone(),
            compiler_version: self.compiler_version.clone(),
            fetch_allow: self.fetch_allow.clone(),
            workload_identity: self.workload_identity,
            shared_volume_claim: self.shared_volume_claim.clone(),
            shared_volume_path: self.shared_volume_path.clone(),
            copied_annotations: self.copy_annotations.clone(),
            job_ttl_seconds: self.job_ttl,
            progress_endpoint: self.progress_endpoint.clone(),
            cache_trust_seconds: i64::from(self.cache_trust),
            traces_endpoint: hone_telemetry::endpoint(
                self.otlp_endpoint.as_deref(),
                self.otlp_traces_endpoint.as_deref(),
            ),
            ..Config::default()
        }
    }
}
