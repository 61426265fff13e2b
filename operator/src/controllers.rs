//! The list of controllers: one line a kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Resource;

use crate::context::Context;
use crate::runtime::cache::{Cache, Object};
use crate::runtime::queue::{Key, Priority};
use crate::runtime::worker::{Controller, Outcome, ReconcileFailure};
use crate::stores::Stores;
use crate::{custom_run, device_pool, model_compilation, tuning_run};

/// Time between two looks at everything, in case that a change was missed.
const FULL_RESYNC: Duration = Duration::from_secs(600);

/// Every controller.
pub fn all(context: &Arc<Context>) -> Vec<Controller> {
    let Stores { compilations, pools, tuning_runs, custom_runs, .. } = &context.stores;
    vec![
        controller(
            model_compilation::CONTROLLER,
            context,
            compilations,
            model_compilation::reconcile::reconcile,
        ),
        controller(device_pool::CONTROLLER, context, pools, device_pool::reconcile),
        controller(tuning_run::CONTROLLER, context, tuning_runs, tuning_run::reconcile::reconcile),
        controller(custom_run::CONTROLLER, context, custom_runs, custom_run::reconcile::reconcile),
    ]
}

/// A controller that looks its object up in `cache` when its turn comes.
fn controller<K, F, E>(
    name: &'static str,
    context: &Arc<Context>,
    cache: &Arc<Cache<Object<K>>>,
    reconcile: fn(Arc<K>, Arc<Context>) -> F,
) -> Controller
where
    K: Resource + Send + Sync + 'static,
    F: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: ReconcileFailure,
{
    let (context, cache) = (Arc::clone(context), Arc::clone(cache));
    let reconcile = move |key: Key| {
        let (context, cache) = (Arc::clone(&context), Arc::clone(&cache));
        async move {
            let Some(object) = cache.get(&key.namespace, &key.name) else { return Outcome::Gone };
            match reconcile(object, context).await {
                Ok(delay) => Outcome::Done(delay),
                Err(error) => Outcome::Failed(error.class(), Box::new(error)),
            }
        }
        .boxed()
    };
    Controller { name, reconcile: Box::new(reconcile) }
}

/// Queues every object from time to time, after everything that changed.
pub async fn resync(context: Arc<Context>) {
    loop {
        tokio::time::sleep(FULL_RESYNC).await;
        queue_all(&context);
    }
}

fn queue_all(context: &Context) {
    let Stores { compilations, pools, tuning_runs, custom_runs, .. } = &context.stores;
    let keys = [
        keys(model_compilation::CONTROLLER, compilations),
        keys(device_pool::CONTROLLER, pools),
        keys(tuning_run::CONTROLLER, tuning_runs),
        keys(custom_run::CONTROLLER, custom_runs),
    ];
    keys.into_iter().flatten().for_each(|key| context.queue.add(key, Priority::Resync));
}

fn keys<K: Resource>(controller: &'static str, cache: &Cache<Object<K>>) -> Vec<Key> {
    cache.pick(|object| Some(Key::of(controller, &*object.0)))
}
