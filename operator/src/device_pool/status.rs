//! Writes a pool's status where it changed. Counts change with every worker, so those alone are written
//! [`COUNTS_EVERY`] at most.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hone_crds::device_pool::{Capacity, ExternalSession};
use hone_crds::{DevicePool, DevicePoolStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::apply::PoolError;
use crate::children::names::MANAGER;
use crate::context::Context;

/// Time between two statuses that differ in counts alone.
pub const COUNTS_EVERY: Duration = Duration::from_secs(10);

/// When each pool's status was written last.
#[derive(Debug, Default)]
pub struct Written(Mutex<HashMap<String, Instant>>);

impl Written {
    /// The time until counts of `pool` may be written again.
    fn rest(&self, pool: &str) -> Option<Duration> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = COUNTS_EVERY.checked_sub(written.get(pool)?.elapsed())?;
        (!rest.is_zero()).then_some(rest)
    }

    fn now(&self, pool: &str) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(pool.to_owned(), Instant::now());
        // Pools that are gone, and those whose counts may be written anyway.
        written.retain(|_, at| at.elapsed() < COUNTS_EVERY);
    }
}

/// A status without what changes with every worker.
fn without_counts(status: &DevicePoolStatus) -> DevicePoolStatus {
    let mut status = status.clone();
    status.fingerprints.clear();
    let seen = |session: &mut ExternalSession| session.last_seen = Time(Timestamp::UNIX_EPOCH);
    status.sessions.iter_mut().for_each(seen);
    let still = |capacity: Capacity| Capacity { leased: 0, waiting: 0, ..capacity };
    status.capacity = status.capacity.map(still);
    status
}

/// Writes `wanted` unless it is there already. Returns when to look again where only counts differ and were written a
/// moment ago.
///
/// # Errors
/// [`PoolError`].
pub async fn write(
    context: &Context,
    object: &DevicePool,
    wanted: DevicePoolStatus,
) -> Result<Option<Duration>, PoolError> {
    let deleting = object.metadata.deletion_timestamp.is_some();
    let known = object.status.as_ref();
    if deleting || known == Some(&wanted) || !context.fence.leads() {
        return Ok(None);
    }
    let name = object.name_any();
    let counts_alone = known.is_some_and(|known| without_counts(known) == without_counts(&wanted));
    if let Some(rest) = context.pool_statuses.rest(&name).filter(|_| counts_alone) {
        return Ok(Some(rest));
    }
    let api: Api<DevicePool> = Api::all(context.client.clone());
    let patch = json!({
        "apiVersion": DevicePool::api_version(&()),
        "kind": DevicePool::kind(&()),
        "metadata": {"name": name, "resourceVersion": object.resource_version()},
        "status": wanted,
    });
    let params = PatchParams::apply(MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&patch)).await {
        Ok(_) => {
            context.pool_statuses.now(&name);
            Ok(None)
        }
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(None),
        Err(source) => Err(PoolError::Kube {
            what: format!("write the status of DevicePool '{name}'"),
            source: Box::new(source),
        }),
    }
}
