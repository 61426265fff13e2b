//! artifact: see ARCHITECTURE.md.
