//! Metrics for those alone who may read them: over TLS, to whom the API server knows and lets.

pub mod access;
pub mod tls;
