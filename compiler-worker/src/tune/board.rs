//! Another machine that candidates run on, with nothing of the compiler and no library on it: the runner of
//! [`hone_emulator`], a program of a few kilobytes, holds memory, calls kernels and times them by its own clock. Code is made here.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

use hone_artifact::Target as TargetOf;
use hone_artifact::exit_code::Reason;
use hone_driver::Target;
use hone_emulator::Emulator;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// A machine, and what reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// What kind of machine it is: times on machines of one kind compare.
    pub kind: String,
    /// A program and its arguments, whose standard input and output are the runner's.
    pub command: Vec<String>,
}

impl Board {
    /// What starts a runner there. Nothing is started yet.
    ///
    /// # Errors
    /// An architecture that has no runner; no linker for it.
    pub fn reached(&self, target: &Target) -> Result<Emulator> {
        let target = TargetOf {
            triple: target.triple.clone(),
            cpu: target.cpu.clone(),
            features: Vec::new(),
            accelerator: None,
        };
        Ok(Emulator::behind(&self.command, &target)?)
    }

    /// Claims what reaches the board for this process: two that measure there at once would time one another, and a line that
    /// serves one connection alone would mix them up. Other machines that reach the same board are not kept away.
    ///
    /// # Errors
    /// `InvalidInput` where another process has claimed the same command; a file that cannot be made.
    pub fn claim(&self) -> Result<Claim> {
        let digest = blake3::hash(self.command.join(" ").as_bytes()).to_hex();
        let path = std::env::temp_dir().join(format!("hone-board-{}.lock", &digest[..16]));
        Claim::new(&path).map_err(|error| match error {
            ClaimError::Taken(holder) => {
                let message = format!(
                    "board '{}' is in use: process {holder} of this machine measures by '{}': end it, or name what reaches another board",
                    self.kind,
                    self.command.join(" ")
                );
                Failure::new(Reason::InvalidInput, message)
            }
            ClaimError::File(error) => {
                Failure::io(format!("'{}' cannot be locked", path.display()), error)
            }
        })
    }
}

/// A board that this process alone uses, for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

enum ClaimError {
    /// The process that has it.
    Taken(String),
    File(std::io::Error),
}

impl From<std::io::Error> for ClaimError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

impl Claim {
    /// The lock ends with the process, however it ends; the file stays.
    fn new(path: &Path) -> std::result::Result<Self, ClaimError> {
        // One that somebody else made can be locked, but not made again or written. A link is not followed: everybody may
        // put one there.
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW);
        let mut file = match options.write(true).create(true).truncate(false).open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                options.write(false).create(false).open(path)?
            }
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who it is only helps to find it.
                let _ = file.read_to_string(&mut holder);
                let known = holder.trim().parse::<u32>().is_ok();
                let holder = if known { holder.trim() } else { "(unknown)" };
                return Err(ClaimError::Taken(holder.to_owned()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        // As above; a file of somebody else keeps what it says.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _locked: file })
    }
}

impl FromStr for Board {
    type Err = String;

    /// `KIND=COMMAND`, the command's words separated by spaces.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || "give KIND=COMMAND, such as 'pi4=ssh pi4 ./runner'".to_owned();
        let (kind, command) = text.split_once('=').ok_or_else(wrong)?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        match super::fleet::is_name(kind) && !command.is_empty() {
            true => Ok(Self { kind: kind.to_owned(), command }),
            false => Err(format!("{}; a kind has lower-case letters, digits and hyphens", wrong())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_board_has_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("line.lock");
        let claim = Claim::new(&path).ok().unwrap();
        let Err(ClaimError::Taken(holder)) = Claim::new(&path) else { panic!("it has two") };
        assert_eq!(holder, std::process::id().to_string());
        drop(claim);
        assert!(Claim::new(&path).is_ok(), "a file that is left keeps nobody out");
    }

    #[test]
    fn a_board_is_a_kind_and_a_command() {
        let board: Board = "pi4=ssh pi4  A=b ./runner".parse().unwrap();
        assert_eq!((board.kind.as_str(), board.command.len()), ("pi4", 4));
        for wrong in ["", "ssh pi4", "pi4=", "pi4=  ", "=ssh", "Pi 4=ssh"] {
            assert!(wrong.parse::<Board>().is_err(), "{wrong}");
        }
    }
}
