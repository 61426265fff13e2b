//! tensor: see ARCHITECTURE.md.
