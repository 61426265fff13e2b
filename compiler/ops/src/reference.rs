//! The reference interpreter: runs a graph node by node on the operators' reference results.

use crate::{Graph, OpError};
use hone_graph::{Definition, NodeId, ValueId};
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
    let mut evaluation = Evaluation::new(graph, inputs)?;
    graph.nodes().ids().try_for_each(|node| evaluation.compute(node))?;
    Ok(evaluation.outputs())
}

/// An evaluation under way, node by node, whose values can be looked at. A value is freed when all nodes
/// that read it are computed, unless it is kept.
#[derive(Debug)]
pub struct Evaluation<'a> {
    graph: &'a Graph,
    inputs: &'a [Tensor],
    computed: Vec<Option<Tensor>>,
    /// Reads that are still to come, by value.
    uses: Vec<usize>,
}

impl<'a> Evaluation<'a> {
    /// An evaluation of which no node is computed yet.
    ///
    /// # Errors
    /// Inputs that are not the graph's.
    pub fn new(graph: &'a Graph, inputs: &'a [Tensor]) -> Result<Self, EvaluateError> {
        check_inputs(graph, inputs)?;
        let computed = vec![None; graph.values().len()];
        Ok(Self { graph, inputs, computed, uses: remaining_uses(graph) })
    }

    /// Keeps a value until a [`Evaluation::release`] for each time that it was kept.
    pub fn keep(&mut self, value: ValueId) {
        self.uses[value.index()] += 1;
    }

    /// Gives up a value that was kept.
    pub fn release(&mut self, value: ValueId) {
        self.uses[value.index()] -= 1;
        if self.uses[value.index()] == 0 {
            self.computed[value.index()] = None;
        }
    }

    /// Computes a node. All nodes before it in the graph's order must have been computed.
    ///
    /// # Errors
    /// What the operator refuses.
    pub fn compute(&mut self, id: NodeId) -> Result<(), EvaluateError> {
        let node = &self.graph.nodes()[id];
        let results = node.operation.reference(&self.operands(id));
        let results = results.map_err(|source| EvaluateError::Node {
            name: node.name.clone(),
            operation: node.operation.name(),
            source,
        })?;
        self.supply(id, results);
        Ok(())
    }

    /// The operands of a node. All nodes before it in the graph's order must have been computed.
    pub fn operands(&self, id: NodeId) -> Vec<Option<&Tensor>> {
        let inputs = self.graph.nodes()[id].inputs.iter();
        inputs.map(|input| input.and_then(|value| self.value(value))).collect()
    }

    /// Takes the results of a node, where they were computed elsewhere, instead of [`Evaluation::compute`].
    pub fn supply(&mut self, id: NodeId, results: Vec<Tensor>) {
        let node = &self.graph.nodes()[id];
        for (value, result) in node.outputs.iter().zip(results) {
            if self.uses[value.index()] > 0 {
                self.computed[value.index()] = Some(result);
            }
        }
        node.inputs.iter().flatten().for_each(|value| self.release(*value));
    }

    /// A value: an input, a constant, or what was computed and not freed.
    pub fn value(&self, value: ValueId) -> Option<&Tensor> {
        match &self.graph.values()[value].definition {
            Definition::Input(place) => self.inputs.get(*place),
            Definition::Constant(tensor) => Some(tensor),
            Definition::Output(..) => self.computed[value.index()].as_ref(),
        }
    }

    /// The graph's outputs, when all nodes are computed.
    pub fn outputs(&self) -> Vec<Tensor> {
        let outputs = self.graph.outputs().iter();
        outputs.filter_map(|port| self.value(port.value).cloned()).collect()
    }

    /// Extents of outputs that are decided at run time, in the order of [`Graph::extents`], when all nodes are
    /// computed.
    pub fn extents(&self) -> Vec<u64> {
        let extents = self.graph.extents().iter().filter_map(|extent| self.value(extent.value));
        extents.filter_map(|own| own.to_i64().first().map(|own| *own as u64)).collect()
    }
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
    graph.extents().iter().for_each(|extent| uses[extent.value.index()] += 1);
    uses
}
