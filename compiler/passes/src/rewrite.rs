//! Builds the graph that a pass returns, value by value.

use hone_graph::{Definition, InferError, Node, NodeId, OutputExtent, ValueId};
use hone_ops::{Graph, Op, OpError};
use hone_types::{Id, Tensor};
use thiserror::Error;

/// Why a pass could not rewrite a graph; always a mistake of the pass, not of the model.
#[derive(Debug, Error)]
pub enum PassError {
    /// A node that the pass made, or copied, refuses its inputs.
    #[error("node '{node}' refuses its inputs after rewriting")]
    Infer {
        /// Name of the node in the graph before the pass.
        node: String,
        /// Why.
        source: InferError,
    },
    /// A constant could not be computed.
    #[error("the constant result of node '{node}' could not be computed")]
    Constant {
        /// Name of the node in the graph before the pass.
        node: String,
        /// Why.
        source: OpError,
    },
}

/// Copies a graph node by node; a pass copies what it leaves alone and adds what it changes.
pub struct Rewriter<'a> {
    source: &'a Graph,
    target: Graph,
    /// The new value of each old one, by index.
    values: Vec<Option<ValueId>>,
    needed: Vec<bool>,
}

impl<'a> Rewriter<'a> {
    /// A rewriter of `source`, its inputs already copied.
    pub fn new(source: &'a Graph) -> Self {
        let mut target = Graph::new();
        let mut values = vec![None; source.values().len()];
        for port in source.inputs() {
            let input = target.add_input(&port.name, source.tensor_type(port.value).clone());
            values[port.value.index()] = Some(input);
        }
        Self { source, target, values, needed: source.needed(|operation| operation.is_required()) }
    }

    /// Whether some output of the source depends on a node, or whether a run is held to what it finds.
    pub fn is_needed(&self, node: NodeId) -> bool {
        self.needed[node.index()]
    }

    /// The graph being built.
    pub fn target(&self) -> &Graph {
        &self.target
    }

    /// The new value of an old one; constants are copied when first asked for.
    pub fn value(&mut self, old: ValueId) -> ValueId {
        if let Some(new) = self.values[old.index()] {
            return new;
        }
        let value = &self.source.values()[old];
        let Definition::Constant(tensor) = &value.definition else {
            unreachable!("topological order puts the definition of {old} before its uses")
        };
        let new = self.target.add_constant(&value.name, tensor.clone());
        self.values[old.index()] = Some(new);
        new
    }

    /// Whether an old value has a new one already.
    pub(crate) fn is_known(&self, old: ValueId) -> bool {
        self.values[old.index()].is_some()
    }

    /// Replaces `old` by `new` from here on.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.values[old.index()] = Some(new);
    }

    /// Adds a constant to the new graph.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        self.target.add_constant(name, tensor)
    }

    /// Adds a node to the new graph; `name` is that of the old node it serves.
    pub fn add(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, PassError> {
        let added = self.target.add_node(name, operation.into(), inputs);
        added.map_err(|source| PassError::Infer { node: name.to_string(), source })
    }

    /// Adds a node with one output and no optional inputs, and returns that output.
    pub fn add_simple(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, PassError> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        Ok(self.add(name, operation, &inputs)?[0])
    }

    /// Adds the simpler nodes that an operation is made of, if it is; `inputs` are new values.
    pub fn decompose(
        &mut self,
        name: &str,
        operation: &Op,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, PassError> {
        let decomposed = operation.decompose(&mut self.target, inputs);
        decomposed.map_err(|source| PassError::Infer { node: name.to_string(), source })
    }

    /// Copies a node as it is, on the new values of its inputs.
    pub fn copy(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|input| input.map(|value| self.value(value))).collect();
        let outputs = self.add(&node.name, node.operation.clone(), &inputs)?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.target.name_value(new, &self.source.values()[*old].name);
            self.values[old.index()] = Some(new);
        }
        Ok(())
    }

    /// The new graph, with the outputs of the old one.
    pub fn finish(mut self) -> Graph {
        let outputs: Vec<ValueId> =
            self.source.outputs().iter().map(|port| self.value(port.value)).collect();
        self.finish_with(&outputs)
    }

    /// The new graph, with `outputs` under the names of the old ones.
    pub fn finish_with(mut self, outputs: &[ValueId]) -> Graph {
        for (port, value) in self.source.outputs().iter().zip(outputs) {
            self.target.add_output(&port.name, *value);
        }
        let source = self.source;
        self.target.set_interface(source.interface().clone());
        for extent in source.extents() {
            let value = self.value(extent.value);
            self.target.add_extent(OutputExtent { value, ..*extent });
        }
        self.target
    }
}
