//! One graph for every size of a dimension up to a bound, where a model mixes the positions along it: the sequence of a
//! transformer, the frames of audio. The graph has the bound's shapes and the actual size as a further input; what would
//! let positions behind the size into a result is masked. This is the technique of XLA's DynamicPadder
//! (`xla/service/dynamic_padder.h`), on graphs whose sizes are known one by one.
//!
//! What is claimed of the result of [`pad_dimension`]: for every `n` of the sizes, with inputs that hold anything behind
//! the first `n` positions which the model's inputs may hold, the first `n` positions of each output that has the dimension,
//! and the whole of every other output, are those of the model imported at `n`.
//!
//! - The graph at the bound is compared with those at other sizes node by node (`twins.rs`). An axis whose extent is
//!   the size, or the size and a constant more or less, is the dimension, and its first positions mean the same at every size.
//!   Constants along it are those at the bound cut off, at their end or at their begin; other constants that differ are affine functions of the size and
//!   are computed from it (`constants.rs`).
//! - By a rule for each operation (`rules`), the first positions of its results follow from the first positions of
//!   its operands alone. Where they would follow from others, operands get the element there that changes nothing, by a
//!   choice and never by a multiplication: what lies behind the size may be infinite or not a number (`masks.rs`).
//! - An operation without a rule that has the dimension in an operand or a result is refused by name: nothing is guessed.
//!
//! That a size which is never looked at gives the same graph rests on the importer, as for [`crate::Independence`].

mod bounded;
mod constants;
mod length;
mod lengths;
mod masks;
mod rules;
mod twins;

use crate::Rewriter;
use bounded::{Along, Behind, Bounded};
use constants::Constant;
use hone_graph::{Definition, Node, ValueId};
use hone_ops::{Gather, Graph, Op};
use hone_types::{Id, Tensor, TensorType};
pub use length::Length;
use lengths::{Candidates, Derived};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use thiserror::Error;
pub use twins::Axis as PaddedAxis;
use twins::{Axis, Twins};

/// A graph that computes a model at every size of one dimension up to a bound.
///
/// Its inputs are those of the model at the bound and, last, the actual size: a scalar of `i64`. Outputs have the shapes at the
/// bound.
#[derive(Clone, Debug)]
pub struct PaddedGraph {
    /// The graph.
    pub graph: Graph,
    /// The axis of each output that is the dimension, where one is: its first positions, as many as its length has at
    /// the size, are the model's result, and the others hold anything. Outputs without such an axis are whole.
    pub outputs: Vec<Option<PaddedAxis>>,
    /// The smallest size that the graph takes: that which was asked for, or the first one at which every window has a
    /// position.
    pub least: usize,
}

impl PaddedGraph {
    /// The axis of each output that is the dimension.
    pub fn axes(&self) -> Vec<Option<usize>> {
        self.outputs.iter().map(|output| output.map(|output| output.axis)).collect()
    }
}

/// The sizes of a dimension that may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddedSizes {
    /// The smallest, at least 1; the graph may take larger ones alone ([`PaddedGraph::least`]).
    pub least: usize,
    /// The largest, at least 2.
    pub bound: usize,
    /// Only multiples of it come.
    pub multiple: usize,
}

impl From<RangeInclusive<usize>> for PaddedSizes {
    fn from(range: RangeInclusive<usize>) -> Self {
        let (least, bound) = range.into_inner();
        Self { least, bound, multiple: 1 }
    }
}

/// Why a dimension of a graph is not padded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotPadded {
    /// A node lets positions behind the size into its result, or is not understood.
    #[error("node '{node}' ({operation}) {why}")]
    Node {
        /// The node's name.
        node: String,
        /// Its operation.
        operation: &'static str,
        /// What it does.
        why: String,
    },
    /// An input or output does not have the dimension as it is said to, or where its first positions can be told apart.
    #[error("{role} '{name}' {why}")]
    Port {
        /// `input` or `output`.
        role: &'static str,
        /// Its name.
        name: String,
        /// What is the matter.
        why: String,
    },
    /// The graph at another size is not the same one.
    #[error("at {size} the model computes something else than at {of}: {why}")]
    Size {
        /// The size.
        size: usize,
        /// The bound.
        of: usize,
        /// What differs.
        why: String,
    },
    /// The sizes, or what the graph takes and gives, are none that this pass can do anything with.
    #[error("{0}")]
    Request(String),
}

/// Makes one graph for every size of a dimension.
///
/// `sizes` are those that may come. `at_bound` was imported with the largest of them for
/// the dimension; `inputs` says of each of its inputs which axis is the dimension, or a constant less of it: as many as
/// there are before something is joined to them. `witnesses` are the same model imported at one or more smaller sizes: with one, no constant
/// may depend on the size but along the dimension. `size_input` is the name of the new input.
///
/// # Errors
/// The first node that mixes positions in a way that no rule knows, or what differs between the sizes.
pub fn pad_dimension(
    at_bound: &Graph,
    inputs: &[Option<usize>],
    sizes: impl Into<PaddedSizes>,
    size_input: &str,
    witnesses: &[(&Graph, usize)],
) -> Result<PaddedGraph, NotPadded> {
    let sizes = sizes.into();
    check_request(at_bound, inputs, sizes, size_input, witnesses)?;
    let twins = Twins::new(at_bound, sizes.bound, witnesses)?;
    let mut padding = Padding::new(twins, inputs, size_input, sizes)?;
    let needed = Rewriter::new(at_bound);
    for (id, node) in at_bound.nodes().iter().filter(|(id, _)| needed.is_needed(*id)) {
        padding.node(id, node).map_err(|why| NotPadded::Node {
            node: node.name.clone(),
            operation: node.operation.name(),
            why,
        })?;
    }
    padding.finish()
}

fn check_request(
    graph: &Graph,
    inputs: &[Option<usize>],
    PaddedSizes { least, bound, multiple }: PaddedSizes,
    size_input: &str,
    witnesses: &[(&Graph, usize)],
) -> Result<(), NotPadded> {
    let refuse = |why: String| Err(NotPadded::Request(why));
    if bound < 2 || i32::try_from(bound).is_err() {
        return refuse(format!("{bound} is no bound of a dimension"));
    }
    if !(1..=bound).contains(&least) {
        return refuse(format!("{least} is no smallest size of a dimension up to {bound}"));
    }
    let sizes: Vec<usize> = witnesses.iter().map(|(_, size)| *size).collect();
    if multiple == 0 || sizes.iter().chain([&bound]).any(|size| !size.is_multiple_of(multiple)) {
        return refuse(format!("{sizes:?} and {bound} are not all multiples of {multiple}"));
    }
    let is_new = |(position, size): (usize, &usize)| !sizes[..position].contains(size);
    let fits = sizes.iter().all(|size| (1..bound).contains(size));
    if sizes.is_empty() || !fits || !sizes.iter().enumerate().all(is_new) {
        return refuse(format!("{sizes:?} are no different sizes below {bound} to compare with"));
    }
    if inputs.len() != graph.inputs().len() {
        let (given, found) = (inputs.len(), graph.inputs().len());
        return refuse(format!("axes are given for {given} inputs, and the graph has {found}"));
    }
    if graph.inputs().iter().any(|port| port.name == size_input) {
        return refuse(format!("the graph has an input '{size_input}' already"));
    }
    if !graph.interface().is_plain() {
        return refuse(
            "the model takes or gives something else than tensors of numbers".to_owned(),
        );
    }
    if let Some(extent) = graph.extents().first() {
        let name = graph.outputs().get(extent.output).map_or("", |port| &port.name);
        let why = "has a size that depends on data".to_owned();
        return Err(NotPadded::Port { role: "output", name: name.to_owned(), why });
    }
    Ok(())
}

/// A node while it is rewritten: its operands in the new graph, and where its results have the dimension.
struct Step<'a> {
    node: &'a Node<Op>,
    /// The node in the graphs at the other sizes.
    others: Vec<&'a Node<Op>>,
    /// All sizes, the bound first.
    sizes: Vec<usize>,
    /// Operands in the new graph.
    inputs: Vec<Option<ValueId>>,
    /// Types of the results.
    results: Vec<&'a TensorType>,
    /// Whether nothing reads a result.
    unread: Vec<bool>,
    /// Axes of the results, from their shapes at all sizes; the rule says what lies behind the size.
    axes: Vec<Vec<Along>>,
}

/// The rewriting of a graph.
struct Padding<'a> {
    twins: Twins<'a>,
    new: Bounded,
    /// For each value of the graph at the bound, the new one.
    values: Vec<Option<ValueId>>,
    /// For each value of the graph at the bound, whether a node or an output reads it.
    read: Vec<bool>,
    /// New values of constants, which may mean different things to different readers.
    constants: HashMap<Vec<ValueId>, ValueId>,
}

impl<'a> Padding<'a> {
    fn new(
        twins: Twins<'a>,
        inputs: &[Option<usize>],
        size_input: &str,
        PaddedSizes { least, bound, multiple }: PaddedSizes,
    ) -> Result<Self, NotPadded> {
        let (whole, least) = (Length::size(multiple), least.next_multiple_of(multiple));
        let graph = twins.at_bound();
        let candidates = Candidates { steps: &[whole], ..Candidates::default() };
        let mut new = Graph::new();
        let mut values = vec![None; graph.values().len()];
        let mut found = Vec::new();
        for (port, axis) in graph.inputs().iter().zip(inputs) {
            let error = |why| NotPadded::Port { role: "input", name: port.name.clone(), why };
            let axes = twins.axes_of(port.value, candidates).map_err(error)?;
            let is_expected = match (&axes[..], axis) {
                ([], None) => true,
                ([Axis { axis, length }], Some(expected)) => {
                    let fewer = length.is_size_and().is_some_and(|extra| extra <= 0);
                    axis == expected && fewer && length.at(least) >= 0
                }
                _ => false,
            };
            if !is_expected {
                return Err(error(match axis {
                    Some(axis) => format!("does not have the dimension along axis {axis} alone"),
                    None => "differs in shape between the sizes".to_owned(),
                }));
            }
            let value = new.add_input(&port.name, graph.tensor_type(port.value).clone());
            values[port.value.index()] = Some(value);
            found.push((value, axes));
        }
        let mut new = Bounded::new(new, size_input, (least, bound), whole);
        for (value, axes) in found {
            new.set(value, axes.into_iter().map(Along::new).collect());
        }
        let mut read = vec![false; graph.values().len()];
        let operands = graph.nodes().iter().flat_map(|(_, node)| node.inputs.iter().flatten());
        let outputs = graph.outputs().iter().map(|port| &port.value);
        operands.chain(outputs).for_each(|value| read[value.index()] = true);
        Ok(Self { twins, new, values, read, constants: HashMap::new() })
    }

    /// Adds a node to the new graph.
    fn node(&mut self, id: hone_graph::NodeId, node: &'a Node<Op>) -> Result<(), String> {
        let others = self.twins.others(id)?;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        let steps = self.steps_beside_constants(node);
        for (position, input) in node.inputs.iter().enumerate() {
            inputs.push(match input {
                Some(value) => {
                    let twins =
                        others.iter().map(|other| other.inputs.get(position).copied().flatten());
                    let twins: Option<Vec<ValueId>> = twins.collect();
                    let twins = twins.ok_or("has another number of operands")?;
                    Some(self.operand(*value, &twins, &steps)?)
                }
                None => None,
            });
        }
        self.twins.join(node, &others);
        let derived = lengths::derived(&mut self.new, node, &inputs, &others)?;
        let steps = self.steps_of(node, &inputs);
        let Derived { made, divided } = &derived;
        let candidates = Candidates { made, steps: &steps, divided };
        let mut axes: Vec<Vec<Along>> = Vec::with_capacity(node.outputs.len());
        for output in &node.outputs {
            let found = self.twins.axes_of(*output, candidates)?;
            axes.push(found.into_iter().map(Along::new).collect());
        }
        let least = self.new.least();
        let missing = |along: &&Along| along.length.at(least) < 0;
        if let Some(along) = axes.iter().flatten().find(missing) {
            let fewer = along.length.extra.unsigned_abs();
            return Err(format!("leaves out {fewer} positions, of {least} that may be there"));
        }
        let graph = self.twins.at_bound();
        let mut step = Step {
            node,
            others,
            sizes: self.twins.sizes().to_vec(),
            inputs,
            results: node.outputs.iter().map(|output| graph.tensor_type(*output)).collect(),
            unread: node.outputs.iter().map(|output| !self.read[output.index()]).collect(),
            axes,
        };
        let outputs = rules::add(&mut self.new, &mut step)?;
        if step.axes.iter().flatten().any(|along| along.outer == 0) {
            return Err("joins the dimension with another axis, or repeats it".to_owned());
        }
        for ((old, new), axes) in node.outputs.iter().zip(outputs).zip(step.axes) {
            let expected = graph.tensor_type(*old);
            if self.new.graph().tensor_type(new) != expected {
                return Err(format!("gives {expected}, which its rule does not"));
            }
            self.new.name(new, &graph.values()[*old].name);
            self.new.set(new, axes);
            self.values[old.index()] = Some(new);
        }
        Ok(())
    }

    /// What lengths of a node's results may count: what those of its operands do.
    fn steps_of(&self, node: &Node<Op>, inputs: &[Option<ValueId>]) -> Vec<Length> {
        let steps = self.new.steps_among(inputs.iter().flatten().copied());
        let is_given = matches!(node.operation.name(), "expand" | "tile");
        if is_given || steps.is_empty() { self.new.steps().to_vec() } else { steps }
    }

    /// The new value of one that is read, where those at the other sizes are `twins`.
    ///
    /// Lengths of a constant count one of `steps`, or else one that any value has.
    fn operand(
        &mut self,
        value: ValueId,
        twins: &[ValueId],
        steps: &[Length],
    ) -> Result<ValueId, String> {
        let graph = self.twins.at_bound();
        let entry = &graph.values()[value];
        let Definition::Constant(tensor) = &entry.definition else {
            let is_known = self.twins.is_known(value, twins);
            let new = self.values[value.index()].filter(|_| is_known);
            return new.ok_or_else(|| "reads another value".to_owned());
        };
        let key = [&[value], twins].concat();
        if let Some(known) = self.constants.get(&key) {
            return Ok(*known);
        }
        let tensors = self.twins.constants(tensor, twins).ok_or("reads another value")?;
        let sizes = self.twins.sizes();
        let found = Constant::of(&tensors, sizes, steps);
        let found = found.or_else(|_| Constant::of(&tensors, sizes, self.new.steps()))?;
        let new = match found {
            Constant::Whole => self.new.constant(&entry.name, tensor.clone()),
            Constant::Along(axes) => {
                let new = self.new.constant(&entry.name, tensor.clone());
                let behind = constants::repeated(tensor).map_or(Behind::Anything, Behind::Number);
                let along = axes.into_iter().map(|axis| Along { behind, ..Along::alone(axis) });
                self.new.set(new, along.collect());
                new
            }
            Constant::Ending(axes) => self.ending(value, tensor, axes)?,
            Constant::Affine(affine) => {
                self.new.affine(&entry.name, tensor.tensor_type(), affine)?
            }
        };
        self.constants.insert(key, new);
        Ok(new)
    }

    /// A constant that is at every size the last positions of what it is at the bound: these, moved to the begin.
    fn ending(
        &mut self,
        value: ValueId,
        tensor: &Tensor,
        axes: Vec<Axis>,
    ) -> Result<ValueId, String> {
        let name = &self.twins.at_bound().values()[value].name;
        let mut new = self.new.constant(name, tensor.clone());
        for Axis { axis, length } in &axes {
            let indices = self.new.positions_from_end(*length)?;
            new = self.new.add(name, Gather { axis: *axis }, &[new, indices])?;
        }
        self.new.set(new, axes.into_iter().map(Along::alone).collect());
        Ok(new)
    }

    /// What the lengths of a node's operands count that are no constants.
    fn steps_beside_constants(&self, node: &Node<Op>) -> Vec<Length> {
        let known = node.inputs.iter().flatten().filter_map(|value| self.values[value.index()]);
        self.new.steps_among(known)
    }

    /// The new graph with the outputs, and without nodes that nothing needs.
    fn finish(mut self) -> Result<PaddedGraph, NotPadded> {
        let graph = self.twins.at_bound();
        let mut axes = Vec::with_capacity(graph.outputs().len());
        for (position, port) in graph.outputs().iter().enumerate() {
            let error = |why| NotPadded::Port { role: "output", name: port.name.clone(), why };
            let twins = self.twins.outputs(position);
            let value = self.operand(port.value, &twins, &[]).map_err(error)?;
            axes.push(match self.new.along(value) {
                [] => None,
                [along] if along.is_joined() => {
                    return Err(error("has the dimension joined with another axis".to_owned()));
                }
                [along] => Some(Axis { axis: along.axis, length: along.length }),
                _ => return Err(error("has the dimension along several axes".to_owned())),
            });
            self.new.output(&port.name, value);
        }
        let (least, counts) = (self.new.least(), self.new.counts().to_vec());
        let graph = self.new.into_graph();
        let mut needed = Rewriter::new(&graph);
        let is_count = |node: &Node<Op>| node.outputs.iter().any(|value| counts.contains(value));
        for counts in [true, false] {
            let nodes = graph.nodes().iter().filter(|(_, node)| is_count(node) == counts);
            for (id, node) in nodes {
                if needed.is_needed(id) {
                    needed.copy(node).map_err(|error| NotPadded::Request(error.to_string()))?;
                }
            }
        }
        let graph = needed.finish();
        graph.verify().map_err(|error| NotPadded::Request(error.to_string()))?;
        Ok(PaddedGraph { graph, outputs: axes, least })
    }
}
