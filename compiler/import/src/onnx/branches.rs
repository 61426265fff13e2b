//! `If`: a branch that a constant takes is imported in place of its node; else both become graphs inside of a node.
//!
//! Both graphs give the same types. Where a result has another size in one of them, along one axis or two, both give it with
//! room for the larger, and say how much is there. Where results have no such common form, as where they differ in rank, what
//! reads them is imported in each branch, to the end of the graph that the node is in. A branch whose shapes do not fit at all
//! is held not to be taken.

use super::builder::{Level, Operand, Region};
use super::composite::Form;
use super::control::Imported;
use super::importer::{Importer, Scope, collect_attributes};
use super::node::Node;
use super::proto::{GraphProto, NodeProto};
use super::sized::Part;
use crate::{ImportError, NodeError};
use hone_ops::{If, UnaryFunction};
use hone_types::{Tensor, TensorType};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

/// Axes along which the sizes of a result may differ.
const MOST_AXES: usize = 2;

/// What follows a node in its graph.
pub(super) struct Rest<'a> {
    /// The nodes that are needed, in order.
    pub nodes: VecDeque<NodeProto>,
    /// Names of the graph's outputs.
    pub outputs: &'a [String],
    /// Names of all values that are read.
    pub read: &'a HashSet<String>,
}

/// A branch that is imported, but whose outputs are not chosen yet.
struct Open {
    level: Level,
    leaves: Vec<Operand>,
    shapes: Vec<Vec<usize>>,
    parts: Vec<Vec<Part>>,
    forms: Vec<Form>,
}

impl Importer {
    /// The outputs of the branch that a constant condition takes, or a node with both; with `rest`, those of the graph
    /// that it is in.
    ///
    /// # Errors
    /// [`NodeError::BranchesDiffer`] where the results of both have no common form, beside what importing a branch refuses.
    pub(super) fn branch(&mut self, node: &mut Node, rest: Option<&Rest<'_>>) -> Imported {
        let condition = node.input(0)?;
        let left_out = || NodeError::invalid("a branch is left out");
        let then = node.graph("then_branch")?.ok_or_else(left_out)?;
        let otherwise = node.graph("else_branch")?.ok_or_else(left_out)?;
        if let Some(known) = self.builder.tensor(condition) {
            let holds = known.bytes().first().is_some_and(|byte| *byte != 0);
            let taken = if holds { then } else { otherwise };
            return self.inner(taken, |_| Ok(()));
        }
        let names = &node.output_names;
        let [then, otherwise] = [then, otherwise].map(|graph| self.one_branch(graph, names, rest));
        let not = |importer: &mut Self| importer.builder.unary(UnaryFunction::Not, condition);
        let (open, misfit) = match (then, otherwise) {
            (Ok(then), Ok(otherwise)) => match self.undeclared(&then, &otherwise, rest) {
                None => (vec![then, otherwise], None),
                Some((true, error)) => (vec![otherwise], Some((not(self)?, error))),
                Some((false, error)) => (vec![then], Some((condition, error))),
            },
            (Ok(then), Err(error)) if error.is_misfit() => (vec![then], Some((condition, error))),
            (Err(error), Ok(otherwise)) if error.is_misfit() => {
                (vec![otherwise], Some((not(self)?, error)))
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let forms = open[0].forms.clone();
        if open.iter().any(|own| own.forms != forms) {
            // Sequences of another length, or an optional value that is there in one of them alone.
            return Err(self.builder.not_constant(node, 0));
        }
        let Some(axes) = sized_axes(&open) else { return Err(NodeError::BranchesDiffer) };
        let room = room(&open, &axes);
        let mut regions = Vec::with_capacity(2);
        for own in open {
            regions.push(self.closed(own, &axes, &room)?);
        }
        let (then, otherwise) = match misfit {
            None => {
                let otherwise = regions.pop().ok_or_else(left_out)?;
                (regions.pop().ok_or_else(left_out)?, otherwise)
            }
            Some((taken, error)) => {
                let other = regions.pop().ok_or_else(left_out)?;
                let stand_in = self.stand_in(taken, &other, &error)?;
                if taken == condition { (other, stand_in) } else { (stand_in, other) }
            }
        };
        self.builder.name_nodes(&node.name);
        let leaves = self.joined_branches(condition, [then, otherwise], &axes)?;
        Ok(self.builder.gathered(&forms, leaves))
    }

    /// The node with two branches, and its results, of which counts say how much is there along some axes.
    fn joined_branches(
        &mut self,
        condition: Operand,
        [then, otherwise]: [Region; 2],
        axes: &[Vec<usize>],
    ) -> Imported {
        let operands = [condition].into_iter().chain(then.captured).chain(otherwise.captured);
        let operands: Vec<Option<Operand>> = operands.map(Some).collect();
        let branches = If { then: then.graph, otherwise: otherwise.graph };
        let mut leaves = self.builder.apply_all(branches, &operands)?;
        let mut counts = leaves.split_off(axes.len()).into_iter();
        for (leaf, axes) in leaves.iter().zip(axes) {
            let shape = self.builder.shape(*leaf);
            let parts = axes.iter().zip(counts.by_ref());
            let parts: Vec<Part> = parts.map(|(axis, count)| Part { axis: *axis, count }).collect();
            for part in &parts {
                self.builder.note_count(part.count, shape[part.axis]);
            }
            self.builder.set_parts(*leaf, &parts);
        }
        Ok(leaves)
    }

    /// Imports a branch, and what follows the node where that is given, and leaves its graph for later. `names` are
    /// those of the node's outputs.
    fn one_branch(
        &mut self,
        graph: GraphProto,
        names: &[String],
        rest: Option<&Rest<'_>>,
    ) -> Result<Open, NodeError> {
        let (depth, scopes) = (self.builder.depth(), self.scopes.len());
        self.builder.begin_region();
        let imported = self.inner(graph, |_| Ok(()));
        let imported = match rest {
            None => imported,
            Some(rest) => imported.and_then(|results| self.continued(names, results, rest)),
        };
        self.scopes.truncate(scopes);
        let outputs = imported.and_then(|outputs| {
            match outputs.iter().any(|own| self.builder.is_maps(*own)) {
                true => Err(NodeError::unsupported("a branch that gives maps")),
                false => Ok(outputs),
            }
        });
        let outputs = outputs.inspect_err(|_| self.builder.abandon_regions(depth))?;
        let (leaves, forms) = self.builder.flattened(&outputs);
        let shapes = leaves.iter().map(|own| self.builder.shape(*own)).collect();
        let parts = leaves.iter().map(|own| self.builder.parts(*own)).collect();
        let level = self.builder.suspend_region();
        Ok(Open { level, leaves, shapes, parts, forms })
    }

    /// The outputs of the graph around a node, by the nodes that follow it, where `names` are its outputs and a branch gave
    /// `results`.
    fn continued(&mut self, names: &[String], results: Vec<Operand>, rest: &Rest<'_>) -> Imported {
        // What follows is imported once for each branch, and again for each branch within it: the bound on nodes ends that.
        self.count_nodes(rest.nodes.len())?;
        let around = self.scopes.last();
        let declared = around.map(|scope| scope.declared.clone()).unwrap_or_default();
        let opsets = around.map(|scope| Rc::clone(&scope.opsets)).unwrap_or_default();
        self.enter(Scope { opsets, declared, ..Scope::default() })?;
        names.iter().zip(results).for_each(|(name, operand)| self.bind(name, operand));
        let imported = self.import_sorted(rest.nodes.clone(), rest.outputs, rest.read);
        self.scopes.pop();
        Ok(imported?)
    }

    /// The node of a branch whose results have no common form, with what follows it in each of the branches; returns the
    /// outputs of the graph around it.
    pub(super) fn branch_apart(
        &mut self,
        proto: NodeProto,
        rest: &Rest<'_>,
    ) -> Result<Vec<Operand>, ImportError> {
        let mut node = self.begin_node(&proto, rest.read)?;
        let label = node.name.clone();
        let (operator, opset) = (node.operator.clone(), node.opset);
        let imported = collect_attributes(proto.attribute).and_then(|own| {
            node.attributes = own;
            self.branch(&mut node, Some(rest))
        });
        imported.map_err(|source| ImportError::Node { node: label, operator, opset, source })
    }

    /// Whether one of two branches, the first of them, gives an output of another rank than the model declares, where the
    /// other one's ranks are declared.
    fn undeclared(
        &self,
        then: &Open,
        otherwise: &Open,
        rest: Option<&Rest<'_>>,
    ) -> Option<(bool, NodeError)> {
        let names = rest?.outputs;
        let declared = &self.scopes.last()?.declared;
        let fits = |own: &Open| {
            own.shapes.len() == names.len()
                && names.iter().zip(&own.shapes).all(|(name, shape)| {
                    declared.get(name).is_none_or(|known| known.len() == shape.len())
                })
        };
        let is_first = match (fits(then), fits(otherwise)) {
            (true, false) => false,
            (false, true) => true,
            _ => return None,
        };
        let message = "its results have other ranks than the model declares of its outputs";
        Some((is_first, NodeError::invalid(message)))
    }

    /// The graph of a branch: its outputs, those along some of `axes` with so much room, and after them how many are there.
    fn closed(
        &mut self,
        open: Open,
        axes: &[Vec<usize>],
        room: &[Vec<usize>],
    ) -> Result<Region, NodeError> {
        let Open { level, mut leaves, parts, .. } = open;
        self.builder.resume_region(level);
        let mut counts = Vec::new();
        for (((leaf, parts), axes), room) in leaves.iter_mut().zip(parts).zip(axes).zip(room) {
            if axes.is_empty() {
                continue;
            }
            let (whole, there) = self.builder.with_room(*leaf, &parts, (axes, room))?;
            *leaf = whole;
            counts.extend(there);
        }
        leaves.extend(counts);
        self.builder.end_region(&leaves)
    }

    /// What stands for a branch that these shapes of the inputs do not fit, as where each is for another form of the
    /// data: zeros of the other branch's types. A run is held to `condition`, under which the other one is taken.
    fn stand_in(
        &mut self,
        condition: Operand,
        other: &Region,
        error: &NodeError,
    ) -> Result<Region, NodeError> {
        let mut message = format!("a branch that these shapes do not fit would be taken: {error}");
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        self.builder.require(condition, message)?;
        let outputs = other.graph.outputs().iter();
        let types: Vec<TensorType> =
            outputs.map(|port| other.graph.tensor_type(port.value).clone()).collect();
        self.builder.begin_region();
        let zeros = types.into_iter().map(|own| self.builder.constant(Tensor::zeros(own)));
        let zeros: Vec<Operand> = zeros.collect();
        self.builder.end_region(&zeros)
    }
}

/// For each result the axes along which a run decides its size: of which a branch gives a part, or along which
/// the branches differ. `None` where the results have no common form.
fn sized_axes(open: &[Open]) -> Option<Vec<Vec<usize>>> {
    let [first, rest @ ..] = open else { return None };
    let axes = |place: usize| {
        let shape = &first.shapes[place];
        if rest.iter().any(|own| own.shapes[place].len() != shape.len()) {
            return None;
        }
        let is_sized = |axis: &usize| {
            let has_part = |own: &Open| own.parts[place].iter().any(|part| part.axis == *axis);
            open.iter().any(has_part)
                || rest.iter().any(|own| own.shapes[place][*axis] != shape[*axis])
        };
        let axes: Vec<usize> = (0..shape.len()).filter(is_sized).collect();
        (axes.len() <= MOST_AXES).then_some(axes)
    };
    (0..first.shapes.len()).map(axes).collect()
}

/// For each result the larger of both branches' extents along its axes.
fn room(open: &[Open], axes: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let Some(first) = open.first() else { return Vec::new() };
    let mut room = first.shapes.clone();
    for (place, axes) in axes.iter().enumerate() {
        for axis in axes {
            let extents = open.iter().map(|own| own.shapes[place][*axis]);
            room[place][*axis] = extents.max().unwrap_or(0);
        }
    }
    room
}
