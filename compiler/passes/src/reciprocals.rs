//! Divides by constants by multiplying: a division keeps a core's divider busy for as long as ten
//! multiplications. The result may differ in its last bit.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Graph, Op};
use hone_types::{DataType, Tensor};

/// Replaces divisions of `f32` values by constants, where every reciprocal is a normal number.
pub fn divide_by_multiplying(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some((left, reciprocals)) = reciprocals(graph, node) else {
            rewriter.copy(node)?;
            continue;
        };
        let (left, right) = (rewriter.value(left), rewriter.constant(&node.name, reciprocals));
        let product = Binary { function: BinaryFunction::Multiply };
        let product = rewriter.add_simple(&node.name, product, &[left, right])?;
        rewriter.replace(node.outputs[0], product);
    }
    Ok(rewriter.finish())
}

/// What a division divides, and the reciprocals of the constant it divides by.
fn reciprocals(graph: &Graph, node: &Node<Op>) -> Option<(ValueId, Tensor)> {
    let division = node.operation.downcast::<Binary>()?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let divisor = graph.constant(right)?;
    let working = matches!(divisor.dtype(), DataType::F32 | DataType::F64);
    if division.function != BinaryFunction::Divide || !working {
        return None;
    }
    let values: Vec<f64> = divisor.to_f64().into_iter().map(f64::recip).collect();
    let normal = values.iter().all(|value| (*value as f32).is_normal());
    let reciprocals = Tensor::from_f64(divisor.dtype(), divisor.shape().to_vec(), &values).ok()?;
    normal.then_some((left, reciprocals))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_graph::Operation;
    use hone_ops::evaluate;
    use hone_types::TensorType;

    fn divided(divisor: f32) -> Graph {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [2]));
        let c = graph.add_constant("c", Tensor::from_elements([1], &[divisor]).unwrap());
        let division = Binary { function: BinaryFunction::Divide };
        let y = graph.add_node("y", division.into(), &[Some(x), Some(c)]).unwrap()[0];
        graph.add_output("y", y);
        graph
    }

    fn functions(graph: &Graph) -> Vec<String> {
        graph.nodes().iter().map(|(_, node)| node.operation.attributes().to_string()).collect()
    }

    #[test]
    fn a_division_by_a_constant_becomes_a_product() {
        let graph = divided(1.5);
        let changed = divide_by_multiplying(&graph).unwrap();
        assert_ne!(functions(&changed), functions(&graph));
        let x = Tensor::from_elements([2], &[3.0f32, -7.0]).unwrap();
        let [before, after] = [&graph, &changed]
            .map(|graph| evaluate(graph, std::slice::from_ref(&x)).unwrap()[0].to_f64());
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() <= 1e-6 * before.abs());
        }
    }

    #[test]
    fn zeros_and_subnormal_reciprocals_stay_divisions() {
        for divisor in [0.0, f32::MAX, f32::INFINITY] {
            let graph = divided(divisor);
            assert_eq!(functions(&divide_by_multiplying(&graph).unwrap()), functions(&graph));
        }
    }
}
