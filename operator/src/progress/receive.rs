//! The endpoint that pods post to. It is served by every replica, and the one that leads takes what comes; the others
//! answer that they do not lead, and the pod tries again.
//!
//! A post comes without TLS: its token has an audience of its own and no rights in the cluster, and whoever could read it
//! on the way could say how far that one search is, and no more.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hone_artifact::progress::{LARGEST, PATH, Progress};
use kube::Client;

use super::caller::{Caller, Callers};
use super::{Posts, Taken};
use crate::children::jobs::{JobFacts, Purpose};
use crate::children::owner;
use crate::fence::Fence;
use crate::runtime::cache::Cache;
use crate::runtime::queue::{Key, Priority, WorkQueue};
use crate::secure::answers;
use crate::{device_pool, tuning_run};

/// What the leader takes posts with.
pub struct Leading {
    /// The posts.
    pub posts: Arc<Posts>,
    /// Our Jobs.
    pub jobs: Arc<Cache<JobFacts>>,
    /// Where runs are queued.
    pub queue: Arc<WorkQueue>,
    /// Whether this replica still leads.
    pub fence: Arc<Fence>,
}

/// Takes posts once its replica leads.
#[derive(Clone)]
pub struct Receiver {
    callers: Arc<Callers>,
    leading: Arc<OnceLock<Leading>>,
}

impl Receiver {
    /// Asks by `client` who posts.
    pub fn new(client: Client) -> Self {
        Self { callers: Arc::new(Callers::new(client)), leading: Arc::default() }
    }

    /// This replica leads from now on.
    pub fn lead(&self, leading: Leading) {
        // A replica leads once, and then ends.
        drop(self.leading.set(leading));
    }

    async fn take(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), StatusCode> {
        let leading = self.leading.get().filter(|leading| leading.fence.leads());
        let leading = leading.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let token = answers::bearer(headers).ok_or(StatusCode::UNAUTHORIZED)?;
        let caller = self.callers.of(token).await?;
        let (namespace, job_uid, owner_uid) = match &caller {
            Caller::Pod { namespace, job_uid, owner_uid } => (namespace, job_uid, owner_uid),
            Caller::Unknown => return Err(StatusCode::UNAUTHORIZED),
            Caller::Other => return Err(StatusCode::FORBIDDEN),
        };
        let jobs = leading.jobs.group(&owner::group(namespace, owner_uid));
        let job = jobs.iter().find(|job| job.uid == *job_uid && searches(job));
        let job = job.ok_or(StatusCode::FORBIDDEN)?;
        let progress = Progress::from_post(body).ok_or(StatusCode::BAD_REQUEST)?;
        leading.take(job, progress)
    }
}

/// Whether a Job searches.
fn searches(job: &JobFacts) -> bool {
    job.view.purpose == Purpose::Tune && job.is_under_way()
}

impl Leading {
    fn take(&self, job: &JobFacts, progress: Progress) -> Result<(), StatusCode> {
        let key = Key {
            kind: tuning_run::CONTROLLER,
            namespace: job.namespace.clone(),
            name: job.owner.clone(),
        };
        // The status of a pool names the sessions that its searches see.
        let pool = job.view.pool.clone().filter(|_| progress.sessions.is_some());
        let pool =
            pool.map(|name| Key { kind: device_pool::CONTROLLER, namespace: String::new(), name });
        let delay = match self.posts.take(&job.uid, progress) {
            Taken::TooSoon => return Err(StatusCode::TOO_MANY_REQUESTS),
            Taken::Kept => return Ok(()),
            Taken::Look(delay) => delay,
        };
        for key in std::iter::once(key).chain(pool) {
            match delay {
                Duration::ZERO => self.queue.add(key, Priority::Change),
                delay => self.queue.add_after(key, delay),
            }
        }
        Ok(())
    }
}

/// Serves [`PATH`].
pub fn router(receiver: Receiver) -> Router {
    let taken = |State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes| async move {
        answer(receiver.take(&headers, &body).await)
    };
    let router = Router::new().route(PATH, post(taken));
    router.layer(DefaultBodyLimit::max(LARGEST)).with_state(receiver)
}

fn answer(taken: Result<(), StatusCode>) -> Response {
    match taken {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(status) => answers::refuse(status),
    }
}
