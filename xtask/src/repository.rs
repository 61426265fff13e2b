//! Where things are in this repository.

use std::path::{Path, PathBuf};

/// The repository's root folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The git-ignored folder for everything that chores make and may throw away.
pub fn scratch() -> PathBuf {
    root().join(".hone")
}
