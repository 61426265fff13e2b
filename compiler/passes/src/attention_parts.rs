//! Keys that a constant mask hides from queries, and attention in parts that leave them out.
//!
//! A kernel computes with one number of keys for all queries. So queries that a mask shows different keys, as a causal
//! one does, are divided into a few parts of neighbours, each with the range of keys that any of its
//! queries sees.

use crate::attention_operands::Operand;
use crate::{PassError, Rewriter};
use hone_graph::ValueId;
use hone_ops::{Attention, AttentionPart, Concat, Graph, Operator, Reshape, ScoreStep, Transpose};
use hone_types::Tensor;

/// Scores down to which a key counts. What is added to or put in place of hidden ones is negative infinity, the
/// least float, or -1e9: the softmax makes zero of it in 32 bits where a visible score is above -9.9e8.
const HIDDEN: f64 = -1e9;

/// Largest magnitude of what constants change scores to or by, up to which scores that are not hidden are told from
/// those that are.
const TELLABLE: f64 = -HIDDEN / 10.0;

/// Most parts: each is a kernel.
const MOST_PARTS: usize = 8;

/// Pairs of a query and a key that a further kernel counts as.
const PART_PAIRS: usize = 1 << 14;

/// Most elements of a mask that is looked at.
const MOST_ELEMENTS: usize = 1 << 26;

/// A range of keys, for each query.
type Ranges = Vec<(usize, usize)>;

/// Adds an attention of `inputs`, in parts where `operands` hide keys. `lanes` are those of a vector.
pub(crate) fn add_in_parts(
    rewriter: &mut Rewriter,
    (graph, name): (&Graph, &str),
    operation: &Attention,
    (operands, inputs): (&[Operand], &[ValueId]),
    lanes: usize,
) -> Result<ValueId, PassError> {
    let axis = operation.output.len() - 2;
    let extent = |operand: usize, positions: &[usize]| {
        rewriter.target().tensor_type(inputs[operand]).shape[positions[axis]]
    };
    let (queries, keys) = (extent(0, &operation.query), extent(1, &operation.key));
    let ranges = visible(graph, &operation.steps, &operands[3..], (queries, keys));
    let mut results = Vec::new();
    for part in parts(&ranges, keys, lanes) {
        let operation = Attention { part, ..operation.clone() };
        results.push(rewriter.add_simple(name, operation, inputs)?);
    }
    match results[..] {
        [result] => Ok(result),
        _ => rewriter.add_simple(name, Concat { axis: operation.output[axis] }, &results),
    }
}

/// The keys that each query sees. These are all keys where several steps may hide some, what one hides is not known, or
/// scores that none hides are about as large: a query of which they together hide every key sees all of them, since
/// what hides is finite.
fn visible(
    graph: &Graph,
    steps: &[ScoreStep],
    operands: &[Operand],
    (queries, keys): (usize, usize),
) -> Ranges {
    let all = vec![(0, keys); queries];
    let mut operands = operands.iter();
    let mut found = None;
    // How far constants may have moved a score that none hides.
    let mut moved = 0.0f64;
    for (index, step) in steps.iter().enumerate() {
        moved = moved_by(step, moved);
        let Some(operand) = step.has_operand().then(|| operands.next()).flatten() else { continue };
        let Some(is_hidden) = hidden_values(step) else { continue };
        let Some(mask) = mask(graph, operand, keys) else { return all };
        let values = mask.to_f64();
        if *step == ScoreStep::Add {
            let shown = values.iter().filter(|value| !is_hidden(**value));
            // What is not a number is larger than every bound.
            let size = |value: &f64| if value.is_nan() { f64::INFINITY } else { value.abs() };
            moved += shown.map(size).fold(0.0, f64::max);
        }
        if !values.iter().any(|value| is_hidden(*value)) {
            continue;
        }
        if found.is_some() || !steps[index + 1..].iter().all(leaves_hidden) {
            return all;
        }
        let count = mask.shape().last().copied().unwrap_or(1);
        found = Some(seen(&values, (keys, count), is_hidden));
    }
    match found {
        _ if moved > TELLABLE || moved.is_nan() => all,
        Some(seen) if seen.len() == queries => seen,
        Some(seen) if seen.len() == 1 => vec![seen[0]; queries],
        _ => all,
    }
}

/// Which values of a step's operand hide a key; `None` for a step that hides nothing.
fn hidden_values(step: &ScoreStep) -> Option<fn(f64) -> bool> {
    match step {
        ScoreStep::Add => Some(|value| value <= HIDDEN),
        ScoreStep::KeepWhere { otherwise } if *otherwise <= HIDDEN => Some(|value| value == 0.0),
        ScoreStep::ReplaceWhere { instead } if *instead <= HIDDEN => Some(|value| value != 0.0),
        _ => None,
    }
}

/// How far constants may have moved a score after a step, beside what the step adds to it.
fn moved_by(step: &ScoreStep, before: f64) -> f64 {
    match step {
        ScoreStep::Add => before,
        ScoreStep::Multiply(by) => before * by.abs(),
        ScoreStep::Tanh => before.min(1.0),
        ScoreStep::KeepWhere { otherwise: value } | ScoreStep::ReplaceWhere { instead: value } => {
            if *value <= HIDDEN {
                before
            } else {
                before.max(value.abs())
            }
        }
    }
}

/// Whether a score that is hidden is so after a step.
fn leaves_hidden(step: &ScoreStep) -> bool {
    match step {
        ScoreStep::Add => true,
        ScoreStep::KeepWhere { otherwise: value } | ScoreStep::ReplaceWhere { instead: value } => {
            *value <= HIDDEN
        }
        ScoreStep::Multiply(_) | ScoreStep::Tanh => false,
    }
}

/// The elements of a constant operand `[batch.., keys, queries or 1]`.
fn mask(graph: &Graph, operand: &Operand, keys: usize) -> Option<Tensor> {
    let constant = graph.constant(operand.value)?;
    if constant.tensor_type().elements() > MOST_ELEMENTS {
        return None;
    }
    let shaped =
        Reshape { shape: operand.shape.clone() }.reference(&[Some(constant)]).ok()?.pop()?;
    let permutation = operand.permutation.clone()?;
    let mask = Transpose { permutation }.reference(&[Some(&shaped)]).ok()?.pop()?;
    let [.., rows, _] = mask.shape() else { return None };
    (*rows == keys).then_some(mask)
}

/// For each query the range of keys that are not hidden in some element of the batch: all keys, where an element hides
/// every key from the query, since its softmax then looks at all of them.
fn seen(mask: &[f64], (keys, queries): (usize, usize), is_hidden: fn(f64) -> bool) -> Ranges {
    let mut ranges = vec![(keys, 0); queries];
    for element in mask.chunks_exact((keys * queries).max(1)) {
        let mut visible = vec![(keys, 0); queries];
        for (key, values) in element.chunks_exact(queries).enumerate() {
            for (range, value) in visible.iter_mut().zip(values) {
                if !is_hidden(*value) {
                    *range = (range.0.min(key), key + 1);
                }
            }
        }
        for (range, visible) in ranges.iter_mut().zip(visible) {
            let (first, end) = if visible.0 < visible.1 { visible } else { (0, keys) };
            *range = (range.0.min(first), range.1.max(end));
        }
    }
    ranges
}

/// The division into parts that computes the fewest pairs; `None` is a part of all queries and all keys.
fn parts(ranges: &Ranges, keys: usize, lanes: usize) -> Vec<Option<AttentionPart>> {
    let queries = ranges.len();
    let whole = queries * keys;
    let mut best = (whole - whole / 10, vec![None]);
    let counts = (0..).map(|power| 1 << power).take_while(|count| *count <= MOST_PARTS);
    // Tiles of a kernel have up to four vectors of queries, and vectors are not cut.
    for count in counts.filter(|count| *count == 1 || queries.is_multiple_of(lanes)) {
        let size = queries.div_ceil(count).next_multiple_of(4 * lanes);
        let parts: Vec<AttentionPart> = ranges
            .chunks(size.max(1))
            .enumerate()
            .map(|(number, ranges)| {
                let first = ranges.iter().map(|range| range.0).min().unwrap_or(0);
                let end = ranges.iter().map(|range| range.1).max().unwrap_or(keys);
                let key = first / lanes * lanes;
                let end = end.next_multiple_of(lanes).min(keys);
                AttentionPart { query: number * size, queries: ranges.len(), key, keys: end - key }
            })
            .collect();
        let pairs: usize = parts.iter().map(|part| part.queries * part.keys).sum();
        let cost = pairs + (parts.len() - 1) * PART_PAIRS;
        if cost < best.0 {
            best = (cost, parts.into_iter().map(Some).collect());
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a causal mask shows of so many keys, where the last query sees all.
    fn causal(queries: usize, keys: usize) -> Ranges {
        (0..queries).map(|query| (0, keys - queries + query + 1)).collect()
    }

    #[test]
    fn a_causal_mask_makes_parts_of_growing_ranges() {
        let found = parts(&causal(1024, 1024), 1024, 16);
        let of =
            |query: usize, keys: usize| Some(AttentionPart { query, queries: 256, key: 0, keys });
        assert_eq!(found, [of(0, 256), of(256, 512), of(512, 768), of(768, 1024)]);
    }

    #[test]
    fn parts_are_made_where_they_save_time() {
        assert_eq!(parts(&causal(64, 64), 64, 16), [None]);
        assert_eq!(parts(&causal(512, 8192), 8192, 16), [None]);
        // Queries that fill no vector are not divided.
        assert_eq!(parts(&causal(1023, 1023), 1023, 16), [None]);
        assert_eq!(parts(&vec![(0, 300); 1000], 300, 8), [None]);
        let window = AttentionPart { query: 0, queries: 9, key: 16, keys: 24 };
        assert_eq!(parts(&vec![(17, 33); 9], 80, 8), [Some(window)]);
    }

    #[test]
    fn every_key_that_a_query_sees_is_in_its_part() {
        for (queries, keys, lanes) in [(2048, 2048, 16), (1056, 1500, 8), (544, 544, 4)] {
            let ranges = causal(queries, keys);
            let mut next = 0;
            for part in parts(&ranges, keys, lanes).into_iter().flatten() {
                assert_eq!(part.query, next);
                assert!(part.queries.is_multiple_of(lanes));
                next += part.queries;
                for range in &ranges[part.query..next] {
                    assert!(part.key <= range.0 && range.1 <= part.key + part.keys);
                }
                assert!(part.key + part.keys <= keys);
            }
            assert!(next == queries || next == 0);
        }
    }

    fn hidden(value: f64) -> bool {
        value <= HIDDEN
    }

    #[test]
    fn a_key_is_seen_where_one_of_the_batch_sees_it() {
        let mask = [-1e9, 0.0, 0.0, -2e9, -3e9, -1e10, -1e9, 0.0, 0.0, -1e9, -1e9, -5e9];
        // Two elements of a batch, with three keys for two queries.
        assert_eq!(seen(&mask, (3, 2), hidden), [(1, 2), (0, 1)]);
    }

    #[test]
    fn a_query_that_sees_no_key_in_one_of_the_batch_sees_all() {
        let mask = [-1e9, 0.0, 0.0, -2e9, -3e9, -1e10, -1e9, 0.0, -1e9, -1e9, -1e9, -5e9];
        assert_eq!(seen(&mask, (3, 2), hidden), [(0, 3), (0, 1)]);
    }
}
