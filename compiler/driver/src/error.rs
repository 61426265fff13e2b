//! Why a model could not be compiled, by the stage that refused it.

use thiserror::Error;

/// Why a model could not be compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The model could not be read.
    #[error("the model could not be imported")]
    Import(#[source] Box<hone_import::ImportError>),
    /// A pass failed, or broke the graph.
    #[error("the pass '{pass}' failed")]
    Pass {
        /// Name of the pass.
        pass: &'static str,
        /// Why.
        source: hone_passes::PassError,
    },
    /// A pass left a graph that does not hold.
    #[error("the pass '{pass}' broke the graph")]
    Verify {
        /// Name of the pass.
        pass: &'static str,
        /// What does not hold.
        source: Box<hone_graph::VerifyError>,
    },
    /// A group of nodes could not become a loop program.
    #[error("a kernel could not be lowered")]
    Lower(#[from] hone_lower::LowerError),
    /// A kernel could not be scheduled.
    #[error("the kernel of {nodes} could not be scheduled")]
    Schedule {
        /// Names of its nodes.
        nodes: String,
        /// Why.
        source: Box<hone_schedule::ScheduleError>,
    },
    /// A kernel has no text for an accelerator.
    #[error("the kernel of {nodes} could not be written for {accelerator}")]
    Text {
        /// Names of its nodes.
        nodes: String,
        /// The accelerator.
        accelerator: hone_artifact::Accelerator,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What an accelerator does not do yet was asked for.
    #[error("{what} is not there for accelerator '{accelerator}': {advice}")]
    Accelerator {
        /// The accelerator.
        accelerator: hone_artifact::Accelerator,
        /// What was asked for.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Machine code could not be made.
    #[error("machine code could not be generated")]
    Codegen(#[source] Box<hone_codegen::CodegenError>),
    /// The artifact could not be assembled.
    #[error("the artifact could not be assembled")]
    Artifact(#[source] Box<hone_artifact::WriteError>),
    /// An input or output has a type that an artifact cannot carry.
    #[error("the {kind} '{name}' of type {tensor_type} is too large for an artifact")]
    TooLarge {
        /// `input` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its type.
        tensor_type: hone_types::TensorType,
    },
}

/// Errors of the stages are boxed: they are large, and results that hold them are returned often.
macro_rules! boxed {
    ($($variant:ident: $error:ty),* $(,)?) => {$(
        impl From<$error> for CompileError {
            fn from(source: $error) -> Self {
                CompileError::$variant(Box::new(source))
            }
        }
    )*};
}

boxed!(
    Import: hone_import::ImportError,
    Codegen: hone_codegen::CodegenError,
    Artifact: hone_artifact::WriteError,
);
