//! The committed CRDs are what the types say, and small.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

/// `cargo xtask generate` writes these, and so does `HONE_UPDATE_EXPECT=1`.
#[test]
fn committed_crds_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut bytes = 0;
    for (name, text) in hone_crds::generate::crds().unwrap() {
        if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
            std::fs::write(folder.join(name), &text).unwrap();
        }
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == text,
            "crds/{name} is not what the types say: run `cargo xtask generate`"
        );
        bytes += text.len();
    }
    assert!(bytes < 100_000, "the CRDs take {bytes} bytes together");
}
