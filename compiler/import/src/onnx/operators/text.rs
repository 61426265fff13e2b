//! Operators on words: numbers, or strings by their handles.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use crate::onnx::sized::{Behind, Part};
use hone_ops::{BinaryFunction as B, BitCast, Gather, NGrams, ReduceFunction, Tokens};
use hone_types::{DataType, Tensor};

/// Most places of an output.
const LARGEST: usize = 1 << 20;
/// Most comparisons of a row that are compiled: of more, the runtime looks words up.
const COMPARISONS: usize = 1 << 14;

/// The known sequences of words, by length.
struct Pool {
    /// For each length from 1 on, the sequences one after another.
    by_length: Vec<Vec<i64>>,
    /// Whether the words are strings, each by its handle.
    text: bool,
    /// The place in the output of each, in the order of the pool.
    places: Vec<usize>,
    /// Whether no place is named twice.
    has_places_apart: bool,
}

/// What is counted, and how.
struct Counting {
    pool: Pool,
    least: usize,
    most: usize,
    skips: usize,
    mode: String,
    weights: Option<Vec<f32>>,
}

impl Counting {
    fn read(b: &mut Builder, node: &mut Node) -> Result<Self, NodeError> {
        let (least, most) =
            (positive(node, "min_gram_length")?, positive(node, "max_gram_length")?);
        let skips = usize::try_from(node.int_or("max_skip_count", 0)?)
            .map_err(|_| NodeError::invalid("max_skip_count is negative"))?;
        let mode = node.string_or("mode", "TF")?;
        let weights = node.floats("weights")?;
        Ok(Self { pool: Pool::read(b, node)?, least, most, skips, mode, weights })
    }

    /// Extent of a row of the result.
    fn size(&self) -> usize {
        self.pool.places.iter().max().map_or(0, |last| last + 1)
    }

    /// What one of each sequence counts, in the order of the pool, and whether it counts once in a row.
    fn weighted(&self) -> Result<(Vec<f32>, bool), NodeError> {
        let sequences = self.pool.places.len();
        let weights = self.weights.clone().unwrap_or_else(|| vec![1.0; sequences]);
        if weights.len() != sequences {
            return Err(NodeError::invalid(format!("{} weights of {sequences}", weights.len())));
        }
        match self.mode.as_str() {
            "TF" => Ok((vec![1.0; sequences], false)),
            "TFIDF" => Ok((weights, false)),
            "IDF" => Ok((weights, true)),
            other => Err(NodeError::invalid(format!("mode '{other}' is unknown"))),
        }
    }
}

/// `TfIdfVectorizer`: how often each known sequence is in a row, its words next to one another or equally far apart.
/// Of a small pool each is compared with all windows of the row; the words of a large one are looked up by the runtime.
pub(super) fn count_sequences(b: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let counting = Counting::read(b, node)?;
    Ok(vec![counted(b, x, None, &counting)?])
}

/// The same of rows of which a run decides how many words they have.
pub(in crate::onnx) fn count_part(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Step {
    let x = node.input(0)?;
    let counting = Counting::read(b, node)?;
    match parts {
        [(0, part)] if part.axis + 1 == b.rank(x) => counted(b, x, Some(*part), &counting),
        _ => Err(NodeError::UndecidedSize { what: "its rows".into() }),
    }
}

fn counted(b: &mut Builder, x: Operand, part: Option<Part>, counting: &Counting) -> Step {
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
    if !b.dtype(x).is_integer() || b.is_text(x) != counting.pool.text {
        return Err(NodeError::invalid("the words are of another type than those of the pool"));
    }
    let tokens = b.tokens.get(&x).cloned();
    let tokens = tokens.filter(|(texts, _)| b.tensor_type(*texts).elements() == rows);
    let lead = &shape[..shape.len() - 1];
    let result = [lead, &[counting.size()]].concat();
    if let Some((texts, tokens)) = tokens {
        // Tokens that are only counted are not kept: a text may have any number of them.
        let texts = b.reshape(texts, vec![rows])?;
        let found = looked_up(b, texts, None, counting, Some(tokens))?;
        return b.reshape(found, result);
    }
    let comparisons = counting.pool.places.len().saturating_mul(words);
    let is_small = comparisons.saturating_mul(counting.skips.saturating_add(1)) <= COMPARISONS;
    let found = match part {
        None if is_small && counting.pool.has_places_apart => {
            compared(b, x, [rows, words], counting)?
        }
        part => {
            let count = part.map(|part| b.single(part.count)).transpose()?;
            let x = match part {
                Some(part) => b.filled(x, part, Behind::Zeros)?,
                None => x,
            };
            let x = match counting.pool.text {
                true => x,
                false => b.cast(x, DataType::I64)?,
            };
            let x = b.reshape(x, vec![rows, words])?;
            looked_up(b, x, count, counting, None)?
        }
    };
    b.reshape(found, result)
}

/// By the runtime, which walks a tree of the pool's words.
fn looked_up(
    b: &mut Builder,
    data: Operand,
    count: Option<Operand>,
    counting: &Counting,
    tokens: Option<Tokens>,
) -> Step {
    let (weights, once) = counting.weighted()?;
    let tree = Tree::of(&counting.pool, &weights)?;
    let fills = tokens.as_ref().map(|own| {
        let marks = [own.pad.as_str(), "\u{2}", "\u{3}"];
        let filling = if own.mark { &marks[..] } else { &marks[..1] };
        filling.iter().any(|own| {
            hone_types::intern_text(own).is_ok_and(|own| tree.words.contains(&own.cast_signed()))
        })
    });
    let words = match counting.pool.text {
        true => {
            let handles: Vec<u64> = tree.words.iter().map(|own| own.cast_unsigned()).collect();
            Tensor::from_elements([handles.len()], &handles)?
        }
        false => Tensor::from_elements([tree.words.len()], &tree.words)?,
    };
    let words = b.constant(words);
    let (children, places) = (b.integers(&tree.children)?, b.integers(&tree.places)?);
    let weights = b.constant(Tensor::from_elements([tree.weights.len()], &tree.weights)?);
    let (least, most, skips) = (counting.least, counting.most, counting.skips);
    let knows_padding = fills.unwrap_or(false);
    let size = counting.size();
    let ngrams = NGrams { least, most, skips, once, size, tokens, knows_padding };
    let inputs = [Some(data), Some(words), Some(children), Some(places), Some(weights), count];
    b.apply_optional(ngrams, if count.is_some() { &inputs } else { &inputs[..5] })
}

/// A pool's words as a tree, in lists of its nodes. A node's children follow one another, in the order of their words.
struct Tree {
    words: Vec<i64>,
    children: Vec<i64>,
    places: Vec<i64>,
    weights: Vec<f32>,
}

impl Tree {
    fn of(pool: &Pool, weights: &[f32]) -> Result<Self, NodeError> {
        // In the order of the type of words: handles have no sign.
        let key = |word: i64| if pool.text { word ^ i64::MIN } else { word };
        let mut known: Vec<(Vec<i64>, usize)> = Vec::with_capacity(pool.places.len());
        for (length, words) in (1..).zip(&pool.by_length) {
            for sequence in words.chunks_exact(length) {
                known.push((sequence.iter().map(|word| key(*word)).collect(), known.len()));
            }
        }
        known.sort();
        let mut tree =
            Self { words: vec![0], children: Vec::new(), places: vec![-1], weights: vec![0.0] };
        // For each node the range of the sequences that begin with its words, and how many these are.
        let mut ranges = vec![(0, known.len(), 0)];
        let mut node = 0;
        while let Some((mut first, end, length)) = ranges.get(node).copied() {
            tree.children.push(ranges.len() as i64);
            while let Some((sequence, number)) = known.get(first).filter(|_| first < end) {
                // Sequences that end here come first.
                let Some(word) = sequence.get(length) else {
                    if tree.places[node] >= 0 {
                        return Err(NodeError::invalid("a sequence of words is in the pool twice"));
                    }
                    tree.places[node] = pool.places[*number] as i64;
                    tree.weights[node] = weights[*number];
                    first += 1;
                    continue;
                };
                let own = known[first..end].partition_point(|(other, _)| other[length] == *word);
                tree.words.push(key(*word));
                tree.places.push(-1);
                tree.weights.push(0.0);
                ranges.push((first, first + own, length + 1));
                first += own;
            }
            node += 1;
        }
        tree.children.push(ranges.len() as i64);
        Ok(tree)
    }
}

/// By comparing: each sequence with all windows of a row.
fn compared(b: &mut Builder, x: Operand, [rows, words]: [usize; 2], counting: &Counting) -> Step {
    let pool = &counting.pool;
    let x = match pool.text {
        true => b.apply(BitCast { to: DataType::I64 }, &[x])?,
        false => b.cast(x, DataType::I64)?,
    };
    let x = b.reshape(x, vec![rows, words])?;
    let mut counts = Vec::new();
    for (length, known) in (1..).zip(&pool.by_length) {
        let wanted = (counting.least..=counting.most).contains(&length);
        counts.push(pool_counts(b, x, known, length, if wanted { counting.skips + 1 } else { 0 })?);
    }
    let zero = b.scalar(DataType::F32, 0.0)?;
    counts.push(b.expand(zero, vec![rows, 1])?);
    let counts = b.concat(&counts, 1)?;
    let weighted = weighted(b, counts, counting)?;
    // Places that no sequence has take the zero behind all counts.
    let mut from = vec![pool.places.len() as i64; counting.size()];
    for (sequence, place) in pool.places.iter().enumerate() {
        from[*place] = sequence as i64;
    }
    let from = b.integers(&from)?;
    b.apply(Gather { axis: 1 }, &[weighted, from])
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
        let has_places_apart = places.iter().all(|own| seen.insert(*own));
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
        Ok(Self { by_length, text, places, has_places_apart })
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
fn weighted(b: &mut Builder, counts: Operand, counting: &Counting) -> Step {
    let (mut weights, once) = counting.weighted()?;
    if counting.mode == "TF" {
        return Ok(counts);
    }
    weights.push(0.0);
    let weights = b.constant(Tensor::from_elements([1, weights.len()], &weights)?);
    if !once {
        return b.multiply(counts, weights);
    }
    let there = b.with_scalar(B::Greater, counts, 0.0)?;
    let zero = b.scalar(DataType::F32, 0.0)?;
    b.select(there, weights, zero)
}
