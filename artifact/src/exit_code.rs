//! What the exit code of every `hone` command means. Scripts and the Job's `podFailurePolicy`
//! read these numbers, so a number keeps its meaning for ever; a new meaning gets a new number.
//!
//! | code | reason | class |
//! |---|---|---|
//! | 0 | `Success` | |
//! | 1 | `InternalError` | bug |
//! | 2 | `Usage` | user |
//! | 10 | `InvalidSpec` | user |
//! | 11 | `InvalidModel` | user |
//! | 12 | `UnsupportedOperator` | user |
//! | 13 | `InvalidShape` | user |
//! | 14 | `DigestMismatch` | user |
//! | 15 | `NotSupportedYet` | user |
//! | 16 | `TargetMismatch` | user |
//! | 17 | `InvalidArtifact` | user |
//! | 18 | `InvalidInput` | user |
//! | 19 | `NotFound` | user |
//! | 20 | `AccessDenied` | user |
//! | 21 | `SourceForbidden` | user |
//! | 22 | `TooLarge` | user |
//! | 23 | `ArtifactConflict` | user |
//! | 24 | `NoSession` | user |
//! | 30 | `CorrectnessBreach` | user |
//! | 31 | `NonFiniteOutput` | user |
//! | 32 | `GoalMissed` | user |
//! | 40 | `NetworkFault` | transient |
//! | 41 | `StorageFault` | transient |
//! | 42 | `DiskFull` | transient |
//! | 43 | `DeviceLost` | transient |
//! | 44 | `NoisyDevice` | transient |
//! | 45 | `OutOfMemory` | transient |
//! | 50 | `CompilerError` | bug |
//! | 51 | `VerifierError` | bug |
//! | 52 | `WrongCode` | bug |
//! | 130 | `Interrupted` | transient |
//! | 143 | `Terminated` | transient |
//!
//! The shell and the kernel use others: 101 is a Rust panic (bug), 134 an abort, such as one of
//! LLVM's fatal errors (bug), 137 a kill, most often for memory (transient), 139 a crash (bug).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who has to act after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// The user: trying again gives the same answer.
    User,
    /// Nobody: a passing fault, tried again.
    Transient,
    /// We: terminal, with a reproducer.
    Bug,
}

/// Why a `hone` command ended, as one word that stands in `status`, in reports and in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// It did what was asked.
    Success,
    /// Something that must never happen did.
    InternalError,
    /// The command line is wrong.
    Usage,
    /// The YAML file or the request is wrong.
    InvalidSpec,
    /// The model is no model, is cut short, or breaks its format's rules.
    InvalidModel,
    /// The model uses operators that we do not have; all are named.
    UnsupportedOperator,
    /// Shapes do not fit, or a dynamic dimension is not bound.
    InvalidShape,
    /// The file is not the one whose digest was given.
    DigestMismatch,
    /// The field is known but does not work in this release.
    NotSupportedYet,
    /// The target is unknown, or this machine cannot run what was built for it.
    TargetMismatch,
    /// The artifact is cut short, altered, or of another format version.
    InvalidArtifact,
    /// The inputs or samples given do not fit the model.
    InvalidInput,
    /// The model, the samples or the bucket does not exist.
    NotFound,
    /// The store refuses the credentials.
    AccessDenied,
    /// The source is on an address that is not allowed.
    SourceForbidden,
    /// The model is larger than allowed.
    TooLarge,
    /// Other bytes lie where the artifact is to be stored.
    ArtifactConflict,
    /// No session measured for a search that measures nothing itself, for as long as it waits for one.
    NoSession,
    /// Answers of code that is right part by part are further from the reference than the tolerance.
    CorrectnessBreach,
    /// The reference itself gives NaN or infinity.
    NonFiniteOutput,
    /// A goal was not reached; the artifact is kept.
    GoalMissed,
    /// The network failed.
    NetworkFault,
    /// The object store failed.
    StorageFault,
    /// No space is left on the disk.
    DiskFull,
    /// The device went away.
    DeviceLost,
    /// Measurements spread further than allowed.
    NoisyDevice,
    /// Memory ran out.
    OutOfMemory,
    /// Code generation failed on a valid program.
    CompilerError,
    /// A verifier refused what a pass made.
    VerifierError,
    /// A kernel, packed weights, the memory plan or a pass gives other values than the reference.
    WrongCode,
    /// A person pressed Ctrl-C.
    Interrupted,
    /// The pod was asked to end.
    Terminated,
}

/// Each reason with its exit code and class, in order of codes.
const TABLE: [(Reason, u8, Option<ErrorClass>); 32] = {
    use ErrorClass::{Bug, Transient, User};
    [
        (Reason::Success, 0, None),
        (Reason::InternalError, 1, Some(Bug)),
        (Reason::Usage, 2, Some(User)),
        (Reason::InvalidSpec, 10, Some(User)),
        (Reason::InvalidModel, 11, Some(User)),
        (Reason::UnsupportedOperator, 12, Some(User)),
        (Reason::InvalidShape, 13, Some(User)),
        (Reason::DigestMismatch, 14, Some(User)),
        (Reason::NotSupportedYet, 15, Some(User)),
        (Reason::TargetMismatch, 16, Some(User)),
        (Reason::InvalidArtifact, 17, Some(User)),
        (Reason::InvalidInput, 18, Some(User)),
        (Reason::NotFound, 19, Some(User)),
        (Reason::AccessDenied, 20, Some(User)),
        (Reason::SourceForbidden, 21, Some(User)),
        (Reason::TooLarge, 22, Some(User)),
        (Reason::ArtifactConflict, 23, Some(User)),
        (Reason::NoSession, 24, Some(User)),
        (Reason::CorrectnessBreach, 30, Some(User)),
        (Reason::NonFiniteOutput, 31, Some(User)),
        (Reason::GoalMissed, 32, Some(User)),
        (Reason::NetworkFault, 40, Some(Transient)),
        (Reason::StorageFault, 41, Some(Transient)),
        (Reason::DiskFull, 42, Some(Transient)),
        (Reason::DeviceLost, 43, Some(Transient)),
        (Reason::NoisyDevice, 44, Some(Transient)),
        (Reason::OutOfMemory, 45, Some(Transient)),
        (Reason::CompilerError, 50, Some(Bug)),
        (Reason::VerifierError, 51, Some(Bug)),
        (Reason::WrongCode, 52, Some(Bug)),
        (Reason::Interrupted, 130, Some(Transient)),
        (Reason::Terminated, 143, Some(Transient)),
    ]
};

/// Codes that the shell, the kernel or Rust use, with what they mean to us.
const FOREIGN: [(u8, Reason); 4] = [
    (101, Reason::InternalError),
    (134, Reason::CompilerError),
    (137, Reason::OutOfMemory),
    (139, Reason::InternalError),
];

impl Reason {
    fn row(self) -> &'static (Reason, u8, Option<ErrorClass>) {
        // Every reason has a row: a test says so. The first row is never wrongly used.
        TABLE.iter().find(|(reason, ..)| *reason == self).unwrap_or(&TABLE[1])
    }

    /// The exit code of a command that ends for this reason.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// Who has to act; `None` for success.
    pub fn class(self) -> Option<ErrorClass> {
        self.row().2
    }

    /// The reason behind an exit code, those of the kernel and of Rust included.
    pub fn from_code(code: u8) -> Option<Self> {
        let own = TABLE.iter().find(|row| row.1 == code).map(|row| row.0);
        own.or_else(|| FOREIGN.iter().find(|row| row.0 == code).map(|row| row.1))
    }

    /// Every reason, in order of codes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The word itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::InternalError => "InternalError",
            Self::Usage => "Usage",
            Self::InvalidSpec => "InvalidSpec",
            Self::InvalidModel => "InvalidModel",
            Self::UnsupportedOperator => "UnsupportedOperator",
            Self::InvalidShape => "InvalidShape",
            Self::DigestMismatch => "DigestMismatch",
            Self::NotSupportedYet => "NotSupportedYet",
            Self::TargetMismatch => "TargetMismatch",
            Self::InvalidArtifact => "InvalidArtifact",
            Self::InvalidInput => "InvalidInput",
            Self::NotFound => "NotFound",
            Self::AccessDenied => "AccessDenied",
            Self::SourceForbidden => "SourceForbidden",
            Self::TooLarge => "TooLarge",
            Self::ArtifactConflict => "ArtifactConflict",
            Self::NoSession => "NoSession",
            Self::CorrectnessBreach => "CorrectnessBreach",
            Self::NonFiniteOutput => "NonFiniteOutput",
            Self::GoalMissed => "GoalMissed",
            Self::NetworkFault => "NetworkFault",
            Self::StorageFault => "StorageFault",
            Self::DiskFull => "DiskFull",
            Self::DeviceLost => "DeviceLost",
            Self::NoisyDevice => "NoisyDevice",
            Self::OutOfMemory => "OutOfMemory",
            Self::CompilerError => "CompilerError",
            Self::VerifierError => "VerifierError",
            Self::WrongCode => "WrongCode",
            Self::Interrupted => "Interrupted",
            Self::Terminated => "Terminated",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The exit codes after which a Job must not try again, in rising order: what `podFailurePolicy`
/// answers with `FailJob`. All others count as passing faults.
pub fn terminal_codes() -> Vec<u8> {
    let own = Reason::all().map(|reason| (reason.code(), reason));
    let mut codes: Vec<u8> = own
        .chain(FOREIGN)
        .filter(|(_, reason)| {
            matches!(reason.class(), Some(ErrorClass::User) | Some(ErrorClass::Bug))
        })
        .map(|(code, _)| code)
        .collect();
    codes.sort_unstable();
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_read_back() {
        for reason in Reason::all() {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            assert_eq!(format!("\"{reason}\""), serde_json::json!(reason).to_string());
        }
    }

    #[test]
    fn the_table_in_the_documentation_is_the_table() {
        let source = include_str!("exit_code.rs");
        for (reason, code, class) in TABLE {
            let class = match class {
                None => "",
                Some(ErrorClass::User) => "user ",
                Some(ErrorClass::Transient) => "transient ",
                Some(ErrorClass::Bug) => "bug ",
            };
            let line = format!("//! | {code} | `{reason}` | {class}|\n");
            assert!(source.contains(&line), "missing: {line}");
        }
    }

    #[test]
    fn passing_faults_are_tried_again() {
        let terminal = terminal_codes();
        for code in [0, 40, 41, 42, 43, 44, 45, 130, 137, 143] {
            assert!(!terminal.contains(&code), "{code}");
        }
        for code in [1, 2, 12, 30, 50, 52, 101, 134, 139] {
            assert!(terminal.contains(&code), "{code}");
        }
    }
}
