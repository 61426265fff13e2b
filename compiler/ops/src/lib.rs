//! ops: see ARCHITECTURE.md.
