//! Nodes that convert a reduced-precision number and that every reader can repeat for itself at next to
//! no cost: casts from 16 bits, and the steps of dequantization (cast, subtract the zero point, multiply by the
//! scale).

use hone_graph::{Node, NodeId, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, FusionClass, Graph, Op, PackedDepthwise};
use hone_types::{DataType, Id};

/// Maximum steps of dequantization that are repeated; what exporters write has four.
const MAX_DEQUANTIZATION_STEPS: u8 = 8;

/// For each node (by index), whether its readers repeat it; `readers` and `escapes` are by value.
pub(crate) fn free_nodes(graph: &Graph, readers: &[Vec<NodeId>], escapes: &[bool]) -> Vec<bool> {
    let steps = dequantization_steps(graph);
    let is_free = |(id, node): (NodeId, &Node<Op>)| {
        let Some(output) = node.outputs.first() else { return false };
        if escapes[output.index()] || readers[output.index()].is_empty() {
            return false;
        }
        // What is no kernel repeats nothing.
        let compiled = |reader: &NodeId| graph.nodes()[*reader].operation.is_compiled();
        if !readers[output.index()].iter().all(compiled) {
            return false;
        }
        // A sum of products would convert each element many times, but one of each channel by itself: neighbouring windows
        // are computed together there, and share what they convert.
        let fuses = |reader: &NodeId| {
            let operation = &graph.nodes()[*reader].operation;
            let class = operation.fusion_class();
            matches!(class, FusionClass::Injective | FusionClass::Reduction)
                || operation.downcast::<PackedDepthwise>().is_some()
        };
        let all_fuse = || readers[output.index()].iter().all(fuses);
        extends_float(graph, node) || (steps[id.index()] > 0 && all_fuse())
    };
    graph.nodes().iter().map(is_free).collect()
}

/// Whether a node extends 16-bit numbers to those of the arithmetic: 32 bits, or 64 in a model that was lifted to them.
pub(crate) fn extends_float(graph: &Graph, node: &Node<Op>) -> bool {
    let Some(cast) = node.operation.downcast::<Cast>() else { return false };
    let from = node.inputs[0].map(|input| graph.tensor_type(input).dtype);
    let to_working = matches!(cast.to, DataType::F32 | DataType::F64);
    to_working && matches!(from, Some(DataType::BF16 | DataType::F16))
}

/// For each node, how many steps of dequantization end in it; zero where it is not such a step.
fn dequantization_steps(graph: &Graph) -> Vec<u8> {
    let mut steps = vec![0; graph.nodes().len()];
    for (id, node) in graph.nodes().iter() {
        let (Some(Some(input)), Some(output)) = (node.inputs.first(), node.outputs.first()) else {
            continue;
        };
        let (input, dtype) = (*input, graph.tensor_type(*output).dtype);
        if !matches!(dtype, DataType::I32 | DataType::F32 | DataType::F64) {
            continue;
        }
        let from = graph.tensor_type(input).dtype;
        let before = graph.producer(input).map_or(0, |producer| steps[producer.index()]);
        let continues = before > 0 && before < MAX_DEQUANTIZATION_STEPS;
        let is_cast = node.operation.downcast::<Cast>().is_some();
        steps[id.index()] = match is_cast {
            true if matches!(from, DataType::U8 | DataType::I8 | DataType::I16) => 1,
            true if continues => before + 1,
            false if continues && scales_or_shifts(graph, node) => before + 1,
            _ => 0,
        };
    }
    steps
}

/// Whether a node subtracts one constant from every element, or multiplies every element by one.
fn scales_or_shifts(graph: &Graph, node: &Node<Op>) -> bool {
    let is_number = |value: ValueId| {
        graph.constant(value).is_some_and(|constant| constant.tensor_type().elements() == 1)
    };
    let is_simple = node.operation.downcast::<Binary>().is_some_and(|binary| {
        matches!(binary.function, BinaryFunction::Subtract | BinaryFunction::Multiply)
    });
    is_simple && node.inputs[1].is_some_and(is_number)
}
