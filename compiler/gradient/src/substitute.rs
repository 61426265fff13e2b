//! A value computed again with other values in place of some that it depends on.

use crate::walk::{check_same_type, leading};
use crate::{GradientError, RuleError};
use hone_graph::ValueId;
use hone_ops::Graph;
use std::collections::{HashMap, HashSet};

/// Adds copies of the nodes between `values` (value, what stands for it) and `of`, and returns what is `of` for these
/// values. Nodes that depend on none of them are not copied.
///
/// # Errors
/// A value of another type than the one that it stands for.
pub fn substitute(
    graph: &mut Graph,
    of: ValueId,
    values: &[(ValueId, ValueId)],
) -> Result<ValueId, GradientError> {
    for (value, given) in values {
        check_same_type(graph, *value, *given)?;
    }
    let independent: HashSet<ValueId> = values.iter().map(|(value, _)| *value).collect();
    let mut known: HashMap<ValueId, ValueId> = values.iter().copied().collect();
    for id in leading(graph, std::iter::once(of), &independent) {
        let node = &graph.nodes()[id];
        if !node.inputs.iter().flatten().any(|input| known.contains_key(input)) {
            continue;
        }
        let node = node.clone();
        let inputs: Vec<Option<ValueId>> = node
            .inputs
            .iter()
            .map(|input| input.map(|input| known.get(&input).copied().unwrap_or(input)))
            .collect();
        let operation = node.operation.name();
        let copies = graph.add_node(&node.name, node.operation, &inputs).map_err(|source| {
            GradientError::Node { node: node.name, operation, source: RuleError::Infer(source) }
        })?;
        for (output, copy) in node.outputs.iter().zip(copies) {
            known.entry(*output).or_insert(copy);
        }
    }
    Ok(known.get(&of).copied().unwrap_or(of))
}
