//! The compiler, as this program uses it: requests in, bytes and reasons out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Input;
use hone_artifact::{Extent, Manifest, TensorInfo, Variant, Writer};
use hone_dimensions::{Resolved, Source, is_dynamic};
use hone_driver::ops::Require;
use hone_driver::{
    Backing, Bytes, CodegenError, Combination, CompileError, Compiled, Constants, DataType,
    DynamicDimensions, EvaluateError, Graph, ImportError, ImportOptions, InputBinding, LowerError,
    NodeError, Options, SchedulePolicy, Signature, SizedGraph, Target, Tensor, TensorType,
};

use crate::dimensions;
use crate::failure::{Failure, Result};
use crate::storage::ModelFiles;
pub use crate::target::target;
use crate::tune::store::Recorded;

/// A model's file.
#[derive(Clone, Debug)]
pub struct Model {
    /// What messages call it.
    pub name: String,
    /// The file.
    pub bytes: Bytes,
    /// What keeps its bytes where they are many, and those of tensors stored outside of it.
    pub files: Arc<ModelFiles>,
    /// `sha256:` of it.
    pub digest: String,
    /// Where tensors stored outside of it may lie; local models only.
    pub folder: Option<std::path::PathBuf>,
}

impl Model {
    /// Whether tensors are stored outside of the file, so that its digest does not say what it is:
    /// then the key of an entry of ONNX's `external_data` is among the bytes.
    pub fn has_external_data(&self) -> bool {
        const KEY: &[u8] = b"\x0a\x08location\x12";
        let found = memchr::memmem::find(&self.bytes, KEY).is_some();
        // The search has read all of a mapped model, most of which is weights.
        self.files.release(&self.bytes);
        found
    }

    /// The model, as what decides on its sizes takes it.
    fn source<'a>(&'a self, options: &'a ImportOptions) -> Source<'a> {
        Source { bytes: &self.bytes, options }
    }
}

/// The combinations of sizes that inputs and dimensions shall have, the largest first.
///
/// # Errors
/// `InvalidSpec` for an element type that is none, `InvalidShape` for sizes that do not fit the model or are too many.
pub fn combinations(model: &Model, inputs: &[Input]) -> Result<Vec<Combination>> {
    let options = import_options(model);
    let found = hone_dimensions::combinations(&model.source(&options), inputs);
    found.map_err(|error| dimensions::failure(model, error))
}

/// The sizes that a model is compiled for, of dimensions of any size too.
///
/// # Errors
/// As for [`combinations`]; `InvalidShape` for dimensions that are open and cannot stay so.
pub fn resolve(model: &Model, inputs: &[Input]) -> Result<Resolved> {
    let options = import_options(model);
    let found = hone_dimensions::resolve(&model.source(&options), inputs);
    found.map_err(|error| dimensions::failure(model, error))
}

/// The inputs of each combination, as requests say them.
///
/// # Errors
/// As for [`combinations`].
pub fn requests_of_sizes(model: &Model, inputs: &[Input]) -> Result<Vec<Vec<Input>>> {
    let is_single = |own: &Input| own.shape.iter().all(|extent| extent.single().is_some());
    let known = |own: &Input| is_single(own) && own.shape.len() != 1;
    if inputs.iter().all(known) {
        return Ok(vec![inputs.to_vec()]);
    }
    let request = |combination: Combination| {
        let input = |own: hone_driver::InputBinding| Input {
            name: own.name,
            shape: own.shape.iter().map(|extent| Extent::One(*extent as i64)).collect(),
            dtype: own.dtype.map(|dtype| dtype.name().to_owned()),
        };
        combination.bindings.into_iter().map(input).collect()
    };
    let is_dynamic = inputs.iter().flat_map(|input| &input.shape).any(is_dynamic);
    let combinations = match is_dynamic {
        true => resolve(model, inputs)?.combinations,
        false => combinations(model, inputs)?,
    };
    Ok(combinations.into_iter().map(request).collect())
}

/// The inputs of the only combination of sizes.
///
/// # Errors
/// `InvalidShape` where there are several, which `what` does not take; as for [`combinations`].
pub fn one_size(model: &Model, inputs: &[Input], what: &str) -> Result<Vec<Input>> {
    let mut all = requests_of_sizes(model, inputs)?;
    if all.len() > 1 {
        let message = format!(
            "{what} takes one size of each dimension, {} combinations are given: name one",
            all.len()
        );
        return Err(Failure::new(Reason::InvalidShape, message));
    }
    Ok(all.pop().unwrap_or_default())
}

/// The sizes of a combination in words, such as `batch=4, seq=128`; empty where there is one of each.
pub fn sizes_text(dimensions: &[(String, usize)]) -> String {
    let sizes: Vec<String> =
        dimensions.iter().map(|(name, size)| format!("{name}={size}")).collect();
    sizes.join(", ")
}

/// How a model is compiled, beside the target.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How schedules are chosen.
    pub schedules: SchedulePolicy,
    /// The arithmetic.
    pub precision: DataType,
    /// Names of nodes that stay in `f32` all the same.
    pub wide: Vec<String>,
}

impl Recipe {
    /// Schedules by the analytic model, in one arithmetic.
    pub fn analytic(precision: DataType) -> Self {
        Self { schedules: SchedulePolicy::Analytic, precision, wide: Vec::new() }
    }

    /// Schedules in the plain loop order, in `f32`.
    pub fn naive() -> Self {
        Self { schedules: SchedulePolicy::Naive, ..Self::analytic(DataType::F32) }
    }

    /// The compiler's options for a target.
    pub fn options(&self, target: &Target) -> Options {
        let Self { schedules, precision, wide } = self.clone();
        Options { schedules, precision, wide, ..Options::new(target.clone()) }
    }
}

/// Compiles; `records` have schedules that go before those of the recipe.
///
/// # Errors
/// Every reason of a model's, a target's and of our own fault.
pub fn compile(
    model: &Model,
    inputs: &[Input],
    target: &Target,
    recipe: &Recipe,
    records: &Recorded,
) -> Result<Compiled> {
    compile_parsed(parse(model, inputs)?, model, (target, recipe, records), |writer, manifest| {
        writer.to_bytes(manifest).map_err(|error| cannot_be_compiled(model, error.into()))
    })
}

/// A model as a graph for each combination of sizes.
#[derive(Debug)]
pub struct Parsed {
    graphs: Vec<SizedGraph>,
    dimensions: DynamicDimensions,
    time: Duration,
}

/// The first half of [`compile`]: what needs no target.
///
/// # Errors
/// Every reason of a model's.
pub fn parse(model: &Model, inputs: &[Input]) -> Result<Parsed> {
    let begin = Instant::now();
    let resolved = resolve(model, inputs)?;
    let options = import_options(model);
    let (graphs, dimensions) = resolved
        .import(&model.source(&options))
        .map_err(|error| dimensions::failure(model, error))?;
    Ok(Parsed { graphs, dimensions, time: begin.elapsed() })
}

/// The second half of [`compile`]; `store` takes the artifact, which is nowhere in memory as a whole.
///
/// # Errors
/// Every reason of a target's and of our own fault.
pub fn compile_parsed<A>(
    parsed: Parsed,
    model: &Model,
    (target, recipe, records): (&Target, &Recipe, &Recorded),
    store: impl FnOnce(&Writer<'_>, &Manifest) -> Result<A>,
) -> Result<Compiled<A>> {
    if parsed.graphs.len() > 1 && target.accelerator.is_some() {
        let message = format!(
            "model '{}' cannot be compiled: an artifact for an accelerator has one size of each dimension in this release, {} combinations are given: name one",
            model.name,
            parsed.graphs.len()
        );
        return Err(Failure::new(Reason::NotSupportedYet, message));
    }
    let options = Options { records: records.clone(), ..recipe.options(target) };
    let Parsed { graphs, dimensions, time } = parsed;
    let compiled =
        hone_driver::compile_and_store(graphs, dimensions, &model.digest, &options, store);
    let compiled = compiled.map_err(|error| cannot_be_compiled(model, error))?;
    let Compiled { artifact, references, mut statistics } = compiled;
    statistics.stages.insert(0, ("import", time));
    Ok(Compiled { artifact: artifact?, references, statistics })
}

/// What the importer is told beside the shapes of inputs.
fn import_options(model: &Model) -> ImportOptions {
    let (folder, files) = (model.folder.clone(), model.files.clone());
    ImportOptions {
        folder,
        backing: Some(files),
        inputs_have_room: true,
        ..ImportOptions::default()
    }
}

pub(crate) fn cannot_be_compiled(model: &Model, error: CompileError) -> Failure {
    let reason = compile_reason(&error);
    Failure::because(reason, format!("model '{}' cannot be compiled", model.name), error)
}

/// Names of the nodes of a model whose products are narrow under a recipe, in order.
///
/// # Errors
/// As for [`compile`].
pub fn narrow_nodes(graph: &Graph, target: &Target, recipe: &Recipe) -> Result<Vec<String>> {
    hone_driver::narrow_nodes(graph, &recipe.options(target)).map_err(|error| {
        Failure::because(compile_reason(&error), "the model cannot be compiled", error)
    })
}

/// The name of each pass of a compilation in f32, in order, and the text form of the graph that it left.
///
/// # Errors
/// As for [`compile`].
pub fn passes(graph: &Graph, target: &Target) -> Result<Vec<(&'static str, String)>> {
    let mut left = Vec::new();
    let options = Recipe::analytic(DataType::F32).options(target);
    let mut observe = |pass, graph: &Graph| left.push((pass, graph.to_text(Constants::Digest)));
    hone_driver::prepare_exactly(graph, &options, DataType::F32, &mut observe).map_err(
        |error| Failure::because(compile_reason(&error), "the model cannot be compiled", error),
    )?;
    Ok(left)
}

/// Imports only: the reference that answers are held against, for each of the sizes that an artifact was compiled for.
///
/// # Errors
/// As for [`compile`], of the model.
pub fn references(model: &Model, manifest: &Manifest) -> Result<Vec<Graph>> {
    let variants = manifest.siblings(0).into_iter().map(|place| &manifest.variants[place]);
    let bindings = variants.map(|own| Combination {
        dimensions: Vec::new(),
        bindings: bindings_of(&manifest.inputs_of(own)[..manifest.given_inputs()]),
    });
    let graphs = imported(model, &bindings.collect::<Vec<_>>())?;
    as_compiled(model, manifest, graphs.into_iter().map(|own| own.graph).collect())
}

/// The graphs of an artifact's variants: of plain ones what was imported, of padded ones with the size as an input.
fn as_compiled(model: &Model, manifest: &Manifest, graphs: Vec<Graph>) -> Result<Vec<Graph>> {
    let options = import_options(model);
    let found = hone_dimensions::as_compiled(&model.source(&options), manifest, graphs);
    found.map_err(|error| dimensions::failure(model, error))
}

/// The reference that a variant's answers are held against.
///
/// # Errors
/// As for [`references`].
pub fn reference_of_variant(
    model: &Model,
    manifest: &Manifest,
    variant: &Variant,
) -> Result<Graph> {
    let graph = reference_of(model, &manifest.inputs_of(variant)[..manifest.given_inputs()])?;
    Ok(as_compiled(model, manifest, vec![graph])?.remove(0))
}

/// The reference for inputs of these shapes.
///
/// # Errors
/// As for [`references`].
pub fn reference_of(model: &Model, inputs: &[TensorInfo]) -> Result<Graph> {
    let combination = Combination { dimensions: Vec::new(), bindings: bindings_of(inputs) };
    Ok(imported(model, &[combination])?.remove(0).graph)
}

fn bindings_of(inputs: &[TensorInfo]) -> Vec<InputBinding> {
    let binding = |own: &TensorInfo| InputBinding {
        name: own.name.clone(),
        shape: own.shape.iter().map(|extent| *extent as usize).collect(),
        dtype: None,
    };
    inputs.iter().map(binding).collect()
}

/// The reference for the largest sizes.
///
/// # Errors
/// As for [`combinations`].
pub fn reference(model: &Model, inputs: &[Input]) -> Result<Graph> {
    let combinations = combinations(model, inputs)?;
    let mut graphs = imported(model, &combinations[..1])?;
    Ok(graphs.remove(0).graph)
}

fn imported(model: &Model, combinations: &[Combination]) -> Result<Vec<SizedGraph>> {
    let imported = hone_driver::import_sizes(&model.bytes, &import_options(model), combinations);
    imported.map_err(|error| {
        let (reason, name) = (compile_reason(&error), &model.name);
        Failure::because(reason, format!("model '{name}' cannot be used"), error)
    })
}

/// Inputs and outputs as a model declares them, before anything is bound.
///
/// # Errors
/// Where the file is no model, or declares an input or output wrongly.
pub fn signature(model: &Model) -> Result<Signature> {
    hone_driver::signature(&model.bytes).map_err(|error| {
        let reason = import_reason(&error);
        Failure::because(reason, format!("model '{}' cannot be imported", model.name), error)
    })
}

/// The reference's outputs for `inputs`, all as bytes in the model's order.
///
/// # Errors
/// `InternalError` where the interpreter cannot compute a node.
pub fn evaluate(graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let outputs = evaluate_tensors(graph, &tensors(graph, inputs)?)?;
    Ok(outputs.iter().map(|tensor| tensor.bytes().to_vec()).collect())
}

/// The same of the graph that is compiled under `options`: its operands are rounded as those of the code are.
///
/// # Errors
/// As for [`evaluate`], and every reason of a pass.
pub fn evaluate_prepared(
    graph: &Graph,
    options: &Options,
    inputs: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>> {
    let prepared = hone_driver::prepare(graph, options).map_err(|error| {
        Failure::because(compile_reason(&error), "the model cannot be compiled", error)
    })?;
    evaluate(&prepared, inputs)
}

/// The bytes of each output, and the shape of each.
pub type Shaped = (Vec<Vec<u8>>, Vec<Vec<u64>>);

/// The same, and the shape that each output has: that of its type, but for extents that are decided at run time.
///
/// # Errors
/// As for [`evaluate`].
pub fn evaluate_shaped(graph: &Graph, inputs: &[Vec<u8>]) -> Result<Shaped> {
    let failed = |error: EvaluateError| reference_failed(error.into());
    let inputs = tensors(graph, inputs)?;
    let mut evaluation = hone_driver::Evaluation::new(graph, &inputs).map_err(failed)?;
    graph.nodes().ids().try_for_each(|node| evaluation.compute(node)).map_err(failed)?;
    let shape = |port: &hone_driver::Port| -> Vec<u64> {
        graph.tensor_type(port.value).shape.iter().map(|extent| *extent as u64).collect()
    };
    let mut shapes: Vec<Vec<u64>> = graph.outputs().iter().map(shape).collect();
    for (extent, actual) in graph.extents().iter().zip(evaluation.extents()) {
        shapes[extent.output][extent.axis] = actual;
    }
    let outputs = evaluation.outputs().iter().map(|tensor| tensor.bytes().to_vec()).collect();
    Ok((outputs, shapes))
}

/// The same of tensors.
///
/// # Errors
/// As for [`evaluate`].
pub fn evaluate_tensors(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    hone_driver::evaluate(graph, inputs).map_err(|error| reference_failed(error.into()))
}

/// The graph's inputs as tensors, from their bytes in the model's order.
///
/// # Errors
/// `InternalError` for bytes of another size.
pub fn tensors(graph: &Graph, inputs: &[Vec<u8>]) -> Result<Vec<Tensor>> {
    let ports = graph.inputs().iter().zip(inputs);
    let tensors = ports.map(|(port, bytes)| {
        Tensor::from_bytes(graph.tensor_type(port.value).clone(), bytes.clone())
    });
    let tensors: std::result::Result<Vec<Tensor>, _> = tensors.collect();
    tensors.map_err(|error| reference_failed(error.into()))
}

/// A reference that cannot be computed.
pub fn reference_failed(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    if let Some(EvaluateError::Node { operation, .. }) = error.downcast_ref::<EvaluateError>()
        && *operation == Require::NAME
    {
        let message = "the inputs do not give the shapes that the model declares; give samples that do (correctness.samples)";
        return Failure::because(Reason::InvalidInput, message, error);
    }
    let message = "the reference cannot be computed; please report this with the model";
    Failure::because(Reason::InternalError, message, error)
}

/// Inputs or outputs of a graph, as an artifact describes them.
///
/// # Errors
/// `InternalError` for sizes beyond any memory, which the importer refuses.
pub fn ports(graph: &Graph, outputs: bool) -> Result<Vec<hone_artifact::TensorInfo>> {
    let ports = if outputs { graph.outputs() } else { graph.inputs() };
    let describe = |port: &hone_driver::Port| {
        let TensorType { dtype, shape } = graph.tensor_type(port.value);
        let name = dtype.name();
        let dtype = hone_artifact::DataType::ALL.into_iter().find(|known| known.name() == name)?;
        let shape = shape.iter().map(|extent| *extent as u64).collect();
        hone_artifact::TensorInfo::new(&port.name, dtype, shape)
    };
    let all: Option<Vec<_>> = ports.iter().map(describe).collect();
    all.ok_or_else(|| {
        let message = "an input or output is too large; please report this with the model";
        Failure::new(Reason::InternalError, message)
    })
}

fn compile_reason(error: &CompileError) -> Reason {
    match error {
        CompileError::Import(error) => import_reason(error),
        CompileError::Verify { .. } => Reason::VerifierError,
        CompileError::Codegen(error) if matches!(**error, CodegenError::Target { .. }) => {
            Reason::TargetMismatch
        }
        CompileError::TooLarge { .. } | CompileError::Lower(LowerError::TooLarge { .. }) => {
            Reason::TooLarge
        }
        CompileError::Accelerator { .. } => Reason::NotSupportedYet,
        _ => Reason::CompilerError,
    }
}

/// The reason behind what the importer refuses.
pub fn import_reason(error: &ImportError) -> Reason {
    match error {
        ImportError::Unbound(_) | ImportError::Binding { .. } => Reason::InvalidShape,
        ImportError::Unsupported(_) => Reason::UnsupportedOperator,
        ImportError::TooLarge { .. } => Reason::TooLarge,
        ImportError::Verify(_) => Reason::VerifierError,
        ImportError::External { source: Some(source), .. }
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Reason::NotFound
        }
        ImportError::Node { source, .. } => node_reason(source),
        _ => Reason::InvalidModel,
    }
}

fn node_reason(error: &NodeError) -> Reason {
    match error {
        NodeError::Unsupported(_)
        | NodeError::UndecidedSize { .. }
        | NodeError::Unbounded { .. } => Reason::UnsupportedOperator,
        NodeError::Infer(_) => Reason::InvalidShape,
        NodeError::Inner(inner) => import_reason(inner),
        _ => Reason::InvalidModel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_beyond_the_limit_has_a_reason_of_its_own() {
        let error = LowerError::TooLarge {
            node: "pad".to_string(),
            operation: "convolution",
            buffer: "pad".to_string(),
            tensor_type: TensorType::new(DataType::F32, [1 << 40]),
            limit: 16 << 30,
        };
        assert_eq!(compile_reason(&CompileError::Lower(error)), Reason::TooLarge);
    }
}
