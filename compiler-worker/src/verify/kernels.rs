//! Every kernel of an artifact by itself: it gets the reference's values as operands, through the
//! artifact's own code, weights and offsets, and what it stores is compared with what the reference gives.
//!
//! Kernels of a branch are checked where a sample takes it, those of a loop on the reference's values of its first and
//! last iteration.

use std::collections::HashMap;
use std::error::Error;

use hone_artifact::{Slot, Variant};
use hone_driver::ops::{If, Loop, Recurrence};
use hone_driver::{Evaluation, MappedCall, NodeId, Op, StepMap, Tensor, ValueId, evaluate};
use hone_runtime::{RunError, StepArgument};

use super::decisions::{CHOSEN_PER_OTHER, decisions, steps};
use super::needed;
use super::sensitivity::sensitivity;
use super::tolerance::{Beyond, Bound, Compared, compare};
use crate::compiler::reference_failed;
use crate::failure::{Failure, Result};
use crate::work::executor::Executor;

/// What checking one kernel call gave, over all samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCheck {
    /// Position of its first step.
    pub step: usize,
    /// The symbol of its first function.
    pub kernel: String,
    /// Names of the nodes that it computes.
    pub nodes: Vec<String>,
    /// Whether any sample came to it.
    pub reached: bool,
    /// Elements compared.
    pub elements: u64,
    /// Largest error relative to what the element's may be; above 1 the kernel is wrong.
    pub error: f64,
    /// Elements that are beyond their bound because the kernel decided otherwise by a last bit.
    pub steps_off: u64,
    /// What is wrong, at the first sample where something is.
    pub fault: Option<String>,
}

/// No check of any call yet.
pub fn unchecked(map: &StepMap, variant: &Variant) -> Vec<KernelCheck> {
    let check = |call: &MappedCall| {
        let step = &variant.steps[call.steps.start];
        KernelCheck {
            step: call.steps.start,
            kernel: step.kernel.clone(),
            nodes: step.nodes.clone(),
            ..KernelCheck::default()
        }
    };
    let mut checks: Vec<KernelCheck> = map.calls.iter().map(check).collect();
    for graph in map.regions.iter().flat_map(|regions| &regions.graphs) {
        checks.extend(unchecked(graph, variant));
    }
    checks.sort_by_key(|check| check.step);
    checks
}

/// Checks all kernels on one sample, adds to `checks` (one for each call, sorted by step), and returns the outputs of the
/// prepared graph.
///
/// # Errors
/// A reference that cannot be computed; an executor that fails.
pub fn check(
    map: &StepMap,
    variant: &Variant,
    inputs: &[Tensor],
    executor: &mut dyn Executor,
    checks: &mut [KernelCheck],
) -> Result<Vec<Tensor>> {
    let failed = |error| reference_failed(Box::new(error));
    let mut evaluation = Evaluation::new(&map.graph, inputs).map_err(failed)?;
    for value in map.calls.iter().flat_map(|call| &call.parameters) {
        evaluation.keep(*value);
    }
    // Calls stand in the order of the steps, in which recurrences beside each other go together.
    let mut calls: HashMap<NodeId, Vec<&MappedCall>> = HashMap::new();
    for call in &map.calls {
        call.nodes.last().into_iter().for_each(|last| calls.entry(*last).or_default().push(call));
    }
    let mut regions = map.regions.iter().peekable();
    for node in map.graph.nodes().ids() {
        match regions.next_if(|regions| regions.node == node) {
            None => evaluation.compute(node).map_err(failed)?,
            Some(regions) => {
                let operation = &map.graph.nodes()[node].operation;
                let inside = Inside { operation, graphs: &regions.graphs, variant };
                let results = inside.check(&evaluation.operands(node), executor, checks)?;
                evaluation.supply(node, results);
            }
        }
        for call in calls.remove(&node).into_iter().flatten() {
            if let Ok(place) = checks.binary_search_by_key(&call.steps.start, |check| check.step) {
                check_call(map, call, variant, &evaluation, executor, &mut checks[place])?;
            }
            call.parameters.iter().for_each(|value| evaluation.release(*value));
        }
    }
    Ok(evaluation.outputs())
}

/// A node with graphs inside.
struct Inside<'a> {
    operation: &'a Op,
    graphs: &'a [StepMap],
    variant: &'a Variant,
}

impl Inside<'_> {
    /// Checks the kernels inside, and returns the node's results.
    fn check(
        &self,
        operands: &[Option<&Tensor>],
        executor: &mut dyn Executor,
        checks: &mut [KernelCheck],
    ) -> Result<Vec<Tensor>> {
        let failed = |error: hone_driver::ops::OpError| reference_failed(Box::new(error));
        if let (Some(own), [_, _]) = (self.operation.downcast::<If>(), self.graphs) {
            let (taken, inputs) = own.taken(operands).map_err(failed)?;
            return check(&self.graphs[taken], self.variant, &inputs, executor, checks);
        }
        let (Some(own), [body]) = (self.operation.downcast::<Loop>(), self.graphs) else {
            return self.operation.reference(operands).map_err(failed);
        };
        let mut walk = own.walk(operands).map_err(failed)?;
        let mut last = None;
        while let Some(inputs) = walk.next_inputs().map_err(failed)? {
            let outputs = match last.is_none() {
                true => check(body, self.variant, &inputs, executor, checks)?,
                false => evaluate(&body.graph, &inputs)
                    .map_err(|error| reference_failed(Box::new(error)))?,
            };
            walk.take(outputs);
            last = Some((inputs, last.is_none()));
        }
        if let Some((inputs, false)) = last {
            check(body, self.variant, &inputs, executor, checks)?;
        }
        walk.outputs().map_err(failed)
    }
}

fn check_call(
    map: &StepMap,
    call: &MappedCall,
    variant: &Variant,
    evaluation: &Evaluation<'_>,
    executor: &mut dyn Executor,
    check: &mut KernelCheck,
) -> Result<()> {
    let computed = |value: ValueId| {
        let missing = || Failure::internal("the reference lost a value that a kernel reads");
        evaluation.value(value).ok_or_else(missing)
    };
    check.reached = true;
    let step = &variant.steps[call.steps.start];
    let mut results = Vec::new();
    for value in &call.parameters[call.inputs..] {
        // Nothing of what is wanted may lie there before.
        results.push(computed(*value)?.bytes().iter().map(|byte| !byte).collect::<Vec<u8>>());
    }
    let temporaries = &step.arguments[call.parameters.len()..];
    let poison: Vec<Vec<u8>> =
        temporaries.iter().map(|argument| vec![0xFF; argument.bytes as usize]).collect();
    let mut arguments = Vec::with_capacity(step.arguments.len());
    for (value, argument) in call.parameters[..call.inputs].iter().zip(&step.arguments) {
        arguments.push(match argument.slot {
            Slot::Weight { .. } => StepArgument::Leave,
            _ => StepArgument::Fill(computed(*value)?.bytes()),
        });
    }
    arguments.extend(results.iter_mut().map(|bytes| StepArgument::Exchange(bytes)));
    arguments.extend(poison.iter().map(|bytes| StepArgument::Fill(bytes)));
    match executor.run_steps(call.steps.clone(), &mut arguments) {
        Err(failure) if is_stray(&failure) => {
            check.fail("it stores outside of its buffers".to_owned());
            return Ok(());
        }
        other => other?,
    }
    drop(arguments);
    let outputs = &call.parameters[call.inputs..];
    let mut got = Vec::with_capacity(outputs.len());
    for (place, (value, mut bytes)) in outputs.iter().zip(results).enumerate() {
        if let (Some(need), Some(size)) =
            (call.needed.get(place), call.parameters[..call.inputs].last())
        {
            let (want, size) = (computed(*value)?, needed::size(Some(computed(*size)?.bytes())));
            needed::settle(&mut bytes, want.bytes(), need, size, want.dtype().bytes());
        }
        let tensor = Tensor::from_bytes(computed(*value)?.tensor_type().clone(), bytes);
        got.push(tensor.map_err(|error| reference_failed(Box::new(error)))?);
    }
    let by_steps = by_steps(map, call, evaluation, &got)?;
    for (place, (value, got)) in outputs.iter().zip(&got).enumerate() {
        let want = match by_steps.as_ref().and_then(|wanted| wanted.get(place)) {
            Some(want) => want,
            None => computed(*value)?,
        };
        let bound = Bound::of(&map.graph, &call.nodes, want.dtype());
        let compared = compare(got, want, bound);
        check.elements += want.tensor_type().elements() as u64;
        check.error = check.error.max(compared.within);
        if !compared.beyond.is_empty() {
            judge(map, call, *value, evaluation, (want, &compared), check);
        }
    }
    Ok(())
}

/// What a recurrence should have given where each step goes on from the states that the kernel stored.
fn by_steps(
    map: &StepMap,
    call: &MappedCall,
    evaluation: &Evaluation<'_>,
    got: &[Tensor],
) -> Result<Option<Vec<Tensor>>> {
    let [node] = call.nodes[..] else { return Ok(None) };
    let node = &map.graph.nodes()[node];
    let Some(recurrence) = node.operation.downcast::<Recurrence>() else { return Ok(None) };
    let inputs = node.inputs.iter().map(|input| input.and_then(|input| evaluation.value(input)));
    let inputs: Vec<Option<&Tensor>> = inputs.collect();
    recurrence.follow(&inputs, got).map_err(|error| reference_failed(Box::new(error)))
}

/// Whether elements beyond their bound are explained by terms that cancel, or are decisions the other way, few
/// enough.
fn judge(
    map: &StepMap,
    call: &MappedCall,
    output: ValueId,
    evaluation: &Evaluation<'_>,
    (want, compared): (&Tensor, &Compared),
    check: &mut KernelCheck,
) {
    let nodes: &[NodeId] = &call.nodes;
    let decided = decisions(&map.graph, nodes);
    let lookup = |value: ValueId| evaluation.value(value).cloned();
    let values = want.to_f64();
    let steps = match decided.is_empty() {
        true => None,
        false => steps(&map.graph, nodes, &decided, output, &values, &lookup),
    };
    let mut cancelled = 0.0;
    if decided.is_empty() && want.dtype().is_float() {
        cancelled = sensitivity(&map.graph, nodes, output, &values, &lookup);
        // What is not finite is met by itself alone: such an element's bound is no number to divide by.
        let relative = |element: &Beyond| match element.bound.is_finite() {
            true => element.error() / (element.bound + cancelled),
            false => f64::INFINITY,
        };
        let worst = compared.beyond.iter().map(relative).fold(0.0, f64::max);
        if worst <= 1.0 {
            check.error = check.error.max(worst);
            return;
        }
    }
    let name = &map.graph.values()[output].name;
    let (count, elements) = (compared.beyond.len(), values.len());
    let explained = |element: &&Beyond| {
        let size = steps.as_ref().map_or(0.0, |steps| steps.sizes[element.index]);
        size > 0.0 && element.error() <= size * (1.0 + 1e-4) + element.bound
    };
    let chooses = steps.as_ref().is_some_and(|steps| steps.chooses);
    let few = chooses && count <= (elements / CHOSEN_PER_OTHER).max(1);
    match compared.beyond.iter().find(|element| !explained(element)).filter(|_| !few) {
        None => check.steps_off += count as u64,
        Some(Beyond { index, bound, got, want }) => {
            let bound = bound + cancelled;
            let error = (got - want).abs() / bound;
            check.error = check.error.max(if error.is_nan() { f64::INFINITY } else { error });
            check.fail(format!(
                "{count} of {elements} elements of '{name}' differ, and rounding does not explain element {index}: {got} where the reference gives {want}, and may differ by {bound:.1e}"
            ));
        }
    }
}

impl KernelCheck {
    fn fail(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
        self.error = self.error.max(1.0 + f64::EPSILON);
    }
}

fn is_stray(failure: &Failure) -> bool {
    let cause = failure.source().and_then(|cause| cause.downcast_ref::<RunError>());
    matches!(cause, Some(RunError::Stray { .. }))
}
