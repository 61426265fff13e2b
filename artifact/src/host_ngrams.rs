//! How often known sequences of words are in rows of words.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::DataType;
use crate::host::{HostType, HostValue, head};
use crate::host_tokens::Tokens;
use crate::text::{Texts, text_handle};

/// Counts known sequences in rows of words (`i64` numbers or `u64` handles), or of the tokens of texts.
///
/// Operands: words `[rows, words]`, or texts `[rows]` where `tokens` says how they are cut; the known sequences as a tree
/// in four lists: the word that leads to a node (node 0 is the root); the first child of each node and, at last, the number
/// of nodes (`i64`; children lie one behind the other, in the order of their words); the place in a row of the result
/// where the sequence counts that ends in a node (`i64`, -1 where none does); and what one of it counts (`f32`). Last and
/// optionally how many words of each row are there (`i64`). Result: `f32[rows, size]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NGrams {
    /// Least words of a sequence that counts.
    pub least: u64,
    /// Most words of one.
    pub most: u64,
    /// Most words that are left out between two of a sequence, equally many everywhere.
    pub skips: u64,
    /// Whether a sequence counts once in a row, however often it is there.
    pub once: bool,
    /// Extent of a row of the result.
    pub size: u64,
    /// How texts are cut into words, where the first operand is of texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Whether a known sequence holds a word that fills up rows of tokens or marks them.
    pub knows_padding: bool,
}

/// The known sequences. What a run needs of them is read where it lies: they may be many.
struct Tree<'a> {
    words: &'a HostValue<'a>,
    children: &'a HostValue<'a>,
    places: &'a HostValue<'a>,
    weights: &'a HostValue<'a>,
}

impl Tree<'_> {
    /// The node that a word leads to from another one.
    fn child(&self, node: usize, word: u64) -> Option<usize> {
        let bound = |node: usize| usize::try_from(integer(self.children, node)?).ok();
        let (mut first, mut end) = (bound(node)?, bound(node + 1)?);
        while first < end {
            let middle = first + (end - first) / 2;
            match ordered(self.words, middle)?.cmp(&word) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => first = middle + 1,
                Ordering::Greater => end = middle,
            }
        }
        None
    }

    /// Where the sequence counts that ends in a node.
    fn place(&self, node: usize) -> Option<usize> {
        usize::try_from(integer(self.places, node)?).ok()
    }

    fn weight(&self, node: usize) -> f32 {
        let begin = node.saturating_mul(4);
        let found = self.weights.bytes.get(begin..begin.saturating_add(4));
        found.map_or(0.0, |own| f32::from_ne_bytes(head(own)))
    }
}

fn integer(value: &HostValue<'_>, place: usize) -> Option<i64> {
    let begin = place.checked_mul(8)?;
    Some(i64::from_ne_bytes(head(value.bytes.get(begin..begin.checked_add(8)?)?)))
}

/// An element as a number without a sign that is ordered as those of its type are.
fn ordered(value: &HostValue<'_>, place: usize) -> Option<u64> {
    let own = integer(value, place)?.cast_unsigned();
    Some(if value.of.dtype == DataType::I64 { own ^ (1 << 63) } else { own })
}

impl NGrams {
    /// As [`crate::HostFunction::outputs`].
    pub(crate) fn outputs(&self, inputs: &[Option<&HostType>]) -> Result<Vec<HostType>, String> {
        let wrong = || "an operand has another type than the function takes".to_owned();
        let operand = |place: usize| inputs.get(place).copied().flatten().ok_or_else(wrong);
        let data = operand(0)?;
        let rows = match (&data.shape[..], &self.tokens) {
            ([rows], Some(tokens)) if data.dtype == DataType::U64 => {
                tokens.check()?;
                *rows
            }
            ([rows, _], None) if matches!(data.dtype, DataType::U64 | DataType::I64) => *rows,
            _ => return Err(wrong()),
        };
        let [nodes] = operand(1)?.shape[..] else { return Err(wrong()) };
        let lists = [
            HostType::new(data.dtype, [nodes]),
            HostType::new(DataType::I64, [nodes.saturating_add(1)]),
            HostType::new(DataType::I64, [nodes]),
            HostType::new(DataType::F32, [nodes]),
        ];
        for (place, list) in (1..).zip(&lists) {
            if operand(place)? != list {
                return Err(wrong());
            }
        }
        let count = HostType::new(DataType::I64, []);
        let others = inputs.get(5..).unwrap_or_default();
        if others.len() > 1 || others.iter().flatten().any(|own| **own != count) {
            return Err(wrong());
        }
        Ok(vec![HostType::new(DataType::F32, [rows, self.size])])
    }

    /// As [`crate::HostFunction::compute`], of operands that [`NGrams::outputs`] takes.
    pub(crate) fn compute(
        &self,
        inputs: &[Option<HostValue<'_>>],
        texts: &mut Texts,
    ) -> Result<Vec<Vec<u8>>, String> {
        let missing = || "an operand is missing".to_owned();
        let operand = |place: usize| inputs.get(place).and_then(Option::as_ref).ok_or_else(missing);
        let data = operand(0)?;
        let (words, children) = (operand(1)?, operand(2)?);
        let tree = Tree { words, children, places: operand(3)?, weights: operand(4)? };
        let count = inputs.get(5).and_then(Option::as_ref);
        let count = count.map(|own| i64::from_ne_bytes(head(own.bytes)));
        if data.of.shape.first() == Some(&0) {
            return Ok(vec![Vec::new()]);
        }
        let rows = self.rows(data, count, texts)?;
        let size = usize::try_from(self.size).unwrap_or(0);
        let mut result = Vec::with_capacity(rows.len() * size * 4);
        let mut row = vec![0f32; size];
        for words in rows {
            row.fill(0.0);
            self.count(&tree, &words, &mut row);
            result.extend(row.iter().flat_map(|own| own.to_ne_bytes()));
        }
        Ok(vec![result])
    }

    /// The words of each row; `None` of one that no known sequence holds.
    fn rows(
        &self,
        data: &HostValue<'_>,
        count: Option<i64>,
        texts: &Texts,
    ) -> Result<Vec<Vec<Option<u64>>>, String> {
        let Some(tokens) = &self.tokens else {
            let (rows, most) = (data.of.shape[0] as usize, data.of.shape[1] as usize);
            let count = count.map_or(most, |own| usize::try_from(own).unwrap_or(0).min(most));
            let row = |row: usize| (0..count).map(|at| ordered(data, row * most + at)).collect();
            return Ok((0..rows).map(row).collect());
        };
        // A token is a known word where the model stores the same text: equal handles alone might be those of two.
        let known = |token: &str| {
            let handle = text_handle(token);
            texts.get(handle).filter(|own| *own == token).map(|_| handle)
        };
        let mut rows = Vec::with_capacity(data.of.shape[0] as usize);
        for place in 0..data.of.shape[0] as usize {
            let text = texts.text(ordered(data, place).unwrap_or(0))?;
            let mut row = Vec::new();
            tokens.each(text, |token| {
                row.push(known(token));
                Ok(())
            })?;
            rows.push(row);
        }
        if self.knows_padding {
            tokens.squared(&mut rows, |token| Ok(known(token)))?;
        }
        Ok(rows)
    }

    /// Adds up what the sequences of a row count.
    fn count(&self, tree: &Tree<'_>, words: &[Option<u64>], row: &mut [f32]) {
        let (mut least, most) = (self.least.max(1), self.most);
        for distance in 1..=usize::try_from(self.skips).unwrap_or(usize::MAX).saturating_add(1) {
            if distance > 1 && words.len() <= distance {
                break;
            }
            for first in 0..words.len() {
                let mut node = 0;
                let spread = words[first..].iter().step_by(distance);
                for (length, word) in (1..=most).zip(spread) {
                    let child = word.and_then(|word| tree.child(node, word));
                    let Some(child) = child else { break };
                    node = child;
                    let place = tree.place(node).filter(|_| length >= least);
                    if let Some(own) = place.and_then(|place| row.get_mut(place)) {
                        let weight = tree.weight(node);
                        *own = if self.once { weight } else { *own + weight };
                    }
                }
            }
            // The distance makes no difference to a single word.
            least = least.max(2);
            if least > most {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host_tokens::TokenRule;

    fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|own| of(*own)).collect()
    }

    fn run(
        function: &NGrams,
        data: (HostType, Vec<u8>),
        words: &[u64],
    ) -> Result<Vec<f32>, String> {
        let nodes = words.len() as u64;
        let dtype = data.0.dtype;
        let last = [1, nodes as i64, nodes as i64, nodes as i64, nodes as i64];
        let children = match nodes {
            4 => vec![1, 3, 4, 4, 4],
            _ => last[..nodes as usize + 1].to_vec(),
        };
        let places = [-1i64, 2, 1, 0];
        let operands = [
            data,
            (HostType::new(dtype, [nodes]), bytes(words, u64::to_ne_bytes)),
            (HostType::new(DataType::I64, [nodes + 1]), bytes(&children, i64::to_ne_bytes)),
            (
                HostType::new(DataType::I64, [nodes]),
                bytes(&places[..nodes as usize], i64::to_ne_bytes),
            ),
            (
                HostType::new(DataType::F32, [nodes]),
                bytes(&vec![1.5f32; nodes as usize], f32::to_ne_bytes),
            ),
        ];
        let types: Vec<Option<&HostType>> = operands.iter().map(|own| Some(&own.0)).collect();
        function.outputs(&types)?;
        let values = operands.iter().map(|(of, bytes)| Some(HostValue { of, bytes }));
        let texts = ["a", "b", "#"].map(str::to_owned);
        let mut texts = Texts::new(texts.iter().map(String::as_str)).unwrap();
        texts.intern("ab b").unwrap();
        texts.intern("ba").unwrap();
        let result = function.compute(&values.collect::<Vec<_>>(), &mut texts)?;
        Ok(result[0].chunks_exact(4).map(|own| f32::from_ne_bytes(head(own))).collect())
    }

    fn function() -> NGrams {
        NGrams {
            least: 1,
            most: 2,
            skips: 0,
            once: false,
            size: 3,
            tokens: None,
            knows_padding: false,
        }
    }

    #[test]
    fn numbers_are_counted_in_rows() {
        let data = || {
            let words = bytes(&[3i64, 5, 3, 3, 7, 9, 3, 5], i64::to_ne_bytes);
            (HostType::new(DataType::I64, [2, 4]), words)
        };
        // [3], [7] and [3, 5].
        let words = [0, 3, 7, 5];
        assert_eq!(run(&function(), data(), &words).unwrap(), [1.5, 0.0, 4.5, 1.5, 1.5, 1.5]);
        let once = NGrams { once: true, ..function() };
        assert_eq!(run(&once, data(), &words).unwrap(), [1.5, 0.0, 1.5, 1.5, 1.5, 1.5]);
        let pairs = NGrams { least: 2, skips: 1, ..function() };
        let apart = bytes(&[3i64, 9, 5, 5], i64::to_ne_bytes);
        let apart = (HostType::new(DataType::I64, [1, 4]), apart);
        assert_eq!(run(&pairs, apart, &words).unwrap(), [1.5, 0.0, 0.0]);
    }

    #[test]
    fn characters_of_texts_are_counted_without_a_bound() {
        let tokens = Tokens { rule: TokenRule::Characters, mark: false, pad: "#".into(), least: 1 };
        let function = NGrams { tokens: Some(tokens), ..function() };
        let texts = || {
            let handles = ["ab b", "ba"].map(text_handle);
            (HostType::new(DataType::U64, [2]), bytes(&handles, u64::to_ne_bytes))
        };
        let (a, b) = (text_handle("a"), text_handle("b"));
        let (first, second) = (a.min(b), a.max(b));
        // Both words, and the larger handle behind the smaller one.
        let found = run(&function, texts(), &[0, first, second, second]).unwrap();
        let counts = |own: u64| if own == a { [1.5, 1.5] } else { [3.0, 1.5] };
        assert_eq!([found[2], found[5]], counts(first));
        assert_eq!([found[1], found[4]], counts(second));
        assert_eq!([found[0], found[3]], if first == a { [1.5, 0.0] } else { [0.0, 1.5] });
        let pads = NGrams { knows_padding: true, ..function };
        let found = run(&pads, texts(), &[0, text_handle("#")]).unwrap();
        assert_eq!(found, [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]);
    }

    #[test]
    fn a_tree_from_elsewhere_does_no_harm() {
        let data = (HostType::new(DataType::I64, [1, 2]), bytes(&[3i64, 3], i64::to_ne_bytes));
        let wild = NGrams { size: 1, most: u64::MAX, skips: u64::MAX, ..function() };
        assert_eq!(run(&wild, data.clone(), &[0, 3, 7, 5]).unwrap(), [0.0]);
        let short = (HostType::new(DataType::I64, [2]), data.1);
        assert!(run(&function(), short, &[0, 3, 7, 5]).is_err());
    }
}
