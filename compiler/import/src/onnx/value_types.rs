//! Element types and shapes of the values of a model's own graph, as far as they can be known where the model cannot be
//! imported as a whole.

use super::builder::Operand;
use super::importer::{Importer, begin};
use super::proto::{
    ModelProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto,
    type_proto,
};
use super::tensor::number_of;
use super::{edit, liveness};
use crate::{ImportError, ImportOptions};
use std::collections::HashSet;

/// Tells `found` the type of each value of the model's own graph that is one tensor: of inputs, of stored tensors that
/// are read, and of results of nodes, in the order in which nodes run. A size that only a run decides is the largest.
///
/// A node that cannot be imported is taken to give results as the model declares them, or else of the type of its first
/// input: a guess, which who asks has to try.
///
/// # Errors
/// Where inputs are declared wrongly or are open, or what the graph stores does not hold together.
pub fn value_types(
    model: ModelProto,
    options: &ImportOptions,
    found: &mut dyn FnMut(ValueInfoProto),
) -> Result<(), ImportError> {
    let begun = begin(model, options)?;
    let (mut importer, graph) = (begun.importer, begun.graph);
    let inputs: Vec<String> = graph.input.iter().filter_map(|entry| entry.name.clone()).collect();
    let nodes = edit::sorted(importer.store(graph)?);
    let every = nodes.iter().flat_map(|node| node.output.iter().map(String::as_str));
    let (read, _) = liveness::live(&nodes, every);
    let mut reported = HashSet::new();
    tell(&mut importer, &inputs, &mut reported, found);
    for node in nodes {
        let inputs: Vec<String> = edit::names_read(&node).into_iter().map(str::to_owned).collect();
        tell(&mut importer, &inputs, &mut reported, found);
        let outputs = node.output.clone();
        import(&mut importer, node, &read);
        tell(&mut importer, &outputs, &mut reported, found);
    }
    Ok(())
}

/// Imports a node, or takes a guess at its results.
fn import(importer: &mut Importer, node: NodeProto, read: &HashSet<String>) {
    let (inputs, outputs) = (node.input.clone(), node.output.clone());
    let is_known = edit::names_read(&node).iter().all(|name| importer.knows(name));
    let depth = importer.builder.depth();
    if is_known && importer.import_node(node, read).is_ok() {
        return;
    }
    importer.scopes.truncate(1);
    importer.builder.abandon_regions(depth);
    for name in outputs.iter().filter(|name| !name.is_empty()) {
        let is_free = !importer.knows(name);
        if let Some(operand) = importer.guess(name, &inputs).filter(|_| is_free) {
            importer.bind(name, operand);
        }
    }
}

impl Importer {
    /// An operand of the type that the result `name` of a node with these inputs could have.
    fn guess(&mut self, name: &str, inputs: &[String]) -> Option<Operand> {
        let known = inputs.iter().filter(|input| !input.is_empty());
        let first = known.into_iter().find_map(|input| self.lookup(input).ok().flatten())?;
        if self.builder.is_composite(first) {
            return None;
        }
        let mut guessed = self.builder.tensor_type(first).clone();
        let declared = self.scopes.last().and_then(|scope| scope.declared.get(name));
        let declared = declared.and_then(|shape| shape.iter().copied().collect());
        guessed.shape = declared.unwrap_or(guessed.shape);
        let operand = self.builder.add_input(name, guessed);
        if let Some(narrow) = self.builder.narrow_type(first) {
            self.builder.set_narrow(operand, narrow);
        }
        Some(operand)
    }
}

/// Tells the types of those of `names` that are known and were not told before.
fn tell(
    importer: &mut Importer,
    names: &[String],
    reported: &mut HashSet<String>,
    found: &mut dyn FnMut(ValueInfoProto),
) {
    for name in names {
        if reported.contains(name) {
            continue;
        }
        // What is stored wrongly has no type.
        let Ok(Some(operand)) = importer.lookup(name) else { continue };
        reported.insert(name.clone());
        if !importer.builder.is_composite(operand) {
            found(described(importer, name, operand));
        }
    }
}

/// A value's declaration.
fn described(importer: &Importer, name: &str, operand: Operand) -> ValueInfoProto {
    let tensor_type = importer.builder.tensor_type(operand);
    let number = match importer.builder.narrow_type(operand) {
        Some(narrow) => narrow.number(),
        None => number_of(tensor_type.dtype),
    };
    let dim = tensor_type.shape.iter().map(|extent| tensor_shape_proto::Dimension {
        value: Some(tensor_shape_proto::dimension::Value::DimValue(*extent as i64)),
        ..Default::default()
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = type_proto::Tensor { elem_type: Some(number), shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    let r#type = Some(TypeProto { value, ..Default::default() });
    ValueInfoProto { name: Some(name.to_owned()), r#type, ..Default::default() }
}
