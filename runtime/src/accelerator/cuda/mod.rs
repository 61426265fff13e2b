//! NVIDIA's devices by the CUDA driver API 11.1, and graphs by that of 11.4: its library, devices, and what is asked of one.
//! Declarations follow the reference manual of that API.

pub(crate) mod api;
pub(crate) mod device;
pub(crate) mod find;
mod graphs;
