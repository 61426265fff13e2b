//! driver: see ARCHITECTURE.md.
