//! tune: see ARCHITECTURE.md.
