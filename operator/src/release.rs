//! `hone-operator release-objects`: what is left to do when the operator is gone. Compilations with our finalizer could
//! never be deleted without it, and neither could their CRD nor their namespaces.

use std::time::Duration;

use anyhow::{Context as _, bail};
use hone_crds::ModelCompilation;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::arguments::ReleaseArguments;
use crate::children::names::FINALIZER;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Time between two looks: an operator that was just told to end may still put its finalizer on.
const PAUSE: Duration = Duration::from_secs(5);
/// Looks that must find nothing, one after the other.
const QUIET: u32 = 2;
/// Looks at most.
const LOOKS: u32 = 30;

/// Takes the finalizer from all compilations.
///
/// # Errors
/// When the cluster cannot be reached or refuses, or when somebody goes on putting the finalizer on.
pub async fn run(arguments: &ReleaseArguments) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("find the cluster")?;
    let released = release(client, arguments.watch_namespace.as_deref()).await?;
    println!("{released} compilations released: what they stored stays");
    Ok(())
}

/// As [`run`], with a client: the number of objects that were released.
///
/// # Errors
/// As for [`run`].
pub async fn release(client: Client, namespace: Option<&str>) -> anyhow::Result<usize> {
    let (mut released, mut quiet) = (0, 0);
    for _ in 0..LOOKS {
        match look(&client, namespace).await? {
            0 => quiet += 1,
            found => {
                quiet = 0;
                released += found;
            }
        }
        if quiet == QUIET {
            return Ok(released);
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("compilations get finalizer '{FINALIZER}' again and again: stop every operator first")
}

/// Releases what has the finalizer now: how many did.
async fn look(client: &Client, namespace: Option<&str>) -> anyhow::Result<usize> {
    let api: Api<ModelCompilation> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut found = 0;
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match api.list_metadata(&page).await {
            Ok(list) => list,
            // The CRD is gone, and every object with it.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(found),
            Err(error) => return Err(error).context("list ModelCompilations"),
        };
        for object in &list.items {
            if object.finalizers().iter().any(|name| name == FINALIZER) {
                found += 1;
                free(client, object).await?;
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Takes the finalizer from one object at the version that was seen. Where that changed, the next look does it.
async fn free(client: &Client, object: &PartialObjectMeta<ModelCompilation>) -> anyhow::Result<()> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|name| name != FINALIZER);
    let patch = json!({"metadata": {
        "finalizers": finalizers, "resourceVersion": object.resource_version(),
    }});
    let api: Api<ModelCompilation> = Api::namespaced(client.clone(), &namespace);
    match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("release '{namespace}/{name}'")),
    }
}
