//! The graph verifier. It checks:
//! - each value is defined once, and by what its definition names;
//! - a node reads only values defined before it;
//! - a node's output types are those its operation infers;
//! - inputs and outputs are named once each;
//! - the members of the interface have as many tensors as there are inputs and outputs;
//! - extents of outputs are scalars of `i64` that belong to an axis;
//! - the same of every region.

use crate::{Definition, Graph, InferError, NodeId, Operation, ValueId};
use hone_types::{DataType, Id, TensorType};
use std::collections::HashSet;
use thiserror::Error;

/// What does not hold in a graph.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// A node reads a value that is not defined before it.
    #[error("node '{name}' ({node}) reads {value} before it is defined")]
    NotDefined {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// The value.
        value: ValueId,
    },
    /// The definition of a value does not match the node it names.
    #[error("value {value} names a definition that does not make it")]
    WrongDefinition {
        /// The value.
        value: ValueId,
    },
    /// An operation refuses its inputs.
    #[error("node '{name}' ({node}, {operation}) refuses its inputs")]
    Refused {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// Its operation.
        operation: &'static str,
        /// Why.
        source: InferError,
    },
    /// A stored type is not the inferred one.
    #[error("node '{name}' ({node}) stores output types {stored:?} but infers {inferred:?}")]
    WrongType {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// Types in the graph.
        stored: Vec<TensorType>,
        /// Types the operation infers.
        inferred: Vec<TensorType>,
    },
    /// Two inputs or two outputs have one name.
    #[error("the {kind} name '{name}' is used twice")]
    DuplicateName {
        /// `input` or `output`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// An extent of an output that is decided at run time is no scalar of `i64`, or of no axis.
    #[error(
        "the extent of axis {axis} of output {output} is no 64-bit scalar, or there is no such axis"
    )]
    WrongExtent {
        /// The output's place.
        output: usize,
        /// The axis.
        axis: usize,
    },
    /// The interface has members of another number of tensors.
    #[error("the interface does not fit {inputs} inputs and {outputs} outputs")]
    WrongInterface {
        /// Inputs of the graph.
        inputs: usize,
        /// Outputs of the graph.
        outputs: usize,
    },
    /// A graph inside of a node does not hold.
    #[error("region {region} of node '{name}' ({node})")]
    Region {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// The region's place in its operation.
        region: usize,
        /// What does not hold in it.
        source: Box<VerifyError>,
    },
}

impl<O: Operation> Graph<O> {
    /// Checks all that must hold; the head of this module lists it.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.verify_definitions()?;
        for id in self.nodes().ids() {
            self.verify_order(id)?;
            self.verify_types(id)?;
            self.verify_regions(id)?;
        }
        self.verify_extents()?;
        let (inputs, outputs) = (self.inputs().len(), self.outputs().len());
        if !self.interface().fits(inputs, outputs) {
            return Err(VerifyError::WrongInterface { inputs, outputs });
        }
        verify_names("input", self.inputs().iter().map(|port| port.name.as_str()))?;
        verify_names("output", self.outputs().iter().map(|port| port.name.as_str()))
    }

    fn verify_regions(&self, id: NodeId) -> Result<(), VerifyError> {
        let node = &self.nodes()[id];
        for (region, graph) in node.operation.regions().into_iter().enumerate() {
            graph.verify().map_err(|source| {
                let (name, source) = (node.name.clone(), Box::new(source));
                VerifyError::Region { node: id, name, region, source }
            })?;
        }
        Ok(())
    }

    fn verify_extents(&self) -> Result<(), VerifyError> {
        let number = TensorType::new(DataType::I64, []);
        for extent in self.extents() {
            let output = self.outputs().get(extent.output);
            let axes = output.map_or(0, |port| self.tensor_type(port.value).rank());
            let is_scalar =
                self.values().get(extent.value).is_some_and(|value| value.tensor_type == number);
            if extent.axis >= axes || !is_scalar {
                let (output, axis) = (extent.output, extent.axis);
                return Err(VerifyError::WrongExtent { output, axis });
            }
        }
        Ok(())
    }

    fn verify_definitions(&self) -> Result<(), VerifyError> {
        for (id, value) in self.values().iter() {
            let holds = match &value.definition {
                Definition::Input(place) => {
                    self.inputs().get(*place).is_some_and(|port| port.value == id)
                }
                Definition::Constant(tensor) => *tensor.tensor_type() == value.tensor_type,
                Definition::Output(node, place) => {
                    self.nodes().get(*node).and_then(|node| node.outputs.get(*place)) == Some(&id)
                }
            };
            if !holds {
                return Err(VerifyError::WrongDefinition { value: id });
            }
        }
        Ok(())
    }

    fn verify_order(&self, id: NodeId) -> Result<(), VerifyError> {
        let node = &self.nodes()[id];
        for value in node.inputs.iter().flatten() {
            let defined = match self.values().get(*value).map(|value| &value.definition) {
                None => false,
                Some(Definition::Output(producer, _)) => producer.index() < id.index(),
                Some(_) => true,
            };
            if !defined {
                let name = node.name.clone();
                return Err(VerifyError::NotDefined { node: id, name, value: *value });
            }
        }
        Ok(())
    }

    fn verify_types(&self, id: NodeId) -> Result<(), VerifyError> {
        let node = &self.nodes()[id];
        let inputs: Vec<Option<&TensorType>> =
            node.inputs.iter().map(|input| input.map(|value| self.tensor_type(value))).collect();
        let inferred = node.operation.infer(&inputs).map_err(|source| VerifyError::Refused {
            node: id,
            name: node.name.clone(),
            operation: node.operation.name(),
            source,
        })?;
        let stored: Vec<TensorType> =
            node.outputs.iter().map(|value| self.tensor_type(*value).clone()).collect();
        if stored == inferred {
            return Ok(());
        }
        Err(VerifyError::WrongType { node: id, name: node.name.clone(), stored, inferred })
    }
}

fn verify_names<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), VerifyError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(VerifyError::DuplicateName { kind, name: name.to_string() });
        }
    }
    Ok(())
}
