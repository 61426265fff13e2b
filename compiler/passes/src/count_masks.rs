//! Selections by a count that a run computes, of which every element is needed: a kernel stores all of its result there,
//! zeros behind the count. What is computed before such a selection in the same kernel is computed for all the room; in a
//! kernel of its own it stops at the count.

use hone_graph::{NodeId, ValueId};
use hone_ops::{Binary, BinaryFunction, Gather, Graph, Op, Reshape, Select};
use hone_types::{DataType, Id};

/// Floating-point operations for an element from which on another pass over the result costs less than computing what
/// nobody needs.
const LEAST_FLOPS: u64 = 32;

/// For each node, whether it selects by a count and all of its result is needed: it leaves the graph, or is read at
/// computed indices. `readers` and `escapes` are by value.
pub(crate) fn count_masks(graph: &Graph, readers: &[Vec<NodeId>], escapes: &[bool]) -> Vec<bool> {
    let is_mask = |node: NodeId| {
        selects_by_count(graph, node)
            && needed_whole(graph, (readers, escapes), graph.nodes()[node].outputs[0])
    };
    graph.nodes().ids().map(is_mask).collect()
}

/// Whether a group that does so many operations costs more for all the room than to store its result once more.
pub(crate) fn is_heavy(graph: &Graph, value: ValueId, flops: u64) -> bool {
    let elements = graph.tensor_type(value).elements() as u64;
    flops >= elements.saturating_mul(LEAST_FLOPS)
}

/// Whether a node selects where constant positions are below a number that is computed.
fn selects_by_count(graph: &Graph, node: NodeId) -> bool {
    let node = &graph.nodes()[node];
    let Some(Some(condition)) = node.inputs.first().filter(|_| is_select(&node.operation)) else {
        return false;
    };
    let Some(less) = graph.producer(*condition).map(|producer| &graph.nodes()[producer]) else {
        return false;
    };
    let compares = less.operation.downcast::<Binary>();
    let [Some(positions), Some(count)] = less.inputs[..] else { return false };
    let number = graph.tensor_type(count);
    compares.is_some_and(|binary| binary.function == BinaryFunction::Less)
        && graph.constant(positions).is_some()
        && graph.constant(count).is_none()
        && number.dtype == DataType::I64
        && number.rank() == 0
}

fn is_select(operation: &Op) -> bool {
    operation.downcast::<Select>().is_some()
}

fn needed_whole(
    graph: &Graph,
    (readers, escapes): (&[Vec<NodeId>], &[bool]),
    value: ValueId,
) -> bool {
    if escapes[value.index()] {
        return true;
    }
    readers[value.index()].iter().any(|reader| {
        let node = &graph.nodes()[*reader];
        let gathers = node.operation.downcast::<Gather>().is_some();
        let renames = node.operation.downcast::<Reshape>().is_some();
        gathers && node.inputs[0] == Some(value)
            || renames && needed_whole(graph, (readers, escapes), node.outputs[0])
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::fuse;
    use hone_graph::parse;
    use hone_ops::Op;

    /// The names of the nodes in each kernel of a product of `depth` terms that a count masks, and that `last` reads.
    fn kernels(depth: usize, last: &str) -> Vec<String> {
        let text = format!(
            r#"%0 = input "x" f32[64, {depth}]
%1 = input "n" i64[1]
%2 = constant "weights" f32[{depth}, 8] pattern
%3 = matmul "product" (%0, %2) {{}} -> f32[64, 8]
%4 = reduce "count" (%1) {{"axes":[0],"function":"sum","keep_axes":false}} -> i64[]
%5 = constant "positions" i64[64, 1] pattern
%6 = binary "less" (%5, %4) {{"function":"less"}} -> bool[64, 1]
%7 = constant "zero" f32[] [0.0]
%8 = select "masked" (%6, %3, %7) {{}} -> f32[64, 8]
{last}
"#
        );
        let graph = parse::<Op>(&text).unwrap();
        let names = |group: &crate::Group| -> String {
            let names = group.nodes.iter().map(|node| graph.nodes()[*node].name.clone());
            names.collect::<Vec<_>>().join("+")
        };
        fuse(&graph).iter().map(names).collect()
    }

    #[test]
    fn a_product_is_not_in_the_kernel_that_masks_its_result_where_that_leaves_the_graph() {
        let whole = "output \"y\" %8";
        assert!(kernels(32, whole).contains(&"product".to_owned()));
        // Two terms cost less than to store the result twice.
        assert!(!kernels(2, whole).contains(&"product".to_owned()));
    }

    #[test]
    fn a_mask_before_a_sum_stays_with_the_product() {
        let sum = "%9 = reduce \"sum\" (%8) {\"axes\":[0],\"function\":\"sum\",\"keep_axes\":false} -> f32[8]\noutput \"y\" %9";
        assert!(!kernels(32, sum).contains(&"product".to_owned()));
    }
}
