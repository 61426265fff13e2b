//! The committed CRDs and the reference of the API are what the types say, and the CRDs are small.
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

#[test]
fn committed_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/kubernetes/reference.md");
    let page = hone_crds::reference::page();
    if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/kubernetes/reference.md is old: run `cargo xtask generate`");
    for field in ["spec.targets", "status.targets[].reportUri", "status.summary.latency"] {
        let field = field.split_once('.').map(|(_, rest)| rest).unwrap();
        assert!(page.contains(&format!("`{field}`")), "{field}");
    }
}
