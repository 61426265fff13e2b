//! NVIDIA's devices by the CUDA driver API 11.1: its library, devices, and what is asked of one. Declarations follow
//! the reference manual of that API.

pub(crate) mod api;
pub(crate) mod device;
pub(crate) mod find;
mod graphs;
