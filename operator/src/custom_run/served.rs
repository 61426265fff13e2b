//! Whether the cluster has Tekton's kind at all.

use std::time::Duration;

use kube::{Client, Resource};

use super::resource::CustomRun;
use crate::runtime::chain;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(60);

/// Returns once the cluster serves Tekton's CustomRuns: until then there is nothing to watch, and that is no error.
pub async fn served(client: &Client) {
    let version = CustomRun::api_version(&());
    let mut noted = false;
    loop {
        match client.list_api_group_resources(&version).await {
            Ok(list) if list.resources.iter().any(|own| own.name == CustomRun::plural(&())) => {
                tracing::info!("Tekton's CustomRuns are served and watched");
                return;
            }
            Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404) => {
                tracing::warn!(error = %chain(&error), "cannot ask whether {version} is served");
            }
            _ if !noted => {
                noted = true;
                tracing::info!(
                    "the cluster does not serve CustomRun of {version}: install Tekton Pipelines, or leave HONE_TEKTON \
                     unset; this is looked at again every {} s",
                    EVERY.as_secs()
                );
            }
            _ => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}
