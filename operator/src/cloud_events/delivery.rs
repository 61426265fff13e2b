//! Delivers events over HTTP, each until it is taken or its tries are used up.

use std::time::Duration;

use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::{Semaphore, mpsc};

use super::Webhook;
use super::event::{self, CloudEvent};
use crate::metrics::Metrics;
use crate::runtime::worker::random;

/// Most requests at a time.
const AT_ONCE: usize = 8;
/// Most events that are tried or wait for another try: those that are not taken keep no others waiting.
const UNDER_WAY: usize = 1024;

/// How often and how long an event is tried.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Most tries.
    pub tries: u32,
    /// The wait after the first; doubled after each.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The longest time of one try.
    pub timeout: Duration,
}

/// Ten tries within about five minutes.
impl Default for Policy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { tries: 10, first: seconds(1), longest: seconds(60), timeout: seconds(10) }
    }
}

/// Why nothing can be delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The endpoint is no address.
    #[error("'{0}' is no webhook: name an address such as https://events.example.com/hone")]
    Endpoint(String),
    /// The authorization is no header.
    #[error("the webhook's authorization is no value of a header")]
    Authorization,
    /// There is no client.
    #[error("no HTTP client can be made")]
    Client(#[from] reqwest::Error),
}

/// What came of one try.
enum Tried {
    Taken,
    /// It will never be taken.
    Refused(StatusCode),
    /// Another try may do, after this time at the earliest.
    Later(String, Option<Duration>),
}

/// The way to a webhook.
pub struct Delivery {
    client: Client,
    endpoint: Url,
    policy: Policy,
    metrics: Metrics,
    requests: Semaphore,
}

impl Delivery {
    /// To `webhook`.
    ///
    /// # Errors
    /// [`DeliveryError`].
    pub fn new(webhook: Webhook, metrics: Metrics) -> Result<Self, DeliveryError> {
        let Webhook { endpoint, authorization, policy, .. } = webhook;
        let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or(DeliveryError::Endpoint(endpoint))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(event::CONTENT_TYPE));
        if let Some(value) = authorization.filter(|value| !value.is_empty()) {
            let value = HeaderValue::from_str(value.trim());
            let mut value = value.map_err(|_| DeliveryError::Authorization)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // The library takes whichever provider the program installed; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(policy.timeout)
            .build()?;
        Ok(Self { client, endpoint: url, policy, metrics, requests: Semaphore::new(AT_ONCE) })
    }

    /// Delivers what comes, for as long as somebody may send.
    pub async fn run(self, events: mpsc::Receiver<CloudEvent>) {
        let events = futures::stream::unfold(events, |mut events| async {
            let event = events.recv().await?;
            Some((event, events))
        });
        events.for_each_concurrent(UNDER_WAY, |event| self.deliver(event)).await;
    }

    async fn deliver(&self, event: CloudEvent) {
        let Ok(body) = serde_json::to_vec(&event) else { return };
        let (id, kind) = (&event.id, &event.kind);
        let mut wait = self.policy.first;
        for number in 1..=self.policy.tries {
            let (why, after) = match self.try_once(body.clone()).await {
                Tried::Taken => return self.metrics.cloud_event("delivered"),
                Tried::Refused(status) => {
                    tracing::warn!(id, kind, %status, "the webhook refuses a CloudEvent");
                    return self.metrics.cloud_event("refused");
                }
                Tried::Later(why, after) => (why, after),
            };
            if number == self.policy.tries {
                tracing::warn!(id, kind, why, "a CloudEvent is lost: the webhook does not take it");
                return self.metrics.cloud_event("dropped");
            }
            let asked = after.unwrap_or_default().min(self.policy.longest);
            tokio::time::sleep(wait.mul_f64(1.0 + random() / 4.0).max(asked)).await;
            wait = (wait * 2).min(self.policy.longest);
        }
    }

    async fn try_once(&self, body: Vec<u8>) -> Tried {
        // It is never closed.
        let _turn = self.requests.acquire().await;
        match self.client.post(self.endpoint.clone()).body(body).send().await {
            Ok(answer) if answer.status().is_success() => Tried::Taken,
            Ok(answer) => {
                let status = answer.status();
                let passes = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
                match passes {
                    true => Tried::Later(format!("status {status}"), retry_after(&answer)),
                    false => Tried::Refused(status),
                }
            }
            // What was sent stands in it, but for the address.
            Err(error) => Tried::Later(error.without_url().to_string(), None),
        }
    }
}

/// What the header `Retry-After` asks for, in seconds.
fn retry_after(answer: &Response) -> Option<Duration> {
    let value = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}
