//! Sends spans that are over, from a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter, SpanLinks,
    SpanProcessor,
};

use crate::TraceContext;

/// Longest time that one batch may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time in which spans are gathered.
const DELAY: Duration = Duration::from_secs(1);
/// Longest time that the end of a process waits for a collector that took the batch before.
const LAST_BATCH: Duration = Duration::from_secs(2);
/// Longest time that it waits for any other.
const LAST_TRY: Duration = Duration::from_millis(300);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be sent to '{endpoint}': name an address such as http://collector:4318")]
pub struct TracerError {
    endpoint: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its place.
    pub context: TraceContext,
    /// What it is part of; `None` for the first of a trace.
    pub parent: Option<TraceContext>,
    /// What was done, of few different words.
    pub name: String,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What it was done to.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Span {
    fn into_data(self) -> SpanData {
        let Self { context, parent, name, start, end, attributes, error } = self;
        let attributes = attributes.into_iter().map(|(key, value)| KeyValue::new(key, value));
        SpanData {
            span_context: context.to_span_context(),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| parent.span_id()),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: start,
            end_time: end.max(start),
            attributes: attributes.collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: error.map_or(Status::Ok, Status::error),
            instrumentation_scope: InstrumentationScope::builder("hone")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

/// A way to a collector. Spans wait in a bounded queue, and are dropped where it is full.
#[derive(Debug)]
pub struct Tracer {
    processor: BatchSpanProcessor,
    answers: Arc<AtomicU8>,
    tell: fn(&str),
}

impl Tracer {
    /// To `endpoint`, such as `http://collector:4318/v1/traces`, as the service `service`; `tell` gets a sentence whenever
    /// the collector stops taking spans, and when it takes them again. Further settings, such as
    /// `OTEL_EXPORTER_OTLP_HEADERS`, are read from the environment.
    ///
    /// # Errors
    /// [`TracerError`] where the endpoint is no address. Whether anybody listens there makes no difference.
    pub fn new(endpoint: &str, service: &'static str, tell: fn(&str)) -> Result<Self, TracerError> {
        let wrong = |source| TracerError { endpoint: endpoint.to_owned(), source };
        let exporter = exporter(endpoint).map_err(wrong)?;
        let answers = Arc::new(AtomicU8::new(UNKNOWN));
        let exporter = Noting { exporter, answers: Arc::clone(&answers), tell };
        let config = BatchConfigBuilder::default().with_scheduled_delay(DELAY).build();
        let mut processor = BatchSpanProcessor::new(exporter, config);
        processor.set_resource(&Resource::builder().with_service_name(service).build());
        Ok(Self { processor, answers, tell })
    }

    /// Sends a span, soon and from another thread.
    pub fn send(&self, span: Span) {
        self.processor.on_end(span.into_data());
    }

    /// Sends what is left, before the process ends. Takes two seconds at the most, and less than half a second where no
    /// collector answered before.
    pub fn finish(&self) {
        let wait = match self.answers.load(Ordering::Relaxed) {
            TAKES => LAST_BATCH,
            _ => LAST_TRY,
        };
        let done = self.processor.shutdown_with_timeout(wait);
        if done.is_err() && self.answers.load(Ordering::Relaxed) != FAILS {
            (self.tell)(&format!(
                "the last traces are lost: no collector took them within {wait:?}"
            ));
        }
    }
}

type Source = Box<dyn std::error::Error + Send + Sync>;

fn exporter(endpoint: &str) -> Result<opentelemetry_otlp::SpanExporter, Source> {
    // The library takes whichever provider the program installed; a second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It may be called where tasks run, and a client that blocks must not be made there.
    let client = std::thread::spawn(|| {
        reqwest::blocking::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(TIMEOUT)
            .timeout(TIMEOUT)
            .build()
    });
    let client = client.join().map_err(|_| "the client cannot be made")??;
    Ok(opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(client)
        .with_endpoint(endpoint)
        .with_timeout(TIMEOUT)
        .build()?)
}

/// Nothing was sent yet.
const UNKNOWN: u8 = 0;
/// The collector took the last batch.
const TAKES: u8 = 1;
/// It did not.
const FAILS: u8 = 2;

/// An exporter that notes whether the collector takes spans.
#[derive(Debug)]
struct Noting {
    exporter: opentelemetry_otlp::SpanExporter,
    answers: Arc<AtomicU8>,
    tell: fn(&str),
}

impl SpanExporter for Noting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let done = self.exporter.export(batch).await;
        let now = if done.is_ok() { TAKES } else { FAILS };
        match (self.answers.swap(now, Ordering::Relaxed), &done) {
            (UNKNOWN | TAKES, Err(error)) => {
                (self.tell)(&format!("traces are lost until the collector takes them: {error}"));
            }
            (FAILS, Ok(())) => (self.tell)("the collector takes traces again"),
            _ => {}
        }
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
