//! Graph to tensor programs: the only crossing.
//!
//! A group of nodes becomes one program in the plain loop order: each node's expression in turn, the
//! group's inputs and outputs as parameters. Two clean-ups belong to the crossing itself: constants
//! of one element become literals, and neighbouring axes that are always walked together become one.
//! No better loop order is sought here.

mod collapse;
mod literals;
mod unit;

pub use collapse::collapse_axes;

use hone_graph::{NodeId, ValueId};
use hone_ops::Graph;
use hone_tensor::{BufferId, Builder, Expr, Program};
use literals::inline_scalars;
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
}

/// A program and the values its parameters stand for.
#[derive(Debug)]
pub struct Lowered {
    /// The program, in the plain loop order.
    pub program: Program,
    /// The value of each parameter, in the order of their numbers: inputs, then outputs.
    pub parameters: Vec<ValueId>,
}

/// The program of `nodes` (in topological order), whose results leave through `outputs`.
pub fn lower(graph: &Graph, nodes: &[NodeId], outputs: &[ValueId]) -> Result<Lowered, LowerError> {
    let mut builder = Builder::new();
    let mut buffers: HashMap<ValueId, BufferId> = HashMap::new();
    let mut inputs = Vec::new();
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
            operation: hone_graph::Operation::name(&node.operation),
        })?;
        buffers.extend(node.outputs.iter().copied().zip(results));
    }
    for value in outputs {
        let stored = stored(&mut builder, buffers[value]);
        builder.output(stored);
    }
    let parameters: Vec<ValueId> = inputs.iter().chain(outputs).copied().collect();
    let (program, parameters) = inline_scalars(graph, builder.finish(), parameters);
    Ok(Lowered { program: fix_unit_axes(collapse_axes(program)), parameters })
}

/// A buffer that a map computes, so that a schedule can reduce in registers and store when done.
fn stored(builder: &mut Builder, buffer: BufferId) -> BufferId {
    if !builder.is_reduced(buffer) {
        return buffer;
    }
    let tensor_type = builder.tensor_type(buffer);
    builder.map("store", &tensor_type, |point| Expr::Load(buffer, point.to_vec()))
}
