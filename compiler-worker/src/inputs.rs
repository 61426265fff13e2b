//! Inputs that a model is verified on: seeded, equal on every machine, and from what the model takes. Integers
//! that choose rows of a table range over its rows, bytes over all of theirs, masks over 0 and 1.

use std::collections::HashSet;

use hone_artifact::{DataType, TensorInfo};
use hone_driver::ops::{
    Binary, BinaryFunction, Cast, Concat, Expand, Gather, GatherElements, GatherNd, Loop, OneHot,
    Reshape, ScatterElements, ScatterNd, Select, Slice, Tile, Transpose,
};
use hone_driver::{Graph, Id, Node, Op, ValueId};

use crate::random::{Random, real, whole};
use crate::verify::Sample;

/// The seeds of the inputs that answers are compared on; fixed, so that everybody compares on the same.
pub const SEEDS: [u64; 3] = [0x686f_6e65, 0x686f_6e66, 0x686f_6e67];

/// A model of fewer operations than this is verified on all seeds and on edge values even where time
/// matters.
pub const CHEAP_FLOPS: u64 = 100_000_000;

/// One sample with content from `seed` for every input.
pub fn seeded(graph: &Graph, ports: &[TensorInfo], seed: u64) -> Sample {
    Sample {
        name: format!("seed {seed:#x}"),
        inputs: contents(graph, ports, seed, false),
        edges: false,
    }
}

/// A sample with edge values among ordinary ones: zeros of both signs, denormals, magnitudes of a thousand.
pub fn edges(graph: &Graph, ports: &[TensorInfo], seed: u64) -> Sample {
    let inputs = contents(graph, ports, seed, true);
    Sample { name: format!("edge values, seed {seed:#x}"), inputs, edges: true }
}

fn contents(graph: &Graph, ports: &[TensorInfo], seed: u64, edges: bool) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let values = graph.inputs().iter().map(|port| port.value);
    let inputs = values.zip(ports);
    inputs.map(|(value, port)| content(port, largest(graph, value), edges, &mut random)).collect()
}

/// One in so many elements of a sample of edge values is one.
const ORDINARY_PER_EDGE: usize = 16;

fn content(port: &TensorInfo, range: (i64, i64), edges: bool, random: &mut Random) -> Vec<u8> {
    const EDGES: [f64; 8] = [0.0, -0.0, 1e-40, -1e-40, 1e3, -1e3, 1.0, -1.0];
    let size = port.dtype.bytes_of(&[]).unwrap_or(1).max(1);
    let mut bytes = Vec::with_capacity(port.bytes as usize);
    for _ in 0..port.bytes / size {
        let edge = edges && random.below(ORDINARY_PER_EDGE) == 0;
        if matches!(port.dtype, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64) {
            let value = match edge {
                true => EDGES[random.below(EDGES.len())],
                false => random.signed_unit(),
            };
            real(port.dtype, value, &mut bytes);
        } else {
            let (low, high) = range;
            let count = (high - low) as u64 + 1;
            let value = match edge {
                true if random.below(2) == 0 => low,
                true => high,
                false => low + random.below(count as usize) as i64,
            };
            whole(port.dtype, value, &mut bytes);
        }
    }
    bytes
}

/// The least and largest number that an integer input takes, as far as the graph tells.
fn largest(graph: &Graph, input: ValueId) -> (i64, i64) {
    use hone_driver::DataType::{I8, U8};
    if let Some((low, high)) = indices(graph, input) {
        return (low, high);
    }
    match graph.tensor_type(input).dtype {
        U8 => (0, 255),
        I8 => (-128, 127),
        _ => (0, 1),
    }
}

/// The range of an input whose numbers choose among the elements of an axis.
fn indices(graph: &Graph, input: ValueId) -> Option<(i64, i64)> {
    let consumers = graph.consumers();
    // A value, and what is added to the input on the way to it.
    let mut pending = vec![(input, 0i64)];
    let mut seen: HashSet<ValueId> = HashSet::new();
    let mut range: Option<(i64, i64)> = None;
    while let Some((value, offset)) = pending.pop() {
        if !seen.insert(value) {
            continue;
        }
        for reader in &consumers[value.index()] {
            let node = &graph.nodes()[*reader];
            if let Some(extent) = chosen_among(graph, node, value) {
                let (low, high) = range.unwrap_or((i64::MIN, i64::MAX));
                let last = i64::try_from(extent).unwrap_or(i64::MAX).max(1) - 1;
                range = Some((low.max(-offset), high.min(last - offset)));
            } else if let Some(added) = moves(graph, node, value)
                && !graph.tensor_type(node.outputs[0]).dtype.is_float()
            {
                pending.push((node.outputs[0], offset + added));
            }
        }
    }
    range.map(|(low, high)| (low, high.max(low)))
}

/// Iterations of a loop that nothing else bounds.
const TRIPS: u64 = 8;

/// How many elements a node chooses among by `value`, if it does.
fn chosen_among(graph: &Graph, node: &Node<Op>, value: ValueId) -> Option<usize> {
    let operation = &node.operation;
    let is = |place: usize| node.inputs.get(place).copied().flatten() == Some(value);
    let data = &graph.tensor_type(node.inputs.first().copied().flatten()?).shape;
    if let Some(own) = operation.downcast::<Loop>().filter(|_| is(0)) {
        let most = own.most.into_iter().chain(own.capacity).min().unwrap_or(TRIPS);
        return usize::try_from(most).ok()?.checked_add(1);
    }
    if let Some(gather) = operation.downcast::<Gather>() {
        return is(1).then(|| data.get(gather.axis).copied()).flatten();
    }
    if let Some(gather) = operation.downcast::<GatherElements>() {
        return is(1).then(|| data.get(gather.axis).copied()).flatten();
    }
    if let Some(scatter) = operation.downcast::<ScatterElements>() {
        return is(1).then(|| data.get(scatter.axis).copied()).flatten();
    }
    if operation.downcast::<GatherNd>().is_some() || operation.downcast::<ScatterNd>().is_some() {
        return is(1).then(|| data.iter().copied().min()).flatten();
    }
    operation.downcast::<OneHot>().filter(|_| is(0)).map(|one_hot| one_hot.depth)
}

/// What a node adds to the numbers of `value`, if its result holds them.
fn moves(graph: &Graph, node: &Node<Op>, value: ValueId) -> Option<i64> {
    let operation = &node.operation;
    let first = node.inputs.first().copied().flatten() == Some(value);
    if let Some(binary) = operation.downcast::<Binary>() {
        let other = node.inputs.get(usize::from(first)).copied().flatten()?;
        let by = *graph.constant(other)?.to_i64().iter().max()?;
        return match binary.function {
            BinaryFunction::Add => Some(by),
            BinaryFunction::Subtract if first => Some(-by),
            BinaryFunction::Maximum | BinaryFunction::Minimum => Some(0),
            _ => None,
        };
    }
    let moved = operation.downcast::<Cast>().is_some()
        || operation.downcast::<Concat>().is_some()
        || operation.downcast::<Expand>().is_some()
        || operation.downcast::<Reshape>().is_some()
        || operation.downcast::<Select>().is_some()
        || operation.downcast::<Slice>().is_some()
        || operation.downcast::<Tile>().is_some()
        || operation.downcast::<Transpose>().is_some()
        || (operation.downcast::<Gather>().is_some() && first);
    moved.then_some(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::compiler::ports;
    use hone_driver::{Tensor, TensorType};

    fn table(graph: &mut Graph, rows: usize) -> ValueId {
        let table = TensorType::new(hone_driver::DataType::F32, [rows, 2]);
        graph.add_constant("table", Tensor::zeros(table))
    }

    #[test]
    fn indices_range_over_the_table_that_they_choose_from() {
        let mut graph = Graph::new();
        let ids = graph.add_input("ids", TensorType::new(hone_driver::DataType::I64, [400]));
        let two = graph.add_constant("two", Tensor::from_elements([1], &[2i64]).unwrap());
        let add = Binary::new(BinaryFunction::Add).into();
        let shifted = graph.add_node("shift", add, &[Some(ids), Some(two)]).unwrap()[0];
        let rows = table(&mut graph, 50);
        let gather = Gather { axis: 0 }.into();
        let y = graph.add_node("rows", gather, &[Some(rows), Some(shifted)]).unwrap();
        graph.add_output("y", y[0]);
        assert_eq!(largest(&graph, ids), (-2, 47));
        let sample = seeded(&graph, &ports(&graph, false).unwrap(), 1);
        let numbers: HashSet<i64> = sample.inputs[0]
            .chunks_exact(8)
            .map(|raw| i64::from_le_bytes(raw.try_into().unwrap()))
            .collect();
        assert!(numbers.iter().all(|number| (-2..=47).contains(number)));
        assert!(numbers.contains(&47) && numbers.contains(&-2) && numbers.len() > 40);
    }

    #[test]
    fn bytes_take_their_whole_range_and_masks_two_numbers() {
        let mut graph = Graph::new();
        for (name, dtype) in [
            ("pixels", hone_driver::DataType::U8),
            ("steps", hone_driver::DataType::I8),
            ("mask", hone_driver::DataType::I64),
            ("flags", hone_driver::DataType::Bool),
        ] {
            let x = graph.add_input(name, TensorType::new(dtype, [4000]));
            let wide = Cast { to: hone_driver::DataType::F32 }.into();
            let y = graph.add_node(name, wide, &[Some(x)]).unwrap();
            graph.add_output(name, y[0]);
        }
        let sample = seeded(&graph, &ports(&graph, false).unwrap(), 1);
        let distinct = |index: usize| sample.inputs[index].iter().collect::<HashSet<_>>().len();
        assert_eq!((distinct(0), distinct(1), distinct(3)), (256, 256, 2));
        assert_eq!(sample.inputs[2].chunks_exact(8).collect::<HashSet<_>>().len(), 2);
    }

    #[test]
    fn edge_values_stand_among_others() {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(hone_driver::DataType::F32, [1000]));
        graph.add_output("y", x);
        let sample = edges(&graph, &ports(&graph, false).unwrap(), 1);
        let values: Vec<f32> = sample.inputs[0]
            .chunks_exact(4)
            .map(|raw| f32::from_le_bytes(raw.try_into().unwrap()))
            .collect();
        assert!(values.iter().any(|value| value.is_subnormal()));
        assert!(values.contains(&1e3) && values.contains(&0.0));
        assert!(values.iter().filter(|value| value.abs() < 1.0 && value.is_normal()).count() > 800);
    }
}
