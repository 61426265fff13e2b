//! `DevicePool`: grants its devices to who asks for them ([`crate::broker`]), and says what it has and on what hardware
//! results were measured.
//!
//! Nothing here walks everything from time to time: a pool is looked at when a node of it, one of its leases, a Job in
//! it, a request for it or the pool itself changes, and when a lease runs out.

pub mod apply;
pub mod observe;
pub mod plan;
mod sessions;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use hone_crds::DevicePool;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::broker::{PoolState, grant, slots};
use crate::context::Context;
use apply::PoolError;

pub use crate::broker::CONTROLLER;

/// Grants what can be granted and brings the pool's status up to date.
///
/// # Errors
/// [`PoolError`] when something cannot be written.
pub async fn reconcile(
    object: Arc<DevicePool>,
    context: Arc<Context>,
) -> Result<Option<Duration>, PoolError> {
    let name = object.name_any();
    let install = &context.config.namespace;
    if !plan::is_ours(&object, install) {
        context.broker.forget_pool(&name);
        return Ok(None);
    }
    let mut again = None;
    // Until the claim is written and seen, another operator may have been first.
    let claimed = object.status.as_ref().and_then(|status| status.managed_by.as_ref());
    if claimed == Some(install) && slots::is_leased(&object.spec) {
        let now = Timestamp::now();
        let mut state = observe::leases(&context, &object);
        state.occupied = observe::occupied(&context, &state.without_end(now)).await;
        let decision = grant::plan(&state, now);
        apply::apply(&context, &decision.changes, now).await?;
        let max_per_namespace = object.spec.max_per_namespace;
        context.broker.note_pool(&name, PoolState { free: decision.free, max_per_namespace });
        again = decision.again.map(|at| until(at, now));
    } else {
        context.broker.forget_pool(&name);
    }
    let observed = observe::observe(&context, &object);
    let wanted = plan::plan(&observed);
    let rest = status::write(&context, &object, wanted).await?;
    Ok(match (again, rest) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    })
}

/// The time until `at`, and a little more, so that it has come then.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    left + Duration::from_millis(50)
}
