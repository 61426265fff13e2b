//! Another machine that candidates run on, with nothing of the compiler and no library on it: the runner of
//! [`hone_emulator`], a program of a few kilobytes, holds memory, calls kernels and times them by its own clock. Code is made here.

use std::str::FromStr;

use hone_artifact::Target as TargetOf;
use hone_driver::Target;
use hone_emulator::Emulator;
use serde::{Deserialize, Serialize};

use crate::failure::Result;

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
    fn a_board_is_a_kind_and_a_command() {
        let board: Board = "pi4=ssh pi4  A=b ./runner".parse().unwrap();
        assert_eq!((board.kind.as_str(), board.command.len()), ("pi4", 4));
        for wrong in ["", "ssh pi4", "pi4=", "pi4=  ", "=ssh", "Pi 4=ssh"] {
            assert!(wrong.parse::<Board>().is_err(), "{wrong}");
        }
    }
}
