//! What `hone inspect` shows of each kernel. The runtime never reads it.

use serde::{Deserialize, Serialize};

/// Text about the kernels of an artifact, in the order in which the compiler made them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspect {
    /// One entry per kernel and variant.
    pub kernels: Vec<KernelText>,
}

/// How one kernel came about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelText {
    /// Position of the variant it belongs to.
    pub variant: u32,
    /// Symbol in that variant's shared object.
    pub kernel: String,
    /// The schedule as a trace, replayable.
    pub trace: String,
    /// The loop program after the trace, in its text form.
    pub program: String,
}
