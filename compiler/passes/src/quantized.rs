//! Products of quantized numbers as products of bytes. Where a convolution or a matrix product reads unsigned bytes (on
//! devices also signed ones) and constant bytes, each minus its zero point and times its scale, the scales are taken out of
//! the sums: `sum (x - z) s * w t = s * t * sum (x - z) w`. What is left are sums of integers, which
//! [`crate::choose_layouts`] and [`crate::multiply_integers`] compute from the bytes. Operators such as QLinearConv have
//! their scales behind the sums already.

use crate::integer_convolution::filter_offsets;
use crate::integer_products::{BYTES, Bytes, column_offsets, minus_zero_point};
use crate::narrow_integers::are_narrow;
use crate::winograd::{Extents, choose_tile};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Graph, MatMul, Op, Operator, Reshape, Transpose,
    products_of,
};
use hone_types::{DataType, Tensor};

/// Maximum sum of the magnitudes of weights that are multiplied by bytes and summed in 32 bits.
pub(crate) const MAX_SUMMED: usize = (i32::MAX as usize) / 255;

/// Takes scales out of sums of products of bytes, where the machine multiplies integers by weights of type `narrow`.
/// Convolutions of type `working` that are faster by Winograd's filtering of real numbers at the rates of `filtering` stay
/// as they are, where there are such rates.
pub fn multiply_quantized(
    graph: &Graph,
    narrow: DataType,
    filtering: Option<&Rates>,
    working: DataType,
) -> Result<Graph, PassError> {
    run(graph, (narrow, Bytes::Unsigned), filtering, working)
}

/// The same for devices, which multiply bytes of both kinds by signed ones, and filter nothing.
pub fn multiply_device_quantized(graph: &Graph, working: DataType) -> Result<Graph, PassError> {
    run(graph, (DataType::I8, Bytes::Any), None, working)
}

fn run(
    graph: &Graph,
    factors: (DataType, Bytes),
    filtering: Option<&Rates>,
    working: DataType,
) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let is_real = || graph.tensor_type(node.outputs[0]).dtype == working;
        let stays = || filtering.is_some_and(|rates| is_real() && is_filtered(graph, node, rates));
        match Product::of(graph, node, factors).filter(|_| !stays()) {
            Some(product) => product.write(graph, &mut rewriter, node)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// Whether a node is a convolution of real numbers that Winograd's filtering is chosen for at these rates.
fn is_filtered(graph: &Graph, node: &Node<Op>, rates: &Rates) -> bool {
    let tile = || {
        let convolution = node.operation.downcast::<Convolution>()?;
        let weights = &graph.tensor_type(node.inputs[1]?).shape;
        let results = &graph.tensor_type(node.outputs[0]).shape;
        let extents = Extents::of(convolution, weights, results, 1)?;
        choose_tile(convolution, &weights[2..], extents, rates)
    };
    tile().is_some()
}

/// A value that is made of bytes: `integers * scale`.
pub(crate) struct Scaled {
    /// The bytes minus their zero point, in 32 bits.
    pub(crate) integers: ValueId,
    /// `None` where it is 1.
    pub(crate) scale: Option<ValueId>,
}

impl Scaled {
    pub(crate) fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        let producer = &graph.nodes()[graph.producer(value)?];
        let (number, scale) = match producer.operation.downcast::<Binary>() {
            Some(times) if times.function == BinaryFunction::Multiply => {
                (producer.inputs[0]?, Some(producer.inputs[1]?))
            }
            Some(_) => return None,
            None => (value, None),
        };
        let cast = &graph.nodes()[graph.producer(number)?];
        let integers = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
        let fits = matches!(graph.tensor_type(value).dtype, DataType::F32 | DataType::F64)
            && graph.tensor_type(integers).dtype == DataType::I32
            && graph.tensor_type(integers).shape == graph.tensor_type(value).shape;
        fits.then_some(Self { integers, scale })
    }

    /// Whether weights of type `narrow` can be multiplied by the integers.
    fn multiplies(&self, graph: &Graph, (narrow, bytes): (DataType, Bytes)) -> bool {
        match narrow {
            DataType::I16 => are_narrow(graph, self.integers),
            _ => self.are_bytes(graph, bytes),
        }
    }

    /// Whether they are such bytes, and their zero point too: in a convolution it becomes the padding.
    pub(crate) fn are_bytes(&self, graph: &Graph, bytes: Bytes) -> bool {
        let (extended, zero) = minus_zero_point(graph, self.integers);
        let Some((_, dtype)) = bytes.extended(graph, extended) else { return false };
        zero.is_none_or(|zero| match graph.constant(zero) {
            Some(known) => fits(known, dtype),
            None => bytes.extended(graph, zero).is_some_and(|(_, other)| other == dtype),
        })
    }
}

/// Whether all elements fit bytes of a type: others make sums too large, and cannot be padding among bytes.
pub(crate) fn fits(tensor: &Tensor, dtype: DataType) -> bool {
    let fits = |element: &i64| match dtype {
        DataType::I8 => i8::try_from(*element).is_ok(),
        _ => u8::try_from(*element).is_ok(),
    };
    tensor.to_i64().iter().all(fits)
}

/// Constant bytes that are multiplied.
struct Weights {
    /// The bytes in 32 bits, minus their zero point.
    integers: Tensor,
    /// `None` where it is 1.
    scale: Option<ValueId>,
    /// In which shape the scale broadcasts to the integers.
    scale_shape: Vec<usize>,
}

impl Weights {
    /// From bytes in nodes, perhaps transposed, or from a constant that holds such integers.
    fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        match graph.constant(value) {
            Some(constant) => Some(Self {
                integers: whole_numbers(constant)?,
                scale: None,
                scale_shape: Vec::new(),
            }),
            None => match transposed(graph, value) {
                Some(plain) => Self::in_nodes(graph, plain)?.transposed(),
                None => Self::in_nodes(graph, value),
            },
        }
    }

    /// Whether they are multiplied as they are, or can be moved ([`crate::multiply_integers`]).
    fn are_narrow(&self, narrow: DataType, is_convolution: bool) -> bool {
        match is_convolution {
            true => filter_offsets(&self.integers, narrow).is_some(),
            false => column_offsets(&self.integers, narrow).is_some(),
        }
    }

    /// The largest magnitude.
    fn largest(&self) -> usize {
        let magnitudes = self.integers.to_i64().into_iter().map(i64::unsigned_abs);
        usize::try_from(magnitudes.max().unwrap_or(0)).unwrap_or(usize::MAX)
    }

    fn in_nodes(graph: &Graph, value: ValueId) -> Option<Self> {
        let Scaled { integers: value, scale } = Scaled::of(graph, value)?;
        let scale_shape = scale.map_or(&[][..], |scale| &graph.tensor_type(scale).shape).to_vec();
        Some(Self { integers: integers(graph, value)?, scale, scale_shape })
    }

    /// Those of a matrix, with its axes exchanged.
    fn transposed(self) -> Option<Self> {
        let exchange = Transpose { permutation: vec![1, 0] };
        let integers = exchange.reference(&[Some(&self.integers)]).ok()?.remove(0);
        let scale_shape = match self.scale_shape[..] {
            [rows, columns] => vec![columns, rows],
            [columns] => vec![columns, 1],
            _ => Vec::new(),
        };
        Some(Self { integers, scale_shape, ..self })
    }
}

/// What a node exchanges the two axes of.
fn transposed(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let node = &graph.nodes()[graph.producer(value)?];
    let transpose = node.operation.downcast::<Transpose>()?;
    node.inputs[0].filter(|_| transpose.permutation == [1, 0])
}

/// A sum of products of bytes.
struct Product {
    left: Scaled,
    right: Weights,
    /// Shape in which the right scale broadcasts to the result.
    scales: Vec<usize>,
}

impl Product {
    fn of(graph: &Graph, node: &Node<Op>, factors: (DataType, Bytes)) -> Option<Self> {
        let narrow = factors.0;
        let convolution = node.operation.downcast::<Convolution>();
        let plain = convolution.is_some_and(|convolution| convolution.groups == 1);
        if !plain && node.operation.downcast::<MatMul>().is_none() {
            return None;
        }
        let left = Scaled::of(graph, node.inputs[0]?)?;
        let right = Weights::of(graph, node.inputs[1]?)?;
        let shape = right.integers.shape();
        let depth = products_of(narrow)?;
        if shape.len() < 2 {
            return None;
        }
        let summed = right.integers.tensor_type().elements() / shape[usize::from(!plain)].max(1);
        let multiplied = left.multiplies(graph, factors)
            && right.are_narrow(narrow, plain)
            && summed.saturating_mul(right.largest()) <= MAX_SUMMED;
        let single = left.scale.is_none_or(|scale| graph.tensor_type(scale).elements() == 1);
        // Scales that differ along what is summed cannot be taken out.
        let along = if plain { 0 } else { shape.len() - 1 };
        let columns = shape[along];
        let whole = |scale: &[usize]| {
            scale.iter().product::<usize>() == columns
                && scale.iter().rev().nth(shape.len() - 1 - along) == Some(&columns)
        };
        let scale = &right.scale_shape[..];
        let elements = scale.iter().product();
        let fits = multiplied
            && single
            && (plain || (shape.len() == 2 && summed.is_multiple_of(depth)))
            && (elements == 1 || whole(scale));
        let mut scales = vec![1; graph.tensor_type(node.outputs[0]).rank()];
        let axis = if plain { 1 } else { scales.len() - 1 };
        scales[axis] = elements;
        fits.then_some(Self { left, right, scales })
    }

    fn write(
        &self,
        graph: &Graph,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
    ) -> Result<(), PassError> {
        let name = &node.name;
        let integers = rewriter.value(self.left.integers);
        let weights = rewriter.constant(name, self.right.integers.clone());
        let sums = rewriter.add_simple(name, node.operation.clone(), &[integers, weights])?;
        let to = graph.tensor_type(node.outputs[0]).dtype;
        let sums = rewriter.add_simple(name, Cast { to }, &[sums])?;
        let mut result = match self.scale(rewriter, name)? {
            Some(scale) => rewriter.add_simple(name, times(), &[sums, scale])?,
            None => sums,
        };
        if let Some(bias) = node.inputs.get(2).copied().flatten() {
            let bias = rewriter.value(bias);
            let mut shape = vec![1; self.scales.len()];
            shape[1] = rewriter.target().tensor_type(bias).elements();
            let bias = rewriter.add_simple(name, Reshape { shape }, &[bias])?;
            result =
                rewriter.add_simple(name, Binary::new(BinaryFunction::Add), &[result, bias])?;
        }
        rewriter.replace(node.outputs[0], result);
        Ok(())
    }

    /// Both scales together, where there are any.
    fn scale(&self, rewriter: &mut Rewriter, name: &str) -> Result<Option<ValueId>, PassError> {
        let mut of = |scale: Option<ValueId>, shape: &[usize]| {
            let scale = scale.map(|scale| rewriter.value(scale));
            let reshape = Reshape { shape: shape.to_vec() };
            scale.map(|scale| rewriter.add_simple(name, reshape, &[scale])).transpose()
        };
        let left = of(self.left.scale, &[1])?;
        match (of(self.right.scale, &self.scales)?, left) {
            (Some(right), Some(left)) => {
                rewriter.add_simple(name, times(), &[right, left]).map(Some)
            }
            (one, other) => Ok(one.or(other)),
        }
    }
}

fn times() -> Binary {
    Binary::new(BinaryFunction::Multiply)
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
