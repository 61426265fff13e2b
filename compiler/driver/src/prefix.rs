//! What is needed of each kernel call of a graph whose size is an input: of a dimension that has room for a bound only the
//! positions before the size count ([`hone_tensor::Prefix`]).

use crate::Options;
use crate::kernels::Pending;
use crate::schedule::schedule_one;
use crate::storage::Roots;
use hone_artifact::PaddedDimension;
use hone_graph::{Definition, ValueId};
use hone_ops::Graph;
use hone_tensor::{Contents, Need, Positions, Prefix, Program, Role, contents};
use hone_types::{DataType, Id as _, Tensor};
use std::collections::{HashMap, HashSet};

/// Elements of a constant up to which it is looked at whether they are positions.
const MOST_ELEMENTS: usize = 1 << 22;

/// What is needed of a call.
#[derive(Clone, Debug)]
pub(crate) struct NeededCall {
    /// Of its kernel.
    pub(crate) prefix: Prefix,
    /// Of each of its results.
    pub(crate) outputs: Vec<Need>,
}

/// What is needed of each of the items of a graph: nothing is said of those that run whole.
pub(crate) fn needed_calls(
    graph: &Graph,
    (padded, options): (&PaddedDimension, &Options),
    (items, aliases): (&[Pending<'_>], &[(ValueId, ValueId)]),
) -> Vec<Option<NeededCall>> {
    let Some(mut walk) = Walk::new(graph, padded, aliases) else {
        return items.iter().map(|_| None).collect();
    };
    let mut known = Vec::with_capacity(items.len());
    for item in items {
        known.push(match item {
            Pending::Call { program, parameters, .. } => walk.contents(program, parameters),
            Pending::Regions(..) => Vec::new(),
        });
    }
    walk.needs_of_outputs(padded);
    let mut found = Vec::with_capacity(items.len());
    for (item, contents) in items.iter().zip(&known).rev() {
        found.push(match item {
            Pending::Call { program, parameters, .. } => {
                Some(walk.needs(program, parameters, contents, options))
            }
            Pending::Regions(node, _) => {
                let read = &graph.nodes()[*node].inputs;
                read.iter().flatten().for_each(|value| walk.need(*value, Need::Everything));
                None
            }
        });
    }
    found.reverse();
    found.into_iter().map(|call| call.filter(|call| call.prefix.leaves_out())).collect()
}

/// The walk over a graph's calls, forwards for what values hold and backwards for what is needed of them. Values are
/// those whose memory others are.
struct Walk<'a> {
    graph: &'a Graph,
    roots: Roots,
    bound: usize,
    contents: HashMap<ValueId, Contents>,
    looked_at: HashSet<ValueId>,
    needs: HashMap<ValueId, Need>,
}

impl<'a> Walk<'a> {
    /// `None` where the graph's last input is no size of the dimension.
    fn new(
        graph: &'a Graph,
        padded: &PaddedDimension,
        aliases: &[(ValueId, ValueId)],
    ) -> Option<Self> {
        let (size, given) = graph.inputs().split_last()?;
        let tensor_type = graph.tensor_type(size.value);
        let is_size = tensor_type.dtype == DataType::I64 && tensor_type.rank() == 0;
        if !is_size || given.len() != padded.inputs.len() {
            return None;
        }
        let mut extents = given.iter().zip(&padded.inputs).filter_map(|(port, axis)| {
            graph.tensor_type(port.value).shape.get((*axis)? as usize).copied()
        });
        let bound = extents.next()?;
        let contents = Contents { is_size: true, ..Contents::default() };
        Some(Self {
            graph,
            roots: Roots::new(aliases),
            bound,
            contents: HashMap::from([(size.value, contents)]),
            looked_at: HashSet::new(),
            needs: HashMap::new(),
        })
    }

    /// What a call's buffers hold; takes over what its results do.
    fn contents(&mut self, program: &Program, parameters: &[ValueId]) -> Vec<Contents> {
        let inputs = parameters.iter().zip(program.parameters());
        let inputs =
            inputs.filter(|(_, buffer)| matches!(program.buffers[*buffer].role, Role::Input(_)));
        let inputs: Vec<Contents> = inputs.map(|(value, _)| self.held(*value)).collect();
        let found = contents(program, self.bound, &inputs);
        for (value, buffer) in parameters.iter().zip(program.parameters()) {
            if matches!(program.buffers[buffer].role, Role::Output(_)) {
                self.contents.insert(self.roots.of(*value), found[buffer.index()].clone());
            }
        }
        found
    }

    /// What a value holds.
    fn held(&mut self, value: ValueId) -> Contents {
        let root = self.roots.of(value);
        if let Definition::Constant(tensor) = &self.graph.values()[root].definition
            && self.looked_at.insert(root)
        {
            let numbers = positions_in(tensor, self.bound).into_iter().collect();
            self.contents.insert(root, Contents { numbers, ..Contents::default() });
        }
        self.contents.get(&root).cloned().unwrap_or_default()
    }

    fn need(&mut self, value: ValueId, need: Need) {
        let known = self.needs.entry(self.roots.of(value)).or_default();
        *known = std::mem::take(known).and(need);
    }

    fn needs_of_outputs(&mut self, padded: &PaddedDimension) {
        let graph = self.graph;
        for (place, port) in graph.outputs().iter().enumerate() {
            let axis = padded.outputs.get(place).copied().flatten();
            let shape = &graph.tensor_type(port.value).shape;
            let along = axis.and_then(|axis| Positions::along(shape, axis as usize));
            self.need(port.value, Need::before(along.into_iter().collect()));
        }
        for extent in graph.extents() {
            self.need(extent.value, Need::Everything);
        }
    }

    /// What is needed of a call; takes over what it needs.
    fn needs(
        &mut self,
        program: &Program,
        parameters: &[ValueId],
        contents: &[Contents],
        options: &Options,
    ) -> NeededCall {
        let of = |buffer| program.buffers[buffer].role;
        let pairs = || parameters.iter().copied().zip(program.parameters());
        let written = pairs().filter(|(_, buffer)| matches!(of(*buffer), Role::Output(_)));
        let outputs: Vec<Need> = written
            .map(|(value, _)| self.needs.get(&self.roots.of(value)).cloned().unwrap_or_default())
            .collect();
        let prefix = needed(program, (self.bound, contents), &outputs, options);
        let read = pairs().filter(|(_, buffer)| matches!(of(*buffer), Role::Input(_)));
        let read: Vec<ValueId> = read.map(|(value, _)| value).collect();
        for (value, need) in read.into_iter().zip(&prefix.inputs) {
            self.need(value, need.clone());
        }
        NeededCall { prefix, outputs }
    }
}

/// What is needed of a program, as it is scheduled.
fn needed(
    program: &Program,
    known: (usize, &[Contents]),
    outputs: &[Need],
    options: &Options,
) -> Prefix {
    let mut prefix = Prefix::of(program, known, outputs, &|_| true);
    if prefix.reductions().is_empty() {
        return prefix;
    }
    // A program that cannot be scheduled is refused later.
    let Ok(scheduled) = schedule_one(program.clone(), options) else {
        return Prefix::of(program, known, outputs, &|_| false);
    };
    let scheduled = scheduled.schedule.into_program();
    // Each turn has fewer reductions that end with the size: one that does not may keep the loop of another whole.
    loop {
        let mut limited = scheduled.clone();
        prefix.limit(&mut limited);
        let exact = prefix.exact(&limited);
        if exact.len() == prefix.reductions().len() {
            return prefix;
        }
        prefix = Prefix::of(program, known, outputs, &|id| exact.contains(&id));
    }
}

/// How positions lie in a constant whose elements are their positions.
fn positions_in(tensor: &Tensor, bound: usize) -> Option<Positions> {
    let is_integer = matches!(tensor.dtype(), DataType::I32 | DataType::I64);
    if !is_integer || !(bound..=MOST_ELEMENTS).contains(&tensor.tensor_type().elements()) {
        return None;
    }
    let numbers = tensor.to_i64();
    let stride = numbers.iter().position(|number| *number == 1)?;
    let positions = Positions { stride, extent: bound };
    let turn = stride.checked_mul(bound).filter(|turn| *turn > 0)?;
    let is_position =
        |(element, number): (usize, &i64)| i64::try_from(positions.of(element)) == Ok(*number);
    let fits = numbers.len().is_multiple_of(turn) && numbers.iter().enumerate().all(is_position);
    fits.then_some(positions)
}
