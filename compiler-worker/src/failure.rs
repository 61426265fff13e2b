//! How a command fails: one reason, which decides the exit code, and one chain of words.

use std::error::Error;
use std::fmt;
use std::io;

use hone_artifact::WriteError;
use hone_artifact::exit_code::Reason;
use hone_runtime::{DeviceError, LoadError, RunError};

/// Why a command failed: what failed, on which object, and what to do; the causes follow.
#[derive(Debug)]
pub struct Failure {
    /// Decides the exit code and stands in reports.
    pub reason: Reason,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What every step of a command gives.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure without a deeper cause.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), source: None }
    }

    /// A failure with its cause, which the message does not repeat.
    pub fn because(
        reason: Reason,
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { reason, message: message.into(), source: Some(source.into()) }
    }

    /// A mistake of this program itself.
    pub fn internal(message: &str) -> Self {
        Self::new(Reason::InternalError, format!("{message}; please report this"))
    }

    /// What the file system refused, classed by what the system said.
    pub fn io(message: impl Into<String>, error: io::Error) -> Self {
        Self::because(io_reason(&error), message, error)
    }

    /// The message and all its causes, joined by `: `.
    pub fn chain(&self) -> String {
        hone_artifact::with_causes(self)
    }
}

/// The reason behind an error of the file system.
pub fn io_reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Reason::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Reason::AccessDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Reason::DiskFull
        }
        io::ErrorKind::OutOfMemory => Reason::OutOfMemory,
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => Reason::InvalidInput,
        _ => Reason::StorageFault,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let reason = match &error {
            LoadError::Open { source, .. } => io_reason(source),
            LoadError::Artifact { .. } | LoadError::NoKernel { .. } => Reason::InvalidArtifact,
            LoadError::Cpu { .. } | LoadError::Code { .. } => Reason::TargetMismatch,
            LoadError::Device(DeviceError::Driver { .. }) => Reason::DeviceLost,
            LoadError::Device(_) => Reason::TargetMismatch,
            LoadError::Memory { .. } | LoadError::Thread(_) => Reason::OutOfMemory,
            _ => Reason::InternalError,
        };
        Self::because(reason, "the artifact cannot be used", error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let reason = match &error {
            RunError::DeviceLost { .. } | RunError::DeviceTimeout { .. } => Reason::DeviceLost,
            RunError::DeviceMemory { .. } => Reason::OutOfMemory,
            _ => Reason::InvalidInput,
        };
        Self::because(reason, "the model cannot be run", error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let reason = match &error {
            WriteError::Full { .. } => Reason::DiskFull,
            WriteError::Io { source, .. } => io_reason(source),
            WriteError::NoFileName { .. } => Reason::Usage,
            _ => Reason::InternalError,
        };
        Self::because(reason, "a file was not written, and nothing of it is left", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause_once() {
        let disk = io::Error::from(io::ErrorKind::StorageFull);
        let failure = Failure::io("cannot write 'a'", disk);
        assert_eq!(failure.reason, Reason::DiskFull);
        assert_eq!(failure.chain(), "cannot write 'a': no storage space");
    }
}
