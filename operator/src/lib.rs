//! The operator: turns `hone.dev` resources into cluster objects and reports back.
//!
//! Every kind has the same four steps: *observe* reads caches and cluster, *plan* decides from
//! values alone, *apply* does it, *status* writes it. Only observe, apply and status hold a
//! client. Nothing here fetches a URI, parses a model, or reads a Secret: pods do.
//!
//! `runtime` runs the kinds and knows none; `children` is what kinds share about the objects they make, `broker` what
//! they share about devices; a kind never imports another kind. `controllers` and `stores` join them, one line a kind.

pub mod arguments;
pub mod broker;
pub mod children;
pub mod client;
pub mod cloud_events;
pub mod config;
pub mod context;
pub mod controllers;
pub mod custom_run;
pub mod device_pool;
pub mod endpoints;
pub mod fence;
pub mod fingerprints;
pub mod gauges;
pub mod index;
pub mod leader;
pub mod logging;
pub mod metrics;
pub mod model_compilation;
pub mod nodes;
pub mod progress;
pub mod release;
pub mod run;
pub mod runtime;
pub mod secure;
pub mod seen;
pub mod stores;
pub mod traces;
pub mod tuning_run;
