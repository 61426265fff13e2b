//! Endpoints for those alone whom the API server knows: metrics over TLS, and the posts of workers.

pub mod access;
pub mod answers;
pub mod tls;
