//! Passes over the graphs inside of nodes.

use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::Graph;

/// Runs a pass over the regions of a graph's nodes, innermost first, and then over the graph itself. A pass keeps
/// the types of inputs and outputs, so that the region it returns still fits the node.
pub fn over_regions(
    graph: &Graph,
    pass: &dyn Fn(&Graph) -> Result<Graph, PassError>,
) -> Result<Graph, PassError> {
    if graph.nodes().iter().all(|(_, node)| node.operation.regions().is_empty()) {
        return pass(graph);
    }
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let regions = node.operation.regions().into_iter();
        let regions = regions.map(|region| over_regions(region, pass)).collect::<Result<_, _>>()?;
        match node.operation.with_regions(regions) {
            None => rewriter.copy(node)?,
            Some(operation) => rewriter.copy(&Node { operation, ..node.clone() })?,
        }
    }
    pass(&rewriter.finish())
}
