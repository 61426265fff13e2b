//! The stages of a worker as spans below its Job's, where the operator names a collector.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hone_artifact::exit_code::Reason;
use hone_telemetry::{
    ENDPOINT_VARIABLE, PARENT_VARIABLE, Span, TRACES_ENDPOINT_VARIABLE, TraceContext, Tracer,
};

/// The spans of one worker. A stage is over, and sent, when the next begins.
#[derive(Debug)]
pub struct Stages {
    tracer: Tracer,
    /// The span of the Job.
    parent: TraceContext,
    /// The span of the worker.
    worker: TraceContext,
    begin: SystemTime,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    current: Option<(&'static str, SystemTime)>,
    attributes: Vec<(&'static str, String)>,
    over: bool,
}

impl Stages {
    /// As the environment says; none where it names no collector or no parent. What is wrong with either is said on
    /// standard error and keeps nobody from working.
    pub fn from_environment() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let collector = variable(ENDPOINT_VARIABLE);
        let traces = variable(TRACES_ENDPOINT_VARIABLE);
        let endpoint = hone_telemetry::endpoint(collector.as_deref(), traces.as_deref())?;
        let parent = match variable(PARENT_VARIABLE)?.parse() {
            Ok(parent) => parent,
            Err(error) => {
                eprintln!("warning: no traces: {PARENT_VARIABLE}: {error}");
                return None;
            }
        };
        match Tracer::new(&endpoint, "hone-worker", |what| eprintln!("warning: {what}")) {
            Ok(tracer) => Some(Self::new(tracer, parent)),
            Err(error) => {
                eprintln!("warning: {error}");
                None
            }
        }
    }

    fn new(tracer: Tracer, parent: TraceContext) -> Self {
        let begin = SystemTime::now();
        // A Job's pods are told apart by when they began.
        let since = begin.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let worker = parent.child(&format!("worker {}", since.as_nanos()));
        Self { tracer, parent, worker, begin, state: Mutex::default() }
    }

    /// What the worker works on.
    pub fn describe(&self, attributes: Vec<(&'static str, String)>) {
        self.state().attributes = attributes;
    }

    /// A stage begins, and the one before it is over.
    pub fn begin(&self, stage: &'static str) {
        let now = SystemTime::now();
        let mut state = self.state();
        if !state.over {
            self.end_current(&mut state, now, None);
            state.current = Some((stage, now));
        }
    }

    /// The worker is over, for `failure` where it failed: sends what is left. Only the first call counts.
    pub fn finish(&self, failure: Option<Reason>) {
        let now = SystemTime::now();
        let error = failure.map(|reason| reason.to_string());
        let mut state = self.state();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        self.end_current(&mut state, now, error.clone());
        let mut attributes = std::mem::take(&mut state.attributes);
        attributes.push(("hone.version", env!("CARGO_PKG_VERSION").to_owned()));
        self.tracer.send(Span {
            context: self.worker,
            parent: Some(self.parent),
            name: "worker".to_owned(),
            start: self.begin,
            end: now,
            attributes,
            error,
        });
        drop(state);
        self.tracer.finish();
    }

    fn end_current(&self, state: &mut State, end: SystemTime, error: Option<String>) {
        let Some((stage, start)) = state.current.take() else { return };
        state.count += 1;
        self.tracer.send(Span {
            context: self.worker.child(&format!("{stage} {}", state.count)),
            parent: Some(self.worker),
            name: stage.to_owned(),
            start,
            end,
            attributes: Vec::new(),
            error,
        });
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
