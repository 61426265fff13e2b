//! types: see ARCHITECTURE.md.
