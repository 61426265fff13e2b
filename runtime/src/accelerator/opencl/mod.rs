//! OpenCL 1.2: the loader, devices, and what is asked of one. Declarations follow the Khronos specification.

pub(crate) mod api;
pub(crate) mod device;
pub(crate) mod find;
