//! Signed bytes as unsigned ones: `x - z` is `(x + 128) - (z + 128)`, and instructions that sum products of bytes
//! take an unsigned one and a signed one. What is computed is the same to the last bit.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op, OpError};
use hone_types::{DataType, Tensor};
use std::collections::BTreeMap;

/// What is added to a signed byte: the result fits an unsigned one.
const SHIFT: i32 = 128;

/// Reads computed signed bytes, where they are extended to 32 bits, as unsigned ones with a zero point that is
/// [`SHIFT`] larger.
pub fn shift_signed_bytes(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let mut shifted = BTreeMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(bytes) = Bytes::of(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let name = &node.name;
        let unsigned = match shifted.get(&bytes.value) {
            Some(unsigned) => *unsigned,
            None => {
                let unsigned = add_shift(&mut rewriter, name, bytes.value)?;
                shifted.insert(bytes.value, unsigned);
                unsigned
            }
        };
        let wrong = |source: OpError| PassError::Constant { node: name.clone(), source };
        let zero = Tensor::from_elements([], &[bytes.zero + SHIFT]);
        let zero = rewriter.constant(name, zero.map_err(|error| wrong(error.into()))?);
        let extended = rewriter.add_simple(name, Cast { to: DataType::I32 }, &[unsigned])?;
        let take = Binary::new(BinaryFunction::Subtract);
        let result = rewriter.add_simple(name, take, &[extended, zero])?;
        rewriter.replace(node.outputs[0], result);
    }
    Ok(rewriter.finish())
}

/// Signed bytes that a node extends to 32 bits and takes a zero point from.
struct Bytes {
    value: ValueId,
    zero: i32,
}

impl Bytes {
    fn of(graph: &Graph, node: &Node<Op>) -> Option<Self> {
        if let Some(value) = extended(graph, node) {
            return Some(Self { value, zero: 0 });
        }
        let binary = node.operation.downcast::<Binary>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let value = extended(graph, &graph.nodes()[graph.producer(left)?])?;
        let zero = graph.constant(right).filter(|zero| zero.tensor_type().elements() == 1)?;
        let kept = graph.tensor_type(left).shape == graph.tensor_type(node.outputs[0]).shape;
        let zero = i8::try_from(*zero.to_i64().first()?).ok()?;
        let fits = binary.function == BinaryFunction::Subtract && kept;
        fits.then_some(Self { value, zero: i32::from(zero) })
    }
}

/// The signed bytes that a node extends to 32 bits, unless they are constants.
fn extended(graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
    let cast = node.operation.downcast::<Cast>()?;
    let value = node.inputs[0]?;
    let fits = cast.to == DataType::I32
        && graph.tensor_type(value).dtype == DataType::I8
        && graph.constant(value).is_none();
    fits.then_some(value)
}

/// The bytes plus [`SHIFT`], unsigned.
fn add_shift(rewriter: &mut Rewriter, name: &str, bytes: ValueId) -> Result<ValueId, PassError> {
    let value = rewriter.value(bytes);
    let extended = rewriter.add_simple(name, Cast { to: DataType::I32 }, &[value])?;
    let shift = Tensor::from_elements([], &[SHIFT])
        .map_err(|error| PassError::Constant { node: name.to_owned(), source: error.into() })?;
    let shift = rewriter.constant(name, shift);
    let add = Binary::new(BinaryFunction::Add);
    let shifted = rewriter.add_simple(name, add, &[extended, shift])?;
    rewriter.add_simple(name, Cast { to: DataType::U8 }, &[shifted])
}
