//! Values, nodes and the graph that holds them.

use crate::{InferError, Interface, Operation};
use hone_types::{Table, Tensor, TensorType};

hone_types::define_id!(
    /// A value of a graph.
    ValueId,
    "%"
);
hone_types::define_id!(
    /// A node of a graph.
    NodeId,
    "node"
);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// An input of the graph; its place among the inputs.
    Input(usize),
    /// A constant.
    Constant(Tensor),
    /// An output of a node; its place among the node's outputs.
    Output(NodeId, usize),
}

/// A value: a tensor that flows through the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name given by the model; may be empty.
    pub name: String,
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// Where it comes from.
    pub definition: Definition,
}

/// A node: one operation applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<O> {
    /// Name given by the model, for messages and reports.
    pub name: String,
    /// The operation with its attributes.
    pub operation: O,
    /// Inputs in the operation's order; `None` is an optional input left out.
    pub inputs: Vec<Option<ValueId>>,
    /// Outputs in the operation's order.
    pub outputs: Vec<ValueId>,
}

/// A named input or output of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name users give and get.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// What is decided at run time of an output's shape. The output's type has the most that the axis may be; its
/// first elements are those of the actual shape, row-major, and all behind them are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputExtent {
    /// The output's place among the outputs.
    pub output: usize,
    /// The axis.
    pub axis: usize,
    /// The actual extent: a scalar of `i64`, between 0 and what the output's type says.
    pub value: ValueId,
}

/// A model: see the crate's head for what always holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph<O> {
    values: Table<ValueId, Value>,
    nodes: Table<NodeId, Node<O>>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    extents: Vec<OutputExtent>,
    interface: Interface,
}

impl<O> Default for Graph<O> {
    fn default() -> Self {
        Self {
            values: Table::new(),
            nodes: Table::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            extents: Vec::new(),
            interface: Interface::default(),
        }
    }
}

impl<O> Graph<O> {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every value.
    pub fn values(&self) -> &Table<ValueId, Value> {
        &self.values
    }

    /// Every node, in topological order.
    pub fn nodes(&self) -> &Table<NodeId, Node<O>> {
        &self.nodes
    }

    /// Inputs in the model's order.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// Outputs in the model's order.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Axes of outputs whose extent is decided at run time.
    pub fn extents(&self) -> &[OutputExtent] {
        &self.extents
    }

    /// What the model takes and gives beside tensors of numbers.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Says what the model takes and gives beside tensors of numbers.
    pub fn set_interface(&mut self, interface: Interface) {
        self.interface = interface;
    }

    /// Type of a value.
    pub fn tensor_type(&self, value: ValueId) -> &TensorType {
        &self.values[value].tensor_type
    }

    /// The constant behind a value, if it is one.
    pub fn constant(&self, value: ValueId) -> Option<&Tensor> {
        match &self.values[value].definition {
            Definition::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Every constant, to be replaced by one of the same type.
    pub fn constants_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.values.iter_mut().filter_map(|(_, value)| match &mut value.definition {
            Definition::Constant(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// The node that makes a value, if one does.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.values[value].definition {
            Definition::Output(node, _) => Some(node),
            _ => None,
        }
    }

    /// For each value (by index), the nodes that read it, once per use, in order.
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.values.len()];
        for (id, node) in self.nodes.iter() {
            for input in node.inputs.iter().flatten() {
                consumers[hone_types::Id::index(*input)].push(id);
            }
        }
        consumers
    }

    /// For each node (by index), whether an output, an extent, or a node that `is_required` says must run in any
    /// case depends on it, or it is such a node.
    pub fn needed(&self, is_required: impl Fn(&O) -> bool) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let outputs = self.outputs.iter().map(|port| port.value);
        let ends = outputs.chain(self.extents.iter().map(|extent| extent.value));
        let mut pending: Vec<NodeId> = ends.filter_map(|value| self.producer(value)).collect();
        let required = self.nodes.iter().filter(|(_, node)| is_required(&node.operation));
        pending.extend(required.map(|(id, _)| id));
        while let Some(node) = pending.pop() {
            if !std::mem::replace(&mut needed[hone_types::Id::index(node)], true) {
                let inputs = self.nodes[node].inputs.iter().flatten();
                pending.extend(inputs.filter_map(|value| self.producer(*value)));
            }
        }
        needed
    }

    /// Adds an input.
    pub fn add_input(&mut self, name: impl Into<String>, tensor_type: TensorType) -> ValueId {
        let name = name.into();
        let definition = Definition::Input(self.inputs.len());
        let value = self.values.push(Value { name: name.clone(), tensor_type, definition });
        self.inputs.push(Port { name, value });
        value
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.values.push(Value {
            name: name.into(),
            tensor_type: tensor.tensor_type().clone(),
            definition: Definition::Constant(tensor),
        })
    }

    /// Names a value as the next output.
    pub fn add_output(&mut self, name: impl Into<String>, value: ValueId) {
        self.outputs.push(Port { name: name.into(), value });
    }

    /// Says that an axis of an output has an extent that is decided at run time.
    pub fn add_extent(&mut self, extent: OutputExtent) {
        self.extents.push(extent);
    }

    /// Names a value for messages and reports.
    pub fn name_value(&mut self, value: ValueId, name: impl Into<String>) {
        self.values[value].name = name.into();
    }
}

impl<O: Operation> Graph<O> {
    /// Adds a node after all others; its output types are inferred.
    pub fn add_node(
        &mut self,
        name: impl Into<String>,
        operation: O,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, InferError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(|value| self.tensor_type(value))).collect();
        let inferred = operation.infer(&types)?;
        let name = name.into();
        let node = self.nodes.push(Node {
            name: name.clone(),
            operation,
            inputs: inputs.to_vec(),
            outputs: Vec::new(),
        });
        let mut outputs = Vec::with_capacity(inferred.len());
        for (place, tensor_type) in inferred.into_iter().enumerate() {
            let definition = Definition::Output(node, place);
            outputs.push(self.values.push(Value { name: name.clone(), tensor_type, definition }));
        }
        self.nodes[node].outputs = outputs.clone();
        Ok(outputs)
    }
}
