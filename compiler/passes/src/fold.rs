//! Constant folding: nodes all of whose inputs are constants are computed now.

use crate::{PassError, Rewriter};
use hone_ops::{FoldingBudget, FoldingLimits, Graph};
use hone_types::{Tensor, TensorType};

/// Computes what does not depend on the graph's inputs. A node beyond [`FoldingLimits`] stays, and is
/// computed in every run.
pub fn fold_constants(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let mut budget = FoldingBudget::new(FoldingLimits::default());
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let inputs: Vec<_> =
            node.inputs.iter().map(|input| input.map(|value| rewriter.value(value))).collect();
        let target = rewriter.target();
        let operands: Vec<Option<&Tensor>> =
            inputs.iter().map(|input| input.and_then(|value| target.constant(value))).collect();
        let is_constant = inputs
            .iter()
            .zip(&operands)
            .all(|(input, operand)| input.is_some() == operand.is_some());
        let mut is_cheap = || {
            let types: Vec<Option<&TensorType>> =
                operands.iter().map(|operand| operand.map(Tensor::tensor_type)).collect();
            let results: Vec<TensorType> =
                node.outputs.iter().map(|output| graph.tensor_type(*output).clone()).collect();
            budget.take(&node.operation, &types, &results)
        };
        if !is_constant || inputs.is_empty() || !is_cheap() {
            rewriter.copy(node)?;
            continue;
        }
        let results = hone_ops::fold(&node.operation, &operands)
            .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        for (old, result) in node.outputs.iter().zip(results) {
            let new = rewriter.constant(&node.name, result);
            rewriter.replace(*old, new);
        }
    }
    Ok(rewriter.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_ops::MatMul;
    use hone_types::DataType;

    /// Nodes that are left of `count` products of constants in a row.
    fn products_left(extent: usize, count: usize) -> usize {
        let mut graph = Graph::new();
        let square = TensorType::new(DataType::F32, [extent, extent]);
        let constant = graph.add_constant("c", Tensor::zeros(square));
        let mut value = constant;
        for _ in 0..count {
            let inputs = [Some(value), Some(constant)];
            value = graph.add_node("product", MatMul {}.into(), &inputs).unwrap()[0];
        }
        graph.add_output("y", value);
        fold_constants(&graph).unwrap().nodes().len()
    }

    #[test]
    fn cheap_products_are_computed_and_others_stay() {
        assert_eq!(products_left(10, 20), 0);
        assert_eq!(products_left(2_000, 20), 20);
    }
}
