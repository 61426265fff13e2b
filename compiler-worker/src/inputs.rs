//! Inputs that a model is verified on: seeded, equal on every machine, and from what the model takes. Integers
//! that choose rows of a table range over its rows, bytes over all of theirs, masks over 0 and 1.

use std::collections::HashSet;

use hone_artifact::{DataType, TensorInfo};
use hone_driver::ops::{
    Binary, BinaryFunction, Cast, Concat, Expand, Gather, GatherElements, GatherNd, Loop, OneHot,
    Require, Reshape, ScatterElements, ScatterNd, Select, Slice, Tile, Transpose,
};
use hone_driver::{Graph, Id, Node, NodeId, Op, ValueId};

use crate::images;
use crate::maps;
use crate::random::{Random, real, whole};
use crate::texts;
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
    let inputs = values.zip(ports).zip(texts::flags(graph, false));
    let mut made: Vec<Vec<u8>> = inputs
        .map(|((value, port), text)| match held(graph, value) {
            _ if text => texts::sample(graph, port.bytes as usize, &mut random),
            Some(numbers) => {
                let mut bytes = Vec::with_capacity(port.bytes as usize);
                numbers.into_iter().for_each(|own| whole(port.dtype, own, &mut bytes));
                bytes
            }
            None => content(port, largest(graph, value), edges, &mut random),
        })
        .collect();
    maps::sample(graph, &mut made, &mut random);
    images::fill_graph(graph, &mut made, &mut random);
    made
}

/// The numbers that a run holds an integer input to, as the importer asks for them (`import/src/onnx/held.rs`): the input
/// is compared with a list of as many, or its axes with all there are, whose sum as powers of two is compared with a list.
fn held(graph: &Graph, input: ValueId) -> Option<Vec<i64>> {
    let required = |(_, node): (_, &Node<Op>)| node.operation.downcast::<Require>().is_some();
    let count = graph.tensor_type(input).elements();
    if graph.tensor_type(input).dtype.is_float() || !graph.nodes().iter().any(required) {
        return None;
    }
    let consumers = graph.consumers();
    let (mut pending, mut compared) = (vec![input], None);
    while let Some(value) = pending.pop() {
        for reader in &consumers[value.index()] {
            let node = &graph.nodes()[*reader];
            let operation = &node.operation;
            if let Some(numbers) = equal_to(graph, node) {
                let same = numbers.len() == count && graph.tensor_type(value).rank() < 2;
                compared = compared.or(same.then_some(numbers));
                let axes = graph.tensor_type(value).shape == [count, 1];
                compared =
                    compared.or_else(|| axes.then(|| named_axes(graph, &consumers, node))?);
            } else if operation.downcast::<Cast>().is_some()
                || operation.downcast::<Reshape>().is_some()
            {
                pending.push(node.outputs[0]);
            }
        }
    }
    compared.filter(|numbers| numbers.len() == count)
}

/// The constant that a node compares with.
fn equal_to(graph: &Graph, node: &Node<Op>) -> Option<Vec<i64>> {
    let binary = node.operation.downcast::<Binary>()?;
    let constant = graph.constant(node.inputs.get(1).copied().flatten()?)?;
    (binary.function == BinaryFunction::Equal).then(|| constant.to_i64())
}

/// The axes of the first sum of powers of two that follows from a comparison of axes.
fn named_axes(graph: &Graph, consumers: &[Vec<NodeId>], from: &Node<Op>) -> Option<Vec<i64>> {
    let mut value = *from.outputs.first()?;
    for _ in 0..8 {
        let readers = consumers[value.index()].iter().map(|reader| &graph.nodes()[*reader]);
        let mut readers = readers.filter(|node| !node.outputs.is_empty());
        let node = readers.next()?;
        if let Some(keys) = equal_to(graph, node) {
            let key = *keys.first()?;
            return Some((0..62).filter(|axis| key >> axis & 1 == 1).collect());
        }
        value = node.outputs[0];
    }
    None
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
    if let Some((low, high)) = indices(graph, input).or_else(|| sizes(graph, input)) {
        return (low, high);
    }
    match graph.tensor_type(input).dtype {
        U8 => (0, 255),
        I8 => (-128, 127),
        _ => (0, 1),
    }
}

fn compares(operation: &Binary) -> bool {
    use BinaryFunction::{Equal, Greater, GreaterEqual, Less, LessEqual};
    matches!(operation.function, Equal | Less | LessEqual | Greater | GreaterEqual)
}

/// The range of an input that says how many of the positions along an axis count: it is compared with each of them.
fn sizes(graph: &Graph, input: ValueId) -> Option<(i64, i64)> {
    let tensor = graph.tensor_type(input);
    if tensor.elements() != 1 || tensor.dtype.is_float() {
        return None;
    }
    let consumers = graph.consumers();
    let (mut pending, mut seen) = (vec![input], HashSet::new());
    while let Some(value) = pending.pop().filter(|value| seen.insert(*value)) {
        for reader in &consumers[value.index()] {
            let node = &graph.nodes()[*reader];
            let is_moved = node.operation.downcast::<Cast>().is_some()
                || node.operation.downcast::<Reshape>().is_some();
            if is_moved {
                pending.push(node.outputs[0]);
            } else if node.operation.downcast::<Binary>().is_some_and(compares) {
                let others = node.inputs.iter().flatten().filter(|other| **other != value);
                let positions = others.filter_map(|other| graph.constant(*other)).next();
                return positions.map(|positions| (1, positions.tensor_type().elements() as i64));
            }
        }
    }
    None
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
            if node.outputs.is_empty() {
                continue;
            }
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
    fn what_a_run_is_held_to_is_what_a_sample_has() {
        let integers = |shape: &[usize]| TensorType::new(hone_driver::DataType::I64, shape);
        let list = |values: &[i64]| Tensor::from_elements([values.len()], values).unwrap();
        let equal: Op = Binary::new(BinaryFunction::Equal).into();
        let mut graph = Graph::new();
        let shape = graph.add_input("shape", integers(&[2]));
        let axes = graph.add_input("axes", integers(&[2]));
        let free = graph.add_input("free", integers(&[2]));
        let one = |graph: &mut Graph, own: Op, inputs: &[ValueId]| {
            let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
            graph.add_node("node", own, &inputs).unwrap()
        };
        let expected = graph.add_constant("shape", list(&[7, 9]));
        let holds = one(&mut graph, equal.clone(), &[shape, expected]);
        one(&mut graph, Require { message: String::new() }.into(), &holds);
        let rows = one(&mut graph, Reshape { shape: vec![2, 1] }.into(), &[axes]);
        let [all, powers] = [list(&[0, 1, 2, 3]), list(&[1, 2, 4, 8])];
        let (all, powers) = (graph.add_constant("all", all), graph.add_constant("powers", powers));
        let zero = graph.add_constant("zero", Tensor::scalar(0i64));
        let named = one(&mut graph, equal.clone(), &[rows[0], all]);
        let bits = one(&mut graph, Select {}.into(), &[named[0], powers, zero]);
        let sum = hone_driver::ops::ReduceFunction::Sum;
        let sum = hone_driver::ops::Reduce { function: sum, axes: vec![0, 1], keep_axes: false };
        let key = one(&mut graph, sum.into(), &bits);
        let keys = graph.add_constant("keys", list(&[10, 12]));
        let known = one(&mut graph, equal, &[key[0], keys]);
        graph.add_output("known", known[0]);
        graph.add_output("free", free);
        assert_eq!(held(&graph, shape), Some(vec![7, 9]));
        assert_eq!(held(&graph, axes), Some(vec![1, 3]));
        assert_eq!(held(&graph, free), None);
        let sample = edges(&graph, &ports(&graph, false).unwrap(), 1);
        let bytes = [7i64, 9].map(i64::to_le_bytes).concat();
        assert_eq!(sample.inputs[0], bytes);
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
