//! From arguments to the end of the process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::BoxFuture;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Arguments;
use crate::children::events::Events;
use crate::cloud_events::CloudEvents;
use crate::context::Context;
use crate::device_pool::status::Written;
use crate::endpoints::{self, Counted};
use crate::fence::Fence;
use crate::leader::Election;
use crate::metrics::Metrics;
use crate::progress::{Leading, Receiver};
use crate::runtime::health::{Health, Stage};
use crate::runtime::queue::WorkQueue;
use crate::runtime::supervisor::{Supervisor, TaskEnded};
use crate::runtime::worker::Workers;
use crate::secure::access::Gate;
use crate::stores::{Scope, Stores};
use crate::traces::Traces;
use crate::{client, controllers, gauges, logging};

/// Longest time that work under way may hold up a stop.
const DRAIN: Duration = Duration::from_millis(1500);

/// Stands by until this replica leads, then leads until it is told to stop or loses the lease.
///
/// # Errors
/// What keeps it from starting, the loss of the lease, and the end of any task: a fresh process then stands by.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let log = logging::start(&arguments.log)?;
    let metrics = Metrics::new().context("make the metrics")?;
    let mut tasks = Supervisor::default();
    let cloud_events = match arguments.webhook() {
        Some(webhook) => {
            let (events, deliver) = CloudEvents::to(webhook, metrics.clone())?;
            tasks.spawn("delivery of CloudEvents", deliver);
            events
        }
        None => CloudEvents::default(),
    };
    let traces = Traces::to(arguments.config().traces_endpoint.as_deref())?;
    let (health, queue) = (Health::default(), Arc::new(WorkQueue::default()));
    let counted = Counted { metrics: metrics.clone(), queue: Arc::clone(&queue) };
    let open = arguments.secure_metrics_listen.is_none().then(|| counted.clone());
    let server = endpoints::server(arguments.listen, health.clone(), open);
    tasks.spawn("server of health", server.await?);
    let admin = endpoints::admin_server(arguments.admin_listen, log);
    tasks.spawn("server of the log level", admin.await?);

    let config = kube::Config::infer()
        .await
        .context("find the cluster: set KUBECONFIG, or run in a pod with a service account")?;
    let client = client::observed(config.clone(), &metrics, &health)?;
    if let Some(address) = arguments.secure_metrics_listen {
        let (gate, folder) = (Gate::new(client.clone()), arguments.metrics_certificate.clone());
        let server = endpoints::secure_server(address, counted, gate, folder);
        tasks.spawn("server of metrics", server.await?);
    }
    let receiver = Receiver::new(client.clone());
    if let Some(address) = arguments.progress_listen {
        let server = endpoints::progress_server(address, receiver.clone());
        tasks.spawn("server of progress", server.await?);
    }
    let lease_client = Client::try_from(config).context("make the lease's client")?;
    let identity = identity(&arguments);
    let replica = Replica {
        arguments,
        client,
        metrics,
        traces,
        cloud_events,
        health,
        queue,
        receiver,
        identity,
    };
    let stop = asked_to_stop()?;
    match replica.arguments.no_leader_election {
        true => replica.lead(Arc::new(Fence::open()), None, tasks, stop).await,
        false => replica.stand_by(lease_client, tasks, stop).await,
    }
}

/// Completes when the process is told to end.
fn asked_to_stop() -> anyhow::Result<BoxFuture<'static, ()>> {
    let mut stop = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    Ok(Box::pin(async move {
        tokio::select! { _ = stop.recv() => {}, _ = interrupt.recv() => {} }
    }))
}

/// This replica's name: the pod's, or the machine's and the process's.
fn identity(arguments: &Arguments) -> String {
    arguments.identity.clone().unwrap_or_else(|| {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let machine = machine.unwrap_or_default();
        format!("{}-{}", machine.trim(), std::process::id())
    })
}

/// One replica of the operator.
struct Replica {
    arguments: Arguments,
    client: Client,
    metrics: Metrics,
    traces: Traces,
    cloud_events: CloudEvents,
    health: Health,
    queue: Arc<WorkQueue>,
    receiver: Receiver,
    identity: String,
}

/// Why a leader stops.
enum End {
    Asked,
    LeaseLost,
    Task(TaskEnded),
}

impl Replica {
    async fn stand_by(
        self,
        lease_client: Client,
        mut tasks: Supervisor,
        mut stop: BoxFuture<'static, ()>,
    ) -> anyhow::Result<()> {
        let fence = Arc::new(Fence::closed());
        let namespace = &self.arguments.namespace;
        let (mut election, watch) =
            Election::new(lease_client, namespace, &self.identity, Arc::clone(&fence)).await?;
        tasks.spawn("watch of the lease", watch);
        self.health.enter(Stage::StandingBy);
        self.metrics.leads(false);
        tracing::info!(identity = self.identity, "standing by");
        tokio::select! {
            won = election.won() => won?,
            ended = tasks.ended() => return Err(ended.into()),
            () = &mut stop => return Ok(()),
        }
        tracing::info!(identity = self.identity, "leading");
        self.lead(fence, Some(election), tasks, stop).await
    }

    async fn lead(
        self,
        fence: Arc<Fence>,
        election: Option<Election>,
        mut tasks: Supervisor,
        mut stop: BoxFuture<'static, ()>,
    ) -> anyhow::Result<()> {
        self.metrics.leads(true);
        self.health.enter(Stage::Syncing);
        let mut workers = self.start(&fence, &mut tasks);
        let lost = async {
            match &election {
                Some(election) => election.lost().await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            () = &mut stop => End::Asked,
            () = lost => End::LeaseLost,
            ended = tasks.ended() => End::Task(ended),
            ended = workers.ended() => End::Task(ended),
        };
        match end {
            End::LeaseLost => {
                fence.close();
                bail!("another replica holds the lease: starting over");
            }
            End::Task(ended) => {
                // Nothing more is written, and another replica need not wait for the lease to run out.
                fence.close();
                if let Some(election) = &election {
                    election.release().await;
                }
                Err(ended.into())
            }
            End::Asked => {
                self.queue.close();
                let drained = tokio::time::timeout(DRAIN, workers.drained()).await;
                tracing::info!(drained = drained.is_ok(), "stopped");
                if let Some(election) = &election {
                    election.release().await;
                }
                self.traces.finish().await;
                Ok(())
            }
        }
    }

    /// Starts watches, and workers that begin once all caches are complete.
    fn start(&self, fence: &Arc<Fence>, tasks: &mut Supervisor) -> Supervisor {
        let stores = Stores::default();
        let scope = Scope {
            namespace: self.arguments.watch_namespace.clone(),
            install: self.arguments.namespace.clone(),
            tekton: self.arguments.tekton,
        };
        for (name, watch) in stores.watches(&self.client, &scope, &self.queue) {
            tasks.spawn(name, watch);
        }
        self.receiver.lead(Leading {
            posts: Arc::clone(&stores.posts),
            jobs: Arc::clone(&stores.jobs),
            queue: Arc::clone(&self.queue),
            fence: Arc::clone(fence),
        });
        let (events, publish) = Events::new(self.client.clone(), &self.identity);
        tasks.spawn("publisher of events", publish);
        let context = Arc::new(Context {
            client: self.client.clone(),
            config: self.arguments.config(),
            broker: Arc::clone(&stores.broker),
            stores,
            pool_statuses: Written::default(),
            queue: Arc::clone(&self.queue),
            metrics: self.metrics.clone(),
            traces: self.traces.clone(),
            cloud_events: self.cloud_events.clone(),
            fence: Arc::clone(fence),
            events,
        });
        let replay =
            self.cloud_events.clone().replay(context.stores.clone(), jiff::Timestamp::now());
        tasks.spawn("replay of CloudEvents", replay);
        tasks.spawn("full resync", controllers::resync(Arc::clone(&context)));
        tasks.spawn("gauges", gauges::count(Arc::clone(&context)));
        let shared = Arc::new(Workers {
            queue: Arc::clone(&self.queue),
            fence: Arc::clone(fence),
            metrics: self.metrics.clone(),
            controllers: controllers::all(&context),
        });
        let concurrency = self.arguments.concurrency.max(1);
        for controller in &shared.controllers {
            self.metrics.controller(controller.name, concurrency);
        }
        let mut workers = Supervisor::default();
        for number in 0..concurrency {
            let (shared, context) = (Arc::clone(&shared), Arc::clone(&context));
            let health = self.health.clone();
            workers.spawn(&format!("worker {number}"), async move {
                context.stores.synced().await;
                health.enter(Stage::Leading);
                shared.run().await;
            });
        }
        workers
    }
}
