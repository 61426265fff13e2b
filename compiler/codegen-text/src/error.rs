//! Why a program has no text.

use hone_tensor::VerifyError;
use hone_types::DataType;
use thiserror::Error;

/// What cannot be emitted.
#[derive(Debug, Error)]
pub enum EmitError {
    /// The program does not hold what launches need.
    #[error("the program is not fit for a device")]
    Verify(#[from] VerifyError),
    /// A loop is of a kind that the device has not.
    #[error(
        "loop '{target}' is {kind}: a text for devices has serial, unrolled and bound loops only"
    )]
    Loop {
        /// The loop's name.
        target: String,
        /// Its kind.
        kind: String,
    },
    /// The language has no such elements.
    #[error("'{object}' has elements of {dtype}, which {dialect} has not")]
    Element {
        /// The buffer.
        object: String,
        /// The type of its elements.
        dtype: DataType,
        /// The language.
        dialect: &'static str,
    },
    /// The language has no such operation.
    #[error("block '{block}': {operation} of {dtype} has no form in {dialect}")]
    Operation {
        /// The block.
        block: String,
        /// The operation.
        operation: String,
        /// The type of its operand.
        dtype: DataType,
        /// The language.
        dialect: &'static str,
    },
    /// A kernel has more buffers than the language lets it have.
    #[error("kernel '{kernel}' has {needed} buffers in global memory; {dialect} has {most}")]
    Buffers {
        /// The kernel.
        kernel: String,
        /// How many it has.
        needed: usize,
        /// How many it may have.
        most: usize,
        /// The language.
        dialect: &'static str,
    },
    /// A loop or a buffer is larger than the type of indices can count.
    #[error("'{object}' is too large to be counted in {dtype}, as {dialect} does")]
    Index {
        /// The loop or buffer.
        object: String,
        /// The type of indices.
        dtype: DataType,
        /// The language.
        dialect: &'static str,
    },
}
