//! Spans of compilations: one for the whole, and for each target's Job one for its wait and one for itself, under which
//! the worker puts its stages.
//!
//! Always true: ids follow from the compilation's uid and generation, its mark of a retry and the Job's name, so a replica
//! that takes over, or was restarted, sends what the one before would have. A Job names the span that it is part of in an
//! annotation, so that it stays in its trace when the spec changes around it. Spans are sent when an end was written to
//! the status, once for each such change.

use std::sync::Arc;
use std::time::SystemTime;

use hone_crds::conditions::bounded;
use hone_crds::status::Failure;
use hone_crds::{ModelCompilation, ModelCompilationStatus, TargetStatus};
use hone_telemetry::{Span, TraceContext, Tracer, TracerError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::children::jobs::JobView;
use crate::children::names::RETRY_ANNOTATION;

/// Longest text of an attribute or of a status, in bytes.
const TEXT: usize = 256;

/// Where spans go; nowhere by default.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<Tracer>>);

impl Traces {
    /// To `endpoint`, where there is one.
    ///
    /// # Errors
    /// [`TracerError`] where it is no address.
    pub fn to(endpoint: Option<&str>) -> Result<Self, TracerError> {
        let tell = |what: &str| tracing::warn!("{what}");
        let tracer = endpoint.map(|endpoint| Tracer::new(endpoint, "hone-operator", tell));
        Ok(Self(tracer.transpose()?.map(Arc::new)))
    }

    /// The status of `object` was written as `now`; `jobs` are its Jobs.
    pub fn transition(
        &self,
        object: &ModelCompilation,
        jobs: &[JobView],
        now: &ModelCompilationStatus,
    ) {
        let Some(tracer) = &self.0 else { return };
        let changed = Change { object, jobs, now, end: SystemTime::now() };
        changed.spans().into_iter().for_each(|span| tracer.send(span));
    }

    /// Sends what is left, before the process ends.
    pub async fn finish(&self) {
        let Some(tracer) = self.0.clone() else { return };
        // Where the thread panics, spans are lost and nothing else.
        let _ = tokio::task::spawn_blocking(move || tracer.finish()).await;
    }
}

/// The span of the work on an object's present spec.
pub fn whole(object: &ModelCompilation) -> TraceContext {
    of_generation(object, object.metadata.generation)
}

/// The span of the work on an earlier spec.
fn of_generation(object: &ModelCompilation, generation: Option<i64>) -> TraceContext {
    let retry = object.annotations().get(RETRY_ANNOTATION).map_or("", String::as_str);
    let uid = object.uid().unwrap_or_default();
    TraceContext::root(&format!("{uid}/{}", generation.unwrap_or_default()), retry)
}

/// The span of one of its Jobs, of which `whole` is the parent: what a worker gets as its parent.
pub fn of_job(whole: TraceContext, name: &str) -> TraceContext {
    whole.child(name)
}

/// A status that was written.
struct Change<'a> {
    object: &'a ModelCompilation,
    jobs: &'a [JobView],
    now: &'a ModelCompilationStatus,
    end: SystemTime,
}

impl Change<'_> {
    /// The spans that are over with it.
    fn spans(&self) -> Vec<Span> {
        let before = self.object.status.as_ref();
        let was_over = |target: &TargetStatus| {
            let same =
                |old: &&TargetStatus| old.name == target.name && old.job_ref == target.job_ref;
            let old = before.into_iter().flat_map(|status| &status.targets).find(same);
            old.is_some_and(is_compiled)
        };
        let over = |target: &&TargetStatus| is_compiled(target) && !was_over(target);
        let mut spans: Vec<Span> = self
            .now
            .targets
            .iter()
            .filter(over)
            .flat_map(|target| self.of_target(target))
            .collect();
        let before = before.filter(|before| before.start_time.is_some());
        if let Some(before) = before.filter(|before| !before.phase.has_ended())
            && before.observed_generation != self.now.observed_generation
        {
            let context = of_generation(self.object, before.observed_generation);
            let why = Some("Superseded: the spec changed".to_owned());
            spans.push(self.of_whole(context, before.start_time.as_ref(), why));
        }
        if self.now.phase.has_ended() && before.is_none_or(|before| self.is_new_end(before)) {
            let failure = self.now.failure.as_ref().map(words);
            let created = self.object.metadata.creation_timestamp.as_ref();
            // The first run begins with the object, so that the wait for the operator is seen.
            let first = self.object.metadata.generation.unwrap_or(1) <= 1
                && before.is_none_or(|before| before.completion_time.is_none());
            let start = created.filter(|_| first).or(self.now.start_time.as_ref());
            spans.push(self.of_whole(whole(self.object), start, failure));
        }
        spans
    }

    /// Whether the end is of other work than the one before.
    fn is_new_end(&self, before: &ModelCompilationStatus) -> bool {
        !before.phase.has_ended() || before.start_time != self.now.start_time
    }

    fn of_whole(&self, context: TraceContext, start: Option<&Time>, error: Option<String>) -> Span {
        let object = self.object;
        Span {
            context,
            parent: None,
            name: "ModelCompilation".to_owned(),
            start: time(start).unwrap_or(self.end),
            end: self.end,
            attributes: vec![
                ("k8s.namespace.name", object.namespace().unwrap_or_default()),
                ("hone.compilation", object.name_any()),
                ("hone.compilation.uid", object.uid().unwrap_or_default()),
                ("hone.compilation.phase", format!("{:?}", self.now.phase)),
            ],
            error,
        }
    }

    /// The spans of a target's Job; none where its result was there already.
    fn of_target(&self, target: &TargetStatus) -> Vec<Span> {
        let Some(name) = target.job_ref.as_ref().map(|job| &job.name) else { return Vec::new() };
        let job = self.jobs.iter().find(|job| job.name == *name);
        let parent = job.and_then(|job| job.traceparent.as_deref()?.parse().ok());
        let parent = parent.unwrap_or_else(|| whole(self.object));
        let start = time(self.now.start_time.as_ref()).unwrap_or(self.end);
        let span = |context, what: &str, start, end, error| Span {
            context,
            parent: Some(parent),
            name: what.to_owned(),
            start,
            end,
            attributes: vec![
                ("hone.target", target.name.clone()),
                ("hone.pool", target.pool.clone().unwrap_or_default()),
                ("k8s.job.name", name.clone()),
            ],
            error,
        };
        let made = job.and_then(|job| time(job.created.as_ref()));
        let waited = parent.child(&format!("wait {name}"));
        let mut spans =
            vec![span(waited, "wait for a device", start, made.unwrap_or(self.end), None)];
        if let Some(made) = made {
            let failure = target.failure.as_ref().map(words);
            spans.push(span(of_job(parent, name), "Job", made, self.end, failure));
        }
        spans
    }
}

/// Whether the Job of a target has ended; a search for faster schedules may go on.
fn is_compiled(target: &TargetStatus) -> bool {
    target.phase.has_ended() || target.tuning.is_some()
}

fn words(failure: &Failure) -> String {
    bounded(&format!("{}: {}", failure.reason, failure.message), TEXT).to_owned()
}

fn time(time: Option<&Time>) -> Option<SystemTime> {
    time.map(|time| SystemTime::from(time.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn compilation(generation: i64, status: Option<serde_json::Value>) -> ModelCompilation {
        serde_json::from_value(json!({
            "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
            "metadata": {"name": "digits", "namespace": "team", "uid": "1", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"model": {"uri": "s3://m/x"}, "output": {"uri": "s3://a/x"}, "targets": []},
            "status": status,
        }))
        .unwrap()
    }

    fn status(phase: &str, generation: i64) -> serde_json::Value {
        let failure =
            (phase == "Failed").then(|| json!({"reason": "InvalidModel", "message": "m"}));
        json!({"phase": phase, "observedGeneration": generation, "startTime": "2026-01-01T00:00:02Z",
            "failure": failure, "targets": [
                {"name": "cpu", "phase": phase, "jobRef": {"name": "j"}, "failure": failure}]})
    }

    fn job(object: &ModelCompilation) -> JobView {
        let made = serde_json::from_value(json!("2026-01-01T00:00:05Z")).unwrap();
        let traceparent = Some(whole(object).to_string());
        JobView { name: "j".to_owned(), created: Some(made), traceparent, ..JobView::default() }
    }

    fn spans(object: &ModelCompilation, job: JobView, now: serde_json::Value) -> Vec<Span> {
        let now = serde_json::from_value(now).unwrap();
        Change { object, jobs: &[job], now: &now, end: SystemTime::now() }.spans()
    }

    #[test]
    fn targets_and_the_whole_are_told_once_at_their_end() {
        let object = compilation(1, Some(status("Running", 1)));
        assert!(spans(&object, job(&object), status("Running", 1)).is_empty());
        let told = spans(&object, job(&object), status("Succeeded", 1));
        let names: Vec<&str> = told.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["wait for a device", "Job", "ModelCompilation"]);
        let root = told[2].context;
        assert!(told[..2].iter().all(|span| span.parent == Some(root)));
        assert_eq!((told[2].parent, told[1].context), (None, of_job(root, "j")));
        let since = |span: &Span| span.start.duration_since(told[2].start).unwrap().as_secs();
        assert_eq!((since(&told[0]), since(&told[1])), (2, 5));
        assert_eq!(told[0].end, told[1].start);
        let failed = spans(&object, job(&object), status("Failed", 1));
        assert_eq!(failed[1].error.as_deref(), Some("InvalidModel: m"));
        let done = compilation(1, Some(status("Succeeded", 1)));
        assert!(spans(&done, job(&done), status("Succeeded", 1)).is_empty());
    }

    /// A Job that the change of the spec left alone ends in the trace that its worker was told.
    #[test]
    fn a_job_stays_in_its_trace_and_what_was_superseded_ends() {
        let before = compilation(1, None);
        let object = compilation(2, Some(status("Running", 1)));
        let told = spans(&object, job(&before), status("Succeeded", 2));
        let names: Vec<&str> = told.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["wait for a device", "Job", "ModelCompilation", "ModelCompilation"]);
        assert_eq!(told[1].parent, Some(told[2].context));
        assert_eq!(told[2].context, whole(&before));
        assert!(told[2].error.is_some() && told[3].error.is_none());
        assert_eq!(told[3].context, whole(&object));
    }
}
