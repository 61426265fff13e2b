//! How much a model makes of rounding. One that rounds to integers inside turns the last bit of a sum into a
//! whole step wherever the sum lies between two; what it answers can then be said no better than its
//! own answers stay put when its constants are moved a little.

use crate::{PassError, Rewriter};
use hone_graph::Definition;
use hone_ops::{Cast, Graph, OpError};
use hone_types::{DataType, Id, Tensor};

/// Whether a model rounds floating-point numbers to integers of 8 or 16 bits.
pub fn rounds_inside(graph: &Graph) -> bool {
    graph.nodes().iter().any(|(_, node)| {
        let cast = node.operation.downcast::<Cast>();
        let from = node.inputs.first().copied().flatten().map(|own| graph.tensor_type(own).dtype);
        cast.is_some_and(|own| own.to.is_integer() && own.to.bytes() <= 2)
            && from.is_some_and(|dtype| dtype.is_float())
    })
}

/// The model with every constant `f32` number larger or smaller in turns, by `share` of itself.
pub fn nudge(graph: &Graph, share: f64) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, value) in graph.values().iter() {
        if let Definition::Constant(tensor) = &value.definition
            && tensor.dtype() == DataType::F32
        {
            let source = |source| PassError::Constant { node: value.name.clone(), source };
            let moved = moved(tensor, share, id.index()).map_err(source)?;
            let moved = rewriter.constant(&value.name, moved);
            rewriter.replace(id, moved);
        }
    }
    for (id, node) in graph.nodes().iter() {
        if rewriter.is_needed(id) {
            rewriter.copy(node)?;
        }
    }
    Ok(rewriter.finish())
}

fn moved(tensor: &Tensor, share: f64, first: usize) -> Result<Tensor, OpError> {
    let own = tensor.to_f64().into_iter().enumerate();
    let sign = |place: usize| if (place + first).is_multiple_of(2) { 1.0 } else { -1.0 };
    let values: Vec<f64> = own.map(|(place, value)| value * (1.0 + sign(place) * share)).collect();
    Ok(Tensor::from_f64(DataType::F32, tensor.shape(), &values)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_ops::{Binary, BinaryFunction, evaluate};
    use hone_types::TensorType;

    #[test]
    fn constants_move_and_bytes_are_seen() {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [2]));
        let c = graph.add_constant("c", Tensor::from_elements([2], &[1.0f32, 2.0]).unwrap());
        let sum = Binary::new(BinaryFunction::Add);
        let y = graph.add_node("sum", sum.into(), &[Some(x), Some(c)]).unwrap()[0];
        assert!(!rounds_inside(&graph));
        let bytes = graph.add_node("bytes", Cast { to: DataType::U8 }.into(), &[Some(y)]).unwrap();
        assert!(rounds_inside(&graph));
        graph.add_output("y", y);
        graph.add_output("bytes", bytes[0]);
        let zeros = Tensor::zeros(TensorType::new(DataType::F32, [2]));
        let moved = evaluate(&nudge(&graph, 0.25).unwrap(), &[zeros]).unwrap();
        let mut found = moved[0].to_f64();
        found.sort_by(f64::total_cmp);
        assert!(found == [0.75, 2.5] || found == [1.25, 1.5]);
    }
}
