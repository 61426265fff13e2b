//! Takes the scales around a convolution of real numbers into its constant filters and bias, in front of a rounding to
//! whole numbers: `round((sum (x * a) w + b) * c)` is `round(sum x (w * a * c) + b * c)`. What is left of dequantizing
//! `x` is a conversion of integers, less a zero point, and of quantizing the result the rounding. It is done in front of
//! a rounding alone, where what is added by that of filters does not matter beside half a step.

use crate::readers::{Readers, by_constant};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Graph, Op, OpError, Operator, Unary, UnaryFunction,
};
use hone_types::{DataType, Tensor};

/// Maximum multiplications between a convolution and the rounding of its results.
const MAX_SCALES: usize = 8;

/// Takes scales into filters, for each rounding of the results of a convolution.
pub fn scale_filters(graph: &Graph) -> Result<Graph, PassError> {
    let readers = Readers::of(graph);
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let scaled = scaled(&readers, node)
            .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        match scaled {
            Some(scaled) => {
                let value = scaled.write(&mut rewriter)?;
                let value = rewriter.add_simple(&node.name, node.operation.clone(), &[value])?;
                rewriter.replace(node.outputs[0], value);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// A convolution that has its scales in its filters.
struct Scaled<'a> {
    node: &'a Node<Op>,
    /// What it reads: whole numbers, where they were scaled.
    input: ValueId,
    filters: Tensor,
    bias: Option<Tensor>,
    /// Whether the maximum of the results and zero is taken.
    is_rectified: bool,
}

/// What a node rounds to whole numbers, as a convolution that scales it itself; `None` for other nodes, and where no scale
/// is left out.
fn scaled<'a>(readers: &Readers<'a>, node: &Node<Op>) -> Result<Option<Scaled<'a>>, OpError> {
    let Some(convolution) = Scaled::rounded(readers, node) else { return Ok(None) };
    let (node, scales, is_rectified) = convolution;
    let graph = readers.graph;
    let Some(mut input) = node.inputs[0] else { return Ok(None) };
    let filters = node.inputs[1].and_then(|filters| graph.constant(filters));
    let bias = node.inputs.get(2).copied().flatten();
    let known = bias.map(|bias| graph.constant(bias));
    let (Some(filters), false) = (filters, known == Some(None)) else { return Ok(None) };
    let (mut filters, mut bias) = (filters.clone(), known.flatten().cloned());
    for scale in &scales {
        filters = product(&filters, scale)?;
        bias = bias.map(|bias| product(&bias, scale)).transpose()?;
    }
    let number = dequantized(readers, input);
    if let Some((number, scale)) = number {
        (input, filters) = (number, product(&filters, scale)?);
    }
    let fits = (number.is_some() || !scales.is_empty())
        && is_normal(&filters)
        && bias.as_ref().is_none_or(is_normal);
    Ok(fits.then_some(Scaled { node, input, filters, bias, is_rectified }))
}

impl Scaled<'_> {
    /// The convolution whose results, of the type that filters keep their accuracy in, a node rounds and nobody else reads;
    /// the positive numbers by which they are multiplied in front of that, and whether negative ones become zero.
    fn rounded<'a>(
        readers: &Readers<'a>,
        node: &Node<Op>,
    ) -> Option<(&'a Node<Op>, Vec<&'a Tensor>, bool)> {
        let unary = node.operation.downcast::<Unary>()?;
        let mut value = node.inputs[0]?;
        let dtype = readers.graph.tensor_type(value).dtype;
        let is_exact = matches!(dtype, DataType::F32 | DataType::F64);
        if unary.function != UnaryFunction::Round || !is_exact {
            return None;
        }
        let (mut scales, mut is_rectified) = (Vec::new(), false);
        while scales.len() <= MAX_SCALES {
            let node = readers.producer_for_one(value)?;
            if node.operation.downcast::<Convolution>().is_some() {
                return Some((node, scales, is_rectified));
            }
            // A positive number may multiply in front of a rectifier as well as behind it.
            let unary = node.operation.downcast::<Unary>();
            if !is_rectified && unary.is_some_and(|unary| unary.function == UnaryFunction::Relu) {
                (is_rectified, value) = (true, node.inputs[0]?);
            } else {
                let (number, scale) = positive_scale(readers.graph, node)?;
                scales.push(scale);
                value = number;
            }
        }
        None
    }

    fn write(&self, rewriter: &mut Rewriter<'_>) -> Result<ValueId, PassError> {
        let name = &self.node.name;
        let input = rewriter.value(self.input);
        let filters = rewriter.constant(name, self.filters.clone());
        let mut inputs = vec![Some(input), Some(filters)];
        if let Some(bias) = &self.bias {
            inputs.push(Some(rewriter.constant(name, bias.clone())));
        }
        let results = rewriter.add(name, self.node.operation.clone(), &inputs)?[0];
        match self.is_rectified {
            true => rewriter.add_simple(name, Unary::new(UnaryFunction::Relu), &[results]),
            false => Ok(results),
        }
    }
}

/// The whole numbers, converted to floats, that a value is a multiple of, and their scale: a dequantized value. Others
/// that read it convert the integers for themselves.
fn dequantized<'a>(readers: &Readers<'a>, value: ValueId) -> Option<(ValueId, &'a Tensor)> {
    let (number, scale) = positive_scale(readers.graph, readers.producer(value)?)?;
    let cast = readers.producer(number)?;
    cast.operation.downcast::<Cast>()?;
    let integers = readers.graph.tensor_type(cast.inputs[0]?).dtype;
    let converted = matches!(integers, DataType::U8 | DataType::I8 | DataType::I32);
    converted.then_some((number, scale))
}

/// What a node multiplies by one positive number, and the number.
fn positive_scale<'a>(graph: &'a Graph, node: &Node<Op>) -> Option<(ValueId, &'a Tensor)> {
    let (scaled, scale) = by_constant(graph, node, BinaryFunction::Multiply)?;
    let is_positive = || scale.to_f64().iter().all(|scale| *scale > 0.0);
    (scale.tensor_type().elements() == 1 && is_positive()).then_some((scaled, scale))
}

/// All elements times one number.
fn product(tensor: &Tensor, number: &Tensor) -> Result<Tensor, OpError> {
    let number = number.reshaped(Vec::<usize>::new())?;
    let multiply = Binary::new(BinaryFunction::Multiply);
    Ok(multiply.reference(&[Some(tensor), Some(&number)])?.remove(0))
}

/// Whether all numbers stayed in the range in which they keep their accuracy.
fn is_normal(tensor: &Tensor) -> bool {
    tensor.to_f64().into_iter().all(|value| value == 0.0 || (value as f32).is_normal())
}
