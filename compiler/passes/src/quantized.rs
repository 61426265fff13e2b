//! Products of quantized numbers as products of bytes. Where a convolution or a matrix product reads
//! unsigned bytes and constant signed ones, each minus its zero point and times its scale, the scales are
//! taken out of the sums: `sum (x - z) s * w t = s * t * sum (x - z) w`. What is left are sums of integers,
//! which [`crate::choose_layouts`] and [`crate::multiply_bytes`] compute from the bytes.

use crate::integer_products::minus_zero_point;
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Graph, MatMul, Op, OpError, Operator, Reshape,
    products_of,
};
use hone_types::{DataType, Tensor};

/// Maximum products whose sum fits 32 bits.
const MAX_SUMMED: usize = (i32::MAX as usize) / (255 * 128);

/// Takes scales out of sums of products of bytes.
pub fn multiply_quantized(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match Product::of(graph, node) {
            Some(product) => product.write(&mut rewriter, node)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// A value that is made of bytes: `integers * scale`.
struct Scaled {
    /// The bytes minus their zero point, in 32 bits.
    integers: ValueId,
    scale: ValueId,
}

impl Scaled {
    fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        let product = &graph.nodes()[graph.producer(value)?];
        let times = product.operation.downcast::<Binary>()?;
        let (number, scale) = (product.inputs[0]?, product.inputs[1]?);
        let cast = &graph.nodes()[graph.producer(number)?];
        let integers = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
        let fits = times.function == BinaryFunction::Multiply
            && matches!(graph.tensor_type(value).dtype, DataType::F32 | DataType::F64)
            && graph.tensor_type(integers).dtype == DataType::I32
            && graph.tensor_type(integers).shape == graph.tensor_type(value).shape;
        fits.then_some(Self { integers, scale })
    }

    /// Whether the bytes are unsigned, and, for a convolution, their zero point a constant: it becomes the
    /// padding.
    fn are_unsigned(&self, graph: &Graph, is_convolution: bool) -> bool {
        let (extended, zero) = minus_zero_point(graph, self.integers);
        let cast = graph.producer(extended).map(|id| &graph.nodes()[id]);
        let bytes = cast.and_then(|cast| cast.operation.downcast::<Cast>().and(cast.inputs[0]));
        let known = zero.is_none_or(|zero| graph.constant(zero).is_some());
        bytes.is_some_and(|bytes| graph.tensor_type(bytes).dtype == DataType::U8)
            && (known || !is_convolution)
    }
}

/// A sum of products of bytes.
struct Product {
    left: Scaled,
    right: Scaled,
    /// The right operand's integers.
    weights: Tensor,
    /// Shape in which the right scale broadcasts to the result.
    scales: Vec<usize>,
}

impl Product {
    fn of(graph: &Graph, node: &Node<Op>) -> Option<Self> {
        let convolution = node.operation.downcast::<Convolution>();
        let plain = convolution.is_some_and(|convolution| convolution.groups == 1);
        if !plain && node.operation.downcast::<MatMul>().is_none() {
            return None;
        }
        let [left, right] =
            [Scaled::of(graph, node.inputs[0]?)?, Scaled::of(graph, node.inputs[1]?)?];
        let weights = integers(graph, right.integers)?;
        let depth = products_of(DataType::I8)?;
        if weights.shape().len() < 2 {
            return None;
        }
        let summed = weights.tensor_type().elements() / weights.shape()[usize::from(!plain)].max(1);
        let unsigned = left.are_unsigned(graph, plain) && summed <= MAX_SUMMED;
        let single = graph.tensor_type(left.scale).elements() == 1;
        // Scales that differ along what is summed cannot be taken out.
        let along = if plain { 0 } else { weights.shape().len() - 1 };
        let columns = weights.shape()[along];
        let scale = graph.tensor_type(right.scale);
        let whole = scale.elements() == columns
            && scale.shape.iter().rev().nth(weights.shape().len() - 1 - along) == Some(&columns);
        let fits = unsigned
            && single
            && (plain || (weights.shape().len() == 2 && summed.is_multiple_of(depth)))
            && (whole || scale.elements() == 1)
            && weights.to_i64().iter().all(|weight| i8::try_from(*weight).is_ok());
        let mut scales = vec![1; graph.tensor_type(node.outputs[0]).rank()];
        let axis = if plain { 1 } else { scales.len() - 1 };
        scales[axis] = scale.elements();
        fits.then_some(Self { left, right, weights, scales })
    }

    fn write(&self, rewriter: &mut Rewriter, node: &Node<Op>) -> Result<(), PassError> {
        let name = &node.name;
        let integers = rewriter.value(self.left.integers);
        let weights = rewriter.constant(name, self.weights.clone());
        let sums = rewriter.add_simple(name, node.operation.clone(), &[integers, weights])?;
        let left = rewriter.value(self.left.scale);
        let to = rewriter.target().tensor_type(left).dtype;
        let sums = rewriter.add_simple(name, Cast { to }, &[sums])?;
        let left = rewriter.add_simple(name, Reshape { shape: vec![1] }, &[left])?;
        let right = rewriter.value(self.right.scale);
        let right = rewriter.add_simple(name, Reshape { shape: self.scales.clone() }, &[right])?;
        let times = || Binary::new(BinaryFunction::Multiply);
        let scale = rewriter.add_simple(name, times(), &[right, left])?;
        let mut result = rewriter.add_simple(name, times(), &[sums, scale])?;
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
}

/// Constant signed bytes in 32 bits, if `value` is that, with a zero point of zero.
fn integers(graph: &Graph, value: ValueId) -> Option<Tensor> {
    let subtracted = graph.producer(value).map(|id| &graph.nodes()[id]);
    let extended = match subtracted.and_then(|node| node.operation.downcast::<Binary>()) {
        None => value,
        Some(binary) => {
            let node = subtracted?;
            let zeros = graph.constant(node.inputs[1]?)?.to_i64().iter().all(|zero| *zero == 0);
            let unchanged = binary.function == BinaryFunction::Subtract && zeros;
            node.inputs[0].filter(|_| unchanged)?
        }
    };
    let cast = &graph.nodes()[graph.producer(extended)?];
    let bytes = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
    let converted: Result<Vec<Tensor>, OpError> =
        Cast { to: DataType::I32 }.reference(&[Some(graph.constant(bytes)?)]);
    converted.ok().map(|mut tensors| tensors.remove(0))
}
