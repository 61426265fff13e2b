//! Functions of strings, which the runtime computes itself.

use std::slice;

use super::{Case, case, f32s, i64s};
use hone_ops::*;
use hone_types::{Tensor, intern_text};

pub fn cases() -> Vec<Case> {
    let words = texts(&["one two", "", "Three"]);
    vec![
        function(TextFunction::Concat, &[words.clone(), texts(&["a", "b", "né"])]),
        function(
            TextFunction::Split { delimiter: None, most: Some(1), room: 2 },
            slice::from_ref(&words),
        ),
        function(
            TextFunction::Split { delimiter: Some("e".into()), most: None, room: 4 },
            slice::from_ref(&words),
        ),
        function(
            TextFunction::Normalize {
                letters: Letters::Lower,
                case_sensitive: false,
                stopwords: vec!["THREE".into()],
            },
            slice::from_ref(&words),
        ),
        function(TextFunction::Match { pattern: "[a-z ]+".into() }, &[words]),
        function(TextFunction::FromNumber, &[f32s([2, 3])]),
        function(TextFunction::FromNumber, &[i64s([2], &[-7, 12])]),
        function(TextFunction::ToNumber { to: NumberType::I64 }, &[texts(&["-7", "12"])]),
        function(TextFunction::ToNumber { to: NumberType::F32 }, &[texts(&["1.5", "-2e3"])]),
    ]
}

fn function(function: TextFunction, inputs: &[Tensor]) -> Case {
    Case { is_folded: true, ..case(Text { function }, inputs) }
}

fn texts(words: &[&str]) -> Tensor {
    let handles: Vec<u64> = words.iter().map(|word| intern_text(word).unwrap()).collect();
    Tensor::from_elements([words.len()], &handles).unwrap()
}
