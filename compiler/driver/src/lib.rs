//! The only room that sees every stage: order, options and dumps; no algorithms. The whole path is
//! in `pipeline`.

mod abreast;
mod artifact;
mod device;
mod device_attention;
mod error;
mod estimate;
mod host;
mod host_text;
mod kernels;
mod lift;
mod open;
mod options;
mod pipeline;
mod plan_regions;
mod prefix;
mod same_structure;
mod schedule;
mod sizes;
mod step_map;
mod steps;
mod storage;
mod sub_buffers;
mod target;
mod tuning;

pub use artifact::manifest_target;
pub use bytes::Bytes;
pub use device::device_limits;
pub use error::CompileError;
pub use estimate::{DeviceEstimate, estimate_for_device};
pub use hone_artifact::{Accelerator, MOST_SIZES};
pub use hone_codegen::{CodegenError, disassemble, probe, probe_as};
pub use hone_graph::{
    Constants, Definition, Member, MemberForm, Node, NodeId, Operation, Port, ValueId,
};
pub use hone_import::{
    Combination, Dimension, ImportError, ImportOptions, InputBinding, InputForm, KeyType,
    MOST_KEYS, NarrowType, NodeError, PortSignature, Signature, SizeSum, SizedBinding, SizesError,
    SummedDimension, UnboundInput, combinations, onnx, onnx::supported as supported_operators,
    propose_shape, signature,
};
pub use hone_lower::LowerError;
pub use hone_ops as ops;
pub use hone_ops::{EvaluateError, Evaluation, Graph, Op, evaluate};
pub use hone_passes::{
    Dependence, GraphDecision, Independence, NotPadded, PaddedGraph, PaddedSizes, PassError,
    pad_dimension,
};
pub use hone_tensor::{Need, Positions};
pub use hone_tune::{Choice, Prescription};
pub use hone_types::Backing;
pub use hone_types::{DataType, Id, Random, Tensor, TensorType, intern_text, text_of};
pub use kernels::{CompiledKernels, KernelInfo, LoweredGraph, LoweredItem};
pub use lift::{LiftError, lift, lift_tensor, rounds_to_integers};
pub use open::{
    ANALYSED_SIZE, DynamicDimensions, bounds_of, open_dimension, padded_dimension,
    sizes_of_open_dimension,
};
pub use options::{Options, SchedulePolicy, graph_decision, is_graph_decision};
pub use pipeline::{
    Compiled, Statistics, compile, compile_and_store, compile_dynamic, compile_edited,
    compile_graph, import, import_shared, narrow_nodes, prepare, prepare_exactly,
};
pub use same_structure::{ApartConstant, evaluate_lifted, same_structure};
pub use sizes::{SizedGraph, import_sizes};
pub use step_map::{MappedCall, MappedRegions, StepMap, StepMapError, map_steps};
pub use storage::SubBuffer;
pub use target::Target;
pub use tuning::{Trial, TrialArtifact, TuningTask, graph_decisions, trial_artifact, tuning_tasks};
