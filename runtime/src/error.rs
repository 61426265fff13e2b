//! Why a model could not be loaded or run.

use std::fmt;
use std::io;
use std::path::PathBuf;

use hone_artifact::ReadError;

use crate::DeviceError;

/// Why a model could not be loaded. Nothing stays behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be opened or mapped.
    #[error("cannot open artifact '{}'", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The bytes are not a usable artifact.
    #[error("cannot load artifact '{}'", path.display())]
    Artifact {
        /// The file, or `memory`.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ReadError,
    },
    /// None of its variants can run here.
    #[error(
        "artifact is for a CPU that this one is not: {}; compile the model for this machine",
        Refusals(refusals)
    )]
    Cpu {
        /// One entry per variant, in order.
        refusals: Vec<VariantRefusal>,
    },
    /// No device can run the variant that is for one.
    #[error("the artifact's steps cannot run on an accelerator")]
    Device(#[from] DeviceError),
    /// The system's loader refuses the shared object.
    #[error("cannot load the artifact's code: {reason}; compile the model again for this system")]
    Code {
        /// What the loader said.
        reason: String,
    },
    /// A kernel of the step table is not in the code.
    #[error(
        "the artifact's code has no kernel '{kernel}' for step {step}; compile the model again"
    )]
    NoKernel {
        /// The symbol.
        kernel: String,
        /// Position of the step.
        step: usize,
    },
    /// Two strings that the artifact stores cannot be told apart.
    #[error("the strings that the artifact stores are refused: {0}; compile the model again")]
    Text(String),
    /// It decodes images, and nothing here does.
    #[error(
        "node '{node}' decodes images, which this runtime cannot: build it with its feature 'images', or give it a decoder before loading (hone_set_image_decoder in C; in Python hone_runtime.set_image_decoder, or import hone, which has decoders)"
    )]
    NoImages {
        /// Name of the model's node.
        node: String,
    },
    /// No memory for the arena and scratch.
    #[error("cannot reserve {bytes} bytes for {what}; free memory or raise the limit")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// What they were for.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The pool cannot start a thread.
    #[error("cannot start a worker thread; ask for fewer threads or raise the limit on processes")]
    Thread(#[source] io::Error),
}

/// Why one variant cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantRefusal {
    /// The variant's triple.
    pub triple: String,
    /// The variant's processor.
    pub cpu: String,
    /// LLVM names of features that this machine lacks; empty where architecture or system differ.
    pub missing: Vec<String>,
}

/// Most shapes that a message lists.
const SHAPES_SHOWN: usize = 32;

struct ShapeList<'a>(&'a [Vec<u64>]);

impl fmt::Display for ShapeList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, shape) in self.0.iter().take(SHAPES_SHOWN).enumerate() {
            write!(f, "{}{shape:?}", if index > 0 { ", " } else { "" })?;
        }
        let more = self.0.len().saturating_sub(SHAPES_SHOWN);
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}

struct Refusals<'a>(&'a [VariantRefusal]);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.0.iter().enumerate() {
            let VariantRefusal { triple, cpu, missing } = refusal;
            write!(f, "{}variant {index} ({triple}, {cpu}) ", if index > 0 { "; " } else { "" })?;
            if missing.is_empty() {
                write!(f, "is not for {}-{}", std::env::consts::ARCH, std::env::consts::OS)?;
            } else {
                write!(f, "needs features missing here: {}", missing.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Why a run was refused. But for [`RunError::Stray`], [`RunError::Overrun`], [`RunError::Host`] and those of
/// devices no kernel has run and no output was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another number of buffers than the model has.
    #[error("{found} {role} buffers given where the model has {expected}")]
    Count {
        /// `input` or `output`.
        role: &'static str,
        /// How many the model has.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A buffer of another size than its tensor.
    #[error("{role} '{name}' is {expected} bytes, the buffer given has {found}")]
    Size {
        /// `input` or `output`.
        role: &'static str,
        /// The tensor's name.
        name: String,
        /// The tensor's bytes.
        expected: u64,
        /// The buffer's bytes.
        found: u64,
    },
    /// A tensor in the device's memory that the processor would have to read or write.
    #[error(
        "{role} '{name}' lies in the device's memory; a model whose inputs are padded takes tensors in the host's"
    )]
    OnDevice {
        /// `input` or `output`.
        role: &'static str,
        /// The tensor's name.
        name: String,
    },
    /// A shape for which the model was not compiled.
    #[error(
        "input '{name}' has shape {found:?}, the artifact takes {}{}; compile the model for this shape too, among its sizes",
        ShapeList(taken),
        if *.first { "" } else { " beside the shapes of the inputs before it" }
    )]
    Shape {
        /// The input's name.
        name: String,
        /// The shape that came.
        found: Vec<u64>,
        /// The shapes that are taken, each once.
        taken: Vec<Vec<u64>>,
        /// Whether these are all shapes that the input may have.
        first: bool,
    },
    /// A shape that does not fit an artifact for any size of a dimension.
    #[error(
        "input '{name}' has shape {found:?}, the artifact takes {}, at any {dimension}; compile the model for these sizes too",
        taken.join(", ")
    )]
    OpenShape {
        /// The input's name.
        name: String,
        /// The shape that came.
        found: Vec<u64>,
        /// The shapes that are taken, with the dimension's name for its size.
        taken: Vec<String>,
        /// The dimension.
        dimension: String,
    },
    /// Inputs that have one dimension in different sizes.
    #[error(
        "{dimension} is {size} in input '{first}' and {found} in input '{second}': it must be the same"
    )]
    Differs {
        /// The dimension.
        dimension: String,
        /// An input.
        first: String,
        /// Its size there.
        size: u64,
        /// Another input.
        second: String,
        /// Its size there.
        found: u64,
    },
    /// A size beyond the room that an artifact has for a dimension.
    #[error(
        "{dimension} is {size}, the artifact takes {least} to {bound} of it; how many is said when compiling ({dimension}={least}..{bound})"
    )]
    Bound {
        /// The dimension.
        dimension: String,
        /// The size that came.
        size: u64,
        /// The smallest size that is taken.
        least: u64,
        /// The largest size that is taken.
        bound: u64,
    },
    /// A size that is not among the multiples that the model takes.
    #[error(
        "{dimension} is {size}, and the model takes multiples of {multiple} alone: it divides that into blocks, or joins what it sampled down and up again"
    )]
    Multiple {
        /// The dimension.
        dimension: String,
        /// The size that came.
        size: u64,
        /// What sizes are multiples of.
        multiple: u64,
    },
    /// A size at which the outputs cannot be made.
    #[error(
        "{dimension}={size} cannot be run: an output without this dimension would not be computed, or one with it is too large"
    )]
    NoSlices {
        /// The dimension.
        dimension: String,
        /// Its size.
        size: u64,
    },
    /// A buffer that is null or not aligned to its element.
    #[error(
        "{role} '{name}' needs a buffer aligned to {alignment} bytes, the one given is at {address:#x}"
    )]
    Address {
        /// `input` or `output`.
        role: &'static str,
        /// The tensor's name.
        name: String,
        /// Needed alignment in bytes.
        alignment: u64,
        /// Where the buffer lies.
        address: usize,
    },
    /// Steps that the model does not have, or that have not the same arguments.
    #[error(
        "steps {first} to {end} cannot run alone: name steps of one kernel among the model's {known}"
    )]
    Steps {
        /// The first.
        first: usize,
        /// The one behind the last.
        end: usize,
        /// How many steps the model has.
        known: usize,
    },
    /// A loop goes on although there is no more room for what it collects. Outputs hold parts of results.
    #[error(
        "loop '{node}' goes on after {capacity} iterations, and there is no room for more results; compile the model with a larger bound"
    )]
    Overrun {
        /// Name of the model's node.
        node: String,
        /// Iterations for which there is room.
        capacity: u64,
    },
    /// A string that cannot be taken: too many bytes altogether, or another of the same handle. Nothing has run.
    #[error("a string is refused: {0}")]
    Text(String),
    /// What the runtime computes itself cannot be computed of these operands, or they break what the model declares.
    #[error("node '{node}' cannot be computed: {reason}")]
    Host {
        /// Name of the model's node.
        node: String,
        /// Why.
        reason: String,
    },
    /// The device failed while it ran. Outputs may hold anything, and this model does not ask the device again.
    #[error(
        "device '{device}' was lost: {what} ended with {error}; see the system's log, and load the model again when the device is back"
    )]
    DeviceLost {
        /// The device's name.
        device: String,
        /// What was done.
        what: &'static str,
        /// Number and words of the error, as its API has them.
        error: String,
    },
    /// The device did not finish in time. It is not asked again, as after [`RunError::DeviceLost`].
    #[error(
        "device '{device}' has not answered for {seconds} seconds and counts as lost; see the system's log, or allow it more time"
    )]
    DeviceTimeout {
        /// The device's name.
        device: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The device has no memory left for what a run needs. A later run may find some.
    #[error(
        "device '{device}' ran out of memory at {what}; end other programs on it, or use one with more memory"
    )]
    DeviceMemory {
        /// The device's name.
        device: String,
        /// What was done.
        what: &'static str,
    },
    /// Steps that ran alone changed memory beside their buffers.
    #[error("step {step} stores outside of its buffers; compile the model again and report this")]
    Stray {
        /// The first of the steps.
        step: usize,
    },
}
