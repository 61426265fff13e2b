//! runtime: see ARCHITECTURE.md.
