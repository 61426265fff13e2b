//! Operators on words: numbers, or strings by their handles.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, BitCast, Gather, ReduceFunction};
use hone_types::{DataType, Tensor};

/// Most places of an output.
const LARGEST: usize = 1 << 20;

/// The known sequences of words, by length.
struct Pool {
    /// For each length from 1 on, the sequences one after another.
    by_length: Vec<Vec<i64>>,
    /// Whether the words are strings, each by its handle.
    text: bool,
    /// The place in the output of each, in the order of the pool.
    places: Vec<usize>,
}

/// `TfIdfVectorizer`: how often each known sequence is in a row, its words next to one
/// another or equally far apart. Each is compared with all windows of the row.
pub(super) fn count_sequences(b: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let (least, most) = (positive(node, "min_gram_length")?, positive(node, "max_gram_length")?);
    let skips = usize::try_from(node.int_or("max_skip_count", 0)?)
        .map_err(|_| NodeError::invalid("max_skip_count is negative"))?;
    let mode = node.string_or("mode", "TF")?;
    let weights = node.floats("weights")?;
    let pool = Pool::read(b, node)?;
    let shape = b.shape(x);
    let (rows, words) = match shape[..] {
        [words] => (1, words),
        [rows, words] => (rows, words),
        _ => {
            return Err(NodeError::invalid(format!(
                "shape {shape:?} has neither one nor two axes"
            )));
        }
    };
    if !b.dtype(x).is_integer() || b.is_text(x) != pool.text {
        return Err(NodeError::invalid("the words are of another type than those of the pool"));
    }
    let x = match pool.text {
        true => b.apply(BitCast { to: DataType::I64 }, &[x])?,
        false => b.cast(x, DataType::I64)?,
    };
    let x = b.reshape(x, vec![rows, words])?;
    let mut counts = Vec::new();
    for (length, known) in (1..).zip(&pool.by_length) {
        let wanted = (least..=most).contains(&length);
        counts.push(pool_counts(b, x, known, length, if wanted { skips + 1 } else { 0 })?);
    }
    let zero = b.scalar(DataType::F32, 0.0)?;
    counts.push(b.expand(zero, vec![rows, 1])?);
    let counts = b.concat(&counts, 1)?;
    let weighted = weighted(b, counts, &mode, weights, pool.places.len())?;
    let size = pool.places.iter().max().map_or(0, |last| last + 1);
    // Places that no sequence has take the zero behind all counts.
    let mut from = vec![pool.places.len() as i64; size];
    for (sequence, place) in pool.places.iter().enumerate() {
        from[*place] = sequence as i64;
    }
    let from = b.integers(&from)?;
    let result = b.apply(Gather { axis: 1 }, &[weighted, from])?;
    let lead = &shape[..shape.len() - 1];
    Ok(vec![b.reshape(result, [lead, &[size]].concat())?])
}

fn positive(node: &mut Node, name: &str) -> Result<usize, NodeError> {
    let given = node.int(name)?;
    let number = given.and_then(|own| usize::try_from(own).ok()).filter(|own| *own > 0);
    number.ok_or_else(|| NodeError::invalid(format!("attribute '{name}' is no length")))
}

impl Pool {
    fn read(b: &mut Builder, node: &mut Node) -> Result<Self, NodeError> {
        let texts = node.strings("pool_strings")?.filter(|own| !own.is_empty());
        let mut words = node.ints("pool_int64s")?.unwrap_or_default();
        let text = texts.is_some();
        if let Some(texts) = texts {
            let list = b.texts(&texts)?;
            let handles = b.tensor(list).and_then(|own| own.elements::<u64>().ok());
            words = handles.unwrap_or_default().into_iter().map(u64::cast_signed).collect();
        }
        let starts = node.ints("ngram_counts")?.unwrap_or_default();
        let places = node.ints("ngram_indexes")?.unwrap_or_default();
        let places: Option<Vec<usize>> = places
            .iter()
            .map(|own| usize::try_from(*own).ok().filter(|own| *own < LARGEST))
            .collect();
        let places = places.ok_or_else(|| NodeError::invalid("ngram_indexes are no places"))?;
        let mut seen = std::collections::HashSet::new();
        if !places.iter().all(|own| seen.insert(*own)) {
            return Err(NodeError::invalid("ngram_indexes name a place twice"));
        }
        let mut by_length = Vec::new();
        let mut sequences = 0;
        for (place, start) in starts.iter().enumerate() {
            let end = starts.get(place + 1).copied().unwrap_or(words.len() as i64);
            let part = usize::try_from(*start).ok().zip(usize::try_from(end).ok());
            let part = part.and_then(|(start, end)| words.get(start..end));
            let part = part.filter(|own| own.len().is_multiple_of(place + 1));
            let part =
                part.ok_or_else(|| NodeError::invalid("ngram_counts do not fit the pool"))?;
            sequences += part.len() / (place + 1);
            by_length.push(part.to_vec());
        }
        if sequences != places.len() {
            return Err(NodeError::invalid(format!(
                "{} places are given for {sequences} sequences",
                places.len()
            )));
        }
        Ok(Self { by_length, text, places })
    }
}

/// How often each of some sequences of `length` words is in the rows of `x`, with words up to `apart` from one
/// another: `f32[rows, sequences]`.
fn pool_counts(b: &mut Builder, x: Operand, known: &[i64], length: usize, apart: usize) -> Step {
    let [rows, words] = [0, 1].map(|axis| b.shape(x)[axis]);
    let sequences = known.len() / length;
    let zero = b.scalar(DataType::F32, 0.0)?;
    let mut sum = b.expand(zero, vec![rows, sequences])?;
    // The distance makes no difference to a single word.
    let apart = if length == 1 { apart.min(1) } else { apart };
    for distance in 1..=apart {
        let span = distance.saturating_mul(length - 1);
        let Some(windows) = words.checked_sub(span).filter(|own| *own > 0 && sequences > 0) else {
            break;
        };
        let mut equal = b.constant(Tensor::scalar(true));
        for place in 0..length {
            let word: Vec<i64> = known.iter().skip(place).step_by(length).copied().collect();
            let word = b.constant(Tensor::from_elements([1, sequences, 1], &word)?);
            let own = b.narrow(x, 1, place * distance, windows)?;
            let own = b.reshape(own, vec![rows, 1, windows])?;
            let same = b.binary(B::Equal, own, word)?;
            equal = b.binary(B::And, equal, same)?;
        }
        let found = b.cast(equal, DataType::F32)?;
        let found = b.reduce(ReduceFunction::Sum, found, vec![2], false)?;
        sum = b.add(sum, found)?;
    }
    Ok(sum)
}

/// Counts, weights of what is there, or counts times weights; the last column is no sequence's.
fn weighted(
    b: &mut Builder,
    counts: Operand,
    mode: &str,
    weights: Option<Vec<f32>>,
    sequences: usize,
) -> Step {
    let mut weights = weights.unwrap_or_else(|| vec![1.0; sequences]);
    if weights.len() != sequences {
        return Err(NodeError::invalid(format!("{} weights of {sequences}", weights.len())));
    }
    weights.push(0.0);
    let weights = b.constant(Tensor::from_elements([1, sequences + 1], &weights)?);
    match mode {
        "TF" => Ok(counts),
        "TFIDF" => b.multiply(counts, weights),
        "IDF" => {
            let there = b.with_scalar(B::Greater, counts, 0.0)?;
            let zero = b.scalar(DataType::F32, 0.0)?;
            b.select(there, weights, zero)
        }
        other => Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
    }
}
