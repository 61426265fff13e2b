//! Gathers what a plan depends on: from the watched caches, and from the API server what they do not have yet.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::apply::{RunError, failed};
use super::asked;
use super::kinds::{Followed, Kind};
use super::model::{Child, ChildView, Observed};
use super::resource::CustomRun;
use crate::context::Context;
use crate::runtime::cache::{Cache, Object};

/// What there is for `run`.
///
/// # Errors
/// [`RunError`] where something has to be read and cannot be.
pub async fn observe(context: &Context, run: &CustomRun) -> Result<Observed, RunError> {
    let stores = &context.stores;
    let (child, template) = match asked::child(run) {
        Err(_) => (None, None),
        Ok(child) => match child.kind {
            Kind::ModelCompilation => of_kind(context, &stores.compilations, run, &child).await?,
            Kind::TuningRun => of_kind(context, &stores.tuning_runs, run, &child).await?,
        },
    };
    Ok(Observed {
        now: Time(jiff::Timestamp::now()),
        object: run.clone(),
        child,
        template,
        refusal: None,
    })
}

/// The object of the attempt, and where it is to be made after another one, that one's spec.
async fn of_kind<K>(
    context: &Context,
    cache: &Cache<Object<K>>,
    run: &CustomRun,
    child: &Child,
) -> Result<(Option<ChildView>, Option<serde_json::Value>), RunError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Followed
        + Clone
        + Debug
        + DeserializeOwned,
{
    let namespace = run.namespace().unwrap_or_default();
    // What was made may not have come over the watch yet, and it may be gone. A run that is cancelled at once may have an
    // object that its status does not tell of, because the cancellation came before the status.
    let made = run.status.extra_fields.as_ref().is_some_and(|own| own.object.name == child.name);
    let ask = made || run.is_cancelled();
    let found = find(context, cache, &namespace, &child.name, ask).await?;
    if let Some(found) = found {
        let uid = run.uid().unwrap_or_default();
        return Ok((Some(found.view(&uid)), None));
    }
    let template = run.spec.custom_ref.as_ref().filter(|own| !ask && !own.name.is_empty());
    let template = match template {
        // It may have been made a moment ago, together with the pipeline's run.
        Some(own) => find(context, cache, &namespace, &own.name, true).await?,
        None => None,
    };
    Ok((None, template.map(|own| own.template())))
}

/// An object of the cache, or where it has none and `ask` says so, of the API server.
async fn find<K>(
    context: &Context,
    cache: &Cache<Object<K>>,
    namespace: &str,
    name: &str,
    ask: bool,
) -> Result<Option<Arc<K>>, RunError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    if let Some(found) = cache.get(namespace, name) {
        return Ok(Some(found));
    }
    if !ask {
        return Ok(None);
    }
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let found = api.get_opt(name).await;
    let found = found.map_err(failed(format!("read {} '{namespace}/{name}'", K::kind(&()))))?;
    Ok(found.map(Arc::new))
}
