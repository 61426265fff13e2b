//! Loads an artifact and runs it: small, without LLVM, protobuf or a C++ library.
//!
//! [`Model::load`] maps the file, checks it, takes the first variant that this processor can execute,
//! and plans everything that a run needs. [`Model::run`] then walks the step table: no allocation, no
//! lock that another model's run could hold for long, one barrier between steps. The tasks of a step are
//! divided over the threads, and a thread that is done takes over tasks of another ([`claim`]). Weights
//! are used where they lie in the mapped file; values between steps live in one arena. While a run lasts,
//! subnormal numbers count as zero (`float_mode`); the caller's floating-point mode is restored after it.
//!
//! The C interface is `include/hone.h`, kept by hand beside [`capi`].
//!
//! The steps of a variant may be for an accelerator; then [`accelerator`] runs them on a device.
//!
//! An artifact holds machine code that runs in this process: load only what you trust.

pub mod accelerator;
pub mod capi;
pub mod capi_images;
pub mod capi_sizes;
pub mod capi_text;
pub mod claim;
pub mod cpu;

mod checks;
mod composed;
mod context;
mod engine;
mod error;
mod float_mode;
mod futex;
mod gang;
mod images;
mod key_loops;
mod library;
mod memory;
mod model;
mod options;
mod padding;
mod plan;
mod pool;
mod profile;
mod program;
mod seat;
mod source;
mod step;
mod text;

pub use accelerator::{DeviceError, DeviceInfo, DeviceKind};
pub use error::{LoadError, RunError, VariantRefusal};
pub use hone_artifact::{
    DataType, DimensionSize, ImageDecoder, ImageRequest, Interface, Manifest, Member, MemberForm,
    PixelFormat, Shapes, Step, TensorInfo, Variant, text_handle, with_causes,
};
pub use images::{has_image_decoder, set_image_decoder};
pub use model::{Memory, Model, Sizes};
pub use options::{Affinity, HugePages, Options};
pub use profile::{Profile, StepProfile};
pub use source::MappedFile;
pub use step::StepArgument;
