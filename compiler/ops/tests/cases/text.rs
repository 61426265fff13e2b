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
                rule: CaseRule::Unicode,
                case_sensitive: false,
                stopwords: vec!["THREE".into()],
            },
            slice::from_ref(&words),
        ),
        function(
            TextFunction::Case { letters: Letters::Upper, rule: CaseRule::Turkic },
            slice::from_ref(&words),
        ),
        function(
            TextFunction::Tokenize { tokens: tokens(TokenRule::Pattern("[a-z]+".into())), room: 4 },
            slice::from_ref(&words),
        ),
        counted(None, &[i64s([2, 3], &[5, 7, 5, 7, 7, 9])], &[0, 5, 7]),
        counted(
            Some(TokenRule::Characters),
            slice::from_ref(&words),
            &[0, intern("e"), intern("n")],
        ),
        folded(
            Map { function: MapFunction::Lookup, refuses_negative: false },
            &[
                i64s([3], &[7, 2, 0]),
                f32s([3]),
                Tensor::scalar(2i64),
                i64s([2], &[2, 9]),
                i64s([2], &[1, 0]),
                Tensor::scalar(-1f32),
            ],
        ),
        folded(
            Map { function: MapFunction::Ordered, refuses_negative: true },
            &[i64s([3], &[7, 2, 0]), f32s([3]), Tensor::scalar(2i64)],
        ),
        function(TextFunction::Match { pattern: "[a-z ]+".into() }, &[words]),
        function(TextFunction::FromNumber, &[f32s([2, 3])]),
        function(TextFunction::FromNumber, &[i64s([2], &[-7, 12])]),
        function(TextFunction::ToNumber { to: NumberType::I64 }, &[texts(&["-7", "12"])]),
        function(TextFunction::ToNumber { to: NumberType::F32 }, &[texts(&["1.5", "-2e3"])]),
    ]
}

fn intern(word: &str) -> u64 {
    intern_text(word).unwrap()
}

fn tokens(rule: TokenRule) -> Tokens {
    Tokens { rule, mark: true, pad: "#".into(), least: 1 }
}

/// How often two words are in rows, and one behind the other.
fn counted(rule: Option<TokenRule>, data: &[Tensor], words: &[u64]) -> Case {
    let [root, a, b] = words else { panic!("three words") };
    let (a, b) = (*a.min(b), *a.max(b));
    let words = [*root, a, b, b];
    let words = match rule {
        Some(_) => Tensor::from_elements([4], &words).unwrap(),
        None => i64s([4], &words.map(u64::cast_signed)),
    };
    let known = [
        words,
        i64s([5], &[1, 3, 4, 4, 4]),
        i64s([4], &[-1, 0, 1, 3]),
        Tensor::from_elements([4], &[0.0f32, 1.0, 1.0, 2.0]).unwrap(),
    ];
    let operator = NGrams {
        least: 1,
        most: 2,
        skips: 1,
        once: false,
        size: 4,
        tokens: rule.map(tokens),
        knows_padding: false,
    };
    folded(operator, &[data, &known].concat())
}

fn function(function: TextFunction, inputs: &[Tensor]) -> Case {
    folded(Text { function }, inputs)
}

fn folded(operator: impl Operator, inputs: &[Tensor]) -> Case {
    Case { is_folded: true, ..case(operator, inputs) }
}

fn texts(words: &[&str]) -> Tensor {
    let handles: Vec<u64> = words.iter().map(|word| intern_text(word).unwrap()).collect();
    Tensor::from_elements([words.len()], &handles).unwrap()
}
