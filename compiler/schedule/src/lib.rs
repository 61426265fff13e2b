//! schedule: see ARCHITECTURE.md.
