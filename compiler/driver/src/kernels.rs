//! Groups to kernels: lower, schedule, generate code. Equal programs are compiled once.

use crate::abreast::{bring_together, runs_in_order};
use crate::device;
use crate::prefix::{NeededCall, needed_calls};
use crate::schedule::{Unscheduled, schedule_all};
use crate::storage::{Buffers, Roots, SubBuffer};
use crate::sub_buffers::SubBuffers;
use crate::{CompileError, Options};
use blake3::{Hash, Hasher};
use hone_artifact::{DeviceCode, PaddedDimension};
use hone_codegen::{Kernel, Unit};
use hone_graph::{Node, NodeId, ValueId};
use hone_lower::{Expressed, Lowered};
use hone_ops::{Cast, Graph, Op, node_flops};
use hone_passes::{Group, fuse};
use hone_tensor::{Builder, Expr, Need, Prefix, Program, Role, Scope};
use hone_tune::Scheduled;
use hone_types::{DataType, Tensor, TensorType};
use sha2::{Digest as _, Sha256};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug, Write};

/// Everything the code generator made, and which group uses what.
#[derive(Debug)]
pub struct CompiledKernels {
    /// Distinct kernels in order of first use.
    pub kernels: Vec<KernelInfo>,
    /// One shared object with all kernels, or their text for an accelerator.
    pub code: Vec<u8>,
    /// How an accelerator runs them.
    pub device: Option<DeviceCode>,
    /// What calls which kernel, for each graph.
    pub graphs: Vec<LoweredGraph>,
    /// `sha256:` of the recorded schedules that were used; `None` where none was.
    pub records_digest: Option<String>,
}

/// A graph's groups and what they became.
#[derive(Debug)]
pub struct LoweredGraph {
    /// The graph's groups, in order.
    pub groups: Vec<Group>,
    /// For each group that computes something: its kernel and its values, or the graphs inside of its node.
    pub items: Vec<LoweredItem>,
    /// Groups that only rename memory: the value they make, and the one it is.
    pub aliases: Vec<(ValueId, ValueId)>,
    /// Groups that only join memory: where what they join lies in what they make.
    pub sub_buffers: Vec<SubBuffer>,
}

impl LoweredGraph {
    /// Every call, those of graphs inside of nodes too, in the order of the steps.
    pub fn calls(&self) -> Vec<&Call> {
        let calls = self.items.iter().flat_map(|item| match item {
            LoweredItem::Call(call) => vec![call],
            LoweredItem::Regions(_, graphs) => graphs.iter().flat_map(Self::calls).collect(),
        });
        calls.collect()
    }
}

/// What a group that computes something became.
#[derive(Debug)]
pub enum LoweredItem {
    /// A call of a kernel.
    Call(Call),
    /// A node with graphs inside: each of them, in the operation's order; or one that the runtime computes itself,
    /// without any.
    Regions(NodeId, Vec<LoweredGraph>),
}

/// A distinct kernel: one scheduled program, which may be several functions run in turn.
#[derive(Debug)]
pub struct KernelInfo {
    /// Symbol stem.
    pub symbol: String,
    /// The scheduled program.
    pub program: Program,
    /// Name of the template that scheduled it.
    pub template: &'static str,
    /// The schedule as text.
    pub trace: String,
    /// One function per top-level statement of the program.
    pub functions: Vec<Kernel>,
}

/// One use of a kernel.
#[derive(Debug)]
pub struct Call {
    /// Index of the kernel.
    pub kernel: usize,
    /// Index of the group of nodes that it computes.
    pub group: usize,
    /// Values of the kernel's parameters.
    pub parameters: Vec<ValueId>,
    /// How many of the parameters are read; the others are written.
    pub inputs: usize,
    /// Names of the nodes it computes.
    pub nodes: Vec<String>,
    /// Floating-point operations.
    pub flops: u64,
    /// Which elements of its results are needed, where not all are; they hold anything elsewhere.
    pub needed: Vec<Need>,
    /// Whether it and the next call run in order and do not depend on each other.
    pub beside_next: bool,
}

/// What may change scheduled programs before code is made of them; gets each with its number.
pub(crate) type Edit<'a> = &'a mut dyn FnMut(usize, &mut Program);

/// Lowers, schedules and compiles every group of some graphs. `lap` is told the name of each finished stage.
pub(crate) fn compile_kernels(
    (graphs, padded): (&[&Graph], Option<&PaddedDimension>),
    options: &Options,
    edit: Edit<'_>,
    lap: &mut dyn FnMut(&'static str),
) -> Result<CompiledKernels, CompileError> {
    let (lowered, programs) = lower_graphs(graphs, (padded, options))?;
    lap("lower");
    if let Some(accelerator) = options.target.accelerator {
        return device::compile_kernels(accelerator, lowered, &programs, edit, lap);
    }
    let scheduled = schedule_all(&programs, options)?;
    let records_digest = records_digest(&scheduled, options);
    let mut kernels: Vec<KernelInfo> = scheduled
        .into_iter()
        .enumerate()
        .map(|(number, scheduled)| KernelInfo {
            symbol: symbol_stem(number),
            template: scheduled.template,
            trace: scheduled.schedule.trace().to_string(),
            program: scheduled.schedule.into_program(),
            functions: Vec::new(),
        })
        .collect();
    for (kernel, unscheduled) in kernels.iter_mut().zip(&programs) {
        if let Some(prefix) = &unscheduled.prefix {
            prefix.limit(&mut kernel.program);
        }
    }
    kernels.iter_mut().enumerate().for_each(|(number, kernel)| edit(number, &mut kernel.program));
    lap("schedule");
    let units: Vec<Unit> = kernels
        .iter()
        .map(|kernel| Unit { symbol: &kernel.symbol, program: &kernel.program })
        .collect();
    let objects =
        hone_codegen::compile(&units, &options.target, &hone_codegen::Options::default())?;
    lap("code generation");
    let code = hone_codegen::link(&objects, &options.target)?;
    lap("link");
    for (kernel, object) in kernels.iter_mut().zip(objects) {
        kernel.functions = object.kernels;
    }
    Ok(CompiledKernels { kernels, code, device: None, graphs: lowered, records_digest })
}

/// The digest of the recorded schedules that were used, in the order of the kernels, and of the decisions about graphs.
fn records_digest(scheduled: &[Scheduled], options: &Options) -> Option<String> {
    let mut hasher = Sha256::new();
    let mut recorded = scheduled.iter().filter(|kernel| kernel.recorded).peekable();
    let mut decisions = options.recorded_decisions().peekable();
    if recorded.peek().is_none() && decisions.peek().is_none() {
        return None;
    }
    for kernel in recorded {
        hasher.update(format!("{}\n{:?}\n", kernel.template, kernel.choices()));
    }
    for (structure, decision) in decisions {
        hasher.update(format!("{structure}\n{:?}\n", decision.choices));
    }
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("sha256:{hex}"))
}

/// Groups of the same form with different scalar constants that get a program each, with the constants in
/// its code. More of them share one program that reads the constants from memory: code for each would
/// take milliseconds to generate and gain a load outside the loops.
const LITERAL_VARIANTS: usize = 32;

/// Lowers groups one after another.
#[derive(Default)]
pub(crate) struct Lowering {
    /// Number of each program, by digest.
    distinct: HashMap<Hash, usize>,
    /// Digests of the scalar constants that came with a program, by digest of the program before they
    /// became literals.
    literals: HashMap<Hash, HashSet<Hash>>,
    programs: Vec<Unscheduled>,
}

/// An item before it has a number.
pub(crate) enum Pending<'a> {
    /// A call of a kernel: the group's number, its program, and the values of the program's parameters.
    Call { group: usize, program: Program, parameters: Vec<ValueId> },
    /// A join that costs nothing: where its inputs lie, and what a kernel would do with its values.
    Joined { sub_buffers: Vec<SubBuffer>, program: Program, parameters: Vec<ValueId> },
    /// A node with graphs inside, or one that the runtime computes.
    Regions(NodeId, Vec<PendingGraph<'a>>),
}

/// A graph whose groups are lowered.
pub(crate) struct PendingGraph<'a> {
    graph: &'a Graph,
    groups: Vec<Group>,
    items: Vec<Pending<'a>>,
    aliases: Vec<(ValueId, ValueId)>,
}

impl Lowering {
    /// Lowers the groups of a graph, which may be inside of a node.
    fn graph<'a>(
        &mut self,
        graph: &'a Graph,
        is_inside: bool,
    ) -> Result<PendingGraph<'a>, CompileError> {
        let groups = fuse(graph);
        let renamed: Vec<_> = groups.iter().map(|group| alias(graph, group)).collect();
        let aliases: Vec<_> = renamed.iter().copied().flatten().collect();
        let roots = Roots::new(&aliases);
        let mut sub_buffers = SubBuffers::new(graph, &roots, is_inside);
        let mut items = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            if renamed[number].is_some() {
                continue;
            }
            let regions = group.nodes.first().map(|node| graph.nodes()[*node].operation.regions());
            let by_runtime = group
                .nodes
                .first()
                .is_some_and(|node| !graph.nodes()[*node].operation.is_compiled());
            match regions.filter(|regions| !regions.is_empty() || by_runtime) {
                Some(regions) => {
                    let regions = regions.into_iter().map(|region| self.graph(region, true));
                    let regions = regions.collect::<Result<_, _>>()?;
                    items.push(Pending::Regions(group.nodes[0], regions));
                }
                None => items.push(match sub_buffers.of(&group.nodes) {
                    Some(sub_buffers) => joined(graph, group, sub_buffers)?,
                    None => self.group(graph, number, group)?,
                }),
            }
        }
        Ok(PendingGraph { graph, groups, items, aliases })
    }

    /// Lowers a group of nodes; `number` is its number in the graph.
    pub(crate) fn group<'a>(
        &mut self,
        graph: &Graph,
        number: usize,
        group: &Group,
    ) -> Result<Pending<'a>, CompileError> {
        let last = last_node(graph, group);
        let expressed = Expressed::new(graph, &group.nodes, &last.outputs)?;
        let Lowered { program, parameters } = match self.is_worth_literals(graph, &expressed) {
            true => expressed.with_literals(graph),
            false => expressed.with_parameters(),
        };
        Ok(Pending::Call { group: number, program, parameters })
    }

    /// Gives programs their numbers. `padded` is the dimension whose size is the graph's last input.
    fn number(
        &mut self,
        pending: PendingGraph<'_>,
        (padded, options): (Option<&PaddedDimension>, &Options),
    ) -> LoweredGraph {
        let PendingGraph { graph, groups, items, aliases } = pending;
        let needed = needed_calls(graph, (padded, options), (&items, &aliases));
        let mut sub_buffers = Vec::new();
        let numbered = items.into_iter().zip(needed).filter_map(|(item, needed)| match item {
            Pending::Joined { sub_buffers: own, .. } => {
                sub_buffers.extend(own);
                None
            }
            Pending::Call { group, program, parameters } => {
                let mut call = Call {
                    kernel: 0,
                    group,
                    inputs: parameters.len() - last_node(graph, &groups[group]).outputs.len(),
                    parameters,
                    nodes: node_names(graph, &groups[group]),
                    flops: group_flops(graph, &groups[group]),
                    needed: Vec::new(),
                    beside_next: false,
                };
                let prefix = needed.map(|NeededCall { size, prefix, outputs }| {
                    call.parameters.insert(call.inputs, size);
                    call.inputs += 1;
                    call.needed = outputs;
                    prefix
                });
                call.kernel = self.kernel(program, prefix, &call.nodes);
                Some(LoweredItem::Call(call))
            }
            Pending::Regions(node, regions) => {
                let regions =
                    regions.into_iter().map(|region| self.number(region, (None, options)));
                Some(LoweredItem::Regions(node, regions.collect()))
            }
        });
        let items = numbered.collect();
        let buffers = Buffers::new(&aliases, &sub_buffers);
        let in_order: Vec<bool> =
            self.programs.iter().map(|kernel| runs_in_order(&kernel.program)).collect();
        let items = bring_together(items, &buffers, |call| in_order[call.kernel]);
        LoweredGraph { groups, items, aliases, sub_buffers }
    }

    /// The number of a program of which so much is needed.
    fn kernel(&mut self, program: Program, prefix: Option<Prefix>, nodes: &[String]) -> usize {
        let digest = match &prefix {
            None => digest(&program),
            Some(prefix) => digest(&(&program, prefix)),
        };
        match self.distinct.entry(digest) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.programs.push(Unscheduled { program, prefix, nodes: nodes.join(", ") });
                *new.insert(self.programs.len() - 1)
            }
        }
    }

    /// Whether a program gets its scalar constants as literals.
    fn is_worth_literals(&mut self, graph: &Graph, expressed: &Expressed) -> bool {
        let literals = expressed.literals(graph);
        if literals.is_empty() {
            return true;
        }
        let variants = self.literals.entry(digest(expressed.program())).or_default();
        let literals = digest(&literals);
        variants.contains(&literals) || {
            let is_worth = variants.len() < LITERAL_VARIANTS;
            is_worth && variants.insert(literals)
        }
    }
}

/// Lowers every group of a graph and of the graphs inside of its nodes, and gives the programs of the kernels;
/// equal programs count as one kernel.
pub(crate) fn lower_groups(
    graph: &Graph,
    (padded, options): (Option<&PaddedDimension>, &Options),
) -> Result<(LoweredGraph, Vec<Unscheduled>), CompileError> {
    let (mut lowered, programs) = lower_graphs(&[graph], (padded, options))?;
    Ok((lowered.remove(0), programs))
}

/// The same of several graphs. Each has the programs that it would have alone; what is equal in several of them counts
/// as one kernel.
fn lower_graphs(
    graphs: &[&Graph],
    (padded, options): (Option<&PaddedDimension>, &Options),
) -> Result<(Vec<LoweredGraph>, Vec<Unscheduled>), CompileError> {
    let mut lowering = Lowering::default();
    let mut lowered = Vec::with_capacity(graphs.len());
    for graph in graphs {
        lowering.literals.clear();
        let pending = lowering.graph(graph, false)?;
        lowered.push(lowering.number(pending, (padded, options)));
    }
    if lowering.programs.is_empty() {
        lowering.programs.push(Unscheduled { program: copy(), prefix: None, nodes: String::new() });
    }
    Ok((lowered, lowering.programs))
}

/// The kernel of a model that the runtime computes alone: nothing calls it, but code cannot be linked of nothing.
fn copy() -> Program {
    let mut builder = Builder::new();
    let one = TensorType::new(DataType::F32, [1]);
    let input = builder.input("p0", &one);
    let output = builder.map("copy", &one, |point| Expr::Load(input, point.to_vec()));
    builder.output(output);
    builder.finish()
}

/// What the symbols of a kernel's functions begin with.
pub(crate) fn symbol_stem(kernel: usize) -> String {
    format!("hone_k{kernel}")
}

/// The number in a symbol of a kernel: that of its only function, or of one of several.
pub(crate) fn kernel_number(symbol: &str) -> Option<usize> {
    let rest = symbol.strip_prefix("hone_k")?;
    rest.split('_').next()?.parse().ok()
}

impl KernelInfo {
    /// Sizes in bytes of the temporaries that the caller provides after the parameters.
    pub fn temporaries(&self) -> Vec<u64> {
        let buffers = self.program.buffers.iter();
        buffers
            .filter(|(_, buffer)| buffer.role == Role::Temporary && buffer.scope == Scope::Global)
            .map(|(_, buffer)| buffer.bytes() as u64)
            .collect()
    }
}

/// A join whose inputs lie in its result. What is needed of them follows from its program.
fn joined<'a>(
    graph: &Graph,
    group: &Group,
    sub_buffers: Vec<SubBuffer>,
) -> Result<Pending<'a>, CompileError> {
    let outputs = &last_node(graph, group).outputs;
    let expressed = Expressed::new(graph, &group.nodes, outputs)?;
    let Lowered { program, parameters } = expressed.with_parameters();
    Ok(Pending::Joined { sub_buffers, program, parameters })
}

/// A group of views of other values alone computes nothing: its result is its input's memory.
fn alias(graph: &Graph, group: &Group) -> Option<(ValueId, ValueId)> {
    let mut nodes = group.nodes.iter().map(|id| &graph.nodes()[*id]);
    if !nodes.clone().all(|node| node.operation.is_view()) {
        return None;
    }
    let first = nodes.next()?;
    let last = &graph.nodes()[*group.nodes.last()?];
    Some((last.outputs[0], first.inputs[0]?))
}

fn last_node<'a>(graph: &'a Graph, group: &Group) -> &'a Node<Op> {
    &graph.nodes()[*group.nodes.last().unwrap_or(&group.nodes[0])]
}

fn node_names(graph: &Graph, group: &Group) -> Vec<String> {
    let mut names: Vec<String> =
        group.nodes.iter().map(|id| graph.nodes()[*id].name.clone()).collect();
    names.dedup();
    names
}

/// Operations of a group. That weights are widened as they are read is none of the model's.
fn group_flops(graph: &Graph, group: &Group) -> u64 {
    let nodes = group.nodes.iter().map(|id| &graph.nodes()[*id]);
    let widens = |node: &Node<Op>| {
        let from = node.inputs.first().copied().flatten();
        let stored = from.and_then(|from| graph.constant(from)).map(Tensor::dtype);
        node.operation.downcast::<Cast>().is_some()
            && matches!(stored, Some(DataType::F16 | DataType::BF16))
    };
    nodes.filter(|node| !widens(node)).map(|node| node_flops(graph, node)).sum()
}

/// Digest of a value's `Debug` form, which shows all of it.
fn digest(value: &impl Debug) -> Hash {
    let mut digest = Digest(Hasher::new());
    // Writing to a hasher cannot fail.
    let _ = write!(digest, "{value:?}");
    digest.0.finalize()
}

/// Hashes text as it is written.
struct Digest(Hasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
