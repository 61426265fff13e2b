//! Takes the scale of a quantization into the scales, zero points and biases of what is quantized: `round((x * a + b) * c)`
//! is `round(x * (a * c) + b * c)`, and of a sum of dequantized numbers, `round(((p - y) * a + (q - z) * b) * c)`, one
//! multiplication of each and one addition for both zero points are left. It is done in front of a rounding to whole
//! numbers alone, where what the rounding of `b * c` adds does not matter beside half a step.

use crate::readers::{Readers, by_constant};
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op, OpError, Operator, Unary, UnaryFunction};
use hone_types::{DataType, Tensor};

/// Maximum numbers that are summed in front of a rounding.
const MAX_TERMS: usize = 4;

/// Maximum nodes between these numbers and the rounding.
const MAX_NODES: usize = 32;

/// Maximum elements of a constant that is computed anew: those of scales and biases, not of whole tensors.
const MAX_ELEMENTS: usize = 1 << 16;

/// Merges constants that multiply and that are added in front of each rounding to whole numbers.
pub fn merge_scales(graph: &Graph) -> Result<Graph, PassError> {
    let readers = Readers::of(graph);
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        match merged(&readers, node).map_err(wrong)? {
            Some((sum, is_rectified)) => {
                let mut value = sum.write(&mut rewriter, &node.name)?;
                if is_rectified {
                    let relu = Unary::new(UnaryFunction::Relu);
                    value = rewriter.add_simple(&node.name, relu, &[value])?;
                }
                let value = rewriter.add_simple(&node.name, node.operation.clone(), &[value])?;
                rewriter.replace(node.outputs[0], value);
            }
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// What a rounding rounds, in fewer operations than the graph has for it; and whether the maximum with zero is taken of
/// it. `None` for other nodes, and where there is nothing to merge.
fn merged(readers: &Readers<'_>, node: &Node<Op>) -> Result<Option<(Sum, bool)>, OpError> {
    let Some(mut value) = rounded(readers.graph, node) else { return Ok(None) };
    let (mut outer, mut is_rectified) = (Vec::new(), false);
    // A positive number may multiply in front of a rectifier as well as behind it.
    while let Some(node) = readers.producer_for_one(value).filter(|_| outer.len() < MAX_NODES) {
        if is_rectifier(node) {
            (is_rectified, value) = (true, node.inputs[0].unwrap_or(value));
        } else if let Some((scaled, scale)) = scale(readers.graph, node) {
            outer.push(scale);
            value = scaled;
        } else {
            break;
        }
    }
    let mut sum = Sum::of(readers, value, &mut { MAX_NODES })?;
    for scale in outer {
        sum.apply(BinaryFunction::Multiply, scale)?;
    }
    let is_less = sum.operations() < sum.merged && sum.terms.len() <= MAX_TERMS;
    Ok((is_less && sum.is_small && sum.is_normal()).then_some((sum, is_rectified)))
}

/// `terms[0].value * terms[0].factor + .. + offset`.
struct Sum {
    terms: Vec<Term>,
    offset: Option<Tensor>,
    /// Operations of the graph that it stands for.
    merged: usize,
    /// Whether no constant has more than [`MAX_ELEMENTS`]; others are not computed.
    is_small: bool,
}

struct Term {
    /// A value of the graph, of the working type or of bytes.
    value: ValueId,
    /// `None` for 1.
    factor: Option<Tensor>,
    /// The type that bytes are converted to.
    converted: Option<DataType>,
}

impl Sum {
    /// What makes a value, as such a sum; `left` counts nodes.
    fn of(readers: &Readers<'_>, value: ValueId, left: &mut usize) -> Result<Self, OpError> {
        if let Some(bytes) = Self::of_bytes(readers, value)? {
            return Ok(bytes);
        }
        let Some(node) = readers.producer_for_one(value).filter(|_| *left > 0) else {
            return Ok(Self::value(value));
        };
        *left -= 1;
        for function in [BinaryFunction::Multiply, BinaryFunction::Add, BinaryFunction::Subtract] {
            if let Some((operand, constant)) = by_constant(readers.graph, node, function) {
                let mut sum = Self::of(readers, operand, left)?;
                sum.apply(function, constant)?;
                return Ok(sum);
            }
        }
        let Some([one, other]) = addends(readers.graph, node) else {
            return Ok(Self::value(value));
        };
        let (mut sum, other) = (Self::of(readers, one, left)?, Self::of(readers, other, left)?);
        sum.terms.extend(other.terms);
        sum.merged += other.merged + 1;
        sum.is_small &= other.is_small;
        if let Some(offset) = &other.offset {
            sum.add(offset)?;
        }
        Ok(sum)
    }

    /// A dequantized number: any reader may repeat that at next to no cost.
    fn of_bytes(readers: &Readers<'_>, value: ValueId) -> Result<Option<Self>, OpError> {
        let graph = readers.graph;
        let scaled = readers.producer(value).and_then(|node| scale(graph, node));
        let (number, scale) = scaled.map_or((value, None), |(number, scale)| (number, Some(scale)));
        let dtype = graph.tensor_type(number).dtype;
        let cast = |value| readers.producer(value).and_then(|node| cast_from(graph, node));
        let Some(mut integer) = cast(number).filter(|_| dtype.is_float()) else { return Ok(None) };
        let mut zero = None;
        if let Some(node) = readers.producer(integer)
            && let Some((minuend, subtracted)) = by_constant(graph, node, BinaryFunction::Subtract)
        {
            (integer, zero) = (minuend, Some(subtracted));
        }
        let is_byte = |value| matches!(graph.tensor_type(value).dtype, DataType::U8 | DataType::I8);
        if !is_byte(integer) {
            let Some(bytes) = cast(integer).filter(|bytes| is_byte(*bytes)) else {
                return Ok(None);
            };
            integer = bytes;
        }
        let mut sum = Self::value(integer);
        sum.terms[0].converted = Some(dtype);
        if let Some(zero) = zero {
            let zero = Cast { to: dtype }.reference(&[Some(zero)])?.remove(0);
            sum.apply(BinaryFunction::Subtract, &zero)?;
        }
        if let Some(scale) = scale {
            sum.apply(BinaryFunction::Multiply, scale)?;
        }
        Ok(Some(sum))
    }

    fn value(value: ValueId) -> Self {
        let term = Term { value, factor: None, converted: None };
        Self { terms: vec![term], offset: None, merged: 0, is_small: true }
    }

    /// Notes one more operation with a constant.
    fn apply(&mut self, function: BinaryFunction, constant: &Tensor) -> Result<(), OpError> {
        self.merged += 1;
        match function {
            BinaryFunction::Multiply => self.multiply(constant),
            BinaryFunction::Subtract => {
                let negative = Unary::new(UnaryFunction::Negate);
                self.add(&negative.reference(&[Some(constant)])?[0])
            }
            _ => self.add(constant),
        }
    }

    fn multiply(&mut self, by: &Tensor) -> Result<(), OpError> {
        let factors = self.terms.iter_mut().map(|term| &mut term.factor);
        for factor in factors {
            self.is_small &= combine(BinaryFunction::Multiply, factor, by)?;
        }
        if self.offset.is_some() {
            self.is_small &= combine(BinaryFunction::Multiply, &mut self.offset, by)?;
        }
        Ok(())
    }

    fn add(&mut self, constant: &Tensor) -> Result<(), OpError> {
        self.is_small &= combine(BinaryFunction::Add, &mut self.offset, constant)?;
        Ok(())
    }

    /// Operations that compute it.
    fn operations(&self) -> usize {
        let factors = self.terms.iter().filter(|term| term.factor.is_some()).count();
        factors + self.terms.len() - 1 + usize::from(self.offset.is_some())
    }

    /// Whether no constant left the range in which numbers keep their accuracy.
    fn is_normal(&self) -> bool {
        let factors = self.terms.iter().filter_map(|term| term.factor.as_ref());
        let normal = |value: f64| value == 0.0 || (value as f32).is_normal();
        factors.chain(&self.offset).all(|tensor| tensor.to_f64().into_iter().all(normal))
    }

    fn write(&self, rewriter: &mut Rewriter<'_>, name: &str) -> Result<ValueId, PassError> {
        let mut sum = self.offset.clone().map(|offset| rewriter.constant(name, offset));
        for term in &self.terms {
            let mut value = rewriter.value(term.value);
            if let Some(to) = term.converted {
                value = rewriter.add_simple(name, Cast { to }, &[value])?;
            }
            if let Some(factor) = &term.factor {
                let factor = rewriter.constant(name, factor.clone());
                let multiply = Binary::new(BinaryFunction::Multiply);
                value = rewriter.add_simple(name, multiply, &[value, factor])?;
            }
            sum = Some(match sum {
                None => value,
                Some(sum) => {
                    let add = Binary::new(BinaryFunction::Add);
                    rewriter.add_simple(name, add, &[value, sum])?
                }
            });
        }
        Ok(sum.unwrap_or(rewriter.value(self.terms[0].value)))
    }
}

/// Combines a constant, which may be none yet, with another one; says whether the result is small enough to be computed.
fn combine(
    function: BinaryFunction,
    constant: &mut Option<Tensor>,
    other: &Tensor,
) -> Result<bool, OpError> {
    let function = Binary::new(function);
    let result = match constant {
        None => other.tensor_type().clone(),
        Some(constant) => {
            function.infer(&[Some(constant.tensor_type()), Some(other.tensor_type())])?.remove(0)
        }
    };
    if result.elements() > MAX_ELEMENTS {
        return Ok(false);
    }
    *constant = Some(match constant {
        None => other.clone(),
        Some(constant) => function.reference(&[Some(constant), Some(other)])?.remove(0),
    });
    Ok(true)
}

/// What a node rounds to whole numbers, in a type whose constants keep their accuracy when they are multiplied.
fn rounded(graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
    let unary = node.operation.downcast::<Unary>()?;
    let value = node.inputs[0]?;
    let is_exact = matches!(graph.tensor_type(value).dtype, DataType::F32 | DataType::F64);
    (unary.function == UnaryFunction::Round && is_exact).then_some(value)
}

fn is_rectifier(node: &Node<Op>) -> bool {
    node.operation.downcast::<Unary>().is_some_and(|unary| unary.function == UnaryFunction::Relu)
}

fn cast_from(graph: &Graph, node: &Node<Op>) -> Option<ValueId> {
    let input = node.inputs[0]?;
    let is_cast = node.operation.downcast::<Cast>().is_some();
    (is_cast && graph.constant(input).is_none()).then_some(input)
}

/// What a node multiplies by one positive number, and the number.
fn scale<'a>(graph: &'a Graph, node: &Node<Op>) -> Option<(ValueId, &'a Tensor)> {
    let (scaled, scale) = by_constant(graph, node, BinaryFunction::Multiply)?;
    let is_positive = || scale.to_f64().iter().all(|scale| *scale > 0.0);
    (scale.tensor_type().elements() == 1 && is_positive()).then_some((scaled, scale))
}

/// The operands of an addition of two values of the same shape.
fn addends(graph: &Graph, node: &Node<Op>) -> Option<[ValueId; 2]> {
    let binary = node.operation.downcast::<Binary>()?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let shape = |value| &graph.tensor_type(value).shape;
    let same = shape(left) == shape(right) && left != right;
    (binary.function == BinaryFunction::Add && same).then_some([left, right])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_types::TensorType;

    /// A sum of so many numbers has a stack frame for none of them beyond the first few.
    #[test]
    fn a_long_chain_in_front_of_a_rounding() {
        let mut graph = Graph::new();
        let mut value = graph.add_input("x", TensorType::new(DataType::F32, [2]));
        let one = graph.add_constant("one", Tensor::from_elements([1], &[1.0f32]).unwrap());
        let operands = |value, other| [Some(value), Some(other)];
        for index in 0..100_000 {
            let function = match index % 2 {
                0 => BinaryFunction::Add,
                _ => BinaryFunction::Multiply,
            };
            let node = Binary::new(function).into();
            value = graph.add_node("step", node, &operands(value, one)).unwrap()[0];
        }
        let round = Unary::new(UnaryFunction::Round).into();
        value = graph.add_node("round", round, &[Some(value)]).unwrap()[0];
        graph.add_output("y", value);
        let merged = merge_scales(&graph).unwrap();
        assert!(merged.nodes().len() > graph.nodes().len(), "the last steps merge");
    }
}
