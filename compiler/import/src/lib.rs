//! import: see ARCHITECTURE.md.

pub mod onnx;
