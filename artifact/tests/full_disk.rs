//! A full disk: one clear error, nothing left behind, the former file untouched.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;

use hone_artifact::{WriteError, write_atomically};

/// Set in the limited process to the folder it shall write to.
const FOLDER: &str = "HONE_TEST_FULL_DISK";

/// A limit on the size of files stands for the full disk. It holds for a whole process and cannot be
/// set from safe code, so the shell sets it and this same test runs again under it.
#[test]
fn nothing_is_left_behind() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_where_there_is_no_room(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            r#"trap "" XFSZ; ulimit -f 8; exec "$0" --exact nothing_is_left_behind --nocapture"#,
        ])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(folder.path().join("m.hone")).unwrap(), b"former");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn write_where_there_is_no_room(folder: &Path) {
    let path = folder.join("m.hone");
    std::fs::write(&path, b"former").unwrap();
    let chunk = [1u8; 8192];
    let error = write_atomically(&path, [&chunk[..], &chunk[..]].into_iter()).unwrap_err();
    assert!(matches!(error, WriteError::Full { needed: 16384, .. }), "{error}");
    assert!(error.to_string().contains("no room for 16384 bytes"), "{error}");
}
