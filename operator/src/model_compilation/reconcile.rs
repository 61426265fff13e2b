//! The steps, in order.

use std::sync::Arc;
use std::time::Duration;

use hone_crds::ModelCompilation;
use kube::ResourceExt;

use super::apply::{self, ApplyError};
use super::observe::{self, ObserveError};
use super::{plan, status};
use crate::context::Context;

/// Why a reconcile is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The state could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Something could not be done or written.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ReconcileError {
    /// Whether this is everyday: another writer was first, or this replica does not lead.
    pub fn is_expected(&self) -> bool {
        match self {
            Self::Apply(ApplyError::NotLeading) => true,
            Self::Apply(ApplyError::Kube { source, .. }) => {
                matches!(&**source, kube::Error::Api(status) if status.code == 409)
            }
            Self::Apply(ApplyError::Job(_)) | Self::Observe(_) => false,
        }
    }
}

/// Brings one object a step on: after which time to look again, unless something changes sooner.
///
/// # Errors
/// [`ReconcileError`]; the caller tries again with back-off.
pub async fn reconcile(
    object: Arc<ModelCompilation>,
    context: Arc<Context>,
) -> Result<Option<Duration>, ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    if context.waiting.is_stale(&uid, object.resource_version().as_deref()) {
        // The watch wakes it; the second look is for a watch that was cut off meanwhile.
        return Ok(Some(Duration::from_secs(5)));
    }
    let observed = observe::observe(&context, &object).await?;
    let plan = plan::plan(&context.config, &observed);
    let again = plan.again_seconds;
    let applied = apply::apply(&context, &object, plan).await?;
    let refused = !applied.refused.is_empty();
    status::write(&context, &object, applied).await?;
    // What the API server refuses may be let in later: a quota, an admission policy.
    let again = if refused { Some(15) } else { again };
    Ok(again.map(Duration::from_secs))
}
