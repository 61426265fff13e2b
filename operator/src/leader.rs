//! One replica leads at a time, by a Lease, through a client of its own, so that renewing never
//! waits behind other requests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt, pin_mut};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};

use crate::fence::Fence;

/// Name of the Lease.
pub const LEASE: &str = "hone-operator";
/// Seconds that a lease holds without being renewed: what a crash costs at most.
const DURATION_SECONDS: u64 = 10;
/// Seconds before its end at which a lease is renewed: so long the API server may be away before this replica is deposed.
const GRACE_SECONDS: u64 = 7;

/// The wish to lead, and the lease while it is held.
pub struct Election {
    client: Client,
    namespace: String,
    identity: String,
    fence: Arc<Fence>,
    manager: LeaseManager,
}

impl Election {
    /// Prepares to lead: makes the Lease where there is none. The task that is returned watches it to move the fence.
    ///
    /// # Errors
    /// When the Lease can neither be read nor made.
    pub async fn new(
        client: Client,
        namespace: &str,
        identity: &str,
        fence: Arc<Fence>,
    ) -> anyhow::Result<(Self, impl Future<Output = ()> + use<>)> {
        let manager = manager(&client, namespace, identity).await?;
        let watch = watch(
            Api::namespaced(client.clone(), namespace),
            identity.to_owned(),
            Arc::clone(&fence),
        );
        let election = Self {
            client,
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            fence,
            manager,
        };
        Ok((election, watch))
    }

    /// Returns once this replica leads.
    ///
    /// # Errors
    /// When the Lease cannot be read for reasons that waiting does not cure.
    pub async fn won(&mut self) -> anyhow::Result<()> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        loop {
            tokio::select! {
                changed = self.manager.changed() => match changed {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%error, "the lease cannot be had");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                },
                // The manager sleeps until the holder's time is over; a lease that is given
                // up before that is seen here, and a fresh manager takes it at once.
                () = released(api.clone(), &self.identity) => {
                    match manager(&self.client, &self.namespace, &self.identity).await {
                        Ok(fresh) => self.manager = fresh,
                        Err(error) => {
                            tracing::warn!(%error, "the lease cannot be read");
                            tokio::time::sleep(Duration::from_secs(1)).await;
                        }
                    }
                }
            }
        }
        while !self.fence.leads() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Renews the lease; returns when another replica holds it.
    pub async fn lost(&self) {
        loop {
            match self.manager.changed().await {
                Ok(false) => return,
                Ok(true) => {}
                Err(error) => {
                    tracing::warn!(%error, "the lease cannot be renewed");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Gives the lease up, so that another replica need not wait.
    pub async fn release(&self) {
        self.fence.close();
        let release = tokio::time::timeout(Duration::from_secs(2), self.manager.release());
        match release.await {
            Ok(Ok(())) => tracing::info!("the lease is given up"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given up"),
            Err(_) => tracing::warn!("the lease could not be given up in time"),
        }
    }
}

async fn manager(client: &Client, namespace: &str, identity: &str) -> anyhow::Result<LeaseManager> {
    LeaseManagerBuilder::new(client.clone(), LEASE)
        .with_namespace(namespace)
        .with_identity(identity)
        .with_duration(DURATION_SECONDS)
        .with_grace(GRACE_SECONDS)
        .build()
        .await
        .with_context(|| format!("prepare Lease '{LEASE}' in namespace '{namespace}'"))
}

/// Who holds the lease now.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

/// Returns when another held the lease and gave it up.
async fn released(api: Api<Lease>, identity: &str) {
    let stream = watch_object(api, LEASE);
    pin_mut!(stream);
    let mut held = false;
    while let Some(event) = stream.next().await {
        let Ok(lease) = event else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        match lease.as_ref().and_then(holder) {
            Some(holder) => held = holder != identity,
            None if held => return,
            None => {}
        }
    }
    futures::future::pending::<()>().await;
}

/// Moves the fence with what the API server says of the lease, until the process ends.
async fn watch(api: Api<Lease>, identity: String, fence: Arc<Fence>) {
    let stream = watch_object(api, LEASE);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(Some(lease)) if holder(&lease) == Some(identity.as_str()) => {
                let renewed = lease.spec.as_ref().and_then(|s| s.renew_time.clone());
                let length = SignedDuration::from_secs(DURATION_SECONDS as i64);
                match renewed.and_then(|time| time.0.checked_add(length).ok()) {
                    Some(until) => fence.extend(until),
                    None => fence.close(),
                }
            }
            Ok(_) => fence.close(),
            // Nothing is known: the fence stays where it was and runs out by itself.
            Err(error) => {
                tracing::debug!(%error, "the lease cannot be watched");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}
