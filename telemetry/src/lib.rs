//! Traces of compilations, from the operator through a Job to the stages of its worker, by OTLP over HTTP.
//!
//! Always true: ids are digests of what a span is of, so that processes that never met, and one that was restarted, agree
//! on them without keeping anything. Spans are sent when they are over, with the times at which they began and ended;
//! a layer over `tracing` would instead make ids of its own, and lose what a restart cuts in two.
//! Nothing is sent unless an endpoint is named, and nothing ever waits for a collector or fails for want of one.

mod context;
mod tracer;

pub use context::{ParentError, TraceContext};
pub use tracer::{Span, Tracer, TracerError};

/// The environment variable that names the collector, as OpenTelemetry calls it: `http://host:4318`.
pub const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The environment variable that names where traces go in whole, as OpenTelemetry calls it: `http://host:4318/v1/traces`.
pub const TRACES_ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The environment variable that carries the parent's context into a worker, as OpenTelemetry calls it.
pub const PARENT_VARIABLE: &str = "TRACEPARENT";

/// Where traces go, as both variables say: the one for traces as it stands, else the collector's path for them.
pub fn endpoint(collector: Option<&str>, traces: Option<&str>) -> Option<String> {
    let set = |value: Option<&str>| value.map(str::to_owned).filter(|value| !value.is_empty());
    let path = |collector: String| format!("{}/v1/traces", collector.trim_end_matches('/'));
    set(traces).or_else(|| set(collector).map(path))
}
