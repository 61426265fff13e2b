//! `Einsum`: operands are contracted one after the other, each pair as a batched matrix product.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, ReduceFunction, Slice};

/// No equation has more terms: each is compared with all that follow.
const MOST_TERMS: usize = 52;

/// An axis' label: a letter, or a place in the ellipsis counted from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

/// An operand whose axes are labelled, each label once.
struct Term {
    operand: Operand,
    labels: Vec<Label>,
}

/// See the head of this file.
pub(super) fn einsum(builder: &mut Builder, node: &mut Node) -> Outputs {
    let equation: String = node.string_or("equation", "")?.split_whitespace().collect();
    let inputs = node.variadic()?;
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left.to_string(), Some(right.to_string())),
        None => (equation.clone(), None),
    };
    let texts: Vec<&str> = left.split(',').collect();
    if inputs.len() > MOST_TERMS {
        return Err(NodeError::unsupported(format!("an equation of {} terms", inputs.len())));
    }
    if texts.len() != inputs.len() {
        return Err(NodeError::invalid(format!(
            "equation '{equation}' is for {} inputs, there are {}",
            texts.len(),
            inputs.len()
        )));
    }
    let mut labelled = Vec::new();
    for (text, operand) in texts.iter().zip(inputs) {
        labelled.push((operand, labels(text, Some(builder.rank(operand)), 0)?));
    }
    let ellipsis = labelled
        .iter()
        .flat_map(|(_, labels)| labels)
        .filter(|label| matches!(label, Label::Ellipsis(_)))
        .map(|label| if let Label::Ellipsis(place) = label { place + 1 } else { 0 })
        .max()
        .unwrap_or(0);
    let wanted = match right {
        Some(text) => labels(&text, None, ellipsis)?,
        None => implicit(&labelled, ellipsis),
    };
    check_output(&wanted, &labelled, &equation)?;
    let mut terms = Vec::new();
    for (operand, labels) in labelled {
        terms.push(diagonal(builder, operand, labels)?);
    }
    let mut terms = terms.into_iter();
    let mut result = terms.next().ok_or_else(|| NodeError::invalid("it has no inputs"))?;
    while let Some(next) = terms.next() {
        let later: Vec<Label> =
            terms.as_slice().iter().flat_map(|term| term.labels.iter().copied()).collect();
        let kept = |label: &Label| wanted.contains(label) || later.contains(label);
        result = contract(builder, result, next, kept)?;
    }
    let result = sum_out(builder, result, |label| wanted.contains(label))?;
    Ok(vec![arrange(builder, &result, &wanted)?])
}

/// Labels of one term; `rank` says how many axes an ellipsis stands for, else `ellipsis` does.
fn labels(text: &str, rank: Option<usize>, ellipsis: usize) -> Result<Vec<Label>, NodeError> {
    let refuse =
        || NodeError::invalid(format!("term '{text}' of the equation does not fit its input"));
    let (before, after) = match text.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    let letters = before.chars().count() + after.map_or(0, |after| after.chars().count());
    let hidden = match (rank, after) {
        (Some(rank), Some(_)) => rank.checked_sub(letters).ok_or_else(refuse)?,
        (Some(rank), None) if rank != letters => return Err(refuse()),
        (None, Some(_)) => ellipsis,
        _ => 0,
    };
    let all = before.chars().chain(after.unwrap_or_default().chars());
    if all.into_iter().any(|letter| !letter.is_ascii_alphabetic()) {
        return Err(refuse());
    }
    let mut labels: Vec<Label> = before.chars().map(Label::Letter).collect();
    labels.extend((0..hidden).rev().map(Label::Ellipsis));
    labels.extend(after.unwrap_or_default().chars().map(Label::Letter));
    Ok(labels)
}

/// The output of an equation that states none: the ellipsis, then letters that stand once, sorted.
fn implicit(labelled: &[(Operand, Vec<Label>)], ellipsis: usize) -> Vec<Label> {
    let all: Vec<Label> = labelled.iter().flat_map(|(_, labels)| labels.iter().copied()).collect();
    let mut once: Vec<Label> = all
        .iter()
        .copied()
        .filter(|label| matches!(label, Label::Letter(_)))
        .filter(|label| all.iter().filter(|other| *other == label).count() == 1)
        .collect();
    once.sort_unstable();
    (0..ellipsis).rev().map(Label::Ellipsis).chain(once).collect()
}

fn check_output(
    wanted: &[Label],
    labelled: &[(Operand, Vec<Label>)],
    equation: &str,
) -> Result<(), NodeError> {
    let known = |label: &Label| labelled.iter().any(|(_, labels)| labels.contains(label));
    let twice = wanted.iter().enumerate().any(|(place, label)| wanted[..place].contains(label));
    if twice || !wanted.iter().all(known) {
        return Err(NodeError::invalid(format!(
            "the output of equation '{equation}' names an axis twice or one that no input has"
        )));
    }
    Ok(())
}

/// Replaces axes of one label by their diagonal.
fn diagonal(b: &mut Builder, operand: Operand, labels: Vec<Label>) -> Result<Term, NodeError> {
    let mut term = Term { operand, labels };
    loop {
        let labels = &term.labels;
        let pair = (0..labels.len()).find_map(|right| {
            Some((labels[..right].iter().position(|l| *l == labels[right])?, right))
        });
        let Some((left, right)) = pair else { return Ok(term) };
        let shape = b.shape(term.operand);
        if shape[left] != shape[right] {
            return Err(NodeError::invalid(format!("axes of one label differ in shape {shape:?}")));
        }
        let extent = shape[left];
        let others: Vec<usize> =
            (0..shape.len()).filter(|axis| *axis != left && *axis != right).collect();
        let moved = b.transpose(term.operand, [&others[..], &[left, right]].concat())?;
        let mut flat: Vec<usize> = others.iter().map(|axis| shape[*axis]).collect();
        flat.push(extent * extent);
        let flat_operand = b.reshape(moved, flat.clone())?;
        let mut slice =
            Slice { starts: vec![0; flat.len()], steps: vec![1; flat.len()], extents: flat };
        if let (Some(step), Some(last)) = (slice.steps.last_mut(), slice.extents.last_mut()) {
            (*step, *last) = (extent as i64 + 1, extent);
        }
        let label = term.labels[left];
        term.operand = b.apply(slice, &[flat_operand])?;
        term.labels = others.iter().map(|axis| term.labels[*axis]).chain([label]).collect();
    }
}

/// Sums over the axes that are not kept.
fn sum_out(b: &mut Builder, term: Term, kept: impl Fn(&Label) -> bool) -> Result<Term, NodeError> {
    let axes: Vec<usize> =
        (0..term.labels.len()).filter(|axis| !kept(&term.labels[*axis])).collect();
    if axes.is_empty() {
        return Ok(term);
    }
    let operand = b.reduce(ReduceFunction::Sum, term.operand, axes, false)?;
    Ok(Term { operand, labels: term.labels.into_iter().filter(|label| kept(label)).collect() })
}

/// The term's axes in the order of `labels`; it has just these.
fn arrange(b: &mut Builder, term: &Term, labels: &[Label]) -> Step {
    let permutation: Vec<usize> = labels
        .iter()
        .filter_map(|label| term.labels.iter().position(|other| other == label))
        .collect();
    b.transpose(term.operand, permutation)
}

/// The product of two terms, summed over labels that are not kept.
fn contract(
    b: &mut Builder,
    left: Term,
    right: Term,
    kept: impl Fn(&Label) -> bool,
) -> Result<Term, NodeError> {
    let (left_labels, right_labels) = (left.labels.clone(), right.labels.clone());
    let left = sum_out(b, left, |label| kept(label) || right_labels.contains(label))?;
    let right = sum_out(b, right, |label| kept(label) || left_labels.contains(label))?;
    let shared = |label: &&Label| right.labels.contains(label);
    let batch: Vec<Label> =
        left.labels.iter().filter(shared).filter(|label| kept(label)).copied().collect();
    let inner: Vec<Label> =
        left.labels.iter().filter(shared).filter(|label| !kept(label)).copied().collect();
    let rows: Vec<Label> = left.labels.iter().filter(|label| !shared(label)).copied().collect();
    let columns: Vec<Label> =
        right.labels.iter().filter(|label| !left.labels.contains(label)).copied().collect();
    // Axes of the ellipsis may have extent 1 in one term and more in the other.
    let common = [&batch[..], &inner].concat();
    let extents = common_extents(b, &left, &right, &common)?;
    let left_order = [&batch[..], &rows, &inner].concat();
    let right_order = [&batch[..], &inner, &columns].concat();
    let left = widened(b, left, &left_order, &common, &extents)?;
    let right = widened(b, right, &right_order, &common, &extents)?;
    let (left_shape, right_shape) = (b.shape(left), b.shape(right));
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    let batch_shape = &left_shape[..batch.len()];
    let row_shape = &left_shape[batch.len()..batch.len() + rows.len()];
    let column_shape = &right_shape[batch.len() + inner.len()..];
    let labels = [&batch[..], &rows, &columns].concat();
    let result = [batch_shape, row_shape, column_shape].concat();
    if inner.is_empty() {
        // No sum: the axes of one side get extent 1 in the other.
        let ones = |count: usize| vec![1; count];
        let left = b.reshape(left, [batch_shape, row_shape, &ones(columns.len())].concat())?;
        let right = b.reshape(right, [batch_shape, &ones(rows.len()), column_shape].concat())?;
        return Ok(Term { operand: b.binary(B::Multiply, left, right)?, labels });
    }
    let depth = size(&left_shape[batch.len() + rows.len()..]);
    let left = b.reshape(left, vec![size(batch_shape), size(row_shape), depth])?;
    let right = b.reshape(right, vec![size(batch_shape), depth, size(column_shape)])?;
    let product = b.matmul(left, right)?;
    Ok(Term { operand: b.reshape(product, result)?, labels })
}

/// Extents of the labels both terms have, the larger where one is 1.
fn common_extents(
    b: &Builder,
    left: &Term,
    right: &Term,
    labels: &[Label],
) -> Result<Vec<usize>, NodeError> {
    let extent = |term: &Term, label: &Label| {
        let place = term.labels.iter().position(|other| other == label);
        place.map_or(1, |place| b.shape(term.operand)[place])
    };
    let merged = labels.iter().map(|label| match (extent(left, label), extent(right, label)) {
        (1, other) | (other, 1) => Ok(other),
        (one, other) if one == other => Ok(one),
        (one, other) => {
            Err(NodeError::invalid(format!("axes of one label have extents {one} and {other}")))
        }
    });
    merged.collect()
}

fn widened(
    b: &mut Builder,
    term: Term,
    order: &[Label],
    common: &[Label],
    extents: &[usize],
) -> Step {
    let arranged = arrange(b, &term, order)?;
    let mut shape = b.shape(arranged);
    for (place, label) in order.iter().enumerate() {
        if let Some(found) = common.iter().position(|other| other == label) {
            shape[place] = extents[found];
        }
    }
    b.expand(arranged, shape)
}
