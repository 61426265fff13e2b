//! lower: see ARCHITECTURE.md.
