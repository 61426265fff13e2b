//! Strings of sample inputs: words that are numbers, so that a model may read them as such, and have no parts.

use hone_artifact::{Member, Texts, text_handle};
use hone_driver::Graph;
use hone_driver::ops::{Text, TextFunction};
use std::ops::Range;

use crate::random::Random;

/// Words that every model with strings is tried with.
pub const WORDS: [&str; 4] = ["0", "7", "10", "42"];

/// Keeps the words, so that runs may read them.
pub fn teach(texts: &mut Texts) {
    // Of four short words none is refused but where the model stores another string of the same handle.
    WORDS.iter().for_each(|word| drop(texts.intern(word)));
}

/// Keeps the words in a loaded model.
pub fn teach_model(model: &mut hone_runtime::Model) {
    WORDS.iter().for_each(|word| drop(model.text_handle(word)));
}

/// Replaces the elements of inputs that are of strings by handles of words.
pub fn fill(members: &[(Member, Range<usize>)], inputs: &mut [Vec<u8>]) {
    for (_, range) in members.iter().filter(|(member, _)| member.text) {
        inputs[range.clone()].iter_mut().for_each(|input| fill_one(input));
    }
}

/// The same of those that `of_text` marks.
pub fn fill_marked(of_text: &[bool], inputs: &mut [Vec<u8>]) {
    let marked = inputs.iter_mut().zip(of_text).filter(|(_, own)| **own);
    marked.for_each(|(input, _)| fill_one(input));
}

fn fill_one(input: &mut [u8]) {
    let words = WORDS.iter().cycle();
    let bytes = input.chunks_exact_mut(8).zip(words);
    bytes.for_each(|(entry, word)| entry.copy_from_slice(&text_handle(word).to_le_bytes()));
}

/// For each input (or output) of a graph, whether it is of strings; of maps only their keys are.
pub fn flags(graph: &Graph, outputs: bool) -> Vec<bool> {
    let (members, ports) = match outputs {
        false => (&graph.interface().inputs, graph.inputs().len()),
        true => (&graph.interface().outputs, graph.outputs().len()),
    };
    let of = |entry: &hone_driver::Member| {
        let first = usize::from(entry.form == hone_driver::MemberForm::Maps);
        (0..entry.form.tensors())
            .map(move |place| entry.text && (first == 0 || place == 0))
            .collect::<Vec<_>>()
    };
    let mut flags: Vec<bool> = members.iter().flat_map(of).collect();
    flags.resize(ports, false);
    flags
}

/// Strings for an input of so many bytes: the words, and what the model compares with unless it reads numbers.
pub fn sample(graph: &Graph, bytes: usize, random: &mut Random) -> Vec<u8> {
    let reads_numbers = graph.nodes().iter().any(|(_, node)| {
        let text = node.operation.downcast::<Text>();
        text.is_some_and(|entry| matches!(entry.function, TextFunction::ToNumber { .. }))
    });
    let stored = graph.interface().texts.iter().filter(|_| !reads_numbers).map(String::as_str);
    let known: Vec<&str> = WORDS.into_iter().chain(stored).collect();
    for word in &known {
        // What is refused here is refused by the reference, with its node.
        let _ = hone_driver::intern_text(word);
    }
    let word = |_| text_handle(known[random.below(known.len())]).to_le_bytes();
    (0..bytes / 8).flat_map(word).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sample_is_of_strings_that_the_reference_knows() {
        let mut graph = Graph::new();
        let of = hone_driver::TensorType::new(hone_driver::DataType::U64, [6]);
        let x = graph.add_input("x", of.clone());
        graph.add_output("y", x);
        assert_eq!(flags(&graph, false), [false]);
        let bytes = sample(&graph, of.bytes(), &mut Random::new(1));
        let handles =
            bytes.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().unwrap()));
        assert!(handles.clone().all(|entry| WORDS.iter().any(|word| text_handle(word) == entry)));
        assert!(handles.into_iter().all(|entry| hone_driver::text_of(entry).is_some()));
    }
}
