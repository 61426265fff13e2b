//! Strings of sample inputs: words that are numbers, so that a model may read them as such, and have no parts.

use hone_artifact::{Member, Texts, text_handle};
use hone_driver::Graph;
use hone_driver::ops::{NGrams, Text, TextFunction};
use std::ops::Range;

use crate::maps;
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

/// Hands the strings of a sample to `keep`: those whose handles stand in inputs that `of_text` marks, as far as the
/// reference knows them.
pub fn each_given(of_text: &[bool], inputs: &[Vec<u8>], mut keep: impl FnMut(&str)) {
    for (input, _) in inputs.iter().zip(of_text).filter(|(_, text)| **text) {
        let handles = input.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        handles.filter_map(hone_driver::text_of).for_each(|text| keep(&text));
    }
}

/// Replaces the elements of inputs that are of strings by handles of words, and makes sound maps of those that are maps.
pub fn fill(members: &[(Member, Range<usize>)], inputs: &mut [Vec<u8>]) {
    for (member, range) in members {
        for (place, input) in inputs[range.clone()].iter_mut().enumerate() {
            if member.has_text(place) {
                fill_one(input);
            }
        }
    }
    maps::fill(members, inputs);
}

/// The same of a graph's inputs.
pub fn fill_graph(graph: &Graph, inputs: &mut [Vec<u8>]) {
    let marked = inputs.iter_mut().zip(flags(graph, false)).filter(|(_, own)| *own);
    marked.for_each(|(input, _)| fill_one(input));
    maps::fill_graph(graph, inputs);
}

fn fill_one(input: &mut [u8]) {
    let words = WORDS.iter().cycle();
    let bytes = input.chunks_exact_mut(8).zip(words);
    bytes.for_each(|(entry, word)| entry.copy_from_slice(&text_handle(word).to_le_bytes()));
}

/// For each input (or output) of a graph, whether it is of strings.
pub fn flags(graph: &Graph, outputs: bool) -> Vec<bool> {
    let (members, ports) = match outputs {
        false => (&graph.interface().inputs, graph.inputs().len()),
        true => (&graph.interface().outputs, graph.outputs().len()),
    };
    let of = |entry: &hone_driver::Member| {
        (0..entry.form.tensors()).map(|place| entry.has_text(place)).collect::<Vec<_>>()
    };
    let mut flags: Vec<bool> = members.iter().flat_map(of).collect();
    flags.resize(ports, false);
    flags
}

/// Most words of a string where a model cuts strings into words.
const SENTENCE: usize = 12;

/// Strings for an input of so many bytes: the words, and what the model compares with unless it reads numbers; several of
/// them in one string where the model cuts strings.
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
    let cuts = graph.nodes().iter().any(|(_, node)| {
        let text = node.operation.downcast::<Text>();
        let ngrams = node.operation.downcast::<NGrams>();
        text.is_some_and(|own| matches!(own.function, TextFunction::Tokenize { .. }))
            || ngrams.is_some_and(|own| own.tokens.is_some())
    });
    let string = |_| {
        let words = if cuts { random.below(SENTENCE + 1) } else { 1 };
        let words: Vec<&str> = (0..words).map(|_| known[random.below(known.len())]).collect();
        let string = words.join(" ");
        let _ = hone_driver::intern_text(&string);
        text_handle(&string).to_le_bytes()
    };
    (0..bytes / 8).flat_map(string).collect()
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
