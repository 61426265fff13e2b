//! What is needed of each kernel call where a size is known only when the model runs: of what has room for the most that
//! there may be only the positions before the size count ([`hone_tensor::Prefix`]).
//!
//! A graph has several sizes, and a kernel stops at one of them at most. They are looked at one after another, as if
//! nothing was known of the others. A kernel that stops at an earlier size, or runs before a size is known, counts as one
//! that takes all terms of its reductions. So whatever is said of it by a later size follows from what it reads alone
//! and stays right where other elements hold anything, which is what the kernels that stop at other sizes leave.

mod sizes;

use crate::Options;
use crate::kernels::Pending;
use crate::schedule::schedule_one;
use crate::storage::Roots;
use hone_artifact::PaddedDimension;
use hone_graph::{Definition, ValueId};
use hone_ops::Graph;
use hone_tensor::{Contents, Need, Positions, Prefix, Program, Role, contents};
use hone_types::{DataType, Id as _, Tensor};
use sizes::Size;
use std::collections::{HashMap, HashSet};

/// Elements of a constant up to which it is looked at whether they are positions.
const MOST_ELEMENTS: usize = 1 << 22;

/// What is needed of a call.
#[derive(Clone, Debug)]
pub(crate) struct NeededCall {
    /// The size that it stops at.
    pub(crate) size: ValueId,
    /// Of its kernel.
    pub(crate) prefix: Prefix,
    /// Of each of its results.
    pub(crate) outputs: Vec<Need>,
}

/// What is needed of each of the items of a graph: nothing is said of those that run whole.
pub(crate) fn needed_calls(
    graph: &Graph,
    (padded, options): (Option<&PaddedDimension>, &Options),
    (items, aliases): (&[Pending<'_>], &[(ValueId, ValueId)]),
) -> Vec<Option<NeededCall>> {
    let mut found: Vec<Option<NeededCall>> = items.iter().map(|_| None).collect();
    // Programs for devices have no limits.
    if options.target.accelerator.is_some() {
        return found;
    }
    let roots = Roots::new(aliases);
    for size in sizes::sizes(graph, padded, items, &roots) {
        Walk::new(graph, &roots, &size).items(items, options, &mut found);
    }
    found
}

/// The walk over a graph's calls, forwards for what values hold and backwards for what is needed of them. Values are
/// those whose memory others are.
struct Walk<'a> {
    graph: &'a Graph,
    roots: &'a Roots,
    size: &'a Size,
    contents: HashMap<ValueId, Contents>,
    looked_at: HashSet<ValueId>,
    needs: HashMap<ValueId, Need>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, roots: &'a Roots, size: &'a Size) -> Self {
        let contents = Contents { is_size: true, ..Contents::default() };
        Self {
            graph,
            roots,
            size,
            contents: HashMap::from([(roots.of(size.value), contents)]),
            looked_at: HashSet::new(),
            needs: HashMap::new(),
        }
    }

    /// Adds to `found` what stops at the size and at none that was looked at before.
    fn items(mut self, items: &[Pending<'_>], options: &Options, found: &mut [Option<NeededCall>]) {
        let mut known = Vec::with_capacity(items.len());
        for item in items {
            known.push(match item {
                Pending::Call { program, parameters, .. }
                | Pending::Joined { program, parameters, .. } => self.contents(program, parameters),
                Pending::Regions(..) => Vec::new(),
            });
        }
        self.needs_of_outputs();
        for (place, (item, contents)) in items.iter().zip(&known).enumerate().rev() {
            match item {
                Pending::Call { program, parameters, .. } => {
                    let is_free = found[place].is_none() && place >= self.size.known_from;
                    let options = is_free.then_some(options);
                    let call = self.needs(program, parameters, contents, options);
                    if is_free && call.prefix.leaves_out() {
                        found[place] = Some(call);
                    }
                }
                Pending::Joined { program, parameters, .. } => {
                    self.needs(program, parameters, contents, None);
                }
                Pending::Regions(node, _) => {
                    let read = &self.graph.nodes()[*node].inputs;
                    read.iter().flatten().for_each(|value| self.need(*value, Need::Everything));
                }
            }
        }
    }

    /// What a call's buffers hold; takes over what its results do.
    fn contents(&mut self, program: &Program, parameters: &[ValueId]) -> Vec<Contents> {
        let inputs = parameters.iter().zip(program.parameters());
        let inputs =
            inputs.filter(|(_, buffer)| matches!(program.buffers[*buffer].role, Role::Input(_)));
        let inputs: Vec<Contents> = inputs.map(|(value, _)| self.held(*value)).collect();
        let found = contents(program, self.size.bound, &inputs);
        for (value, buffer) in parameters.iter().zip(program.parameters()) {
            let (root, role) = (self.roots.of(*value), program.buffers[buffer].role);
            // What is known of the size itself stays known where it is computed.
            if matches!(role, Role::Output(_)) && root != self.roots.of(self.size.value) {
                self.contents.insert(root, found[buffer.index()].clone());
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
            let numbers = positions_in(tensor, self.size.bound).into_iter().collect();
            self.contents.insert(root, Contents { numbers, ..Contents::default() });
        }
        self.contents.get(&root).cloned().unwrap_or_default()
    }

    fn need(&mut self, value: ValueId, need: Need) {
        let known = self.needs.entry(self.roots.of(value)).or_default();
        *known = std::mem::take(known).and(need);
    }

    fn needs_of_outputs(&mut self) {
        let (graph, size) = (self.graph, self.size);
        for (port, need) in graph.outputs().iter().zip(&size.outputs) {
            self.need(port.value, need.clone());
        }
        for extent in graph.extents() {
            self.need(extent.value, Need::Everything);
        }
    }

    /// What is needed of a call; takes over what it needs. Without options it takes all terms of its reductions.
    fn needs(
        &mut self,
        program: &Program,
        parameters: &[ValueId],
        contents: &[Contents],
        options: Option<&Options>,
    ) -> NeededCall {
        let of = |buffer| program.buffers[buffer].role;
        let pairs = || parameters.iter().copied().zip(program.parameters());
        let written = pairs().filter(|(_, buffer)| matches!(of(*buffer), Role::Output(_)));
        let outputs: Vec<Need> = written
            .map(|(value, _)| self.needs.get(&self.roots.of(value)).cloned().unwrap_or_default())
            .collect();
        let known = (self.size.bound, contents);
        let prefix = match options {
            Some(options) => needed(program, known, &outputs, options),
            None => Prefix::of(program, known, &outputs, &|_| false),
        };
        let read = pairs().filter(|(_, buffer)| matches!(of(*buffer), Role::Input(_)));
        let read: Vec<ValueId> = read.map(|(value, _)| value).collect();
        for (value, need) in read.into_iter().zip(&prefix.inputs) {
            self.need(value, need.clone());
        }
        NeededCall { size: self.size.value, prefix, outputs }
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
    let Ok(scheduled) = schedule_one(program.clone(), true, options) else {
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
    let positions = Positions { stride, extent: bound, halo: 0 };
    let turn = stride.checked_mul(bound).filter(|turn| *turn > 0)?;
    let is_position =
        |(element, number): (usize, &i64)| i64::try_from(positions.of(element)) == Ok(*number);
    let fits = numbers.len().is_multiple_of(turn) && numbers.iter().enumerate().all(is_position);
    fits.then_some(positions)
}
