//! What crosses between the compiler, the worker, the operator and the runtime.
//!
//! An artifact is one file ([`Writer`] makes it, [`Reader`] reads it): a manifest in JSON, one shared
//! object per target variant, the packed weights, a C header, and what `hone inspect` shows. Always true:
//!
//! - Equal input gives equal bytes: nothing measured, dated or random is inside.
//! - Every byte of the file is covered by a checksum or must be zero, so a flipped byte is found.
//! - A manifest that passed [`Manifest::validate`] names no byte outside of the buffers it declares.
//!
//! This room depends on nothing of ours, so that the rooms on both sides can be upgraded apart.

mod accelerator;
mod atomic;
mod c_header;
mod causes;
mod data_type;
pub mod exit_code;
mod extent;
mod host;
mod host_image;
mod host_letters;
mod host_map;
mod host_ngrams;
mod host_non_zero;
mod host_scatter;
mod host_suppression;
mod host_text;
mod host_tokens;
mod host_top_k;
mod inspect;
mod interface;
mod layout;
mod manifest;
mod open;
mod padded;
mod program;
pub mod progress;
mod reader;
pub mod report;
pub mod request;
mod shapes;
pub mod termination;
mod text;
mod validate;
mod validate_device;
mod validate_program;
mod validate_shapes;
mod writer;

pub use accelerator::{
    Accelerator, Command, DeviceApi, DeviceCode, DeviceKernel, DeviceLimits, Language, Launch,
    LaunchArgument, MAX_REPEAT_DEPTH, UnknownAccelerator,
};
pub use atomic::{WriteError, link, write_atomically};
pub use c_header::c_header;
pub use causes::with_causes;
pub use data_type::DataType;
pub use extent::{Extent, ExtentError, MOST_SIZES};
pub use host::{Host, HostFunction, HostTensor, HostTools, HostType, HostValue};
pub use host_image::{ImageDecoder, ImageFunction, ImageRequest, PixelFormat};
pub use host_letters::{CaseRule, Letters};
pub use host_map::{MapFunction, MapKind};
pub use host_ngrams::NGrams;
pub use host_scatter::{ScatterPlaces, ScatterReduction};
pub use host_text::{Automaton, TextFunction};
pub use host_tokens::{ScanTable, Scanner, TokenRule, Tokens};
pub use host_top_k::KeyLoops;
pub use inspect::{Inspect, KernelText};
pub use interface::{Interface, Member, MemberForm};
pub use layout::{FORMAT_VERSION, MAGIC, PAGE, Section, SectionKind};
pub use manifest::{
    Access, Argument, BUFFER_ALIGNMENT, Manifest, OLDEST_SCHEMA_VERSION, Recipe, RecordedDecision,
    SCHEMA_VERSION, Slot, Step, Target, TensorInfo, Variant, Waves,
};
pub use open::OpenDimension;
pub use padded::{PaddedDimension, PaddedLength};
pub use program::{Carried, Collected, If, Loop, MAX_PROGRAM_DEPTH, OutputExtent, Part};
pub use reader::{ReadError, Reader};
pub use shapes::{DimensionSize, Shapes};
pub use text::{MAX_TEXT_BYTES, Texts, text_handle};
pub use validate::ManifestError;
pub use writer::{Writer, Written};
