//! What can go wrong while showing a cluster.

use crate::reports::ReportError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// There is no cluster to connect to.
    #[error("no cluster can be reached: set KUBECONFIG or pass --kubeconfig")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server refused a request.
    #[error("{what} failed: the API server answers {code}: {message}")]
    Refused {
        /// What was requested.
        what: String,
        /// The status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// A request did not reach the API server, or its answer was none.
    #[error("{what} failed")]
    Api {
        /// What was requested.
        what: String,
        /// The error of the connection.
        #[source]
        source: Box<kube::Error>,
    },
    /// The object does not exist.
    #[error(
        "ModelCompilation '{namespace}/{name}' does not exist: kubectl get modelcompilations -A lists what there is"
    )]
    NotFound {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The compilation has no such target.
    #[error("ModelCompilation '{name}' has no target '{target}': it has {there}")]
    NoTarget {
        /// The compilation.
        name: String,
        /// What was requested.
        target: String,
        /// What there is.
        there: String,
    },
    /// There is nothing to show yet, or no longer.
    #[error("{0}")]
    Nothing(String),
    /// A report cannot be had.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A file cannot be written, a program not be started, or an address not be listened on.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

impl ConsoleError {
    /// The failure of a request, described by what it was for.
    pub fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |error| match error {
            kube::Error::Api(status) => {
                Self::Refused { what, code: status.code, message: status.message }
            }
            source => Self::Api { what, source: Box::new(source) },
        }
    }

    /// The failure of something on this machine.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
