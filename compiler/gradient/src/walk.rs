//! The walk back over the nodes.

use crate::nodes::Nodes;
use crate::rules::{Site, rule};
use crate::{GradientError, RuleError};
use hone_graph::{NodeId, ValueId};
use hone_ops::Graph;
use std::collections::{HashMap, HashSet};

/// Adds nodes that compute the derivatives of `of` by each of `by`, and returns these, in order, each of the type of its
/// value. Where `of` has several elements, they are those of the sum of all of them. Zeros where `of` does not depend on a
/// value.
///
/// `by` and `held` are independent variables: what they themselves are computed from does not count, so a derivative by a
/// value is a partial one where another of them is computed from it. Everything else that `of` depends on is a constant.
///
/// # Errors
/// Values that are no floats, and nodes on the way from `by` to `of` that have no derivative.
pub fn gradients(
    graph: &mut Graph,
    of: ValueId,
    by: &[ValueId],
    held: &[ValueId],
) -> Result<Vec<ValueId>, GradientError> {
    check_float(graph, of)?;
    let tensor_type = graph.tensor_type(of).clone();
    let seed = Nodes::new(graph, "gradient").filled(&tensor_type, 1.0);
    let seed = seed.map_err(|source| refusal("gradient", "seed", source))?;
    let found = pull_back(graph, &[(of, seed)], by, held)?;
    let mut gradients = Vec::with_capacity(by.len());
    for (value, gradient) in by.iter().zip(found) {
        let gradient = gradient.map_or_else(
            || {
                let tensor_type = graph.tensor_type(*value).clone();
                let zeros = Nodes::new(graph, "gradient").filled(&tensor_type, 0.0);
                zeros.map_err(|source| refusal("gradient", "zeros", source))
            },
            Ok,
        );
        gradients.push(gradient?);
    }
    Ok(gradients)
}

/// As [`gradients`], with the adjoints of several values given as `seeds` (value, adjoint); `None` where none of them
/// depends on a value.
///
/// # Errors
/// As [`gradients`], and a seed of another type than its value.
pub fn pull_back(
    graph: &mut Graph,
    seeds: &[(ValueId, ValueId)],
    by: &[ValueId],
    held: &[ValueId],
) -> Result<Vec<Option<ValueId>>, GradientError> {
    by.iter().try_for_each(|value| check_float(graph, *value))?;
    for (value, adjoint) in seeds {
        check_same_type(graph, *value, *adjoint)?;
    }
    let independent: HashSet<ValueId> = by.iter().chain(held).copied().collect();
    let leading = leading(graph, seeds.iter().map(|(value, _)| *value), &independent);
    let active = active(graph, &leading, by, &independent);
    let mut adjoints = Adjoints::default();
    for (value, adjoint) in seeds.iter().filter(|(value, _)| active.contains(value)) {
        let mut nodes = Nodes::new(graph, "gradient");
        let added = adjoints.add(&mut nodes, *value, *adjoint);
        added.map_err(|source| refusal("gradient", "seed", source))?;
    }
    for id in leading.into_iter().rev() {
        pass(graph, id, &active, &independent, &mut adjoints)?;
    }
    Ok(by.iter().map(|value| adjoints.of.get(value).copied()).collect())
}

/// What is known so far of what the result changes by for a change of each value.
#[derive(Default)]
struct Adjoints {
    of: HashMap<ValueId, ValueId>,
}

impl Adjoints {
    fn add(
        &mut self,
        nodes: &mut Nodes<'_>,
        value: ValueId,
        contribution: ValueId,
    ) -> Result<(), RuleError> {
        let sum = match self.of.get(&value) {
            Some(others) => nodes.add(*others, contribution)?,
            None => contribution,
        };
        self.of.insert(value, sum);
        Ok(())
    }
}

/// Passes one node: from the adjoints of its outputs to those of its inputs.
fn pass(
    graph: &mut Graph,
    id: NodeId,
    active: &HashSet<ValueId>,
    independent: &HashSet<ValueId>,
    adjoints: &mut Adjoints,
) -> Result<(), GradientError> {
    let node = &graph.nodes()[id];
    let own: Vec<Option<ValueId>> = node
        .outputs
        .iter()
        .map(|output| match independent.contains(output) {
            true => None,
            false => adjoints.of.remove(output),
        })
        .collect();
    let wanted: Vec<bool> = node
        .inputs
        .iter()
        .map(|input| input.is_some_and(|input| active.contains(&input)))
        .collect();
    if own.iter().all(Option::is_none) || !wanted.contains(&true) {
        return Ok(());
    }
    let node = node.clone();
    let refuse = |source| refusal(&node.name, node.operation.name(), source);
    let found = rule(&node.operation)
        .ok_or_else(|| refuse(RuleError::Missing(node.operation.name().to_string())))?;
    let site =
        Site { inputs: &node.inputs, outputs: &node.outputs, adjoints: &own, wanted: &wanted };
    let mut nodes = Nodes::new(graph, &format!("gradient of {}", node.name));
    let contributions = found.pull_back(&mut nodes, &site).map_err(refuse)?;
    for ((input, wanted), contribution) in node.inputs.iter().zip(&wanted).zip(contributions) {
        if let (Some(input), true, Some(contribution)) = (input, wanted, contribution) {
            adjoints.add(&mut nodes, *input, contribution).map_err(refuse)?;
        }
    }
    Ok(())
}

/// The nodes that values depend on, in the graph's order, without those behind independent values.
pub(crate) fn leading(
    graph: &Graph,
    values: impl Iterator<Item = ValueId>,
    independent: &HashSet<ValueId>,
) -> Vec<NodeId> {
    let producer = |value: ValueId| match independent.contains(&value) {
        true => None,
        false => graph.producer(value),
    };
    let mut pending: Vec<NodeId> = values.filter_map(producer).collect();
    let mut seen: HashSet<NodeId> = pending.iter().copied().collect();
    while let Some(id) = pending.pop() {
        for input in graph.nodes()[id].inputs.iter().flatten() {
            if let Some(before) = producer(*input)
                && seen.insert(before)
            {
                pending.push(before);
            }
        }
    }
    let mut nodes: Vec<NodeId> = seen.into_iter().collect();
    nodes.sort_unstable();
    nodes
}

/// The floats among `by` and what the nodes compute of them. Independent values depend on nothing.
fn active(
    graph: &Graph,
    nodes: &[NodeId],
    by: &[ValueId],
    independent: &HashSet<ValueId>,
) -> HashSet<ValueId> {
    let mut active: HashSet<ValueId> = by.iter().copied().collect();
    for id in nodes {
        let node = &graph.nodes()[*id];
        if node.inputs.iter().flatten().any(|input| active.contains(input)) {
            let outputs = node.outputs.iter().copied();
            active.extend(outputs.filter(|output| {
                graph.tensor_type(*output).dtype.is_float() && !independent.contains(output)
            }));
        }
    }
    active
}

fn check_float(graph: &Graph, value: ValueId) -> Result<(), GradientError> {
    let tensor_type = graph.tensor_type(value);
    if tensor_type.dtype.is_float() {
        return Ok(());
    }
    Err(GradientError::NotFloat { value, tensor_type: tensor_type.clone() })
}

/// Refuses what is given for a value and is of another type.
pub(crate) fn check_same_type(
    graph: &Graph,
    value: ValueId,
    given: ValueId,
) -> Result<(), GradientError> {
    let (value_type, given_type) = (graph.tensor_type(value), graph.tensor_type(given));
    if value_type == given_type {
        return Ok(());
    }
    let (value_type, given_type) = (value_type.clone(), given_type.clone());
    Err(GradientError::OtherType { value, value_type, given, given_type })
}

fn refusal(node: &str, operation: &'static str, source: RuleError) -> GradientError {
    GradientError::Node { node: node.to_string(), operation, source }
}
