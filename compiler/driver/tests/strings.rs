//! Functions of strings, of words and of maps through the whole path: what the runtime computes is what the reference
//! computes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{Part, Reader};
use hone_driver::{Graph, Options, Target, Tensor, compile_graph, evaluate};
use hone_ops::{
    CaseRule, Letters, Map, MapFunction, NGrams, Op, Text, TextFunction, TokenRule, Tokens,
};
use hone_runtime::{Model, RunError};
use hone_types::intern_text;

const TEXTS: [&str; 9] = [
    "the cat sat on the mat",
    "",
    " , ",
    "Über den Fluß, é\u{301}a",
    "İstanbul ıIiİ ǅ ᾳ ᾀ ß",
    "a-b_c 12ab 7",
    "日本語 テキスト, 日本",
    "ab aab\nb\u{85}x",
    "cat, the dog; cat. cat the",
];

fn texts(all: &[&str]) -> Tensor {
    let handles: Vec<u64> = all.iter().map(|text| intern_text(text).unwrap()).collect();
    Tensor::from_elements([all.len()], &handles).unwrap()
}

/// What a run of one operator gives: its first output's bytes, or its refusal.
fn run(operator: impl Into<Op>, inputs: &[Tensor]) -> (Result<Vec<u8>, RunError>, Graph) {
    let mut graph = Graph::new();
    let given = |graph: &mut Graph, place: usize, tensor: &Tensor| {
        Some(graph.add_input(format!("x{place}"), tensor.tensor_type().clone()))
    };
    let operands: Vec<_> =
        inputs.iter().enumerate().map(|(at, own)| given(&mut graph, at, own)).collect();
    let results = graph.add_node("node", operator.into(), &operands).unwrap();
    graph.add_output("y", results[0]);
    let options = Options::new(Target::host().unwrap());
    let artifact = compile_graph(graph.clone(), b"strings", &options).unwrap().artifact;
    let reader = Reader::new(&artifact).unwrap();
    assert!(matches!(reader.manifest().variants[0].program[..], [Part::Host(_)]));
    let mut model = Model::load_memory(artifact, &hone_runtime::Options::default()).unwrap();
    for text in TEXTS.into_iter().chain(["cat", "the", "dog", "#"]) {
        model.text_handle(text).unwrap();
    }
    let mut y = vec![0; model.outputs()[0].bytes as usize];
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let ran = model.run(&inputs, &mut [&mut y]);
    (ran.map(|()| y), graph)
}

#[track_caller]
fn check(operator: impl Into<Op>, inputs: &[Tensor]) {
    let (found, graph) = run(operator, inputs);
    let expected = evaluate(&graph, inputs).unwrap();
    assert_eq!(found.unwrap(), expected[0].bytes());
}

fn rules() -> Vec<TokenRule> {
    let patterns = ["[a-z]+", r"\b\w\w+\b", "a|ab|aab", r"\p{L}+", "x*", "^.", "(?i)É|.$", r"\W+"];
    let separators: [&[&str]; 4] = [&[" "], &[" ", ","], &["[.;,]", r"\s+"], &["the|cat"]];
    let patterns = patterns.iter().map(|own| TokenRule::Pattern((*own).into()));
    let separators = separators
        .iter()
        .map(|list| TokenRule::Separators(list.iter().map(|own| (*own).into()).collect()));
    patterns.chain(separators).chain([TokenRule::Characters]).collect()
}

#[test]
fn texts_are_cut_as_in_the_reference() {
    for (place, rule) in rules().into_iter().enumerate() {
        let mark = place % 2 == 1;
        let least = if mark && rule != TokenRule::Characters { 2 } else { 1 };
        let tokens = Tokens { rule, mark, pad: "#".into(), least };
        check(Text { function: TextFunction::Tokenize { tokens, room: 40 } }, &[texts(&TEXTS)]);
    }
}

#[test]
fn a_text_of_more_tokens_than_there_is_room_for_ends_the_run() {
    let tokens = Tokens { rule: TokenRule::Characters, mark: false, pad: "#".into(), least: 1 };
    let tokenize = Text { function: TextFunction::Tokenize { tokens, room: 3 } };
    let error = run(tokenize, &[texts(&["", TEXTS[0]])]).0.unwrap_err().to_string();
    assert!(
        error.contains("node") && error.contains("22 tokens, and there is room for 3"),
        "{error}"
    );
}

#[test]
fn letters_change_as_in_the_reference() {
    for rule in [CaseRule::Unicode, CaseRule::Turkic, CaseRule::Ascii] {
        for letters in [Letters::Keep, Letters::Lower, Letters::Upper] {
            check(Text { function: TextFunction::Case { letters, rule } }, &[texts(&TEXTS)]);
        }
    }
}

/// `cat`, `the`, and `cat` before `the` as a tree.
fn known(pad: bool) -> Vec<Tensor> {
    let mut words = ["cat", if pad { "#" } else { "the" }].map(|word| intern_text(word).unwrap());
    words.sort_unstable();
    let [a, b] = words;
    vec![
        Tensor::from_elements([4], &[0, a, b, b]).unwrap(),
        Tensor::from_elements([5], &[1i64, 3, 4, 4, 4]).unwrap(),
        Tensor::from_elements([4], &[-1i64, 2, 0, 1]).unwrap(),
        Tensor::from_elements([4], &[0f32, 1.0, 0.5, 3.0]).unwrap(),
    ]
}

fn ngrams(tokens: Option<Tokens>, once: bool, skips: usize) -> NGrams {
    NGrams { least: 1, most: 2, skips, once, size: 4, tokens, knows_padding: true }
}

#[test]
fn words_are_counted_as_in_the_reference() {
    let words = texts(&["cat", "the", "cat", "dog", "the", "the", "dog", "cat", "the", "the"]);
    let words = words.reshaped([2, 5]).unwrap();
    for (once, skips) in [(false, 0), (true, 0), (false, 1), (false, 9)] {
        let inputs = [&[words.clone()][..], &known(false)].concat();
        check(ngrams(None, once, skips), &inputs);
        for count in [0, 3, 5] {
            let inputs = [&inputs[..], &[Tensor::scalar(count as i64)]].concat();
            check(ngrams(None, once, skips), &inputs);
        }
    }
    for (once, skips) in [(false, 0), (true, 1)] {
        for rule in [TokenRule::Pattern("[a-z]+".into()), TokenRule::Characters] {
            let tokens = Tokens { rule, mark: false, pad: "#".into(), least: 1 };
            for pad in [false, true] {
                let inputs = [&[texts(&TEXTS)][..], &known(pad)].concat();
                check(ngrams(Some(tokens.clone()), once, skips), &inputs);
            }
        }
    }
}

#[test]
fn maps_are_read_as_in_the_reference() {
    let map = |keys: &[i64], count: i64| {
        let values: Vec<f32> = keys.iter().map(|key| *key as f32 * 0.5).collect();
        vec![
            Tensor::from_elements([keys.len()], keys).unwrap(),
            Tensor::from_elements([keys.len()], &values).unwrap(),
            Tensor::scalar(count),
        ]
    };
    let vocabulary = [
        Tensor::from_elements([4], &[-3i64, 2, 2, 9]).unwrap(),
        Tensor::from_elements([4], &[1i64, 3, 0, 2]).unwrap(),
        Tensor::scalar(0.25f32),
    ];
    for (keys, count) in [(&[9, 2, -3, 5][..], 4), (&[9, 2, -3, 5], 2), (&[1], 0)] {
        let lookup = Map { function: MapFunction::Lookup, refuses_negative: false };
        check(lookup, &[&map(keys, count)[..], &vocabulary].concat());
        check(Map { function: MapFunction::Ordered, refuses_negative: false }, &map(keys, count));
    }
    let ordered = || Map { function: MapFunction::Ordered, refuses_negative: true };
    for (keys, count, reason) in
        [(&[3, 3][..], 2, "key 3 is twice"), (&[3, -4], 2, "key -4"), (&[3], 2, "room for 1")]
    {
        let error = run(ordered(), &map(keys, count)).0.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
