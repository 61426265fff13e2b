//! A model with its `f32` arithmetic lifted to `f64`: how passes are checked on models that round to
//! integers. There a last bit of `f32` decides whether a value becomes 3 or 4, and what follows differs by
//! whole steps although both are right. In `f64` the same decision is taken but for exact ties.
//!
//! Exact ties are common (an average of four equal steps lies between two), and a pass that multiplies by
//! a reciprocal may turn them around even in `f64`. So constants are moved by a millionth of themselves,
//! differently for each kind of use, which leaves no ties; whole numbers and powers of two stay, with them
//! arithmetic is exact. Equal constants are moved alike, since passes compute equal things once.
//!
//! Whether a lifted graph went through the passes like the compiled one is for [`crate::same_structure`] to say.

use hone_graph::{InferError, Node, Operation, OutputExtent, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Lstm, Op, Recurrence, Unary, UnaryFunction};
use hone_types::{DataType, Tensor, TensorError, TensorType};
use std::collections::HashMap;
use thiserror::Error;

/// Why a model cannot be lifted.
#[derive(Debug, Error)]
pub enum LiftError {
    /// An operator refuses `f64`.
    #[error("node '{node}' has no f64 form")]
    Node {
        /// Name of the node.
        node: String,
        /// Why.
        source: InferError,
    },
    /// A constant cannot be converted.
    #[error("a constant has no f64 form")]
    Constant(#[from] TensorError),
}

/// Whether a model rounds floating-point numbers to whole ones of which a last bit decides: by `round`, by
/// a cast to an integer of 8 or 16 bits, or in a layer that rounds what it reads.
pub fn rounds_to_integers(graph: &Graph) -> bool {
    graph.nodes().iter().any(|(_, node)| {
        let from = node.inputs.first().copied().flatten();
        let is_float = from.is_some_and(|value| graph.tensor_type(value).dtype.is_float());
        let cast = node.operation.downcast::<Cast>();
        let narrow = cast.is_some_and(|cast| cast.to.is_integer() && cast.to.bytes() <= 2);
        let round = node.operation.downcast::<Unary>();
        let inside = node.operation.regions().into_iter().any(rounds_to_integers);
        let rounds = round.is_some_and(|unary| unary.function == UnaryFunction::Round);
        let layer = node.operation.downcast::<Lstm>().is_some_and(|layer| layer.rounds_operands);
        inside || layer || (is_float && (narrow || rounds))
    })
}

/// The model with every `f32` value as `f64`, and its constants moved a little (see the module's head).
pub fn lift(graph: &Graph) -> Result<Graph, LiftError> {
    let mut lifted = Graph::new();
    let mut values: HashMap<ValueId, ValueId> = HashMap::new();
    let mut constants: HashMap<(ValueId, &'static str, usize), ValueId> = HashMap::new();
    for port in graph.inputs() {
        let TensorType { dtype, shape } = graph.tensor_type(port.value).clone();
        let input = lifted.add_input(&port.name, TensorType::new(wide(dtype), shape));
        values.insert(port.value, input);
    }
    for (_, node) in graph.nodes().iter() {
        let kind = kind_of_use(&node.operation);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (index, input) in node.inputs.iter().enumerate() {
            inputs.push(match input {
                None => None,
                Some(value) => Some(match graph.constant(*value) {
                    None => values[value],
                    Some(tensor) => match constants.get(&(*value, kind, index)) {
                        Some(known) => *known,
                        None => {
                            let moved = moved(tensor, kind, index)?;
                            let added = lifted.add_constant(&graph.values()[*value].name, moved);
                            constants.insert((*value, kind, index), added);
                            added
                        }
                    },
                }),
            });
        }
        let outputs = lifted
            .add_node(&node.name, lifted_with_regions(node)?, &inputs)
            .map_err(|source| LiftError::Node { node: node.name.clone(), source })?;
        values.extend(node.outputs.iter().copied().zip(outputs));
    }
    for port in graph.outputs() {
        let value = match graph.constant(port.value) {
            Some(tensor) => lifted.add_constant(&port.name, lift_tensor(tensor)?),
            None => values[&port.value],
        };
        lifted.add_output(&port.name, value);
    }
    for extent in graph.extents() {
        let value = match graph.constant(extent.value) {
            Some(tensor) => lifted.add_constant("extent", tensor.clone()),
            None => values[&extent.value],
        };
        lifted.add_extent(OutputExtent { value, ..*extent });
    }
    lifted.set_interface(graph.interface().clone());
    Ok(lifted)
}

/// A node's operation for lifted operands, its regions lifted too.
fn lifted_with_regions(node: &Node<Op>) -> Result<Op, LiftError> {
    let regions = node.operation.regions().into_iter().map(lift).collect::<Result<_, _>>()?;
    Ok(node.operation.with_regions(regions).unwrap_or_else(|| lifted_operation(node)))
}

/// A tensor with `f32` elements as `f64`; others as they are.
pub fn lift_tensor(tensor: &Tensor) -> Result<Tensor, TensorError> {
    match tensor.dtype() {
        DataType::F32 => Tensor::from_f64(DataType::F64, tensor.shape(), &tensor.to_f64()),
        _ => Ok(tensor.clone()),
    }
}

/// The type that values of a type are lifted to.
pub(crate) fn wide(dtype: DataType) -> DataType {
    if dtype == DataType::F32 { DataType::F64 } else { dtype }
}

/// A node's operation without regions, for lifted operands.
pub(crate) fn lifted_operation(node: &Node<Op>) -> Op {
    if let Some(cast) = node.operation.downcast::<Cast>() {
        return Cast { to: wide(cast.to) }.into();
    }
    match node.operation.downcast::<Recurrence>() {
        Some(recurrence) => lifted_steps(recurrence).into(),
        None => node.operation.clone(),
    }
}

/// A recurrence whose steps convert to the lifted types.
fn lifted_steps(recurrence: &Recurrence) -> Recurrence {
    let mut lifted = recurrence.clone();
    for node in &mut lifted.nodes {
        let operation = hone_ops::from_attributes(&node.operator, node.attributes.clone());
        if let Some(cast) = operation.ok().as_ref().and_then(|known| known.downcast::<Cast>()) {
            node.attributes = Op::new(Cast { to: wide(cast.to) }).attributes();
        }
    }
    lifted
}

/// What an operation does with its constants. A quantization divides by the constant that a dequantization multiplies by, so
/// the two are told apart: moved alike, they would leave the ties of averages between them.
fn kind_of_use(operation: &Op) -> &'static str {
    match operation.downcast::<Binary>().map(|binary| binary.function) {
        Some(BinaryFunction::Divide) => "Divide",
        Some(BinaryFunction::Multiply) => "Multiply",
        _ => Operation::name(operation),
    }
}

/// A number that depends on what a constant holds and on how it is used.
fn seed(constant: &Tensor, operation: &str, index: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let words = constant
        .bytes()
        .chunks(8)
        .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let text = operation.bytes().map(u64::from);
    for number in words.chain([index as u64]).chain(text) {
        // The high half of a word counts as much as the low one.
        hash = (hash ^ number ^ (number >> 32)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ (hash >> 31)
}

/// An `f32` constant as `f64`, moved by between half and one and a half millionths.
fn moved(tensor: &Tensor, kind: &str, index: usize) -> Result<Tensor, TensorError> {
    if tensor.dtype() != DataType::F32 {
        return Ok(tensor.clone());
    }
    let fraction = (seed(tensor, kind, index) % 1_000_003) as f64 / 1_000_003.0;
    let factor = 1.0 + (0.5 + fraction) * 1e-6;
    let exact = |value: f64| {
        let whole = value.fract() == 0.0;
        let power_of_two = value.to_bits() & ((1 << 52) - 1) == 0;
        whole || power_of_two || !value.is_finite()
    };
    let values: Vec<f64> = tensor.to_f64();
    let values: Vec<f64> =
        values.into_iter().map(|value| if exact(value) { value } else { value * factor }).collect();
    Tensor::from_f64(DataType::F64, tensor.shape(), &values)
}
