//! Whether a lifted graph went through the passes like the one that is compiled ([`crate::lift`]): then what was checked of
//! the one holds for the other.
//!
//! Constants that passes computed differ by the rounding of `f32` and by what was moved. Both are relative to what they were
//! computed of, not to the result: where a pass adds up constants that nearly cancel, such as a zero point times its scale
//! and a number of the model, the result may differ by any share of itself. What counts is then what it does to the value
//! that is computed with it, which is looked at while the lifted graph is evaluated.

use crate::lift::{lift_tensor, lifted_operation, wide};
use hone_graph::{Definition, NodeId, Operation, ValueId};
use hone_ops::{EvaluateError, Evaluation, Graph, Op};
use hone_types::{Id, Tensor};
use serde_json::Value;

/// Largest difference of two constants relative to the larger one, and of what is computed with two constants relative to its
/// largest magnitude, that rounding and lifting explain.
const EXPLAINED: f64 = 3e-5;

/// A constant of the compiled graph, in place of one of the lifted graph, from which it differs by a larger share of itself
/// than rounding explains.
#[derive(Clone, Debug, PartialEq)]
pub struct ApartConstant {
    /// The node of the lifted graph that reads it.
    node: NodeId,
    /// Which of the node's operands it is.
    operand: usize,
    /// The compiled graph's constant, of the lifted type.
    compiled: Tensor,
}

/// Whether two graphs have the same nodes on the same values, one in `f32` and the other lifted before the
/// passes, and constants that differ by no more than rounding and lifting explain. Floating-point constants of which only
/// [`evaluate_lifted`] can say that are given back, in the order of the nodes.
///
/// # Errors
/// What differs first, in words.
pub fn same_structure(graph: &Graph, lifted: &Graph) -> Result<Vec<ApartConstant>, String> {
    if graph.nodes().len() != lifted.nodes().len() {
        let (ours, theirs) = (graph.nodes().len(), lifted.nodes().len());
        return Err(format!("{ours} nodes instead of {theirs}"));
    }
    let mut apart = Vec::new();
    for ((_, node), (id, other)) in graph.nodes().iter().zip(lifted.nodes().iter()) {
        let differs = |what: &str| Err(format!("node '{}' has {what}", node.name));
        let (regions, others) = (node.operation.regions(), other.operation.regions());
        let same = match regions.is_empty() {
            true => same_operation(&lifted_operation(node), &other.operation),
            // Values inside of regions are not looked at.
            false => {
                let mut pairs = regions.iter().zip(&others);
                let is_same = |(a, b): (&&Graph, &&Graph)| {
                    same_structure(a, b).is_ok_and(|apart| apart.is_empty())
                };
                regions.len() == others.len() && pairs.all(is_same)
            }
        };
        if !same || node.inputs.len() != other.inputs.len() {
            return differs("another operation");
        }
        for (operand, inputs) in node.inputs.iter().zip(&other.inputs).enumerate() {
            let same = match inputs {
                (None, None) => Same::Yes,
                (Some(a), Some(b)) => same_value((graph, *a), (lifted, *b)),
                _ => Same::No,
            };
            match same {
                Same::Yes => {}
                Same::ByValue(compiled) => {
                    apart.push(ApartConstant { node: id, operand, compiled });
                }
                Same::No => return differs("another input"),
            }
        }
    }
    let mut same = graph.outputs().iter().zip(lifted.outputs());
    match same.all(|(a, b)| same_value((graph, a.value), (lifted, b.value)) == Same::Yes) {
        true => Ok(apart),
        false => Err("another output".to_owned()),
    }
}

/// What a lifted graph gives, and where a node's result with the constants that are `apart`, as [`same_structure`] gave them,
/// differs by more than rounding and lifting explain, if one does.
///
/// # Errors
/// As for [`hone_ops::evaluate`].
pub fn evaluate_lifted(
    lifted: &Graph,
    apart: &[ApartConstant],
    inputs: &[Tensor],
) -> Result<(Vec<Tensor>, Option<String>), EvaluateError> {
    let mut evaluation = Evaluation::new(lifted, inputs)?;
    let (mut left, mut difference) = (apart, None);
    for (id, node) in lifted.nodes().iter() {
        let count = left.iter().take_while(|constant| constant.node == id).count();
        let (here, later) = left.split_at(count);
        left = later;
        if here.is_empty() {
            evaluation.compute(id)?;
            continue;
        }
        let mut operands = evaluation.operands(id);
        for constant in here {
            operands[constant.operand] = Some(&constant.compiled);
        }
        let compiled = node.operation.reference(&operands).map_err(|source| {
            let (name, operation) = (node.name.clone(), node.operation.name());
            EvaluateError::Node { name, operation, source }
        })?;
        node.outputs.iter().for_each(|output| evaluation.keep(*output));
        evaluation.compute(id)?;
        for (output, compiled) in node.outputs.iter().zip(&compiled) {
            let share = evaluation.value(*output).map_or(0.0, |own| difference_of(own, compiled));
            if share > EXPLAINED {
                difference.get_or_insert(format!(
                    "node '{}' has a constant that changes its result by {share:.1e} of the largest",
                    node.name
                ));
            }
            evaluation.release(*output);
        }
    }
    Ok((evaluation.outputs(), difference))
}

/// Largest difference of two tensors relative to the largest finite magnitude in the first one.
fn difference_of(tensor: &Tensor, other: &Tensor) -> f64 {
    let (a, b) = (tensor.to_f64(), other.to_f64());
    let largest = largest_magnitude(&a).max(f64::MIN_POSITIVE);
    let differences = a.iter().zip(&b).filter(|(a, b)| !is_same(**a, **b));
    let share = |(a, b): (&f64, &f64)| (a - b).abs() / largest;
    differences.map(share).fold(0.0, |most, share| if share <= most { most } else { share })
}

fn largest_magnitude(values: &[f64]) -> f64 {
    values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// Whether operations are the same but for numbers among their attributes that passes took from constants, as an attention has
/// the factor of its scores.
fn same_operation(a: &Op, b: &Op) -> bool {
    a == b || (a.name() == b.name() && same_attribute(&a.attributes(), &b.attributes()))
}

fn same_attribute(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_attribute(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_there = |(name, a)| b.get(name).is_some_and(|b| same_attribute(a, b));
            a.len() == b.len() && a.iter().all(is_there)
        }
        (Value::Number(x), Value::Number(y)) if x.is_f64() && y.is_f64() => {
            let near = |a: f64, b: f64| (a - b).abs() <= EXPLAINED * a.abs().max(b.abs());
            a == b || x.as_f64().zip(y.as_f64()).is_some_and(|(a, b)| near(a, b))
        }
        _ => a == b,
    }
}

fn is_same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// Whether a value of the compiled graph is one of the lifted graph.
#[derive(PartialEq)]
enum Same {
    Yes,
    No,
    /// What is computed with this constant decides.
    ByValue(Tensor),
}

fn same_value((graph, a): (&Graph, ValueId), (lifted, b): (&Graph, ValueId)) -> Same {
    let same = match (&graph.values()[a].definition, &lifted.values()[b].definition) {
        (Definition::Constant(a), Definition::Constant(b)) => return same_constant(a, b),
        (Definition::Input(a), Definition::Input(b)) => a == b,
        (Definition::Output(a, i), Definition::Output(b, j)) => a.index() == b.index() && i == j,
        _ => false,
    };
    if same { Same::Yes } else { Same::No }
}

/// Constants may differ by the rounding of what was folded and by what [`crate::lift`] moves; integers that were
/// folded out of floating-point numbers by one step, at one of a thousand elements.
fn same_constant(tensor: &Tensor, lifted: &Tensor) -> Same {
    if tensor.shape() != lifted.shape() || wide(tensor.dtype()) != lifted.dtype() {
        return Same::No;
    }
    if tensor.bytes() == lifted.bytes() {
        return Same::Yes;
    }
    let (a, b) = (tensor.to_f64(), lifted.to_f64());
    if !tensor.dtype().is_float() {
        let apart = a.iter().zip(&b).filter(|(a, b)| a != b);
        let steps = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1.0);
        let few = steps && apart.count() <= (a.len() / 1000).max(1);
        return if few { Same::Yes } else { Same::No };
    }
    let largest = largest_magnitude(&b);
    let is_near = |(a, b): (&f64, &f64)| {
        is_same(*a, *b) || (a - b).abs() <= EXPLAINED * b.abs() + 3e-6 * largest
    };
    match a.iter().zip(&b).all(is_near) {
        true => Same::Yes,
        false => lift_tensor(tensor).map_or(Same::No, Same::ByValue),
    }
}
