//! The way to the API server: a kubeconfig, or the pod's ServiceAccount.

use std::path::PathBuf;

use hone_crds::{GROUP, ModelCompilation};
use hone_operator::children::{names, owner};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use crate::ConsoleError;

/// Which cluster, and which namespace of it; as kubectl's own options are called.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The kubeconfig; KUBECONFIG, ~/.kube/config or the pod's own ServiceAccount when absent.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; the current one when absent.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The namespace; that of the context when absent.
    #[arg(long, short, global = true)]
    pub namespace: Option<String>,
}

/// A connected client and the namespace to look in.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The namespace of the options or of the context.
    pub namespace: String,
}

impl Options {
    /// Reads the configuration; nothing is sent yet.
    ///
    /// # Errors
    /// [`ConsoleError::Configuration`] when there is none or it cannot be used.
    pub async fn connect(&self) -> Result<Cluster, ConsoleError> {
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)
            .map_err(|error| ConsoleError::Configuration(Box::new(error)))?;
        Ok(Cluster { client, namespace })
    }

    async fn config(&self) -> Result<Config, ConsoleError> {
        let failed =
            |error: Box<dyn std::error::Error + Send + Sync>| ConsoleError::Configuration(error);
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| failed(Box::new(error)))?;
                let config = Config::from_custom_kubeconfig(file, &options).await;
                config.map_err(|error| failed(Box::new(error)))
            }
            None if self.context.is_some() => {
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|error| failed(Box::new(error)))
            }
            None => Config::infer().await.map_err(|error| failed(Box::new(error))),
        }
    }
}

impl Cluster {
    /// A compilation by name.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], [`ConsoleError::Api`].
    pub async fn compilation(&self, name: &str) -> Result<ModelCompilation, ConsoleError> {
        let api: Api<ModelCompilation> = Api::namespaced(self.client.clone(), &self.namespace);
        match api.get_opt(name).await {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(ConsoleError::NotFound {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            }),
            Err(error) => {
                Err(ConsoleError::api(format!("reading ModelCompilation '{name}'"))(error))
            }
        }
    }

    /// The Jobs that a compilation controls, oldest first.
    ///
    /// # Errors
    /// [`ConsoleError::Api`].
    pub async fn jobs(&self, object: &ModelCompilation) -> Result<Vec<Job>, ConsoleError> {
        let uid = object.uid().unwrap_or_default();
        let api: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.list(&of(&uid)).await.map_err(ConsoleError::api("listing Jobs"))?;
        let mut jobs = found.items;
        jobs.retain(|job| {
            let owner = owner::controller(&job.metadata, GROUP, "ModelCompilation");
            owner.is_some_and(|owner| owner.uid == uid)
        });
        jobs.sort_by_key(|job| job.metadata.creation_timestamp.clone().map(|time| time.0));
        Ok(jobs)
    }

    /// The pods of a compilation's Jobs, oldest first.
    ///
    /// # Errors
    /// [`ConsoleError::Api`].
    pub async fn pods(
        &self,
        object: &ModelCompilation,
        jobs: &[Job],
    ) -> Result<Vec<Pod>, ConsoleError> {
        let uid = object.uid().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.list(&of(&uid)).await.map_err(ConsoleError::api("listing pods"))?;
        let mut pods = found.items;
        pods.retain(|pod| jobs.iter().any(|job| is_of(pod, job)));
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
        Ok(pods)
    }
}

/// What carries the label of a compilation; whether it belongs to it, owner references say.
fn of(uid: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={uid}", names::UID_LABEL))
}

/// Whether a Job controls a pod.
pub fn is_of(pod: &Pod, job: &Job) -> bool {
    let owner = owner::controller(&pod.metadata, "batch", "Job");
    owner.is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}

/// The target that a Job works for.
pub fn target_of(job: &Job) -> Option<&str> {
    job.metadata.labels.as_ref()?.get(names::TARGET_LABEL).map(String::as_str)
}
