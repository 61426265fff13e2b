//! `If`: a branch that a constant takes is imported in place of its node; else both become graphs inside of a node.
//!
//! Both graphs give the same types. Where a result has another size in one of them, along one axis, both give it with
//! room for the larger, and say how much is there. A branch whose shapes do not fit at all is held not to be taken.

use super::builder::{Level, Operand, Region};
use super::composite::Form;
use super::control::Imported;
use super::importer::Importer;
use super::node::Node;
use super::proto::GraphProto;
use super::sized::Part;
use crate::NodeError;
use hone_ops::{If, UnaryFunction};
use hone_types::{Tensor, TensorType};

/// A branch that is imported, but whose outputs are not chosen yet.
struct Open {
    level: Level,
    leaves: Vec<Operand>,
    shapes: Vec<Vec<usize>>,
    parts: Vec<Option<Part>>,
    forms: Vec<Form>,
}

impl Importer {
    /// The outputs of the branch that a constant condition takes, or a node with both.
    pub(super) fn branch(&mut self, node: &mut Node) -> Imported {
        let condition = node.input(0)?;
        let left_out = || NodeError::invalid("a branch is left out");
        let then = node.graph("then_branch")?.ok_or_else(left_out)?;
        let otherwise = node.graph("else_branch")?.ok_or_else(left_out)?;
        if let Some(known) = self.builder.tensor(condition) {
            let holds = known.bytes().first().is_some_and(|byte| *byte != 0);
            let taken = if holds { then } else { otherwise };
            return self.inner(taken, |_| Ok(()));
        }
        let [then, otherwise] = [then, otherwise].map(|graph| self.one_branch(graph));
        let (open, misfit) = match (then, otherwise) {
            (Ok(then), Ok(otherwise)) => (vec![then, otherwise], None),
            (Ok(then), Err(error)) if error.is_misfit() => (vec![then], Some((condition, error))),
            (Err(error), Ok(otherwise)) if error.is_misfit() => {
                let not = self.builder.unary(UnaryFunction::Not, condition)?;
                (vec![otherwise], Some((not, error)))
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let forms = open[0].forms.clone();
        if open.iter().any(|own| own.forms != forms) {
            // Sequences of another length, or an optional value that is there in one of them alone.
            return Err(self.builder.not_constant(node, 0));
        }
        let axes = sized_axes(&open);
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
        let operands = [condition].into_iter().chain(then.captured).chain(otherwise.captured);
        let operands: Vec<Option<Operand>> = operands.map(Some).collect();
        self.builder.name_nodes(&node.name);
        let branches = If { then: then.graph, otherwise: otherwise.graph };
        let mut leaves = self.builder.apply_all(branches, &operands)?;
        let mut counts = leaves.split_off(axes.len()).into_iter();
        for (leaf, axis) in leaves.iter().zip(&axes) {
            if let (Some(axis), Some(count)) = (axis, axis.and_then(|_| counts.next())) {
                self.builder.note_count(count, self.builder.shape(*leaf)[*axis]);
                self.builder.set_spread_extent(*leaf, *axis, count);
            }
        }
        Ok(self.builder.gathered(&forms, leaves))
    }

    /// Imports a branch, and leaves its graph for later.
    fn one_branch(&mut self, graph: GraphProto) -> Result<Open, NodeError> {
        let (depth, scopes) = (self.builder.depth(), self.scopes.len());
        self.builder.begin_region();
        let imported = self.inner(graph, |_| Ok(()));
        self.scopes.truncate(scopes);
        let outputs = imported.and_then(|outputs| {
            match outputs.iter().any(|own| self.builder.is_maps(*own)) {
                true => Err(NodeError::unsupported("a branch that gives maps")),
                false => Ok(outputs),
            }
        });
        let outputs = outputs.inspect_err(|_| self.builder.abandon_regions(depth))?;
        let (leaves, forms) = self.builder.flattened(&outputs);
        for own in &leaves {
            let single = self.builder.check_single_part(*own, "a result of a branch");
            single.inspect_err(|_| self.builder.abandon_regions(depth))?;
        }
        let shapes = leaves.iter().map(|own| self.builder.shape(*own)).collect();
        let parts = leaves.iter().map(|own| self.builder.part(*own)).collect();
        let level = self.builder.suspend_region();
        Ok(Open { level, leaves, shapes, parts, forms })
    }

    /// The graph of a branch: its outputs, those along one of `axes` with so much room, and after them how many are there.
    fn closed(
        &mut self,
        open: Open,
        axes: &[Option<usize>],
        room: &[Vec<usize>],
    ) -> Result<Region, NodeError> {
        let Open { level, mut leaves, parts, .. } = open;
        self.builder.resume_region(level);
        let mut counts = Vec::new();
        for (((leaf, part), axis), room) in leaves.iter_mut().zip(parts).zip(axes).zip(room) {
            let Some(axis) = *axis else { continue };
            let (wide, count) = self.builder.widened(*leaf, part, axis, room[axis])?;
            *leaf = wide;
            counts.push(count);
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

/// For each result the axis along which a run decides its size: of which a branch gives a part, or along which alone
/// the branches differ.
fn sized_axes(open: &[Open]) -> Vec<Option<usize>> {
    let [first, rest @ ..] = open else { return Vec::new() };
    let axis = |place: usize| {
        let shape = &first.shapes[place];
        let part = open.iter().find_map(|own| own.parts[place].map(|part| part.axis));
        let differs = rest.iter().find_map(|own| {
            let other = &own.shapes[place];
            let mut places = (0..shape.len()).filter(|axis| other.get(*axis) != shape.get(*axis));
            (other.len() == shape.len()).then(|| places.next()).flatten()
        });
        part.or(differs)
    };
    (0..first.shapes.len()).map(axis).collect()
}

/// For each result the larger of both branches' extents along its axis.
fn room(open: &[Open], axes: &[Option<usize>]) -> Vec<Vec<usize>> {
    let Some(first) = open.first() else { return Vec::new() };
    let mut room = first.shapes.clone();
    for (place, axis) in axes.iter().enumerate() {
        let Some(axis) = *axis else { continue };
        let extents = open.iter().filter_map(|own| own.shapes[place].get(axis));
        if let Some(most) = extents.max() {
            room[place][axis] = *most;
        }
    }
    room
}
