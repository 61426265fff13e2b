//! Numbers that were dequantized by constants from integers of 8 bits: `(integers - zero) * scale`, as a conversion to 32
//! bits, a difference, a conversion to a float and a product, of which exporters leave some out.

use crate::readers::by_constant;
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op};
use hone_types::DataType;
use std::ops::RangeInclusive;

/// Maximum steps from an integer to a number: two conversions, a zero point and a scale.
const MAX_STEPS: usize = 4;

/// What a value was dequantized from.
pub(crate) struct Dequantized<'a> {
    /// Integers of 8 bits.
    pub(crate) integers: ValueId,
    /// The steps from an integer to a number, the last one first; none where the value holds the integers.
    pub(crate) steps: Vec<&'a Node<Op>>,
    /// The integer that stands for zero.
    pub(crate) zero: f64,
    /// What is multiplied by, the last one first: finite numbers.
    pub(crate) scales: Vec<f64>,
}

impl<'a> Dequantized<'a> {
    /// What `numbers` were dequantized from; `None` for other values.
    pub(crate) fn of(graph: &'a Graph, numbers: ValueId) -> Option<Self> {
        let mut found =
            Self { integers: numbers, steps: Vec::new(), zero: 0.0, scales: Vec::new() };
        loop {
            let dtype = graph.tensor_type(found.integers).dtype;
            if let Some(bytes) = bytes_of(dtype) {
                return bytes.contains(&found.zero).then_some(found);
            }
            let node = &graph.nodes()[graph.producer(found.integers)?];
            found.integers = match node.operation.downcast::<Cast>() {
                // Where floats become integers the zero point is no integer of what was quantized.
                Some(_) if dtype.is_float() => node.inputs[0]?,
                Some(_) => node.inputs[0].filter(|from| is_integer(graph, *from))?,
                None => found.less_constant(graph, node)?,
            };
            found.steps.push(node);
            if found.steps.len() > MAX_STEPS {
                return None;
            }
        }
    }

    /// What a node scales or takes a zero point from, which is noted.
    fn less_constant(&mut self, graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
        let function = node.operation.downcast::<Binary>()?.function;
        let (value, constant) = by_constant(graph, node, function)?;
        if node.inputs[0] != Some(value) || constant.tensor_type().elements() != 1 {
            return None;
        }
        let number = *constant.to_f64().first().filter(|number| number.is_finite())?;
        match function {
            // Integers that are scaled have another zero point than their results.
            BinaryFunction::Multiply if !is_integer(graph, value) => self.scales.push(number),
            // In integers, where it is exact.
            BinaryFunction::Subtract if graph.tensor_type(value).dtype == DataType::I32 => {
                self.zero += number;
            }
            _ => return None,
        }
        Some(value)
    }
}

/// The integers of a type of 8 bits.
pub(crate) fn bytes_of(dtype: DataType) -> Option<RangeInclusive<f64>> {
    match dtype {
        DataType::U8 => Some(0.0..=255.0),
        DataType::I8 => Some(-128.0..=127.0),
        _ => None,
    }
}

fn is_integer(graph: &Graph, value: ValueId) -> bool {
    !graph.tensor_type(value).dtype.is_float()
}
