//! Maps as inputs: what is given of one is laid into the room that a model has for it, and seeded ones are made.

use std::collections::BTreeSet;
use std::ops::Range;

use hone_artifact::exit_code::Reason;
use hone_artifact::{DataType, Member, MemberForm, text_handle};
use hone_driver::ops::Map;
use hone_driver::{Graph, MOST_KEYS, Signature};

use crate::failure::{Failure, Result};
use crate::npz::Array;
use crate::random::Random;
use crate::texts::WORDS;

/// Most keys of a seeded map.
const SAMPLED: usize = 64;

/// Names of the maps among a model's inputs.
pub fn of_signature(signature: &Signature) -> Vec<String> {
    let maps = signature.inputs.iter().filter(|port| port.map.is_some());
    maps.map(|port| port.name.clone()).collect()
}

/// The same of a graph.
pub fn of_graph(graph: &Graph) -> Vec<String> {
    let is_map = |form| matches!(form, hone_driver::MemberForm::Map { .. });
    let maps = graph.interface().inputs.iter().filter(|member| is_map(member.form));
    maps.map(|member| member.name.clone()).collect()
}

/// The same of an artifact.
pub fn of_members(members: &[(Member, Range<usize>)]) -> Vec<String> {
    let maps = members.iter().filter(|(own, _)| matches!(own.form, MemberForm::Map { .. }));
    maps.map(|(member, _)| member.name.clone()).collect()
}

/// Arrays in which each of some maps `x` is `x.keys`, `x.values` and `x.count` as a model takes them, of arrays that have
/// as many keys and values as there are. Those that have a count already stay.
///
/// # Errors
/// `InvalidInput` naming the array that is missing or of another length.
pub fn laid_out(mut arrays: Vec<Array>, maps: &[String], file: &str) -> Result<Vec<Array>> {
    for name in maps {
        let refuse = |why: String| {
            Failure::because(Reason::InvalidInput, format!("'{file}' does not fit the model"), why)
        };
        let count_name = format!("{name}.count");
        if arrays.iter().any(|array| array.name == count_name) {
            continue;
        }
        let mut counts = [0; 2];
        for (count, part) in counts.iter_mut().zip(["keys", "values"]) {
            let own = format!("{name}.{part}");
            let array = arrays.iter_mut().find(|array| array.name == own).ok_or_else(|| {
                refuse(format!(
                    "it has no array '{own}': a map is given by the arrays '{name}.keys' and '{name}.values'"
                ))
            })?;
            let [given] = array.shape[..] else {
                return Err(refuse(format!(
                    "array '{own}' is {}: give the {part} of the map in one axis",
                    array.description()
                )));
            };
            if given > MOST_KEYS as u64 {
                return Err(refuse(format!(
                    "array '{own}' is {}: a map has at most {MOST_KEYS} keys",
                    array.description()
                )));
            }
            *count = given;
            array.shape = vec![MOST_KEYS as u64];
            let size = array.dtype.bytes_of(&[]).unwrap_or(1) as usize;
            array.bytes.resize(MOST_KEYS * size, 0);
        }
        let [keys, values] = counts;
        if keys != values {
            return Err(refuse(format!("map '{name}' has {keys} keys and {values} values")));
        }
        arrays.push(Array {
            name: count_name,
            dtype: DataType::I64,
            shape: Vec::new(),
            bytes: keys.to_le_bytes().to_vec(),
            texts: None,
        });
    }
    Ok(arrays)
}

/// Makes sound maps of the random inputs of an artifact: a few keys, each once.
pub fn fill(members: &[(Member, Range<usize>)], inputs: &mut [Vec<u8>]) {
    for (member, range) in members {
        if matches!(member.form, MemberForm::Map { .. }) {
            fill_one(member.text, &mut inputs[range.clone()]);
        }
    }
}

/// The same of a graph.
pub fn fill_graph(graph: &Graph, inputs: &mut [Vec<u8>]) {
    let mut rest = inputs;
    for member in &graph.interface().inputs {
        let (own, others) = rest.split_at_mut(member.form.tensors().min(rest.len()));
        rest = others;
        if matches!(member.form, hone_driver::MemberForm::Map { .. }) {
            fill_one(member.text, own);
        }
    }
}

fn fill_one(text: bool, tensors: &mut [Vec<u8>]) {
    let known: Vec<u64> = match text {
        true => WORDS.iter().map(|word| text_handle(word)).collect(),
        false => (0..WORDS.len() as u64).collect(),
    };
    if let [keys, _, count] = tensors {
        lay(&known, keys, count);
    }
}

/// The first elements of the keys, and how many of them there are.
fn lay(known: &[u64], keys: &mut [u8], count: &mut Vec<u8>) {
    let mut laid = 0u64;
    for (room, key) in keys.chunks_exact_mut(8).zip(known) {
        room.copy_from_slice(&key.to_le_bytes());
        laid += 1;
    }
    *count = laid.to_le_bytes().to_vec();
}

/// Makes sound maps of a sample's inputs: some of the keys that the graph looks up, and some that it does not.
pub fn sample(graph: &Graph, inputs: &mut [Vec<u8>], random: &mut Random) {
    let mut first = 0;
    for member in &graph.interface().inputs {
        let range = first..first + member.form.tensors();
        first = range.end;
        let hone_driver::MemberForm::Map { .. } = member.form else { continue };
        let mut known = looked_up(graph, range.start);
        known.extend(match member.text {
            true => WORDS.map(|word| hone_driver::intern_text(word).unwrap_or(0)),
            false => [1, 2, 5, 1000],
        });
        let mut known: Vec<u64> = known.into_iter().collect();
        let wanted = random.below(known.len().min(SAMPLED)) + 1;
        let chosen = (0..wanted).map(|_| known.swap_remove(random.below(known.len())));
        let chosen: Vec<u64> = chosen.collect();
        if let Some([keys, _, count]) = inputs.get_mut(range) {
            lay(&chosen, keys, count);
        }
    }
}

/// The keys that a graph looks up in the map whose keys are the input of a number.
fn looked_up(graph: &Graph, input: usize) -> BTreeSet<u64> {
    let Some(port) = graph.inputs().get(input) else { return BTreeSet::new() };
    let mut known = BTreeSet::new();
    for (_, node) in graph.nodes().iter() {
        let reads = node.inputs.first().copied().flatten() == Some(port.value);
        if node.operation.downcast::<Map>().is_none() || !reads {
            continue;
        }
        let keys = node.inputs.get(3).copied().flatten().and_then(|keys| graph.constant(keys));
        let bytes = keys.map(hone_driver::Tensor::bytes).unwrap_or_default();
        known.extend(bytes.as_chunks::<8>().0.iter().map(|key| u64::from_ne_bytes(*key)));
    }
    known
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn array(name: &str, dtype: DataType, shape: &[u64]) -> Array {
        let bytes = vec![1; dtype.bytes_of(shape).unwrap() as usize];
        Array { name: name.into(), dtype, shape: shape.to_vec(), bytes, texts: None }
    }

    #[test]
    fn a_map_is_laid_into_its_room() {
        let given =
            vec![array("m.values", DataType::F32, &[2]), array("m.keys", DataType::I64, &[2])];
        let maps = ["m".to_owned()];
        let laid = laid_out(given, &maps, "a.npz").unwrap();
        assert_eq!(laid[1].shape, [MOST_KEYS as u64]);
        assert_eq!(
            (laid[0].bytes.len(), laid[0].bytes[7..9].to_vec()),
            (MOST_KEYS * 4, vec![1, 0])
        );
        assert_eq!((laid[2].name.as_str(), laid[2].bytes[0]), ("m.count", 2));
        let again = laid_out(laid.clone(), &maps, "a.npz").unwrap();
        assert_eq!(again, laid);
    }

    #[test]
    fn a_map_that_does_not_fit_is_refused() {
        let refused =
            |given: Vec<Array>| laid_out(given, &["m".to_owned()], "a.npz").unwrap_err().chain();
        let keys = |shape: &[u64]| array("m.keys", DataType::I64, shape);
        assert!(refused(vec![keys(&[2])]).contains("no array 'm.values'"));
        let values = array("m.values", DataType::F32, &[3]);
        assert!(refused(vec![keys(&[2]), values.clone()]).contains("2 keys and 3 values"));
        assert!(refused(vec![keys(&[1, 3]), values.clone()]).contains("in one axis"));
        assert!(refused(vec![keys(&[MOST_KEYS as u64 + 1]), values]).contains("at most 65536"));
    }

    #[test]
    fn random_inputs_become_sound_maps() {
        let form = MemberForm::Map { text_values: false };
        let member = Member { name: "m".into(), form, text: true };
        let mut inputs = vec![vec![9; 48], vec![0; 24], vec![0xff; 8]];
        fill(&[(member, 0..3)], &mut inputs);
        assert_eq!(inputs[2], 4i64.to_le_bytes());
        assert_eq!(inputs[0][..8], text_handle(WORDS[0]).to_le_bytes());
    }
}
