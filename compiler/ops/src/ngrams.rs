//! How often known sequences of words are in rows of words.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::text::{interned, texts};
use crate::text_tokens::Tokens;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// ONNX `TfIdfVectorizer`, of words by their numbers (`i64`) or handles (`u64`) in rows, or of the tokens of texts.
///
/// Inputs: words `[rows, words]`, or texts `[rows]` (`u64`) where `tokens` says how they are cut; then the known sequences
/// as a tree, in four lists. Node 0 is its root; `words[n]` is the word that leads to node `n`, and its children are the
/// nodes from `children[n]` to before `children[n + 1]`, in the order of their words. `places[n]` is where in a row of
/// the result the sequence that ends in node `n` counts, -1 where none does, `weights[n]` what one of it counts. Last and
/// optionally how many words of each row are there (`i64`). Result: `f32[rows, size]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NGrams {
    /// Least words of a sequence that counts.
    pub least: usize,
    /// Most words of one.
    pub most: usize,
    /// Most words that are left out between two of a sequence, equally many everywhere.
    pub skips: usize,
    /// Whether a sequence counts once in a row, however often it is there.
    pub once: bool,
    /// Extent of a row of the result.
    pub size: usize,
    /// How texts are cut into words, where the first input is of texts.
    pub tokens: Option<Tokens>,
    /// Whether a known sequence holds a word that fills up rows of tokens or marks them, so that a row of the result
    /// depends on how many tokens other texts have.
    pub knows_padding: bool,
}

impl NGrams {
    /// Name in text forms.
    pub const NAME: &'static str = "ngrams";

    /// Whether a row of the result depends on the same row of the first input alone.
    pub fn has_rows_apart(&self) -> bool {
        self.tokens.is_none() || !self.knows_padding
    }

    /// The known sequences with their places and weights.
    fn known(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<(Vec<u64>, usize, f32)>, OpError> {
        let list = |place: usize| required(Self::NAME, inputs, place);
        let (words, weights) = (bits(list(1)?), list(4)?.elements::<f32>()?);
        let (children, places) = (list(2)?.to_i64(), list(3)?.to_i64());
        let mut paths: Vec<Vec<u64>> = vec![Vec::new(); words.len()];
        let mut known = Vec::new();
        for node in 0..words.len() {
            for child in children[node].max(0) as usize
                ..(children[node + 1].max(0) as usize).min(words.len())
            {
                paths[child] = [&paths[node][..], &[words[child]]].concat();
            }
            if let Ok(place) = usize::try_from(places[node]) {
                known.push((paths[node].clone(), place, weights[node]));
            }
        }
        Ok(known)
    }

    /// The words of each row.
    fn words(&self, data: &Tensor, count: Option<&Tensor>) -> Result<Vec<Vec<u64>>, OpError> {
        if let Some(tokens) = &self.tokens {
            let rows = tokens.rows(&texts(data)?).map_err(OpError::Value)?;
            let handles = |row: &Vec<String>| row.iter().map(|word| interned(word)).collect();
            return rows.iter().map(handles).collect();
        }
        let most = data.shape()[1];
        let count = count.and_then(|count| count.to_i64().first().copied());
        let count = count.map_or(most, |count| usize::try_from(count).unwrap_or(0).min(most));
        let words = bits(data);
        Ok(words.chunks(most.max(1)).map(|row| row[..count].to_vec()).collect())
    }
}

/// Words as numbers without signs.
fn bits(data: &Tensor) -> Vec<u64> {
    match data.elements::<u64>() {
        Ok(words) => words,
        Err(_) => data.to_i64().into_iter().map(i64::cast_unsigned).collect(),
    }
}

impl Operator for NGrams {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let data = required(Self::NAME, inputs, 0)?;
        let refuse =
            |what: &TensorType| Err(InferError::new(format!("{what} is not what it takes")));
        let rows = match (data.shape.as_slice(), &self.tokens) {
            ([rows], Some(_)) if data.dtype == DataType::U64 => *rows,
            ([rows, _], None) if [DataType::U64, DataType::I64].contains(&data.dtype) => *rows,
            _ => return refuse(data),
        };
        let words = required(Self::NAME, inputs, 1)?;
        let nodes = words.elements();
        let lists = [data.dtype, DataType::I64, DataType::I64, DataType::F32];
        for (place, dtype) in (1..).zip(lists) {
            let list = required(Self::NAME, inputs, place)?;
            let length = if place == 2 { nodes + 1 } else { nodes };
            if *list != TensorType::new(dtype, [length]) || nodes == 0 {
                return refuse(list);
            }
        }
        let count = inputs.get(5).copied().flatten();
        if let Some(count) = count.filter(|own| **own != TensorType::new(DataType::I64, [])) {
            return refuse(count);
        }
        Ok(vec![bounded(DataType::F32, vec![rows, self.size])?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<_> = inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = self.infer(&types)?.remove(0);
        let mut known: HashMap<Vec<u64>, Vec<(usize, f32)>> = HashMap::new();
        for (sequence, place, weight) in self.known(inputs)? {
            known.entry(sequence).or_default().push((place, weight));
        }
        let rows =
            self.words(required(Self::NAME, inputs, 0)?, inputs.get(5).copied().flatten())?;
        let mut result = vec![0f32; output.elements()];
        for (row, words) in rows.iter().enumerate() {
            for length in self.least..=self.most.min(words.len()) {
                // The distance makes no difference to a single word.
                let distances = if length == 1 { 1 } else { self.skips + 1 };
                for distance in 1..=distances.min(words.len()) {
                    for first in 0..words.len().saturating_sub(distance * (length - 1)) {
                        let sequence: Vec<u64> =
                            (0..length).map(|place| words[first + place * distance]).collect();
                        for (place, weight) in known.get(&sequence).into_iter().flatten() {
                            let own = result
                                .get_mut(row * self.size + place)
                                .filter(|_| *place < self.size);
                            let own = own.ok_or_else(|| {
                                OpError::Value("a place is outside of the row".into())
                            })?;
                            *own = if self.once { *weight } else { *own + weight };
                        }
                    }
                }
            }
        }
        Ok(vec![Tensor::from_elements(output.shape, &result)?])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::text_tokens::TokenRule;

    /// The sequences [3], [3, 5] and [7] at the places 2, 0 and 1.
    fn known() -> Vec<Tensor> {
        vec![
            Tensor::from_elements([4], &[0i64, 3, 7, 5]).unwrap(),
            Tensor::from_elements([5], &[1i64, 3, 4, 4, 4]).unwrap(),
            Tensor::from_elements([4], &[-1i64, 2, 1, 0]).unwrap(),
            Tensor::from_elements([4], &[0f32, 1.0, 2.0, 0.5]).unwrap(),
        ]
    }

    fn run(operator: &NGrams, data: &Tensor, count: Option<i64>) -> Vec<f32> {
        let (known, count) = (known(), count.map(Tensor::scalar));
        let inputs = [Some(data)].into_iter().chain(known.iter().map(Some)).chain([count.as_ref()]);
        let inputs: Vec<Option<&Tensor>> = inputs.collect();
        operator.reference(&inputs).unwrap()[0].elements().unwrap()
    }

    #[test]
    fn sequences_are_counted_in_rows() {
        let mut operator = NGrams {
            least: 1,
            most: 2,
            skips: 0,
            once: false,
            size: 3,
            tokens: None,
            knows_padding: false,
        };
        let data = Tensor::from_elements([2, 4], &[3i64, 5, 3, 3, 7, 9, 3, 5]).unwrap();
        assert_eq!(run(&operator, &data, None), [0.5, 0.0, 3.0, 0.5, 2.0, 1.0]);
        assert_eq!(run(&operator, &data, Some(1)), [0.0, 0.0, 1.0, 0.0, 2.0, 0.0]);
        operator.once = true;
        assert_eq!(run(&operator, &data, None), [0.5, 0.0, 1.0, 0.5, 2.0, 1.0]);
        operator = NGrams { least: 2, skips: 2, once: false, ..operator };
        let apart = Tensor::from_elements([1, 4], &[3i64, 9, 5, 5]).unwrap();
        assert_eq!(run(&operator, &apart, None), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn tokens_are_those_of_texts_alone() {
        let rule = TokenRule::Pattern("[a-z]+".into());
        let tokens = Tokens { rule, mark: false, pad: "#".into(), least: 1 };
        let operator = NGrams {
            least: 1,
            most: 1,
            skips: 0,
            once: false,
            size: 1,
            tokens: Some(tokens),
            knows_padding: false,
        };
        let texts = ["go, go", "no"].map(|text| interned(text).unwrap());
        let data = Tensor::from_elements([2], &texts).unwrap();
        let words = Tensor::from_elements([2], &[0, interned("go").unwrap()]).unwrap();
        let children = Tensor::from_elements([3], &[1i64, 2, 2]).unwrap();
        let places = Tensor::from_elements([2], &[-1i64, 0]).unwrap();
        let weights = Tensor::from_elements([2], &[0f32, 1.0]).unwrap();
        let inputs = [&data, &words, &children, &places, &weights].map(Some);
        let counts = operator.reference(&inputs).unwrap();
        assert_eq!(counts[0].elements::<f32>().unwrap(), [2.0, 0.0]);
        assert!(operator.infer(&[None]).is_err());
    }
}
