//! Products of quantized numbers as products of bytes. Where a convolution or a matrix product reads unsigned bytes (on
//! devices also signed ones) and constant bytes, each minus its zero point and times its scale, the scales are taken out of
//! the sums: `sum (x - z) s * w t = s * t * sum (x - z) w`. What is left are sums of integers, which
//! [`crate::choose_layouts`] and [`crate::multiply_integers`] compute from the bytes. Operators such as QLinearConv have
//! their scales behind the sums already.

use crate::integer_products::{Bytes, minus_zero_point};
use crate::narrow_integers::are_narrow;
use crate::quantized_weights::{Scale, Weights};
use crate::winograd::{Extents, choose_tile};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_machine::Rates;
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Graph, MatMul, Op, Reshape, products_of,
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
        let weights = &graph.tensor_type((*node.inputs.get(1)?)?).shape;
        let results = &graph.tensor_type(node.outputs[0]).shape;
        let extents = Extents::of(convolution, weights, results, 1)?;
        choose_tile(convolution, &weights[2..], extents, rates)
    };
    tile().is_some()
}

/// Whether a convolution by `weights` `[O, C / g, K..]` sums products over channels by an instruction: those of one group, or,
/// on processors, which multiply unsigned bytes, of groups that come to fill blocks ([`crate::filled_groups`]). Depthwise ones
/// are computed channel by channel.
pub(crate) fn sums_channels(weights: &[usize], groups: usize, bytes: Bytes) -> bool {
    let is_depthwise = weights.get(1) == Some(&1) && weights.first() == Some(&groups);
    groups == 1 || !is_depthwise && bytes == Bytes::Unsigned
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
        let weights = &graph.tensor_type((*node.inputs.get(1)?)?).shape;
        let plain = convolution
            .is_some_and(|convolution| sums_channels(weights, convolution.groups, factors.1));
        if !plain && node.operation.downcast::<MatMul>().is_none() {
            return None;
        }
        let left = Scaled::of(graph, node.inputs[0]?)?;
        // The axis of the weights along which results lie.
        let along = usize::from(!plain);
        let right = Weights::of(graph, node.inputs[1]?, along)?;
        let shape = right.integers.shape();
        let depth = products_of(narrow)?;
        if shape.len() < 2 {
            return None;
        }
        let columns = shape[along];
        let summed = right.integers.tensor_type().elements() / columns.max(1);
        let multiplied = left.multiplies(graph, factors)
            && right.are_narrow(narrow, plain)
            && summed.saturating_mul(right.largest()) <= MAX_SUMMED;
        let single = left.scale.is_none_or(|scale| graph.tensor_type(scale).elements() == 1);
        // Scales that differ along what is summed cannot be taken out.
        let whole = |scale: &[usize]| {
            scale.iter().product::<usize>() == columns
                && scale.iter().rev().nth(shape.len() - 1 - along) == Some(&columns)
        };
        let scale = right.scale_shape(graph);
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
        let mut of = |scale: Option<&Scale>, shape: &[usize]| {
            let scale = scale.map(|scale| match scale {
                Scale::Value(value) => rewriter.value(*value),
                Scale::Constant(tensor) => rewriter.constant(name, tensor.clone()),
            });
            let reshape = Reshape { shape: shape.to_vec() };
            scale.map(|scale| rewriter.add_simple(name, reshape, &[scale])).transpose()
        };
        let left = of(self.left.scale.map(Scale::Value).as_ref(), &[1])?;
        match (of(self.right.scale.as_ref(), &self.scales)?, left) {
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
