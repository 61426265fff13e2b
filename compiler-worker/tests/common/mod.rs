//! What the tests of the program share: a folder to run it in, and models written by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod board;
pub mod npz;
pub mod onnx;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with a cache of its own.
pub struct Place {
    folder: TempDir,
}

/// How a run of the program ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// `hone` in this folder.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hone"));
        command.arg0("hone").current_dir(self.folder.path()).env("HONE_CACHE", self.path(".cache"));
        for name in ["HONE_REQUEST", "HONE_FETCH_ALLOW", "HONE_SCRATCH", "HONE_FILE_ROOT"] {
            command.env_remove(name);
        }
        command
    }

    pub fn hone(&self, arguments: &[&str]) -> Ended {
        self.ended(self.command().args(arguments).output().unwrap())
    }

    /// Output with this folder's name taken out.
    pub fn ended(&self, output: Output) -> Ended {
        let real = self.folder.path().canonicalize().unwrap();
        let plain = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(real.to_str().unwrap(), "[DIR]")
                .replace(self.folder.path().to_str().unwrap(), "[DIR]")
        };
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: plain(output.stdout),
            err: plain(output.stderr),
        }
    }

    /// The one file in `folder` with this extension.
    pub fn only(&self, folder: &str, extension: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.path(folder)).unwrap().flatten();
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|own| own == extension))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// Names in a folder; none where it is not there.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
