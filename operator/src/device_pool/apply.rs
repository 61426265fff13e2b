//! Writes what was decided about leases: at exactly the version that was decided for, so a replica that was deposed
//! meanwhile, or an operator beside this one, is told by a conflict.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

use crate::broker::grant::Change;
use crate::broker::{DeviceLease, lease};
use crate::children::names;
use crate::context::Context;
use crate::runtime::worker::{FailureClass, ReconcileFailure, class_of};

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// This replica does not hold its own Lease any more, or cannot tell.
    #[error("this replica does not lead: nothing is written")]
    NotLeading,
    /// The API server refused or did not answer.
    #[error("cannot {what}")]
    Kube {
        /// What was tried, on which object.
        what: String,
        /// What the API server said.
        #[source]
        source: Box<kube::Error>,
    },
}

impl ReconcileFailure for PoolError {
    fn class(&self) -> FailureClass {
        match self {
            Self::NotLeading => FailureClass::NotLeading,
            Self::Kube { source, .. } => class_of(source),
        }
    }
}

/// Writes all of `changes`.
///
/// # Errors
/// [`PoolError`]; what was written before stands, and is found again by the next look.
pub async fn apply(context: &Context, changes: &[Change], now: Timestamp) -> Result<(), PoolError> {
    let api: Api<Lease> = Api::namespaced(context.client.clone(), &context.config.namespace);
    for change in changes {
        if !context.fence.leads() {
            return Err(PoolError::NotLeading);
        }
        match change {
            // The watch of leases has those look who were granted one.
            Change::Hold(wanted) | Change::Release(wanted) => {
                hold(context, &api, wanted, now).await?
            }
            Change::Remove(lease) => remove(context, &api, lease).await?,
        }
    }
    Ok(())
}

async fn hold(
    context: &Context,
    api: &Api<Lease>,
    wanted: &DeviceLease,
    now: Timestamp,
) -> Result<(), PoolError> {
    let object = lease::object(&context.config.namespace, wanted, now);
    let params =
        PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    let written = match wanted.version {
        0 => api.create(&params, &object).await,
        _ => api.replace(&wanted.name, &params, &object).await,
    };
    match written {
        Ok(written) => {
            // Whoever asks the broker next knows it, before the watch tells.
            lease::facts(&written).map(|(_, lease)| context.broker.saw(lease));
            Ok(())
        }
        // It went while it was decided: the next look makes it anew.
        Err(kube::Error::Api(status)) if status.code == 404 && wanted.version > 0 => {
            context.broker.gone(&wanted.name);
            Err(failed("write", wanted)(kube::Error::Api(status)))
        }
        Err(error) => Err(failed("write", wanted)(error)),
    }
}

async fn remove(context: &Context, api: &Api<Lease>, lease: &DeviceLease) -> Result<(), PoolError> {
    let version = Some(lease.version.to_string());
    let params = DeleteParams {
        preconditions: Some(Preconditions { resource_version: version, uid: None }),
        ..DeleteParams::default()
    };
    match api.delete(&lease.name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(failed("delete", lease)(error)),
    }
    context.broker.gone(&lease.name);
    Ok(())
}

fn failed(what: &str, lease: &DeviceLease) -> impl FnOnce(kube::Error) -> PoolError {
    let what = format!("{what} Lease '{}' of pool '{}'", lease.name, lease.pool);
    move |source| PoolError::Kube { what, source: Box::new(source) }
}
