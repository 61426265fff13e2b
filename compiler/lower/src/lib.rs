//! Graph to tensor programs: the only crossing.
//!
//! A group of nodes becomes one program in the plain loop order: each node's expression in turn, the
//! group's inputs and outputs as parameters. Two clean-ups belong to the crossing itself: scalar constants are
//! propagated into the expressions, and neighbouring axes that every access indexes in order are fused. No
//! better loop order is sought here.

mod fuse_axes;
mod scalar_constants;
mod unit;

pub use fuse_axes::fuse_axes;

use hone_graph::{NodeId, ValueId};
use hone_ops::{Graph, LARGEST_BUFFER};
use hone_tensor::{BufferId, Builder, Expr, Program};
use hone_types::TensorType;
use scalar_constants::{inline_scalars, literal};
use std::collections::HashMap;
use thiserror::Error;
use unit::fix_unit_axes;

/// Why a group could not be lowered.
#[derive(Debug, Error)]
pub enum LowerError {
    /// An operator has no tensor expression.
    #[error(
        "node '{node}' ({operation}) cannot be compiled: it has no tensor expression for these inputs"
    )]
    NoExpression {
        /// Name of the node.
        node: String,
        /// Its operation.
        operation: &'static str,
    },
    /// A buffer is larger than any tensor may be, such as the padded input of a convolution.
    #[error(
        "node '{node}' ({operation}) needs a buffer '{buffer}' of {tensor_type}, more than the limit of \
         {limit} bytes; make its padding, stride or sizes smaller"
    )]
    TooLarge {
        /// Name of the node.
        node: String,
        /// Its operation.
        operation: &'static str,
        /// Name of the buffer in the program.
        buffer: String,
        /// Its type.
        tensor_type: TensorType,
        /// Bytes that a buffer may have.
        limit: usize,
    },
}

/// A program and the values of its parameters.
#[derive(Debug)]
pub struct Lowered {
    /// The program, in the plain loop order.
    pub program: Program,
    /// The value of each parameter, in the order of their numbers: inputs, then outputs.
    pub parameters: Vec<ValueId>,
}

/// The program of `nodes` (in topological order), whose results leave through `outputs`; scalar
/// constants are literals.
pub fn lower(graph: &Graph, nodes: &[NodeId], outputs: &[ValueId]) -> Result<Lowered, LowerError> {
    Ok(Expressed::new(graph, nodes, outputs)?.with_literals(graph))
}

/// A group's program as its operators express it, before the clean-ups of this crate.
#[derive(Debug)]
pub struct Expressed {
    program: Program,
    parameters: Vec<ValueId>,
}

impl Expressed {
    /// The program of `nodes` (in topological order), whose results leave through `outputs`.
    pub fn new(graph: &Graph, nodes: &[NodeId], outputs: &[ValueId]) -> Result<Self, LowerError> {
        let mut builder = Builder::new();
        let mut buffers: HashMap<ValueId, BufferId> = HashMap::new();
        let mut inputs = Vec::new();
        // For each node, the highest buffer that it may have added.
        let mut last_buffers = Vec::with_capacity(nodes.len());
        for id in nodes {
            let node = &graph.nodes()[*id];
            for value in node.inputs.iter().flatten() {
                buffers.entry(*value).or_insert_with(|| {
                    inputs.push(*value);
                    builder.input(&format!("p{}", inputs.len() - 1), graph.tensor_type(*value))
                });
            }
            let operands: Vec<Option<BufferId>> =
                node.inputs.iter().map(|input| input.map(|value| buffers[&value])).collect();
            let results = node.operation.expression(&mut builder, &operands);
            let results = results.ok_or_else(|| LowerError::NoExpression {
                node: node.name.clone(),
                operation: node.operation.name(),
            })?;
            last_buffers.push((results.iter().max().copied(), *id));
            buffers.extend(node.outputs.iter().copied().zip(results));
        }
        for value in outputs {
            let stored = stored(&mut builder, buffers[value]);
            builder.output(stored);
        }
        let parameters = inputs.iter().chain(outputs).copied().collect();
        let program = builder.finish();
        check_sizes(graph, &program, &last_buffers)?;
        Ok(Self { program, parameters })
    }

    /// The program before the clean-ups.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The scalar constants among the parameters, in order.
    pub fn literals(&self, graph: &Graph) -> Vec<Expr> {
        self.parameters.iter().filter_map(|value| literal(graph, *value)).collect()
    }

    /// The program with its scalar constants as literals, and neighbouring axes fused.
    pub fn with_literals(self, graph: &Graph) -> Lowered {
        let (program, parameters) = inline_scalars(graph, self.program, self.parameters);
        Self { program, parameters }.with_parameters()
    }

    /// The program with its scalar constants as parameters, and neighbouring axes fused: one program
    /// for all groups that differ in these constants alone.
    pub fn with_parameters(self) -> Lowered {
        // Axes are fused where every block has a separate nest.
        let program = match self.program.has_steps() {
            true => self.program,
            false => fuse_axes(self.program),
        };
        let program = fix_unit_axes(program);
        Lowered { program, parameters: self.parameters }
    }
}

/// Refuses buffers beyond the limit; `last_buffers` has the highest buffer that each node added.
fn check_sizes(
    graph: &Graph,
    program: &Program,
    last_buffers: &[(Option<BufferId>, NodeId)],
) -> Result<(), LowerError> {
    for (id, buffer) in program.buffers.iter() {
        let tensor_type = TensorType::new(buffer.dtype, buffer.shape.clone());
        // Extents of zero count as one, so that strides stay within bounds too.
        let mut extents = tensor_type.shape.iter().map(|extent| (*extent).max(1));
        let bytes = extents.try_fold(buffer.dtype.bytes(), usize::checked_mul);
        if bytes.is_some_and(|bytes| bytes <= LARGEST_BUFFER) {
            continue;
        }
        let added = |(last, _): &&(Option<BufferId>, NodeId)| last.is_some_and(|last| last >= id);
        let node = last_buffers.iter().find(added).or(last_buffers.last());
        let Some(node) = node.map(|(_, node)| &graph.nodes()[*node]) else { continue };
        return Err(LowerError::TooLarge {
            node: node.name.clone(),
            operation: node.operation.name(),
            buffer: buffer.name.clone(),
            tensor_type,
            limit: LARGEST_BUFFER,
        });
    }
    Ok(())
}

/// A buffer that a map computes, so that a schedule can reduce in registers and store when done.
fn stored(builder: &mut Builder, buffer: BufferId) -> BufferId {
    if !builder.is_reduced(buffer) {
        return buffer;
    }
    let tensor_type = builder.tensor_type(buffer);
    builder.map("store", &tensor_type, |point| Expr::Load(buffer, point.to_vec()))
}
