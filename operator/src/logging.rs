//! Logs: one JSON object a line, with a filter that can be changed while running.

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Changes the filter.
pub type Handle = reload::Handle<EnvFilter, Registry>;

/// Starts logging under `filter`.
///
/// # Errors
/// When `filter` is none, or logging has been started already.
pub fn start(filter: &str) -> anyhow::Result<Handle> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("'{filter}' is no log filter: write such as info"))?;
    let (layer, handle) = reload::Layer::new(filter);
    tracing_subscriber::registry()
        .with(layer)
        .with(fmt::layer().json().flatten_event(true))
        .try_init()
        .context("start logging")?;
    Ok(handle)
}
