//! Changes what a step of a recurrence computes: the step becomes a graph, is rewritten, and becomes a recurrence again.

use crate::{PassError, Rewriter, fold_constants};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, Op, Recurrence};
use hone_types::{Tensor, TensorType};

/// A step in another form, with the same inputs and outputs but for constants; `None` where it stays as it is.
type Change<'a> = dyn Fn(&Graph) -> Result<Option<Graph>, PassError> + 'a;

/// Gives the steps of all recurrences of a graph another form. What a step reads that is constant is a constant of the
/// graph that `change` gets, and what follows from constants alone is folded there.
pub(crate) fn change_steps(graph: &Graph, change: &Change<'_>) -> Result<Graph, PassError> {
    // Parts of the weights, which the gates of a GRU read, become weights by themselves.
    change_plain_steps(graph, &|step| change(&fold_constants(step)?))
}

/// As [`change_steps`]; nothing is folded, so that what the steps convert when they read it stays as it is stored.
pub(crate) fn change_plain_steps(graph: &Graph, change: &Change<'_>) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let changed = match node.operation.downcast::<Recurrence>() {
            Some(recurrence) => changed(graph, (node, recurrence), change)?,
            None => None,
        };
        match changed {
            Some(changed) => replace(&mut rewriter, node, changed)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// A recurrence in another form.
struct Changed {
    recurrence: Recurrence,
    /// Inputs of the old recurrence that the new one keeps, in its order.
    kept: Vec<ValueId>,
    /// The new recurrence's inputs behind these.
    constants: Vec<Tensor>,
}

fn changed(
    graph: &Graph,
    (node, recurrence): (&Node<Op>, &Recurrence),
    change: &Change<'_>,
) -> Result<Option<Changed>, PassError> {
    let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let types: Vec<Option<&TensorType>> =
        inputs.iter().map(|input| Some(graph.tensor_type(*input))).collect();
    let constants: Vec<Option<&Tensor>> =
        inputs.iter().map(|input| graph.constant(*input)).collect();
    let step = recurrence
        .step(&types, &constants)
        .map_err(|source| PassError::Infer { node: node.name.clone(), source })?;
    let Some(step) = change(&step)? else { return Ok(None) };
    let (states, sequences) = (recurrence.states, recurrence.sequences);
    let (new, constants_of_step) =
        Recurrence::of_step(&step, states, sequences, recurrence.backwards);
    let kept = inputs
        .iter()
        .enumerate()
        .filter(|(index, _)| *index < states + sequences || constants[*index].is_none());
    let kept = kept.map(|(_, input)| *input).collect();
    Ok(Some(Changed { recurrence: new, kept, constants: constants_of_step }))
}

fn replace(rewriter: &mut Rewriter<'_>, node: &Node<Op>, new: Changed) -> Result<(), PassError> {
    let mut inputs: Vec<Option<ValueId>> =
        new.kept.into_iter().map(|input| Some(rewriter.value(input))).collect();
    for constant in new.constants {
        inputs.push(Some(rewriter.constant(&node.name, constant)));
    }
    let outputs = rewriter.add(&node.name, new.recurrence, &inputs)?;
    for (old, new) in node.outputs.iter().zip(outputs) {
        rewriter.replace(*old, new);
    }
    Ok(())
}
