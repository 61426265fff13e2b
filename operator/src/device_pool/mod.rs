//! `DevicePool`: what it has, who holds it, and on what hardware results were measured.
//!
//! The operator makes nothing for a pool; so there is nothing to apply but the status.

pub mod observe;
pub mod plan;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use hone_crds::DevicePool;

use crate::context::Context;

/// The controller's name in keys, metrics and logs.
pub const CONTROLLER: &str = "devicepool";

/// Time between two looks: devices come, go and change hands without touching the pool itself.
const EVERY: Duration = Duration::from_secs(10);

/// Brings a pool's status up to date.
///
/// # Errors
/// [`status::StatusError`] when it cannot be written.
pub async fn reconcile(
    object: Arc<DevicePool>,
    context: Arc<Context>,
) -> Result<Option<Duration>, status::StatusError> {
    let observed = observe::observe(&context, &object);
    let wanted = plan::plan(&observed);
    status::write(&context, &object, wanted).await?;
    Ok(Some(EVERY))
}
