//! The manifest: what a model takes and gives, and the step table that computes it.
//!
//! A run of a variant is its steps in order, with a barrier between any two, or what its program says of them
//! ([`crate::Part`]). A step calls one kernel
//! over `tasks` independent tasks; threads get disjoint ranges of them. The ABI of a kernel is
//! `void kernel(void *const *buffers, int64_t begin, int64_t end, void *scratch)`, where `buffers[i]`
//! is the step's i-th argument and `scratch` is private to the thread, of `scratchBytesPerThread` bytes
//! and 64-byte aligned (any value when that is 0).
//!
//! Arena and weight offsets are multiples of [`BUFFER_ALIGNMENT`], and so are their bases. Inputs and
//! outputs belong to the caller: a kernel may assume no more than their element's own alignment.

use serde::{Deserialize, Serialize};

use crate::validate_device::since;
use crate::{
    Accelerator, DataType, DeviceCode, Interface, OpenDimension, OutputExtent, PaddedDimension,
    Part, Shapes,
};

/// Version of the manifest's schema. Readers refuse newer ones; a new optional field changes it only where a
/// reader that does not know the field would run the model wrongly.
///
/// Version 2 has programs ([`Variant::program`]) and extents that are decided at run time; version 3 has code for
/// accelerators ([`Variant::device`]) and variants for several sizes ([`Variant::shapes`]), version 4 code in PTX,
/// version 5 code in WGSL, version 6 lengths of outputs, smallest sizes and multiples of a padded dimension
/// ([`PaddedDimension`]).
pub const SCHEMA_VERSION: u32 = 6;

/// The oldest version that readers take.
pub const OLDEST_SCHEMA_VERSION: u32 = 1;

/// Alignment in bytes of the arena, the weights, thread scratch, and every offset into the first two.
pub const BUFFER_ALIGNMENT: u64 = 64;

/// What an artifact says about itself. Nothing in it is measured, dated or random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The first version that has everything that is used ([`Manifest::version_needed`]).
    pub schema_version: u32,
    /// `sha256:…` of the model's content.
    pub model_digest: String,
    /// Version of the compiler that wrote this.
    pub compiler_version: String,
    /// `sha256:…` of the tuning records that decided the schedules; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_digest: Option<String>,
    /// The model's inputs in order, in the shapes of the first variant.
    pub inputs: Vec<TensorInfo>,
    /// The model's outputs in order, in the shapes of the first variant.
    pub outputs: Vec<TensorInfo>,
    /// What the model takes and gives beside tensors of numbers.
    #[serde(default, skip_serializing_if = "Interface::is_empty")]
    pub interface: Interface,
    /// The dimension that may have any size, where one may: then a run is composed of runs of variants, and a reader
    /// that does not know this takes the variants' sizes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenDimension>,
    /// The dimension that may have any size up to a bound, where one may: then the last input is its size, and a reader
    /// that does not know this asks its user for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padded: Option<PaddedDimension>,
    /// Best target first: the runtime takes the first that this machine can execute, and those for other sizes of the
    /// same target ([`Variant::shapes`]).
    pub variants: Vec<Variant>,
}

impl Manifest {
    /// That of one variant which computes on its arena alone and is of no model: what is measured, and not run.
    pub fn without_model(
        schema_version: u32,
        compiler_version: impl Into<String>,
        variant: Variant,
    ) -> Self {
        Self {
            schema_version,
            model_digest: format!("sha256:{}", "0".repeat(64)),
            compiler_version: compiler_version.into(),
            records_digest: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            interface: Interface::default(),
            open: None,
            padded: None,
            variants: vec![variant],
        }
    }

    /// The first version of the schema that has everything that `variants` use, so that older runtimes run what
    /// they can.
    pub fn version_needed(variants: &[Variant]) -> u32 {
        let needed = variants.iter().map(|variant| match variant {
            Variant { device: Some(device), .. } => since(device.language),
            Variant { shapes: Some(_), .. } => 3,
            Variant { program, extents, .. } if !program.is_empty() || !extents.is_empty() => 2,
            _ => OLDEST_SCHEMA_VERSION,
        });
        needed.max().unwrap_or(OLDEST_SCHEMA_VERSION)
    }
}

/// A dense input or output, row major, last axis fastest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Extent of each axis; empty for a scalar. Of an output's axis that is decided at run time
    /// ([`Variant::extents`]), the most that it may be.
    pub shape: Vec<u64>,
    /// Size in bytes; always what `dtype` and `shape` give.
    pub bytes: u64,
}

impl TensorInfo {
    /// Describes a dense tensor, or gives `None` where its size does not fit 63 bits.
    pub fn new(name: impl Into<String>, dtype: DataType, shape: Vec<u64>) -> Option<Self> {
        let bytes = dtype.bytes_of(&shape)?;
        Some(Self { name: name.into(), dtype, shape, bytes })
    }
}

/// The machine that a variant's code is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// LLVM target triple, for example `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// LLVM name of the processor the code was scheduled for, for example `znver5`; a hint only.
    pub cpu: String,
    /// LLVM names, without sign, of the features that the code may execute, sorted. The runtime
    /// refuses the variant where one is missing, so list those that are used and no more.
    pub features: Vec<String>,
    /// What runs the steps, where that is not the processor; triple and processor are then those of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
}

/// One target's code, weights and step table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// What the code needs.
    pub target: Target,
    /// Which of the file's code sections holds the shared object, or the accelerator's code, counted from 0.
    pub code: u32,
    /// Which of the file's weights sections the steps refer to, counted from 0. Variants whose
    /// kernels read the same packing share one.
    pub weights: u32,
    /// Size in bytes of that weights section.
    pub weights_bytes: u64,
    /// Bytes of the arena, in which values between steps live.
    pub arena_bytes: u64,
    /// Bytes of private scratch that a kernel of this variant may use per thread.
    pub scratch_bytes_per_thread: u64,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// In which order the steps run, where that is decided at run time; empty where they run one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<Part>,
    /// Axes of outputs whose extent is decided at run time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<OutputExtent>,
    /// The sizes that it is for, where there are variants for others too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shapes: Option<Shapes>,
    /// How the steps are launched, where the target has an accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceCode>,
    /// How the compiler was asked to make the variant; absent in older artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
}

/// What a variant was compiled with beside its model: enough for the same compiler to find again which
/// value of the model each buffer of a step holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recipe {
    /// `analytic`, or `naive` for schedules in the plain loop order.
    pub schedules: String,
    /// The element type of the arithmetic, such as `f32` or `bf16`.
    pub precision: String,
    /// Names of nodes that stay in `f32` all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wide: Vec<String>,
    /// Features switched on (`+name`) and off (`-name`) beside those of the target's processor, by LLVM's
    /// names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Decisions about the graph that were measured, where they go before the analytic model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<RecordedDecision>,
}

/// A decision about the graph that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDecision {
    /// What is decided, such as `convolution-algorithm`.
    pub kind: String,
    /// The structure that it is about.
    pub structure: String,
    /// What was chosen.
    pub value: i64,
}

/// One kernel call. The numbers are static facts of the shapes, never measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Names of the graph nodes that the step computes.
    pub nodes: Vec<String>,
    /// Symbol of the kernel in the shared object. Several steps may call the same.
    pub kernel: String,
    /// Number of independent tasks; 1 where launches say how the work is divided ([`Variant::device`]).
    pub tasks: u64,
    /// Fewest tasks worth a thread of their own; at least 1. A step runs on no more than
    /// `tasks / min_tasks_per_thread` threads and on the caller's alone where that is below 2. A
    /// thread's share should be some 5 µs of work or more.
    pub min_tasks_per_thread: u64,
    /// Of a step that runs in order: how many steps from this one on may run at the same time as how many behind them,
    /// each after the one before it. None of either reads or writes what one of the others writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<[u32; 2]>,
    /// Of a step of one task: how threads may divide it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<Waves>,
    /// The kernel's buffers in order.
    pub arguments: Vec<Argument>,
    /// Floating-point or integer arithmetic operations; a multiply-add counts 2.
    pub flops: u64,
    /// Distinct bytes that the step reads.
    pub bytes_read: u64,
    /// Distinct bytes that the step writes.
    pub bytes_written: u64,
}

/// How threads may divide a step whose parts depend on each other: in waves of independent parts, of which each wave
/// begins when the one before it is complete. `kernel(buffers, 0, 1, scratch)` runs all of them in order, as readers
/// do that do not know this, and `kernel(buffers, 1 + w * parts + begin, 1 + w * parts + end, scratch)` the parts `begin..end`
/// of wave `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waves {
    /// Number of waves.
    pub waves: u64,
    /// Parts of each wave.
    pub parts: u64,
    /// Fewest parts of a wave that are worth a thread of their own; at least 1. The waves run on no more than
    /// `parts / min_parts_per_thread` threads.
    pub min_parts_per_thread: u64,
}

/// One buffer of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Where it is.
    pub slot: Slot,
    /// Bytes from there that the kernel may touch.
    pub bytes: u64,
    /// What the kernel does with them.
    pub access: Access,
}

/// Where a buffer lies. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Slot {
    /// In the caller's input.
    Input {
        /// Position in [`Manifest::inputs`].
        index: u32,
        /// Distance from its start; a multiple of the element's size.
        offset: u64,
    },
    /// In the caller's output.
    Output {
        /// Position in [`Manifest::outputs`].
        index: u32,
        /// Distance from its start; a multiple of the element's size.
        offset: u64,
    },
    /// In the arena.
    Arena {
        /// Distance from its start; a multiple of [`BUFFER_ALIGNMENT`].
        offset: u64,
    },
    /// In the packed weights.
    Weight {
        /// Distance from their start; a multiple of [`BUFFER_ALIGNMENT`].
        offset: u64,
    },
}

/// What a kernel does with a buffer. Inputs and weights can only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// Reads only.
    Read,
    /// Writes only, every byte that a later step reads.
    Write,
    /// Reads and writes, for example an addition in place.
    ReadWrite,
}
