//! Follows kinds of the cluster into the state.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use hone_crds::{DevicePool, ModelCompilation, TuningRun};
use hone_operator::children::names::POOL_LABEL;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};

use super::shown;
use super::state::{Key, State};

/// A kind, where it is looked for, and which of its objects are ours.
pub struct Watched {
    resource: ApiResource,
    namespaced: bool,
    labels: Option<&'static str>,
}

/// Everything that the page shows.
pub fn all() -> Vec<Watched> {
    let of = |resource, namespaced, labels| Watched { resource, namespaced, labels };
    vec![
        of(resource::<ModelCompilation>(), true, None),
        of(resource::<TuningRun>(), true, None),
        of(resource::<DevicePool>(), false, None),
        // Who holds a device: a Lease for each slot of a pool.
        of(resource::<Lease>(), false, Some(POOL_LABEL)),
    ]
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// Follows one kind for ever. What cannot be watched, such as for want of rights, is shown on the page and retried.
pub async fn follow(
    client: Client,
    watched: Watched,
    namespace: Option<String>,
    state: Arc<State>,
) {
    let Watched { resource, namespaced, labels } = watched;
    let kind = resource.kind.clone();
    let api: Api<DynamicObject> = match (&namespace, namespaced) {
        (Some(namespace), true) => Api::namespaced_with(client, namespace, &resource),
        _ => Api::all_with(client, &resource),
    };
    let config = labels
        .map_or_else(watcher::Config::default, |labels| watcher::Config::default().labels(labels));
    let events = watcher::watcher(api, config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                state.notice(&kind, Some(why(&error)));
                continue;
            }
        };
        state.notice(&kind, None);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                let key = key(&kind, &object);
                listed.insert(key.clone());
                state.put(key, shown::of(&kind, &object), Timestamp::now());
            }
            Event::InitDone => state.listed(&kind, &std::mem::take(&mut listed)),
            Event::Apply(object) => {
                state.put(key(&kind, &object), shown::of(&kind, &object), Timestamp::now())
            }
            Event::Delete(object) => state.remove(&key(&kind, &object)),
        }
    }
}

fn key(kind: &str, object: &DynamicObject) -> Key {
    (kind.to_owned(), object.namespace().unwrap_or_default(), object.name_any())
}

/// Why a watch does not work, in one line.
fn why(error: &watcher::Error) -> String {
    let source: Option<&kube::Error> = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => Some(source),
        _ => None,
    };
    match source {
        Some(kube::Error::Api(status)) if status.code == 403 => {
            "may not be read with these rights".to_owned()
        }
        Some(kube::Error::Api(status)) if status.code == 404 => {
            "the cluster does not know this kind: install Hone's CRDs".to_owned()
        }
        Some(kube::Error::Api(status)) => format!("the API server answers {}", status.code),
        _ => "the API server cannot be reached".to_owned(),
    }
}
