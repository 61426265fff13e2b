//! Puts code, weights and the step table into one file.

use crate::kernels::CompiledKernels;
use crate::open::DynamicDimensions;
use crate::steps::{StepPlan, Weights};
use crate::{CompileError, Options};
use hone_artifact::{
    Accelerator, DataType, DimensionSize, Inspect, Interface, KernelText, Manifest, Member,
    MemberForm, Shapes, Target, TensorInfo, Variant, Writer, c_header,
};
use hone_graph::Port;
use hone_ops::Graph;
use std::collections::HashSet;

/// A prepared graph and the sizes that it is for.
pub(crate) struct PlannedGraph<'a> {
    pub(crate) graph: &'a Graph,
    /// The open dimensions that differ between graphs; empty where there is one graph.
    pub(crate) dimensions: &'a [(String, usize)],
    pub(crate) plan: StepPlan,
}

/// The artifact, ready to be written: a variant for each of the graphs, which is not empty, the first for the largest
/// sizes, and what is said of further sizes. Code and weights are not copied.
pub(crate) fn assemble<'a>(
    model_digest: &str,
    (graphs, dimensions): (&[PlannedGraph<'_>], DynamicDimensions),
    kernels: &'a CompiledKernels,
    packed: &'a Weights,
    options: &Options,
) -> Result<(Writer<'a>, Manifest), CompileError> {
    let mut writer = Writer::new();
    let code = writer.code(kernels.code.as_slice());
    let weights = writer.weights_of(packed.pieces());
    let scratch = kernels.kernels.iter().flat_map(|kernel| &kernel.functions);
    let scratch = scratch.map(|function| function.scratch_bytes).max().unwrap_or(0);
    let variant = |planned: &PlannedGraph<'_>| Variant {
        target: manifest_target(&options.target),
        code,
        weights,
        weights_bytes: packed.length(),
        arena_bytes: planned.plan.arena_bytes,
        scratch_bytes_per_thread: scratch,
        steps: planned.plan.steps.clone(),
        program: planned.plan.program.clone(),
        extents: planned.plan.extents.clone(),
        shapes: (!planned.dimensions.is_empty()).then(|| shapes(planned)),
        device: kernels.device.clone(),
        recipe: Some(options.recipe()),
    };
    graphs.iter().try_for_each(|planned| check_plan(planned, &dimensions, options))?;
    let graph = graphs[0].graph;
    let variants: Vec<Variant> = graphs.iter().map(variant).collect();
    let manifest = Manifest {
        schema_version: dimensions
            .padded
            .as_ref()
            .map_or(0, hone_artifact::PaddedDimension::version_needed)
            .max(Manifest::version_needed(&variants)),
        model_digest: model_digest.to_owned(),
        compiler_version: env!("CARGO_PKG_VERSION").to_string(),
        records_digest: kernels.records_digest.clone(),
        inputs: ports("input", graph, graph.inputs())?,
        outputs: ports("output", graph, graph.outputs())?,
        interface: interface(graph.interface()),
        open: dimensions.open,
        padded: dimensions.padded,
        variants,
    };
    writer.header(c_header(&manifest, "model"));
    if options.keep_inspection {
        writer.inspect(inspection(kernels));
    }
    Ok((writer, manifest))
}

/// That what runs the artifact can: for WebGPU there is no runtime of ours, and who runs such an artifact launches its
/// steps one after another, on inputs of the sizes that were compiled.
fn check_plan(
    planned: &PlannedGraph<'_>,
    dimensions: &DynamicDimensions,
    options: &Options,
) -> Result<(), CompileError> {
    let Some(accelerator @ Accelerator::WebGpu) = options.target.accelerator else { return Ok(()) };
    let refused = |what, advice| Err(CompileError::Accelerator { accelerator, what, advice });
    if !planned.plan.program.is_empty() {
        let advice = "compile for opencl, one of NVIDIA's architectures or a processor";
        return refused("control flow and functions of the runtime", advice);
    }
    if dimensions.padded.is_some() {
        return refused("every size of a dimension up to a bound", "name one size of it");
    }
    Ok(())
}

/// Longest name of a dimension in an artifact, in characters.
const LONGEST_NAME: usize = 64;

fn shapes(planned: &PlannedGraph<'_>) -> Shapes {
    let shape = |port: &Port| {
        planned.graph.tensor_type(port.value).shape.iter().map(|extent| *extent as u64).collect()
    };
    let dimension = |(name, size): &(String, usize)| DimensionSize {
        name: name.chars().filter(|character| !character.is_control()).take(LONGEST_NAME).collect(),
        size: *size as u64,
    };
    Shapes {
        dimensions: planned.dimensions.iter().map(dimension).collect(),
        inputs: planned.graph.inputs().iter().map(shape).collect(),
        outputs: planned.graph.outputs().iter().map(shape).collect(),
    }
}

/// The artifact's form of what a model takes and gives beside tensors of numbers.
fn interface(stated: &hone_graph::Interface) -> Interface {
    if stated.is_plain() {
        return Interface::default();
    }
    let member = |member: &hone_graph::Member| Member {
        name: member.name.clone(),
        form: match member.form {
            hone_graph::MemberForm::Tensor => MemberForm::Tensor,
            hone_graph::MemberForm::Sequence(count) => MemberForm::Sequence(count as u32),
            hone_graph::MemberForm::Maps => MemberForm::Maps,
            hone_graph::MemberForm::Map { text_values } => MemberForm::Map { text_values },
            hone_graph::MemberForm::Absent => MemberForm::Absent,
        },
        text: member.text,
    };
    Interface {
        inputs: stated.inputs.iter().map(member).collect(),
        outputs: stated.outputs.iter().map(member).collect(),
        texts: stated.texts.clone(),
    }
}

/// Features that kernels may execute; the others that a processor has are of no use to them.
const KERNEL_FEATURES: &[&str] = &[
    "sse4.1",
    "sse4.2",
    "popcnt",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "bmi",
    "bmi2",
    "lzcnt",
    "movbe",
    "avx512f",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "avx512fp16",
    "avx512ifma",
    "avx512vbmi",
    "avx512vbmi2",
    "avxvnni",
    "amx-bf16",
    "amx-int8",
    "amx-tile",
    "neon",
    "dotprod",
    "fullfp16",
    "bf16",
    "i8mm",
    "sve",
    "v",
    // Vectors that are wider than V's least: code for them is wrong on narrower ones.
    "zvl256b",
    "zvl512b",
    "zvl1024b",
];

/// A target as a manifest describes it: with the features that kernels may execute, and no others; with none where
/// an accelerator executes the kernels.
pub fn manifest_target(target: &crate::Target) -> Target {
    let features = target.resolved.iter().filter_map(|feature| feature.strip_prefix('+'));
    let runs = |feature: &&str| target.accelerator.is_none() && KERNEL_FEATURES.contains(feature);
    let mut features: Vec<String> = features.filter(runs).map(String::from).collect();
    features.sort_unstable();
    features.dedup();
    let (triple, cpu) = (target.triple.clone(), target.cpu.clone());
    Target { triple, cpu, features, accelerator: target.accelerator }
}

fn ports(
    kind: &'static str,
    graph: &Graph,
    ports: &[Port],
) -> Result<Vec<TensorInfo>, CompileError> {
    let describe = |port: &Port| {
        let tensor_type = graph.tensor_type(port.value);
        let shape = tensor_type.shape.iter().map(|extent| *extent as u64).collect();
        TensorInfo::new(&port.name, data_type(tensor_type.dtype), shape).ok_or_else(|| {
            let (name, tensor_type) = (port.name.clone(), tensor_type.clone());
            CompileError::TooLarge { kind, name, tensor_type }
        })
    };
    ports.iter().map(describe).collect()
}

fn inspection(kernels: &CompiledKernels) -> Inspect {
    let uses: Vec<HashSet<usize>> = kernels
        .graphs
        .iter()
        .map(|graph| graph.calls().iter().map(|call| call.kernel).collect())
        .collect();
    let first =
        |number: usize| uses.iter().position(|variants| variants.contains(&number)).unwrap_or(0);
    let texts = kernels.kernels.iter().enumerate().map(|(number, kernel)| KernelText {
        variant: first(number) as u32,
        kernel: kernel.symbol.clone(),
        trace: format!("template {}\n{}", kernel.template, kernel.trace),
        program: kernel.program.to_string(),
    });
    Inspect { kernels: texts.collect() }
}

/// The artifact's own name of an element type; artifacts depend on nothing of the compiler.
pub(crate) fn data_type(dtype: hone_types::DataType) -> DataType {
    use hone_types::DataType as Own;
    match dtype {
        Own::F32 => DataType::F32,
        Own::F64 => DataType::F64,
        Own::F16 => DataType::F16,
        Own::BF16 => DataType::Bf16,
        Own::I8 => DataType::I8,
        Own::I16 => DataType::I16,
        Own::I32 => DataType::I32,
        Own::I64 => DataType::I64,
        Own::U8 => DataType::U8,
        Own::U16 => DataType::U16,
        Own::U32 => DataType::U32,
        Own::U64 => DataType::U64,
        Own::Bool => DataType::Bool,
    }
}
