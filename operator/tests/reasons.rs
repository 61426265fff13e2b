//! The page of reasons is what the table says.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use hone_operator::children::reasons;

#[test]
fn the_page_of_reasons_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kubernetes/reasons.md");
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, reasons::page()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == reasons::page(), "{} is not what the table says", path.display());
}
