//! Whether a model maps over an open dimension: each output's slice at a position depends on the inputs' slices at the
//! same position alone, by the same function at every position. Then a model at any size can be computed by running it
//! at some sizes one after the other, over consecutive slices.
//!
//! What is claimed, of a graph that was imported with `size` for the dimension ([`Independence::prove`]):
//!
//! - A value *has* the dimension where its elements are numbered `(outer · size + position) · inner + rest` along one of
//!   its axes ([`Sliced`]), and its slice at a position follows from the inputs' slices at this position and from what
//!   does not have the dimension, by a function that is the same for all positions. This is shown operation by operation
//!   (`rules.rs`); constants are compared slice by slice, so that what counts along the dimension is not taken for such.
//! - Any other value follows from constants and inputs without the dimension.
//! - Operations that no rule knows, or which mix positions, are refused by name: nothing is guessed.
//!
//! And of the graphs of the same model at other sizes ([`Independence::proves_at`], `between.rs`): node by node they are
//! that graph with the other size in index of `size`, so that they compute the same function of a slice. That a size which
//! is never looked at does so too rests on the importer giving such graphs for every size it was asked for; a model whose
//! operators change at a size beyond those is not told apart.
//!
//! Branches and loops are not followed where they read what has the dimension.

mod between;
mod rules;

pub(crate) use between::same_attributes;
pub(crate) use rules::is_elementwise;

use hone_graph::{Definition, Node, ValueId};
use hone_ops::{Graph, Op};
use hone_types::{Id, Tensor};
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

/// Where a value has the dimension: along an axis whose extent is `outer · size · inner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliced {
    /// The axis.
    pub axis: usize,
    /// Extent of what is merged with the dimension before it; 1 where nothing is.
    pub outer: usize,
    /// Extent of what is merged with it behind it; 1 where nothing is.
    pub inner: usize,
}

impl Sliced {
    /// The axis is the dimension alone.
    pub fn whole_axis(axis: usize) -> Self {
        Self { axis, outer: 1, inner: 1 }
    }

    /// The same along another axis.
    fn at(self, axis: usize) -> Self {
        Self { axis, ..self }
    }

    /// The axis' extent at a size.
    fn extent(self, size: usize) -> usize {
        self.outer * size * self.inner
    }
}

/// Why a graph is not shown to map over a dimension.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dependence {
    /// A node mixes positions, or is not understood.
    #[error("node '{node}' ({operation}) {why}")]
    Node {
        /// The node's name.
        node: String,
        /// Its operation.
        operation: &'static str,
        /// What it does.
        why: String,
    },
    /// An input or output does not have the dimension where slices can be told apart.
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
        /// The size that the analysis was made at.
        of: usize,
        /// What differs.
        why: String,
    },
}

/// The proof that a graph maps over a dimension.
#[derive(Clone, Debug)]
pub struct Independence {
    size: usize,
    /// Of each value, by its index.
    values: Vec<Option<Sliced>>,
    /// Constants whose elements at a position are positions in the slice at this position.
    positions: HashMap<ValueId, Positions>,
}

/// Indices into what has the dimension: at a position they are those at the first one and `length` more for each
/// position before it, so that they stay within its slice.
#[derive(Clone, Copy, Debug)]
struct Positions {
    /// The axis of the indices that is the dimension.
    axis: usize,
    /// Elements of a slice.
    length: usize,
}

impl Independence {
    /// Follows the dimension through a graph in which it has `size` (at least 2), from the axes of the inputs that it is;
    /// one entry for each input.
    ///
    /// # Errors
    /// The first node that mixes positions or is not understood, an input or output that is not made of consecutive
    /// slices.
    pub fn prove(graph: &Graph, inputs: &[Option<usize>], size: usize) -> Result<Self, Dependence> {
        let mut inference = Inference {
            graph,
            size,
            values: vec![None; graph.values().len()],
            positions: HashMap::new(),
        };
        for (port, axis) in graph.inputs().iter().zip(inputs) {
            let Some(axis) = *axis else { continue };
            let shape = &graph.tensor_type(port.value).shape;
            if shape.get(axis) != Some(&size) || size < 2 {
                let why = format!("does not have the dimension along axis {axis}");
                return Err(port_error("input", &port.name, why));
            }
            inference.set(port.value, Some(Sliced::whole_axis(axis)));
        }
        // What is found to repeat along the dimension counts as having it, also where it was read before.
        while inference.follow()? {}
        let proof = Self { size, values: inference.values, positions: inference.positions };
        proof.check_ports(graph)?;
        Ok(proof)
    }

    /// The axis of a value that is the dimension, where one is.
    pub fn axis(&self, value: ValueId) -> Option<usize> {
        self.of(value).map(|entry| entry.axis)
    }

    fn of(&self, value: ValueId) -> Option<Sliced> {
        self.values.get(value.index()).copied().flatten()
    }

    /// Slices of inputs and outputs are to be consecutive in memory.
    fn check_ports(&self, graph: &Graph) -> Result<(), Dependence> {
        let sides = [("input", graph.inputs()), ("output", graph.outputs())];
        for (role, ports) in sides {
            for port in ports {
                if self.positions.contains_key(&port.value) {
                    let why = "counts along the dimension".to_owned();
                    return Err(port_error(role, &port.name, why));
                }
                let Some(sliced) = self.of(port.value) else { continue };
                let shape = &graph.tensor_type(port.value).shape;
                if (sliced.outer, sliced.inner) != (1, 1) {
                    let why = "has the dimension merged with another one: its rows are no slices";
                    return Err(port_error(role, &port.name, why.to_owned()));
                }
                if shape[..sliced.axis].iter().any(|extent| *extent != 1) {
                    let why = format!(
                        "has the dimension at axis {}: it has to be the outermost one in this release",
                        sliced.axis
                    );
                    return Err(port_error(role, &port.name, why));
                }
            }
        }
        if let Some(extent) = graph.extents().first() {
            let name = &graph.outputs()[extent.output].name;
            return Err(port_error("output", name, "has a size that depends on data".to_owned()));
        }
        if !graph.outputs().iter().any(|port| self.of(port.value).is_some()) {
            let name = graph.outputs().first().map_or("", |port| &port.name);
            return Err(port_error("output", name, "does not have the dimension".to_owned()));
        }
        Ok(())
    }
}

fn port_error(role: &'static str, name: &str, why: String) -> Dependence {
    Dependence::Port { role, name: name.to_owned(), why }
}

/// What is known of the values of a graph so far.
struct Inference<'a> {
    graph: &'a Graph,
    size: usize,
    values: Vec<Option<Sliced>>,
    positions: HashMap<ValueId, Positions>,
}

/// Most operations between a value without the dimension and what it is a repetition of.
const DEEPEST: usize = 16;

impl Inference<'_> {
    /// Follows the dimension through all nodes; whether more values have it than before.
    fn follow(&mut self) -> Result<bool, Dependence> {
        let (graph, before) = (self.graph, self.known());
        for (_, node) in graph.nodes().iter() {
            let outputs = rules::outputs(self, node).map_err(|why| Dependence::Node {
                node: node.name.clone(),
                operation: node.operation.name(),
                why,
            })?;
            for (value, sliced) in node.outputs.iter().zip(outputs) {
                self.set(*value, sliced.or(self.of(*value)));
            }
        }
        Ok(self.known() != before)
    }

    /// How many values are known to have the dimension, or to hold positions in it.
    fn known(&self) -> usize {
        self.values.iter().flatten().count() + self.positions.len()
    }

    fn of(&self, value: ValueId) -> Option<Sliced> {
        self.values[value.index()]
    }

    fn set(&mut self, value: ValueId, sliced: Option<Sliced>) {
        self.values[value.index()] = sliced;
    }

    fn shape(&self, value: ValueId) -> &[usize] {
        &self.graph.tensor_type(value).shape
    }

    /// Requires a value that does not have the dimension.
    fn whole(&self, value: Option<ValueId>, what: &str) -> Result<(), String> {
        match value.and_then(|value| self.of(value)) {
            None => Ok(()),
            Some(_) => Err(format!("has the dimension in its {what}")),
        }
    }

    /// Requires a value that has the dimension at this index, or the same slice everywhere along it.
    fn sliced(&mut self, value: ValueId, at: Sliced) -> Result<(), String> {
        match self.of(value) {
            Some(entry) if entry == at => Ok(()),
            Some(entry) => Err(format!(
                "has the dimension along axis {} of one operand and axis {} of another",
                at.axis, entry.axis
            )),
            None if self.repeats(value, at, DEEPEST) => Ok(()),
            None => Err(format!(
                "reads {}, whose values differ along the dimension whatever the inputs are",
                self.words(value)
            )),
        }
    }

    /// Requires of an operand that is broadcast to a result of `rank` axes: nothing along the axis of the result that has
    /// the dimension, or the dimension there.
    fn broadcast(&mut self, value: ValueId, at: Sliced, rank: usize) -> Result<(), String> {
        let shape = self.shape(value);
        let missing = rank - shape.len().min(rank);
        let is_spread = at.axis < missing || shape[at.axis - missing] == 1;
        match is_spread {
            true => self.whole(Some(value), "operands along different axes"),
            false => self.sliced(value, at.at(at.axis - missing)),
        }
    }

    fn has_positions(&self, value: ValueId) -> bool {
        self.positions.contains_key(&value)
    }

    /// The axis of constant indices into slices of `length` elements that is the dimension, where each reads elements of
    /// the slice at its position.
    fn add_positions(&mut self, value: ValueId, length: usize) -> Option<usize> {
        let tensor = self.graph.constant(value)?;
        let axis = tensor.shape().iter().position(|extent| *extent == self.size)?;
        let positions = Positions { axis, length };
        let known = self.positions.get(&value).is_some_and(|known| known.length != length);
        if known
            || self.of(value).is_some()
            || first_positions(tensor, positions, self.size).is_none()
        {
            return None;
        }
        self.positions.insert(value, positions);
        Some(axis)
    }

    /// Whether a value without the dimension is the same at all positions along it; then it counts as having it.
    fn repeats(&mut self, value: ValueId, at: Sliced, depth: usize) -> bool {
        let shape = self.shape(value);
        if shape.get(at.axis) != Some(&at.extent(self.size)) {
            return false;
        }
        let rank = shape.len();
        let does = match &self.graph.values()[value].definition {
            Definition::Input(_) => false,
            Definition::Constant(tensor) => is_uniform(tensor, at, self.size),
            Definition::Output(node, _) => {
                let graph = self.graph;
                depth > 0 && self.repeats_by(&graph.nodes()[*node], at, rank, depth - 1)
            }
        };
        if does {
            self.set(value, Some(at));
        }
        does
    }

    fn repeats_by(&mut self, node: &Node<Op>, at: Sliced, rank: usize, depth: usize) -> bool {
        let is_known = rules::is_elementwise(node) || node.operation.name() == "expand";
        is_known
            && node.inputs.iter().flatten().all(|input| {
                let shape = self.shape(*input);
                let missing = rank - shape.len().min(rank);
                if at.axis < missing || shape[at.axis - missing] == 1 {
                    return self.of(*input).is_none();
                }
                let at = at.at(at.axis - missing);
                self.of(*input) == Some(at)
                    || (self.of(*input).is_none() && self.repeats(*input, at, depth))
            })
    }

    /// A value in words.
    fn words(&self, value: ValueId) -> String {
        let entry = &self.graph.values()[value];
        match (&entry.definition, entry.name.as_str()) {
            (Definition::Constant(_), _) => format!("a constant of {}", entry.tensor_type),
            (_, "") => format!("a value of {}", entry.tensor_type),
            (_, name) => format!("'{name}'"),
        }
    }
}

/// The bytes of a tensor's slice at a position, chunk by chunk.
fn slice_of(
    tensor: &Tensor,
    at: Sliced,
    size: usize,
    position: usize,
) -> impl Iterator<Item = &[u8]> {
    let behind: usize = tensor.shape()[at.axis + 1..].iter().product();
    let length = (behind * at.inner * tensor.dtype().bytes()).max(1);
    tensor.bytes().chunks(length).skip(position).step_by(size)
}

/// The indices at the first position, where those at all `size` positions follow from them as [`Positions`] says.
fn first_positions(tensor: &Tensor, positions: Positions, size: usize) -> Option<Vec<i64>> {
    let Positions { axis, length } = positions;
    let is_there = tensor.dtype().is_signed_integer() && tensor.shape().get(axis) == Some(&size);
    let behind: usize = tensor.shape().get(axis + 1..)?.iter().product();
    let indices = if is_there && behind > 0 { tensor.to_i64() } else { return None };
    let at = |position: usize| indices.chunks(behind).skip(position).step_by(size).flatten();
    let inside = |index: &i64| (0..length as i64).contains(index);
    let follows = |position: usize| {
        let offset = (position * length) as i64;
        at(position).zip(at(0)).all(|(index, first)| *index == first + offset)
    };
    (at(0).all(inside) && (1..size).all(follows)).then(|| at(0).copied().collect())
}

/// Whether all slices of a constant are equal.
fn is_uniform(tensor: &Tensor, at: Sliced, size: usize) -> bool {
    (1..size).all(|position| slice_of(tensor, at, size, position).eq(slice_of(tensor, at, size, 0)))
}

impl fmt::Display for Sliced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "axis {} ({}·n·{})", self.axis, self.outer, self.inner)
    }
}
