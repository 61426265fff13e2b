//! The whole path, in order: model file, graph, passes, tensor programs, schedules, machine code,
//! artifact.

use crate::artifact::{PlannedGraph, assemble};
use crate::device;
use crate::device_attention::{self, Names};
use crate::kernels::{Edit, compile_kernels};
use crate::open::DynamicDimensions;
use crate::sizes::{Constants, SizedGraph};
use crate::steps::{Weights, plan_steps};
use crate::{CompileError, Options, SchedulePolicy};
use bytes::Bytes;
use hone_artifact::{BUFFER_ALIGNMENT, Manifest, WriteError, Writer};
use hone_codegen::Target;
use hone_graph::Node;
use hone_import::{ImportOptions, Imported};
use hone_machine::TILE_ROW_BYTES;
use hone_ops::{FusionClass, Graph, Op};
use hone_passes as passes;
use hone_passes::{GraphDecisions, LayoutOptions, PassError, over_regions};
use hone_tensor::Program;
use hone_types::DataType;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A compiled model.
#[derive(Debug)]
pub struct Compiled<A = Vec<u8>> {
    /// The artifact file's bytes; or what became of them, where they were stored.
    pub artifact: A,
    /// The model as [`import`] gives it, for each combination of sizes in the order of the artifact's variants: the
    /// reference for verification.
    pub references: Vec<Graph>,
    /// What the compilation did.
    pub statistics: Statistics,
}

/// Facts about a compilation for reports; never part of the artifact. What depends on sizes is of the first variant.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Each stage and how long it took.
    pub stages: Vec<(&'static str, Duration)>,
    /// Nodes in the imported model.
    pub nodes: usize,
    /// Kernel calls in one run.
    pub steps: usize,
    /// Distinct kernels.
    pub kernels: usize,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes that any arena needs at least.
    pub arena_lower_bound: u64,
    /// Bytes of packed weights.
    pub weight_bytes: u64,
    /// Floating-point operations of one run.
    pub flops: u64,
}

/// Imports a model. Where it computes with 16-bit floats, the graph computes in `f32`: this is what
/// answers are compared with.
pub fn import(model: &[u8], options: &ImportOptions) -> Result<Imported, CompileError> {
    import_shared(&Bytes::copy_from_slice(model), options)
}

/// As [`import`]; the tensors that the model stores are parts of `model`, and are not copied.
///
/// # Errors
/// As for [`import`].
pub fn import_shared(model: &Bytes, options: &ImportOptions) -> Result<Imported, CompileError> {
    let imported = hone_import::import_shared(model, options)?;
    let pass = "extend_precision";
    let graph = passes::over_regions(&imported.graph, &passes::extend_precision)
        .map_err(|source| CompileError::Pass { pass, source })?;
    graph.verify().map_err(|source| CompileError::Verify { pass, source: Box::new(source) })?;
    Ok(Imported { graph, ..imported })
}

/// Compiles a model: `model` holds the file's bytes.
pub fn compile(
    model: &[u8],
    import_options: &ImportOptions,
    options: &Options,
) -> Result<Compiled, CompileError> {
    let mut clock = Clock::default();
    let imported = import(model, import_options)?;
    clock.lap("import");
    let graphs = (vec![imported.graph.into()], DynamicDimensions::default());
    in_memory(compile_from(graphs, &digest(model), options, &mut |_, _| {}, clock, to_bytes)?)
}

/// Compiles a graph; `identity` stands for the model's bytes in its digest.
pub fn compile_graph(
    graph: Graph,
    identity: &[u8],
    options: &Options,
) -> Result<Compiled, CompileError> {
    compile_edited(graph, identity, options, &mut |_, _| {})
}

/// Compiles a graph whose scheduled programs are changed before code is made of them: `edit` gets the number
/// of each kernel and its program. What comes out computes something else than the graph: it is for
/// tests of what verification notices.
pub fn compile_edited(
    graph: Graph,
    identity: &[u8],
    options: &Options,
    edit: &mut dyn FnMut(usize, &mut Program),
) -> Result<Compiled, CompileError> {
    let graphs = (vec![graph.into()], DynamicDimensions::default());
    let clock = Clock::default();
    in_memory(compile_from(graphs, &digest(identity), options, edit, clock, to_bytes)?)
}

/// Compiles a graph for each of some combinations of sizes, the largest first, into one artifact; `graphs` is not
/// empty. Equal kernels and constants are in it once. It runs at further sizes of `dimensions` than the graphs have; that
/// the graphs serve them is shown before ([`hone_passes::Independence`], [`hone_passes::pad_dimension`]).
pub fn compile_dynamic(
    graphs: Vec<SizedGraph>,
    dimensions: DynamicDimensions,
    identity: &[u8],
    options: &Options,
) -> Result<Compiled, CompileError> {
    in_memory(compile_and_store(graphs, dimensions, &digest(identity), options, to_bytes)?)
}

/// As [`compile_dynamic`], with the artifact stored by `store`, so that its weights are never in memory twice; of the
/// model it takes the digest, `sha256:…`.
pub fn compile_and_store<A>(
    graphs: Vec<SizedGraph>,
    dimensions: DynamicDimensions,
    model_digest: &str,
    options: &Options,
    store: impl FnOnce(&Writer<'_>, &Manifest) -> A,
) -> Result<Compiled<A>, CompileError> {
    let clock = Clock::default();
    compile_from((graphs, dimensions), model_digest, options, &mut |_, _| {}, clock, store)
}

/// The digest by which an artifact knows its model.
fn digest(model: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(model))
}

fn to_bytes(writer: &Writer<'_>, manifest: &Manifest) -> Result<Vec<u8>, WriteError> {
    writer.to_bytes(manifest)
}

/// A model whose artifact was written to memory, if it could be.
fn in_memory(compiled: Compiled<Result<Vec<u8>, WriteError>>) -> Result<Compiled, CompileError> {
    let Compiled { artifact, references, statistics } = compiled;
    Ok(Compiled { artifact: artifact?, references, statistics })
}

fn compile_from<A>(
    (sized, dimensions): (Vec<SizedGraph>, DynamicDimensions),
    model_digest: &str,
    options: &Options,
    edit: Edit<'_>,
    mut clock: Clock,
    store: impl FnOnce(&Writer<'_>, &Manifest) -> A,
) -> Result<Compiled<A>, CompileError> {
    let mut constants = Constants::default();
    let mut graphs = Vec::with_capacity(sized.len());
    let decisions = options.graph_decisions();
    for graph in &sized {
        let mut graph = prepare_deciding(&graph.graph, options, &decisions)?;
        if sized.len() > 1 {
            constants.share(&mut graph);
        }
        graphs.push(graph);
    }
    let options = &options.with_used(&decisions.into_taken());
    clock.lap("passes");
    let all: Vec<&Graph> = graphs.iter().collect();
    let kernels =
        compile_kernels((&all, dimensions.padded.as_ref()), options, edit, &mut |stage| {
            clock.lap(stage)
        })?;
    let mut weights = Weights::default();
    let plan = |(index, graph): (usize, &'_ Graph)| {
        plan_steps(graph, &kernels.graphs[index], &kernels, &mut weights)
    };
    let plans: Vec<_> = all.iter().copied().enumerate().map(plan).collect();
    let planned = all.iter().zip(&sized).zip(plans).map(|((graph, sized), plan)| PlannedGraph {
        graph,
        dimensions: &sized.dimensions,
        plan,
    });
    let planned: Vec<PlannedGraph<'_>> = planned.collect();
    clock.lap("memory plan");
    let (writer, manifest) =
        assemble(model_digest, (&planned, dimensions), &kernels, &weights, options)?;
    let artifact = store(&writer, &manifest);
    drop(writer);
    clock.lap("artifact");
    let plan = &planned[0].plan;
    let statistics = Statistics {
        stages: clock.laps,
        nodes: sized[0].graph.nodes().len(),
        steps: plan.steps.len(),
        kernels: kernels.kernels.len(),
        arena_bytes: plan.arena_bytes,
        arena_lower_bound: plan.arena_lower_bound,
        weight_bytes: weights.length(),
        flops: plan.steps.iter().map(|step| step.flops).sum(),
    };
    drop(planned);
    let references = sized.into_iter().map(|sized| sized.graph).collect();
    Ok(Compiled { artifact, references, statistics })
}

/// Runs the passes in order, each over the regions of nodes too, checking the graph after each.
pub fn prepare(graph: &Graph, options: &Options) -> Result<Graph, CompileError> {
    prepare_deciding(graph, options, &options.graph_decisions())
}

/// As [`prepare`], with the decisions of passes noted.
pub(crate) fn prepare_deciding(
    graph: &Graph,
    options: &Options,
    decisions: &GraphDecisions,
) -> Result<Graph, CompileError> {
    device::check_options(options)?;
    let mut left = Names::new();
    loop {
        let prepared = prepare_leaving(graph, options, (decisions, &left))?;
        let refused = device_attention::refused(&prepared, options)?;
        if refused.is_subset(&left) {
            return Ok(prepared);
        }
        left.extend(refused);
    }
}

/// As [`prepare_deciding`], where attentions of some names are not joined for tensor cores.
fn prepare_leaving(
    graph: &Graph,
    options: &Options,
    (decisions, left): (&GraphDecisions, &Names),
) -> Result<Graph, CompileError> {
    let all = (DataType::F32, decisions, left);
    let exact = exactly_deciding(graph, options, all, &mut |_, _| {})?;
    let prepared = match options.precision {
        DataType::F32 => exact,
        precision => {
            let names: HashSet<&str> = options.wide.iter().map(String::as_str).collect();
            let wide = |node: &Node<Op>| names.contains(node.name.as_str());
            let narrow = |graph: &Graph| match options.target.accelerator {
                None => passes::narrow(graph, precision, &wide),
                Some(_) => passes::narrow_plain(graph, precision, &wide),
            };
            let narrow = checked("narrow", over_regions(&exact, &narrow))?;
            match options.target.accelerator {
                None => join_in_memory(&narrow, DataType::F32, &mut |_, _| {})?,
                Some(_) => narrow,
            }
        }
    };
    store_narrow(&prepared, options)
}

/// Stores weights that are numbers of 16 bits as such. It is the last pass: how weights are packed, and what becomes of
/// them, is known then.
fn store_narrow(graph: &Graph, options: &Options) -> Result<Graph, CompileError> {
    let target = &options.target;
    // Without schedules a conversion would be a pass over the weights of its own.
    if target.accelerator.is_some() || options.schedules == SchedulePolicy::Naive {
        return Ok(graph.clone());
    }
    let machine = target.machine();
    let weights = passes::NarrowWeightOptions {
        types: target.narrow_floats(),
        rates: machine.typical_rates(),
        cache: machine.panel_limit(),
    };
    let narrow = |graph: &Graph| passes::narrow_weights(graph, weights);
    checked("narrow_weights", over_regions(graph, &narrow))
}

/// Runs the passes that keep every value but for the rounding of arithmetic: all but `narrow`, which is the
/// last. `working` is `f32`, or `f64` for a graph that was lifted to it. `observe` gets the name of
/// each pass and the graph that it left.
pub fn prepare_exactly(
    graph: &Graph,
    options: &Options,
    working: DataType,
    observe: &mut dyn FnMut(&'static str, &Graph),
) -> Result<Graph, CompileError> {
    let all = (working, &options.graph_decisions(), &Names::new());
    exactly_deciding(graph, options, all, observe)
}

fn exactly_deciding(
    graph: &Graph,
    options: &Options,
    (working, decisions, left): (DataType, &GraphDecisions, &Names),
    observe: &mut dyn FnMut(&'static str, &Graph),
) -> Result<Graph, CompileError> {
    if options.target.accelerator.is_some() {
        let layouts: Pass<'_> =
            ("choose_device_layouts", &|graph| device::choose_layouts(graph, options, working));
        let attention: Pass<'_> = ("fuse_device_attention", &|graph| {
            device::fuse_attention(graph, (options, left), working)
        });
        let quantized: Pass<'_> = ("multiply_device_quantized", &|graph| {
            device::multiply_quantized(graph, options, working)
        });
        let [decomposing, before, after] = device::PASSES;
        let list = [decomposing, &[quantized], before, &[attention, layouts], after].concat();
        return run_passes(graph, &list, observe);
    }
    let block = options.target.vector_bytes / 4;
    let integers = integer_weights(&options.target);
    let quantized = integers.filter(|narrow| options.target.multiplies_faster(*narrow));
    let products = hone_ops::products_of(options.precision).unwrap_or(1);
    let analytic = options.schedules == SchedulePolicy::Analytic;
    // Products in tiles take less time than Winograd's transforms.
    let filters = analytic && !(products > 1 && options.target.machine().has_tiles);
    let rates = filters.then(|| options.target.machine().typical_rates());
    // Where products of integers gain little, Winograd's fewer products of `f32` are faster.
    let outruns =
        quantized.is_some_and(|narrow| options.target.multiplies_faster_than_filtering(narrow));
    let filtering = rates.filter(|_| !outruns);
    let (decisions, integers_too) = (Some(decisions), integers.is_some());
    let tile_row = options.target.machine().has_tiles.then_some(TILE_ROW_BYTES);
    let layout = LayoutOptions {
        block,
        products,
        integers: integers_too,
        tile_row,
        rates,
        working,
        decisions,
    };
    let list: &[Pass<'_>] = &[
        ("extend_precision", &passes::extend_precision),
        ("eliminate_common_subexpressions", &passes::eliminate_common_subexpressions),
        ("delay_broadcasts", &passes::delay_broadcasts),
        ("assign_to_runtime", &passes::assign_to_runtime),
        ("decompose", &passes::decompose),
        ("sum_in_rows", &passes::sum_in_rows),
        ("move_quantized", &passes::move_quantized),
        ("multiply_blocks", &|graph| passes::multiply_blocks(graph, block, working)),
        ("shift_signed_bytes", &|graph| match quantized {
            Some(_) => passes::shift_signed_bytes(graph),
            None => Ok(graph.clone()),
        }),
        ("multiply_quantized", &|graph| match quantized {
            Some(narrow) => passes::multiply_quantized(graph, narrow, filtering.as_ref(), working),
            None => Ok(graph.clone()),
        }),
        ("fold_constants", &passes::fold_constants),
        ("multiply_multiples", &|graph| match quantized {
            Some(DataType::I8) => passes::multiply_multiples(graph),
            _ => Ok(graph.clone()),
        }),
        ("multiply_recurrent_multiples", &|graph| match quantized {
            Some(DataType::I8) => passes::multiply_recurrent_multiples(graph, block),
            _ => Ok(graph.clone()),
        }),
        ("narrow_recurrent_weights", &|graph| {
            passes::narrow_recurrent_weights(graph, options.target.machine().panel_limit())
        }),
        ("fold_batch_norm", &passes::fold_batch_norm),
        ("simplify", &passes::simplify),
        ("narrow_integers", &|graph| match integers {
            Some(DataType::I16) => passes::narrow_integers(graph),
            _ => Ok(graph.clone()),
        }),
        ("recognize_group_normalization", &passes::recognize_group_normalization),
        ("separate_taps", &passes::separate_taps),
        ("separate_groups", &passes::separate_groups),
        ("separate_pools", &passes::separate_pools),
        ("divide_by_multiplying", &passes::divide_by_multiplying),
        ("scale_filters", &passes::scale_filters),
        ("merge_scales", &passes::merge_scales),
        ("fuse_attention", &|graph| match options.schedules {
            SchedulePolicy::Analytic => passes::fuse_attention(graph, block, working),
            SchedulePolicy::Naive => Ok(graph.clone()),
        }),
        ("choose_layouts", &|graph| passes::choose_layouts(graph, layout)),
        ("multiply_integers", &|graph| match integers {
            Some(_) => passes::multiply_integers(graph, 2 * block),
            None => Ok(graph.clone()),
        }),
        ("pack_matmul_operands", &|graph| passes::pack_matmul_operands(graph, block, working)),
        ("interleave_gates", &|graph| passes::interleave_gates(graph, 2 * block)),
        ("pack_recurrent_weights", &|graph| passes::pack_recurrent_weights(graph, block, working)),
        ("fold_constants", &passes::fold_constants),
        ("simplify", &passes::simplify),
        ("pad_integers", &passes::pad_integers),
        ("pad_pools", &passes::pad_pools),
        ("split_reductions", &passes::split_reductions),
        ("separate_outputs", &passes::separate_outputs),
    ];
    let graph = run_passes(graph, list, observe)?;
    match options.precision {
        DataType::F32 => join_in_memory(&graph, working, observe),
        // What is stored, and how, is decided later.
        _ => Ok(graph),
    }
}

/// The passes by which concatenations cost nothing: the last ones, since they look at what becomes a kernel and at how
/// its results are stored.
fn join_in_memory(
    graph: &Graph,
    working: DataType,
    observe: &mut dyn FnMut(&'static str, &Graph),
) -> Result<Graph, CompileError> {
    let sub_buffers = passes::SubBuffers { alignment: BUFFER_ALIGNMENT as usize, working };
    let list: &[Pass<'_>] = &[
        ("nest_concatenations", &|graph| passes::nest_concatenations(graph, sub_buffers)),
        ("alias_concatenations", &|graph| passes::alias_concatenations(graph, sub_buffers)),
    ];
    run_passes(graph, list, observe)
}

/// The type of the weights that a machine multiplies integers by: bytes where that is faster than `f32`, else 16 bits
/// where there are instructions for pairs of them.
fn integer_weights(target: &Target) -> Option<DataType> {
    let multiplies = |narrow: &DataType| target.multiplies(*narrow);
    match target.multiplies_faster(DataType::I8) {
        true => Some(DataType::I8),
        false => [DataType::I16, DataType::I8].into_iter().find(multiplies),
    }
}

/// A pass and its name.
pub(crate) type Pass<'a> = (&'static str, &'a (dyn Fn(&Graph) -> Result<Graph, PassError> + Sync));

fn run_passes(
    graph: &Graph,
    list: &[Pass<'_>],
    observe: &mut dyn FnMut(&'static str, &Graph),
) -> Result<Graph, CompileError> {
    let mut graph = graph.clone();
    for (pass, run) in list {
        graph = checked(pass, over_regions(&graph, *run))?;
        observe(pass, &graph);
    }
    Ok(graph)
}

/// What a pass left, verified.
fn checked(pass: &'static str, left: Result<Graph, PassError>) -> Result<Graph, CompileError> {
    let graph = left.map_err(|source| CompileError::Pass { pass, source })?;
    graph.verify().map_err(|source| CompileError::Verify { pass, source: Box::new(source) })?;
    Ok(graph)
}

/// Names of the nodes whose products are narrow under these options, in the order in which they run.
pub fn narrow_nodes(graph: &Graph, options: &Options) -> Result<Vec<String>, CompileError> {
    let graph = prepare(graph, options)?;
    let is_narrow = |node: &Node<Op>| {
        let weights = node.inputs.get(1).copied().flatten();
        node.operation.fusion_class() == FusionClass::ComplexOutFusable
            && weights.is_some_and(|weights| graph.tensor_type(weights).dtype == options.precision)
    };
    let nodes = graph.nodes().iter().map(|(_, node)| node).filter(|node| is_narrow(node));
    let mut names: Vec<String> = nodes.map(|node| node.name.clone()).collect();
    names.dedup();
    Ok(names)
}

/// Times the stages.
struct Clock {
    since: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { since: Instant::now(), laps: Vec::new() }
    }
}

impl Clock {
    fn lap(&mut self, stage: &'static str) {
        self.laps.push((stage, self.since.elapsed()));
        self.since = Instant::now();
    }
}
