//! A library with the functions of the CUDA driver API that the runtime calls, and no device behind it: kernels run in
//! the interpreter of PTX (`hone-ptx-tests`), from the text that the driver would assemble, on memory of the
//! interpreter. It computes, and knows nothing of models; what it takes for that says nothing of a device.
//!
//! What no device would do (a race, an access out of bounds or misaligned, a barrier that some lanes do not reach) is an
//! error of the context, as a device reports it: later, by every call, until the context is released. The reason goes to
//! standard error. Calls without a current context, with handles that are not there and with bytes that lie in no buffer
//! are refused as the driver does. A stream that is captured runs nothing, and what may not be done meanwhile ends the
//! capture.
//!
//! `HONE_FAKE_CUDA` in the environment says what the device is and how it fails, in words separated by spaces; see
//! [`Settings`]. `HONE_CUDA_LIBRARY` leads the runtime here.

pub mod api;
mod capture;
mod driver;
pub mod graphs;
mod settings;

pub use settings::{Fault, Settings};
