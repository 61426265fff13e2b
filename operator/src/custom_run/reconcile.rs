//! The steps, in order.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::apply::{self, RunError};
use super::resource::CustomRun;
use super::{CONTROLLER, observe, plan, status};
use crate::context::Context;
use crate::runtime::queue::Key;

/// Brings one run a step on: after which time to look again, unless something changes sooner.
///
/// # Errors
/// [`RunError`]; the caller tries again with back-off.
pub async fn reconcile(
    object: Arc<CustomRun>,
    context: Arc<Context>,
) -> Result<Option<Duration>, RunError> {
    let key = Key::of(CONTROLLER, &*object);
    if context.queue.is_stale(&key, object.resource_version().as_deref()) {
        // The watch queues it; the second look is for a watch that was cut off meanwhile.
        return Ok(Some(Duration::from_secs(5)));
    }
    let mut observed = observe::observe(&context, &object).await?;
    let mut planned = plan::plan(&context.config, &observed);
    let refusal = apply::apply(&context, &object, &planned.actions).await?;
    if refusal.is_some() {
        // What the API server refuses goes back into the plan, which ends the run and makes nothing.
        observed.refusal = refusal;
        planned = plan::plan(&context.config, &observed);
    }
    status::write(&context, &object, planned.status).await?;
    Ok(planned.again_seconds.map(Duration::from_secs))
}
