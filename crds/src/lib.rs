//! crds: see ARCHITECTURE.md.
