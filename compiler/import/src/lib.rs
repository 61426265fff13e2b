//! import: see ARCHITECTURE.md.
