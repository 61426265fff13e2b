//! From arguments to the end of the process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::Arguments;
use crate::context::Context;
use crate::endpoints::{self, Readiness};
use crate::events::Events;
use crate::fence::Fence;
use crate::leader::Election;
use crate::metrics::Metrics;
use crate::waiting::Waiting;
use crate::{client, controllers, logging, stores};

/// Longest time that work under way may hold up a stop.
const DRAIN: Duration = Duration::from_millis(1500);

/// Stands by until this replica leads, then leads until it is told to stop or loses the lease.
///
/// # Errors
/// What keeps it from starting, and the loss of the lease: a fresh process then stands by again.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let log = logging::start(&arguments.log)?;
    let metrics = Metrics::new().context("make the metrics")?;
    let readiness = Readiness::default();
    endpoints::serve(arguments.listen, metrics.clone(), readiness.clone()).await?;
    endpoints::serve_admin(arguments.admin_listen, log).await?;

    let config = kube::Config::infer()
        .await
        .context("find the cluster: set KUBECONFIG, or run in a pod with a service account")?;
    let client = client::counted(config.clone(), &metrics)?;
    let identity = identity(&arguments);
    let mut stop = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut asked_to_stop = Box::pin(async move {
        tokio::select! { _ = stop.recv() => {}, _ = interrupt.recv() => {} }
    });

    if arguments.no_leader_election {
        let fence = Arc::new(Fence::open());
        let (context, sources) = context(&arguments, client, metrics, fence, &identity);
        readiness.set(true);
        let (tell, told) = watch::channel(false);
        let work = controllers::run(
            context,
            sources,
            arguments.concurrency,
            arguments.watch_namespace.clone(),
            told,
        );
        let work = tokio::spawn(work);
        asked_to_stop.await;
        let _ = tell.send(true);
        let _ = tokio::time::timeout(DRAIN, work).await;
        return Ok(());
    }

    let fence = Arc::new(Fence::closed());
    let lease_client = Client::try_from(config).context("make the lease's client")?;
    let mut election =
        Election::new(lease_client, &arguments.namespace, &identity, Arc::clone(&fence)).await?;
    readiness.set(true);
    tracing::info!(identity, "standing by");
    tokio::select! {
        won = election.won() => won?,
        () = &mut asked_to_stop => return Ok(()),
    }
    tracing::info!(identity, "leading");
    metrics.leads(true);
    let (context, sources) = context(&arguments, client, metrics, Arc::clone(&fence), &identity);
    let (tell, told) = watch::channel(false);
    let work = tokio::spawn(controllers::run(
        context,
        sources,
        arguments.concurrency,
        arguments.watch_namespace.clone(),
        told,
    ));
    let lost = tokio::select! {
        () = &mut asked_to_stop => false,
        () = election.lost() => true,
    };
    if lost {
        fence.close();
        bail!("another replica holds the lease: starting over");
    }
    let _ = tell.send(true);
    let drained = tokio::time::timeout(DRAIN, work).await;
    tracing::info!(drained = drained.is_ok(), "stopped");
    election.release().await;
    Ok(())
}

/// This replica's name: the pod's, or the machine's and the process's.
fn identity(arguments: &Arguments) -> String {
    arguments.identity.clone().unwrap_or_else(|| {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let machine = machine.unwrap_or_default();
        format!("{}-{}", machine.trim(), std::process::id())
    })
}

fn context(
    arguments: &Arguments,
    client: Client,
    metrics: Metrics,
    fence: Arc<Fence>,
    identity: &str,
) -> (Arc<Context>, stores::Sources) {
    let waiting = Arc::new(Waiting::default());
    let namespace = arguments.watch_namespace.as_deref();
    let (stores, sources) = stores::open(&client, namespace, Arc::clone(&waiting));
    let context = Context {
        events: Events::publish_with(client.clone(), identity),
        client,
        config: arguments.config(),
        stores,
        metrics,
        fence,
        waiting,
    };
    (Arc::new(context), sources)
}
