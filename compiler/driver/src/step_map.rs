//! What the buffers of an artifact's steps hold: passes, fusion and lowering are done again, without
//! making code, and laid beside the step table.

use crate::kernels::{Call, LoweredGraph, LoweredItem, kernel_number, lower_groups, symbol_stem};
use crate::storage::Roots;
use crate::{CompileError, Options, prepare};
use hone_artifact::{Access, PaddedDimension, Step};
use hone_graph::{NodeId, ValueId};
use hone_ops::Graph;
use hone_tensor::Need;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use thiserror::Error;

/// Which value of the prepared graph each argument of the artifact's steps is.
#[derive(Debug)]
pub struct StepMap {
    /// The graph after all passes.
    pub graph: Graph,
    /// The kernel calls in order; their steps and those of the regions cover the step table.
    pub calls: Vec<MappedCall>,
    /// Nodes with graphs inside, in order.
    pub regions: Vec<MappedRegions>,
    /// For each value of the graph, by index, the one whose memory it is: itself, unless it only gives
    /// another shape to it. That an input of a join may lie inside of the result is not said: the graph says it.
    pub roots: Vec<ValueId>,
}

/// A node with graphs inside, or one without any that the runtime computes itself.
#[derive(Debug)]
pub struct MappedRegions {
    /// The node.
    pub node: NodeId,
    /// How many of the calls come before it.
    pub calls_before: usize,
    /// Each of its graphs, in the operation's order.
    pub graphs: Vec<StepMap>,
}

/// One call of a kernel.
#[derive(Clone, Debug)]
pub struct MappedCall {
    /// Its steps: one for each function of the kernel. All of them have the same arguments.
    pub steps: Range<usize>,
    /// The nodes that it computes, in topological order.
    pub nodes: Vec<NodeId>,
    /// The value of each of the first arguments; those that follow are temporaries.
    pub parameters: Vec<ValueId>,
    /// How many of them are read; the others are written.
    pub inputs: usize,
    /// Which elements of those are needed, where not all are; they hold anything elsewhere.
    pub needed: Vec<Need>,
}

/// Why a step table cannot be laid beside a model.
#[derive(Debug, Error)]
pub enum StepMapError {
    /// The model cannot be compiled under these options.
    #[error("the model cannot be prepared again")]
    Compile(#[from] CompileError),
    /// The step table is that of another compiler, or of other options.
    #[error(
        "step {step} of the artifact is not what this compiler makes of the model: {found} instead of {expected}"
    )]
    Differs {
        /// Position of the step.
        step: usize,
        /// What this compiler makes.
        expected: String,
        /// What the artifact has.
        found: String,
    },
}

/// Lays `steps`, of a variant that was compiled from `imported` with `options`, beside the graph. Where an artifact has
/// variants for several sizes, `imported` has those of this one, and kernels may have other numbers than they would have
/// alone. `padded` is the dimension whose size is the graph's last input, where there is one.
pub fn map_steps(
    imported: &Graph,
    padded: Option<&PaddedDimension>,
    options: &Options,
    steps: &[Step],
) -> Result<StepMap, StepMapError> {
    let graph = prepare(imported, options)?;
    let (lowered, _) = lower_groups(&graph, (padded, options))?;
    let mut mapper = Mapper { steps, next: 0, numbers: HashMap::new(), taken: HashSet::new() };
    let map = mapper.graph(graph, lowered)?;
    match steps.get(mapper.next) {
        None => Ok(map),
        Some(extra) => Err(differs(mapper.next, "the end", &extra.kernel)),
    }
}

/// Goes along a step table.
struct Mapper<'a> {
    steps: &'a [Step],
    /// The step that comes next.
    next: usize,
    /// Number in the artifact of each kernel of the graph, and these numbers: no two kernels have the same.
    numbers: HashMap<usize, usize>,
    taken: HashSet<usize>,
}

impl Mapper<'_> {
    /// Lays the next steps beside a graph.
    fn graph(&mut self, graph: Graph, lowered: LoweredGraph) -> Result<StepMap, StepMapError> {
        let LoweredGraph { groups, items, aliases, .. } = lowered;
        let found = Roots::new(&aliases);
        let roots = graph.values().ids().map(|value| found.of(value)).collect();
        let mut map = StepMap { graph, calls: Vec::new(), regions: Vec::new(), roots };
        for item in items {
            match item {
                LoweredItem::Call(call) => {
                    let range = self.steps_of(&call)?;
                    check_arguments(&map.graph, &call, &self.steps[self.next], self.next)?;
                    self.next = range.end;
                    let nodes = groups[call.group].nodes.clone();
                    let Call { parameters, inputs, needed, .. } = call;
                    map.calls.push(MappedCall { steps: range, nodes, parameters, inputs, needed });
                }
                LoweredItem::Regions(node, lowered) => {
                    let inside = map.graph.nodes()[node].operation.regions().into_iter().cloned();
                    let inside: Vec<Graph> = inside.collect();
                    let graphs = inside.into_iter().zip(lowered);
                    let graphs = graphs.map(|(graph, lowered)| self.graph(graph, lowered));
                    let graphs = graphs.collect::<Result<_, _>>()?;
                    map.regions.push(MappedRegions { node, calls_before: map.calls.len(), graphs });
                }
            }
        }
        Ok(map)
    }

    /// The number that a kernel must have in the artifact: that of its first call, which no other kernel has.
    fn number(&mut self, kernel: usize) -> usize {
        if let Some(known) = self.numbers.get(&kernel) {
            return *known;
        }
        let found = self.steps.get(self.next).and_then(|step| kernel_number(&step.kernel));
        let number = found.filter(|number| !self.taken.contains(number)).unwrap_or(kernel);
        self.numbers.insert(kernel, number);
        self.taken.insert(number);
        number
    }

    /// The steps of a call, which come next.
    fn steps_of(&mut self, call: &Call) -> Result<Range<usize>, StepMapError> {
        let stem = symbol_stem(self.number(call.kernel));
        let (steps, first) = (self.steps, self.next);
        let expected = || format!("kernel {stem} of {}", call.nodes.join(", "));
        let matches = |index: usize, symbol: &str| {
            steps.get(index).is_some_and(|step| step.kernel == symbol && step.nodes == call.nodes)
        };
        if matches(first, &stem) {
            return Ok(first..first + 1);
        }
        let mut end = first;
        while matches(end, &format!("{stem}_{}", end - first)) {
            end += 1;
        }
        let same = |pair: &[Step]| pair[0].arguments == pair[1].arguments;
        if end > first && steps[first..end].windows(2).all(same) {
            return Ok(first..end);
        }
        let found =
            steps.get(first).map(|step| format!("{} of {}", step.kernel, step.nodes.join(", ")));
        Err(differs(first, &expected(), &found.unwrap_or_else(|| "the end".to_owned())))
    }
}

/// Whether a step has an argument for each parameter of a call, of its value's size, read or written as
/// the call does.
fn check_arguments(
    graph: &Graph,
    call: &Call,
    step: &Step,
    index: usize,
) -> Result<(), StepMapError> {
    let outputs = call.parameters.len() - call.inputs;
    for (position, value) in call.parameters.iter().enumerate() {
        let bytes = graph.tensor_type(*value).bytes() as u64;
        let reads = position < call.inputs;
        let fits = step.arguments.get(position).is_some_and(|argument| {
            argument.bytes == bytes && (argument.access == Access::Read) == reads
        });
        if !fits {
            let expected = format!("{} inputs and {outputs} outputs", call.inputs);
            return Err(differs(index, &expected, &format!("another argument {position}")));
        }
    }
    Ok(())
}

fn differs(step: usize, expected: &str, found: &str) -> StepMapError {
    StepMapError::Differs { step, expected: expected.to_owned(), found: found.to_owned() }
}
