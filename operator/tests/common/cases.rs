//! Cases that are files.

use std::path::{Path, PathBuf};

/// The cases in a folder of `tests`, by name; more than `least`, so that a wrong folder is noticed.
pub fn files(folder: &str, least: usize) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|own| own == "yaml")).collect();
    paths.sort();
    assert!(paths.len() > least, "few cases");
    paths
}
