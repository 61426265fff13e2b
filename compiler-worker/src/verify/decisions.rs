//! Where a kernel turns computed numbers into whole ones or truth values: there a last bit decides, and a
//! right kernel may decide otherwise than the reference where what it decides on lies at the boundary, between
//! two steps. Which elements lie there, and what the decision is worth in the kernel's output, is found by
//! moving what is decided on by as much as rounding explains, on the reference.

use std::collections::{HashMap, HashSet};

use hone_driver::ops::{Binary, BinaryFunction, Cast, Unary, UnaryFunction};
use hone_driver::{DataType, Graph, Node, NodeId, Op, Operation, Tensor, ValueId};

use super::tolerance::{ABSOLUTE_F32, Bound, RELATIVE_F32, scale};

/// What rounding explains of what is decided on, in parts of what it explains of a result: no function whose
/// polynomial errs relative to its value comes before a quantization in practice, while sums do.
const RELATIVE_MARGIN: f64 = 0.1;
const ABSOLUTE_MARGIN: f64 = 0.5;

/// How near to the boundary what is decided on must lie for an element to be decided the other way, as a
/// fraction of the scale of what is decided on, in `f32`.
pub const MARGIN: f64 = RELATIVE_MARGIN * RELATIVE_F32 + ABSOLUTE_MARGIN * ABSOLUTE_F32;

/// One chosen index in so many may be another, and one in any case: where two candidates are equal but for
/// their last bits, the reference does not tell.
pub const CHOSEN_PER_OTHER: usize = 1000;

/// A node of a kernel that decides by the last bit of what the kernel computed before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The node.
    pub node: NodeId,
    /// Whether it decides for each element by itself; else it chooses among elements.
    pub elementwise: bool,
}

/// The decisions among `nodes`, which one kernel computes, in topological order.
pub fn decisions(graph: &Graph, nodes: &[NodeId]) -> Vec<Decision> {
    let mut rounded: HashSet<ValueId> = HashSet::new();
    let mut whole: HashSet<ValueId> = HashSet::new();
    let mut decisions = Vec::new();
    for &id in nodes {
        let node = &graph.nodes()[id];
        let reads_rounded = node.inputs.iter().flatten().any(|value| rounded.contains(value));
        if reads_rounded && let Some(elementwise) = decides(graph, node) {
            decisions.push(Decision { node: id, elementwise });
        }
        if is_whole(graph, node, &whole) {
            whole.extend(&node.outputs);
        } else if reads_rounded || rounds(node) {
            let floats = node.outputs.iter();
            rounded.extend(floats.filter(|own| graph.tensor_type(**own).dtype.is_float()));
        }
    }
    decisions
}

/// Whether a node takes a decision on its first input, and then whether for each element by itself.
fn decides(graph: &Graph, node: &Node<Op>) -> Option<bool> {
    let input = node.inputs.first().copied().flatten()?;
    let is_float = graph.tensor_type(input).dtype.is_float();
    let output = graph.tensor_type(*node.outputs.first()?).dtype;
    if let Some(unary) = node.operation.downcast::<Unary>() {
        use UnaryFunction::{Ceil, Floor, Round, Sign};
        return matches!(unary.function, Floor | Ceil | Round | Sign).then_some(true);
    }
    if let Some(binary) = node.operation.downcast::<Binary>() {
        use BinaryFunction::{Modulo, Remainder};
        let remainder = matches!(binary.function, Modulo | Remainder);
        return (is_float && (remainder || output == DataType::Bool)).then_some(true);
    }
    if node.operation.downcast::<Cast>().is_some() {
        return (is_float && !output.is_float()).then_some(true);
    }
    matches!(Operation::name(&node.operation), "arg_reduce" | "top_k").then_some(false)
}

/// Whether a node's floating-point results are whole numbers, which are exact.
fn is_whole(graph: &Graph, node: &Node<Op>, whole: &HashSet<ValueId>) -> bool {
    let constant = |value: &ValueId| {
        let tensor = graph.constant(*value);
        tensor.is_some_and(|tensor| tensor.to_f64().iter().all(|own| own.fract() == 0.0))
    };
    let all = || {
        let mut inputs = node.inputs.iter().flatten();
        inputs.all(|value| {
            let integer = !graph.tensor_type(*value).dtype.is_float();
            integer || whole.contains(value) || constant(value)
        })
    };
    if let Some(unary) = node.operation.downcast::<Unary>() {
        use UnaryFunction::{Abs, Ceil, Floor, Negate, Relu, Round, Sign};
        return matches!(unary.function, Floor | Ceil | Round | Sign)
            || (matches!(unary.function, Abs | Negate | Relu) && all());
    }
    if let Some(binary) = node.operation.downcast::<Binary>() {
        use BinaryFunction::{Add, Maximum, Minimum, Multiply, Subtract};
        return matches!(binary.function, Add | Maximum | Minimum | Multiply | Subtract) && all();
    }
    !rounds(node) && all()
}

/// Whether a node rounds; others move numbers, choose among them, or convert them without loss.
fn rounds(node: &Node<Op>) -> bool {
    const MOVE: &[&str] = &[
        "cast",
        "concat",
        "expand",
        "gather",
        "gather_elements",
        "gather_nd",
        "join",
        "one_hot",
        "pack",
        "pad",
        "reshape",
        "select",
        "slice",
        "tile",
        "transpose",
        "trilu",
        "unpack",
    ];
    if let Some(unary) = node.operation.downcast::<Unary>() {
        use UnaryFunction::{Abs, Ceil, Floor, Negate, Relu, Round, Sign};
        return !matches!(unary.function, Abs | Ceil | Floor | Negate | Relu | Round | Sign);
    }
    if let Some(binary) = node.operation.downcast::<Binary>() {
        return !matches!(binary.function, BinaryFunction::Maximum | BinaryFunction::Minimum);
    }
    !MOVE.contains(&Operation::name(&node.operation))
}

/// What decisions the other way do to an output.
#[derive(Clone, Debug)]
pub struct Steps {
    /// By how much each element of the output moves at most; 0 where nothing at a boundary decides on it.
    pub sizes: Vec<f64>,
    /// Whether some decision chooses among elements, so that the sizes are not known.
    pub chooses: bool,
}

/// Computes `nodes` again with what each decision decides on a little larger and a little smaller, on `lookup`'s
/// values of what they read; `None` where an operator refuses that.
pub fn steps(
    graph: &Graph,
    nodes: &[NodeId],
    decisions: &[Decision],
    output: ValueId,
    want: &[f64],
    lookup: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Option<Steps> {
    let mut steps = Steps { sizes: vec![0.0; want.len()], chooses: false };
    for decision in decisions {
        if !decision.elementwise {
            steps.chooses = true;
            continue;
        }
        for by in [1.0, -1.0] {
            let other = again(graph, nodes, decision.node, by, output, lookup)?.to_f64();
            for ((size, other), want) in steps.sizes.iter_mut().zip(&other).zip(want) {
                let moved = (other - want).abs();
                *size = size.max(if moved.is_nan() { f64::INFINITY } else { moved });
            }
        }
    }
    Some(steps)
}

/// `output` with the first input of node `decided` moved by `by` times what rounding explains.
fn again(
    graph: &Graph,
    nodes: &[NodeId],
    decided: NodeId,
    by: f64,
    output: ValueId,
    lookup: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Option<Tensor> {
    recompute(graph, nodes, output, lookup, &mut |id, inputs| {
        if id == decided {
            let first = inputs.first_mut()?.as_mut()?;
            *first = moved(first, by, Bound::of(graph, nodes, first.dtype()))?;
        }
        Some(())
    })
}

/// Changes the inputs of a node before it is computed again; `None` where that cannot be.
pub type Alter<'a> = dyn FnMut(NodeId, &mut [Option<Tensor>]) -> Option<()> + 'a;

/// `output` of `nodes`, computed again by the reference on `lookup`'s values of what they read, after `alter` has
/// changed the inputs of each; `None` where an operator or `alter` refuses.
pub fn recompute(
    graph: &Graph,
    nodes: &[NodeId],
    output: ValueId,
    lookup: &dyn Fn(ValueId) -> Option<Tensor>,
    alter: &mut Alter<'_>,
) -> Option<Tensor> {
    let mut computed: HashMap<ValueId, Tensor> = HashMap::new();
    for &id in nodes {
        let node = &graph.nodes()[id];
        let mut inputs: Vec<Option<Tensor>> = node
            .inputs
            .iter()
            .map(|input| input.and_then(|own| computed.get(&own).cloned().or_else(|| lookup(own))))
            .collect();
        alter(id, &mut inputs)?;
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        let results = node.operation.reference(&inputs).ok()?;
        computed.extend(node.outputs.iter().copied().zip(results));
    }
    computed.remove(&output)
}

/// Every element moved by `by` times what rounding explains of it.
fn moved(tensor: &Tensor, by: f64, bound: Bound) -> Option<Tensor> {
    let values = tensor.to_f64();
    // Numbers of 16 bits are rounded by the reference at every node.
    let (relative, absolute) = match bound.relative > RELATIVE_F32 {
        true => (1.0, 1.0),
        false => (RELATIVE_MARGIN, ABSOLUTE_MARGIN),
    };
    let relative = relative * bound.relative;
    let absolute = absolute * bound.absolute * scale(&values) + bound.floor;
    let turn = |value: &f64| value + by * (absolute + relative * value.abs());
    let values: Vec<f64> = values.iter().map(turn).collect();
    Tensor::from_f64(tensor.dtype(), tensor.shape(), &values).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_driver::TensorType;

    /// `dequantize(quantize(x * 3))` with scale 0.5 and unsigned bytes.
    fn fake_quantization() -> (Graph, ValueId) {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [4]));
        let binary = |graph: &mut Graph, function, left, by: f32| {
            let by = graph.add_constant("c", Tensor::from_elements([1], &[by]).unwrap());
            let op = Binary::new(function).into();
            graph.add_node("binary", op, &[Some(left), Some(by)]).unwrap()[0]
        };
        let y = binary(&mut graph, BinaryFunction::Multiply, x, 3.0);
        let y = binary(&mut graph, BinaryFunction::Divide, y, 0.5);
        let round = Unary::new(UnaryFunction::Round).into();
        let y = graph.add_node("round", round, &[Some(y)]).unwrap()[0];
        let bytes = graph.add_node("bytes", Cast { to: DataType::U8 }.into(), &[Some(y)]).unwrap();
        let wide = Cast { to: DataType::F32 }.into();
        let y = graph.add_node("wide", wide, &[Some(bytes[0])]).unwrap()[0];
        let y = binary(&mut graph, BinaryFunction::Multiply, y, 0.5);
        graph.add_output("y", y);
        (graph, y)
    }

    #[test]
    fn a_step_is_worth_the_scale_at_a_boundary_and_nothing_elsewhere() {
        let (graph, y) = fake_quantization();
        let nodes: Vec<NodeId> = graph.nodes().ids().collect();
        let found = decisions(&graph, &nodes);
        assert_eq!(found.len(), 1, "the cast reads whole numbers: {found:?}");
        // 6 x rounded, times a half: 0.6, 1.5, 600 and 4.50001.
        let x = Tensor::from_elements([4], &[0.1f32, 0.25, 100.0, 0.750_001]).unwrap();
        let lookup = |value: ValueId| graph.constant(value).cloned().or_else(|| Some(x.clone()));
        let want = [0.5, 1.0, 127.5, 2.5];
        let steps = steps(&graph, &nodes, &found, y, &want, &lookup).unwrap();
        assert_eq!(steps.sizes, [0.0, 0.5, 0.0, 0.5]);
        assert!(!steps.chooses);
    }

    #[test]
    fn what_is_only_moved_decides_nothing() {
        let mut graph = Graph::new();
        let x = graph.add_input("x", TensorType::new(DataType::F32, [4]));
        let bytes = graph.add_node("bytes", Cast { to: DataType::U8 }.into(), &[Some(x)]).unwrap();
        graph.add_output("y", bytes[0]);
        let nodes: Vec<NodeId> = graph.nodes().ids().collect();
        assert!(decisions(&graph, &nodes).is_empty());
    }
}
