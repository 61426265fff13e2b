//! Constant weights that a quantizer left: bytes minus their zero point, times a scale for all or for each result.

use crate::integer_convolution::filter_offsets;
use crate::integer_products::{BYTES, column_offsets};
use crate::move_quantized::moves_elements;
use crate::quantized::Scaled;
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Cast, Expand, Graph, Operator, Pad, PadMode};
use hone_types::{DataType, Tensor};

/// Maximum operators between bytes and the product that reads them: the weights of a transposed convolution are padded,
/// reshaped, reversed, exchanged, cut and reshaped.
const MAX_MOVES: usize = 8;

/// Constant bytes that are multiplied.
pub(crate) struct Weights {
    /// The bytes in 32 bits, minus their zero point.
    pub(crate) integers: Tensor,
    /// `None` where it is 1.
    pub(crate) scale: Option<Scale>,
}

/// What bytes are multiplied by.
pub(crate) enum Scale {
    /// A value of the graph that broadcasts to the bytes.
    Value(ValueId),
    /// A constant that broadcasts to the bytes: one number for each result.
    Constant(Tensor),
}

impl Weights {
    /// From bytes in nodes, perhaps moved, or from a constant that holds such integers; results lie along the axis `along`.
    pub(crate) fn of(graph: &Graph, value: ValueId, along: usize) -> Option<Self> {
        if let Some(constant) = graph.constant(value) {
            return Some(Self { integers: whole_numbers(constant)?, scale: None });
        }
        match Scaled::of(graph, value) {
            Some(Scaled { integers: value, scale }) => {
                Some(Self { integers: integers(graph, value)?, scale: scale.map(Scale::Value) })
            }
            None => Moved::of(graph, value, MAX_MOVES)?.by_result(along),
        }
    }

    /// Whether they are multiplied as they are, or can be moved ([`crate::multiply_integers`]).
    pub(crate) fn are_narrow(&self, narrow: DataType, is_convolution: bool) -> bool {
        match is_convolution {
            true => filter_offsets(&self.integers, narrow).is_some(),
            false => column_offsets(&self.integers, narrow).is_some(),
        }
    }

    /// The largest magnitude.
    pub(crate) fn largest(&self) -> usize {
        let magnitudes = self.integers.to_i64().into_iter().map(i64::unsigned_abs);
        usize::try_from(magnitudes.max().unwrap_or(0)).unwrap_or(usize::MAX)
    }

    /// In which shape the scale broadcasts to the integers.
    pub(crate) fn scale_shape<'a>(&'a self, graph: &'a Graph) -> &'a [usize] {
        match &self.scale {
            None => &[],
            Some(Scale::Value(scale)) => &graph.tensor_type(*scale).shape,
            Some(Scale::Constant(scale)) => scale.shape(),
        }
    }
}

/// Bytes and their scales, both moved by the same operators.
struct Moved {
    /// The bytes in 32 bits, minus their zero point.
    integers: Tensor,
    /// The scale of each of them; of zeros any number.
    scales: Tensor,
}

impl Moved {
    fn of(graph: &Graph, value: ValueId, left: usize) -> Option<Self> {
        if let Some(Scaled { integers: bytes, scale }) = Scaled::of(graph, value) {
            let integers = integers(graph, bytes)?;
            let one = Tensor::from_f64(graph.tensor_type(value).dtype, Vec::<usize>::new(), &[1.0]);
            let scale = match scale {
                Some(scale) => graph.constant(scale)?.clone(),
                None => one.ok()?,
            };
            let all = Expand { shape: integers.shape().to_vec() };
            let scales = all.reference(&[Some(&scale)]).ok()?.pop()?;
            return (scales.shape() == integers.shape()).then_some(Self { integers, scales });
        }
        let node = &graph.nodes()[graph.producer(value)?];
        let [Some(operand)] = node.inputs[..] else { return None };
        let pads_zeros = |pad: &Pad| pad.mode == PadMode::Constant && pad.value == 0.0;
        let moves = moves_elements(&node.operation)
            || node.operation.downcast::<Pad>().is_some_and(pads_zeros);
        if !moves {
            return None;
        }
        let Self { integers, scales } = Self::of(graph, operand, left.checked_sub(1)?)?;
        let moved = |tensor: &Tensor| node.operation.reference(&[Some(tensor)]).ok()?.pop();
        Some(Self { integers: moved(&integers)?, scales: moved(&scales)? })
    }

    /// As weights whose results lie along the axis `along`; `None` where the bytes of a result have several scales.
    fn by_result(self, along: usize) -> Option<Weights> {
        let shape = self.integers.shape();
        let results = *shape.get(along)?;
        let inner = shape[along + 1..].iter().product::<usize>().max(1);
        let mut found: Vec<Option<f64>> = vec![None; results];
        let elements = self.integers.to_i64().into_iter().zip(self.scales.to_f64());
        for (index, (_, scale)) in elements.enumerate().filter(|(_, (integer, _))| *integer != 0) {
            if *found[index / inner % results].get_or_insert(scale) != scale {
                return None;
            }
        }
        let mut broadcast = vec![1; shape.len()];
        broadcast[along] = results;
        // A result of no bytes but zeros is zero with any scale.
        let scales: Vec<f64> = found.into_iter().map(|scale| scale.unwrap_or(1.0)).collect();
        let scales = Tensor::from_f64(self.scales.dtype(), broadcast, &scales).ok()?;
        Some(Weights { integers: self.integers, scale: Some(Scale::Constant(scales)) })
    }
}

/// A constant of whole numbers in 32 bits.
fn whole_numbers(constant: &Tensor) -> Option<Tensor> {
    let is_float = matches!(constant.dtype(), DataType::F32 | DataType::F64);
    let values = constant.to_f64();
    let is_whole = |value: &f64| value.fract() == 0.0 && value.abs() <= f64::from(u8::MAX);
    if !is_float || !values.iter().all(is_whole) {
        return None;
    }
    Tensor::from_f64(DataType::I32, constant.shape().to_vec(), &values).ok()
}

/// Constant bytes in 32 bits, minus a constant zero point, if `value` is that.
fn integers(graph: &Graph, value: ValueId) -> Option<Tensor> {
    let subtracted = graph.producer(value).map(|id| &graph.nodes()[id]);
    let (bytes, zero) = match subtracted.and_then(|node| node.operation.downcast::<Binary>()) {
        None => (value, None),
        Some(binary) if binary.function == BinaryFunction::Subtract => {
            let node = subtracted?;
            (node.inputs[0]?, Some(constant_bytes(graph, node.inputs[1]?)?))
        }
        Some(_) => return None,
    };
    let bytes = constant_bytes(graph, bytes)?;
    let tensor = match zero {
        None => bytes,
        Some(zero) => {
            let subtract = Binary::new(BinaryFunction::Subtract);
            subtract.reference(&[Some(&bytes), Some(&zero)]).ok()?.pop()?
        }
    };
    (tensor.shape() == graph.tensor_type(value).shape).then_some(tensor)
}

/// Constants in 32 bits that are bytes: as such, or extended in a node.
fn constant_bytes(graph: &Graph, value: ValueId) -> Option<Tensor> {
    if let Some(known) = graph.constant(value) {
        let is_byte = |element: &i64| (i64::from(i8::MIN)..=BYTES).contains(element);
        let fits = known.dtype() == DataType::I32 && known.to_i64().iter().all(is_byte);
        return fits.then(|| known.clone());
    }
    let cast = &graph.nodes()[graph.producer(value)?];
    let bytes = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
    let bytes = graph.constant(bytes)?;
    let is_byte = matches!(bytes.dtype(), DataType::U8 | DataType::I8);
    let converted = Cast { to: DataType::I32 }.reference(&[Some(bytes).filter(|_| is_byte)]);
    converted.ok()?.pop()
}
