//! The operator: turns `hone.dev` resources into cluster objects and reports back.
//!
//! Every kind has the same four steps: *observe* reads caches and cluster, *plan* decides from
//! values alone, *apply* does it, *status* says it. Only observe, apply and status hold a
//! client. Nothing here fetches a URI, parses a model, or reads a Secret: pods do.

pub mod arguments;
pub mod client;
pub mod config;
pub mod context;
pub mod controllers;
pub mod device_pool;
pub mod endpoints;
pub mod events;
pub mod facts;
pub mod fence;
pub mod index;
pub mod leader;
pub mod logging;
pub mod metrics;
pub mod model_compilation;
pub mod queue;
pub mod run;
pub mod running;
pub mod seen;
pub mod stores;
pub mod tuning_run;
pub mod waiting;
pub mod watched;
