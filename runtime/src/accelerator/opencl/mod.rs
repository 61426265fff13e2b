//! OpenCL 1.2: the loader, devices, and what runs on them. Declarations follow the Khronos specification.

pub(crate) mod api;
pub(crate) mod find;
pub(crate) mod objects;
pub(crate) mod queue;
