//! passes: see ARCHITECTURE.md.
