//! What a worker is asked to do, from the spec.

use hone_artifact::request::{
    Destination, External, MeasureRequest, Request, SESSION_VERSION, Session, Source, StopRequest,
    Subject, TargetRequest, Tune, Work,
};
use hone_crds::TuningRun;
use hone_crds::common::{LocalSecretRef, Log};
use hone_crds::tuning_run::{CostModel, Measure, Stop, Strategy};

use super::warm_start;
use crate::broker::pools::PoolView;
use crate::children::inputs::input;
use crate::children::jobs::Purpose;
use crate::children::manifest::CREDENTIALS;

/// The folder of the credentials of a pool's sessions.
const SESSIONS: &str = "sessions";

/// The Secrets that a worker needs for its purpose: the folder's name and the Secret's. A session reads no model.
pub fn secrets<'a>(
    object: &'a TuningRun,
    pool: Option<&'a PoolView>,
    purpose: Purpose,
) -> Vec<(&'static str, &'a str)> {
    let spec = &object.spec;
    let sessions = pool.and_then(|pool| pool.spec.sessions.as_ref());
    let all = [
        ("model", spec.model.credentials_secret_ref.as_ref()),
        ("log", spec.log.credentials_secret_ref.as_ref()),
        (SESSIONS, sessions.and_then(|sessions| sessions.credentials_secret_ref.as_ref())),
    ];
    let given = all.into_iter().filter(|(use_, _)| purpose == Purpose::Tune || *use_ == "log");
    given.filter_map(|(use_, secret)| secret.map(|secret| (use_, secret.name.as_str()))).collect()
}

fn folder(use_: &str, secret: Option<&LocalSecretRef>) -> Option<String> {
    secret.map(|_| format!("{CREDENTIALS}/{use_}"))
}

/// The request to go on with the run in `pool`, and to learn from the logs of others.
pub fn tune(object: &TuningRun, pool: &PoolView, others: &[Log]) -> Request {
    let spec = &object.spec;
    let inputs = spec.inputs.iter().flatten().map(input);
    let tune = Tune {
        model: Source {
            uri: spec.model.uri.clone(),
            digest: spec.model.digest.clone(),
            credentials: folder("model", spec.model.credentials_secret_ref.as_ref()),
        },
        inputs: inputs.collect(),
        target: target(object, pool),
        log: log(object),
        external: external(object, pool),
        strategy: strategy(spec.search.strategy).to_owned(),
        cost_model: cost_model(spec.search.cost_model),
        seed: u64::try_from(spec.search.seed).unwrap_or(0),
        measure: measure(&spec.measure),
        stop: stop(&spec.stop),
        sessions: spec.parallel_devices > 1 && pool.spec.sessions.is_none(),
        warm_start: warm_start::destinations(others),
    };
    Request {
        version: tune.version_needed(),
        subject: subject(object),
        work: Work::Tune(Box::new(tune)),
    }
}

/// The request to measure for the run in `pool`, as the session that a Job is named after.
pub fn session(object: &TuningRun, pool: &PoolView, name: &str, idle_seconds: u64) -> Request {
    let (target, log) = (target(object, pool), log(object));
    let session = Session { name: name.to_owned(), target, log, idle_seconds };
    let (version, work) = (SESSION_VERSION, Work::Session(session));
    Request { version, subject: subject(object), work }
}

fn subject(object: &TuningRun) -> Subject {
    let metadata = &object.metadata;
    Subject {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

fn target(object: &TuningRun, pool: &PoolView) -> TargetRequest {
    let target = &object.spec.target;
    TargetRequest {
        name: object.metadata.name.clone().unwrap_or_default(),
        os: target.os.clone(),
        arch: target.arch.clone(),
        cpu: target.cpu.clone(),
        features: target.features.clone().unwrap_or_default(),
        accelerator: None,
        pool: Some(pool.name.clone()),
        noise_budget: pool.spec.noise_budget.as_ref().map(hone_crds::Decimal::value),
    }
}

/// Where the run meets the sessions of a pool whose devices are outside of the cluster.
fn external(object: &TuningRun, pool: &PoolView) -> Option<External> {
    let sessions = pool.spec.sessions.as_ref()?;
    let credentials = folder(SESSIONS, sessions.credentials_secret_ref.as_ref());
    Some(External {
        store: Destination { uri: sessions.uri.clone(), credentials },
        pool: pool.name.clone(),
        wait_seconds: object.spec.limits.pending_deadline.as_secs_ceil(),
    })
}

fn log(object: &TuningRun) -> Destination {
    let log = &object.spec.log;
    let credentials = folder("log", log.credentials_secret_ref.as_ref());
    Destination { uri: log.uri.clone(), credentials }
}

/// The strategy as `hone tune` names it.
fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Evolutionary => "learned",
        Strategy::Random => "random",
        Strategy::Exhaustive => "grid",
    }
}

/// The cost model as `hone tune` names it, where it is not the usual one: older workers know no other.
fn cost_model(model: CostModel) -> Option<String> {
    (!model.is_default()).then(|| model.name().to_owned())
}

fn measure(measure: &Measure) -> MeasureRequest {
    MeasureRequest {
        seconds: f64::from(measure.repeat) * measure.min_repeat.to_std().as_secs_f64(),
        timeout_seconds: measure.timeout.to_std().as_secs_f64(),
        max_noise: measure.max_noise.as_ref().map(hone_crds::Decimal::value),
    }
}

fn stop(stop: &Stop) -> StopRequest {
    let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let nanoseconds =
        |goal: hone_crds::Duration| u64::try_from(goal.to_std().as_nanos()).unwrap_or(u64::MAX);
    StopRequest {
        max_trials: number(stop.max_trials),
        max_seconds: stop.max_duration.map(hone_crds::Duration::as_secs_ceil),
        no_improvement_trials: number(stop.no_improvement_trials),
        goal_nanoseconds: stop.goal.map(nanoseconds),
    }
}
