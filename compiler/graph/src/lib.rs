//! graph: see ARCHITECTURE.md.
