//! Computes once what several nodes compute of the same operands. Exporters write a module as often as it is called, so a
//! network whose forward pass calls one twice on the same value holds it twice.
//!
//! Values are numbered (Cocke, "Global common subexpression elimination", 1970): nodes of equal operations with equal
//! attributes on operands of equal numbers give equal numbers. Only what is more than element-wise is computed once: an
//! element-wise node is computed inside of the kernels that read it, and one for all of them would have to be stored.

use crate::{PassError, Rewriter};
use hone_graph::{Definition, Node, Operation, ValueId};
use hone_ops::{FusionClass, Graph, Op};
use hone_types::{Id, Tensor};
use std::collections::HashMap;

/// Bytes of the largest constant that is compared by its elements. Of larger ones each is another.
const LARGEST_COMPARED: usize = 1 << 16;

/// What a node computes: operation, attributes, and the numbers of its operands.
type Key = (&'static str, String, Vec<Option<usize>>);

/// Replaces nodes that compute what another one has computed before them.
pub fn eliminate_common_subexpressions(graph: &Graph) -> Result<Graph, PassError> {
    let mut numbers = Numbers::of(graph);
    let mut rewriter = Rewriter::new(graph);
    let mut known: HashMap<Key, Vec<ValueId>> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let key = key(node, &numbers);
        let before = key.as_ref().and_then(|key| known.get(key)).cloned();
        match before {
            Some(outputs) => {
                for (output, first) in node.outputs.iter().zip(&outputs) {
                    numbers.values[output.index()] = numbers.values[first.index()];
                }
                if is_element_wise(node) {
                    rewriter.copy(node)?;
                    continue;
                }
                for (output, first) in node.outputs.iter().zip(outputs) {
                    let first = rewriter.value(first);
                    rewriter.replace(*output, first);
                }
            }
            None => {
                rewriter.copy(node)?;
                if let Some(key) = key {
                    known.insert(key, node.outputs.clone());
                }
            }
        }
    }
    Ok(rewriter.finish())
}

fn is_element_wise(node: &Node<Op>) -> bool {
    Operation::regions(&node.operation).is_empty()
        && node.operation.is_compiled()
        && node.operation.fusion_class() == FusionClass::Injective
}

/// `None` of a node that is not compared: one with graphs inside, or that ends a run.
fn key(node: &Node<Op>, numbers: &Numbers) -> Option<Key> {
    let operation = &node.operation;
    if !Operation::regions(operation).is_empty() || operation.is_required() {
        return None;
    }
    let operands = node.inputs.iter().map(|input| input.map(|value| numbers.values[value.index()]));
    let name = Operation::name(operation);
    Some((name, operation.attributes().to_string(), operands.collect()))
}

/// A number for each value, by its index: equal ones hold the same.
struct Numbers {
    values: Vec<usize>,
}

impl Numbers {
    /// Every value has its own, but equal small constants have one.
    fn of(graph: &Graph) -> Self {
        let mut constants: HashMap<(String, &[u8]), usize> = HashMap::new();
        let values = graph.values().iter().map(|(id, value)| match &value.definition {
            Definition::Constant(tensor) if tensor.tensor_type().bytes() <= LARGEST_COMPARED => {
                *constants.entry(content(tensor)).or_insert(id.index())
            }
            _ => id.index(),
        });
        Self { values: values.collect() }
    }
}

fn content(tensor: &Tensor) -> (String, &[u8]) {
    (tensor.tensor_type().to_string(), tensor.bytes())
}
