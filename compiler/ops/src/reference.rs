//! The reference interpreter: runs a graph node by node on the operators' reference results.

use crate::{Graph, OpError};
use hone_graph::{Definition, ValueId};
use hone_types::{Id, Tensor, TensorType};
use thiserror::Error;

/// Why a graph could not be evaluated.
#[derive(Debug, Error)]
pub enum EvaluateError {
    /// The number of inputs is wrong.
    #[error("the graph takes {expected} inputs, got {actual}")]
    InputCount {
        /// Inputs of the graph.
        expected: usize,
        /// Inputs given.
        actual: usize,
    },
    /// An input has another type than the graph says.
    #[error("input '{name}' is {expected}, got {actual}")]
    InputType {
        /// Name of the input.
        name: String,
        /// Its type in the graph.
        expected: TensorType,
        /// The type given.
        actual: TensorType,
    },
    /// A node could not be computed.
    #[error("node '{name}' ({operation}) could not be computed")]
    Node {
        /// Name of the node.
        name: String,
        /// Its operation.
        operation: &'static str,
        /// Why.
        source: OpError,
    },
}

/// The outputs of `graph` for `inputs`, in the graph's order. Values are freed after their last use.
pub fn evaluate(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, EvaluateError> {
    check_inputs(graph, inputs)?;
    let mut uses = remaining_uses(graph);
    let mut computed: Vec<Option<Tensor>> = vec![None; graph.values().len()];
    for (_, node) in graph.nodes().iter() {
        let operands: Vec<Option<Tensor>> = node
            .inputs
            .iter()
            .map(|input| input.and_then(|value| lookup(graph, inputs, &computed, value)))
            .collect();
        let borrowed: Vec<Option<&Tensor>> = operands.iter().map(Option::as_ref).collect();
        let results =
            node.operation.reference(&borrowed).map_err(|source| EvaluateError::Node {
                name: node.name.clone(),
                operation: node.operation.name(),
                source,
            })?;
        for (value, result) in node.outputs.iter().zip(results) {
            computed[value.index()] = Some(result);
        }
        for value in node.inputs.iter().flatten() {
            uses[value.index()] -= 1;
            if uses[value.index()] == 0 {
                computed[value.index()] = None;
            }
        }
    }
    let outputs = graph.outputs().iter();
    Ok(outputs.filter_map(|port| lookup(graph, inputs, &computed, port.value)).collect())
}

fn check_inputs(graph: &Graph, inputs: &[Tensor]) -> Result<(), EvaluateError> {
    let (expected, actual) = (graph.inputs().len(), inputs.len());
    if expected != actual {
        return Err(EvaluateError::InputCount { expected, actual });
    }
    for (port, input) in graph.inputs().iter().zip(inputs) {
        let expected = graph.tensor_type(port.value);
        if expected != input.tensor_type() {
            return Err(EvaluateError::InputType {
                name: port.name.clone(),
                expected: expected.clone(),
                actual: input.tensor_type().clone(),
            });
        }
    }
    Ok(())
}

/// Reads of each value, by index; a graph output counts as one that never ends.
fn remaining_uses(graph: &Graph) -> Vec<usize> {
    let mut uses: Vec<usize> = graph.consumers().iter().map(Vec::len).collect();
    graph.outputs().iter().for_each(|port| uses[port.value.index()] += 1);
    uses
}

fn lookup(
    graph: &Graph,
    inputs: &[Tensor],
    computed: &[Option<Tensor>],
    value: ValueId,
) -> Option<Tensor> {
    match &graph.values()[value].definition {
        Definition::Input(place) => inputs.get(*place).cloned(),
        Definition::Constant(tensor) => Some(tensor.clone()),
        Definition::Output(..) => computed[value.index()].clone(),
    }
}
