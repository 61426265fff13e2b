//! Texts cut into tokens, and words counted.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::attribute_proto::AttributeType;
use hone_import::onnx::proto::{AttributeProto, ModelProto, NodeProto};
use hone_ops::{NGrams, Text, TextFunction, evaluate};
use hone_types::{Tensor, intern_text, text_of};

const TEXT: i32 = 8;

fn strings(node: NodeProto, name: &str, values: &[&str]) -> NodeProto {
    let strings = values.iter().map(|text| text.as_bytes().to_vec()).collect();
    node.with(AttributeProto { strings, ..attribute(name, AttributeType::Strings) })
}

/// `t` has the tokens of `x`.
fn tokenizer() -> NodeProto {
    let node = node("Tokenizer", &["x"], &["t"]).int("mark", 0).string("pad_value", "#");
    of_microsoft(node)
}

fn words() -> NodeProto {
    tokenizer().int("mincharnum", 1).string("tokenexp", "[a-z]+")
}

/// `y` counts `cat`, `dog`, and `cat` before `dog` in `of`.
fn counted(of: &str, pool: &[&str]) -> NodeProto {
    let node = node("TfIdfVectorizer", &[of], &["y"])
        .int("min_gram_length", 1)
        .int("max_gram_length", 2)
        .int("max_skip_count", 0)
        .string("mode", "TF")
        .ints("ngram_counts", &[0, 2])
        .ints("ngram_indexes", &[1, 0, 2]);
    strings(node, "pool_strings", pool)
}

const POOL: [&str; 4] = ["cat", "dog", "cat", "dog"];

fn texts(nodes: Vec<NodeProto>, extents: &[&str], outputs: &[&str]) -> ModelProto {
    with_microsoft(model(graph(vec![port("x", TEXT, extents)], vec![], nodes, outputs), 18))
}

fn given(texts: &[&str]) -> Tensor {
    let handles: Vec<u64> = texts.iter().map(|text| intern_text(text).unwrap()).collect();
    Tensor::from_elements([texts.len()], &handles).unwrap()
}

fn said(tensor: &Tensor) -> Vec<String> {
    let handles = tensor.elements::<u64>().unwrap();
    handles.into_iter().map(|handle| text_of(handle).unwrap().to_string()).collect()
}

fn refused(nodes: Vec<NodeProto>) -> String {
    let outputs = [nodes.last().unwrap().output[0].clone()];
    let outputs = outputs.each_ref().map(String::as_str);
    chain(&import(&texts(nodes, &["2"], &outputs)).unwrap_err())
}

#[test]
fn tokens_that_are_counted_have_no_bound() {
    let nodes = vec![words(), node("Flatten", &["t"], &["f"]), counted("f", &POOL)];
    let graph = import(&texts(nodes, &["3"], &["y"])).unwrap().graph;
    let [(_, node)] = graph.nodes().iter().collect::<Vec<_>>()[..] else { panic!("one node") };
    assert!(node.operation.downcast::<NGrams>().unwrap().has_rows_apart());
    let long = "dog ".repeat(5000);
    let result = evaluate(&graph, &[given(&["a cat, cat dog", "", &long])]).unwrap();
    assert_eq!(result[0].to_f64(), [1., 2., 1., 0., 0., 0., 5000., 0., 0.]);
}

#[test]
fn what_fills_rows_may_be_counted() {
    let pool = ["cat", "#", "cat", "#"];
    let nodes = vec![words(), counted("t", &pool)];
    let graph = import(&texts(nodes, &["2"], &["y"])).unwrap().graph;
    let ngrams = |node: &hone_graph::Node<_>| {
        let operation: &hone_ops::Op = &node.operation;
        operation.downcast::<NGrams>().map(|own| own.has_rows_apart())
    };
    assert_eq!(graph.nodes().iter().find_map(|(_, node)| ngrams(node)), Some(false));
    let result = evaluate(&graph, &[given(&["a a a", "cat"])]).unwrap();
    assert_eq!(result[0].to_f64(), [0., 0., 0., 2., 1., 1.]);
}

#[test]
fn tokens_that_are_read_otherwise_have_room_for_some() {
    let graph = import(&texts(vec![words()], &["2"], &["t"])).unwrap().graph;
    assert_eq!(graph.tensor_type(graph.outputs()[0].value).shape, [2, 1024]);
    let result = evaluate(&graph, &[given(&["a bc", "!"])]).unwrap();
    assert_eq!(said(&result[0])[..4], ["a", "bc", "#", "#"]);
    let long = "a ".repeat(1025);
    let error = evaluate(&graph, &[given(&["", &long])]).unwrap_err();
    assert!(chain(&error).contains("1025 tokens, not 1024"), "{}", chain(&error));
    // What the model declares is the room.
    let mut declared = texts(vec![words()], &["2"], &["t"]);
    declared.graph.as_mut().unwrap().output[0] = port("t", TEXT, &["2", "7"]);
    let graph = import(&declared).unwrap().graph;
    assert_eq!(graph.tensor_type(graph.outputs()[0].value).shape, [2, 7]);
}

#[test]
fn parts_of_strings_are_counted() {
    let split =
        node("StringSplit", &["x"], &["t", "n"]).string("delimiter", "-").int("maxsplit", 4);
    let model = texts(vec![split, counted("t", &POOL)], &["2"], &["y"]);
    let mut model = model;
    model.opset_import[0].version = Some(20);
    let graph = import(&model).unwrap().graph;
    let result = evaluate(&graph, &[given(&["cat-dog-cat", "x"])]).unwrap();
    assert_eq!(result[0].to_f64(), [1., 2., 1., 0., 0., 0.]);
}

#[test]
fn a_large_pool_is_looked_up() {
    let pool: Vec<i64> = (0..5000).collect();
    let counting = |indexes: &[i64], mode: &str| {
        let node = node("TfIdfVectorizer", &["x"], &["y"])
            .int("min_gram_length", 1)
            .int("max_gram_length", 1)
            .int("max_skip_count", 0)
            .string("mode", mode)
            .ints("ngram_counts", &[0])
            .ints("ngram_indexes", indexes)
            .ints("pool_int64s", &pool[..indexes.len()]);
        let weights: Vec<f32> = (0..indexes.len()).map(|own| own as f32).collect();
        node.with(AttributeProto { floats: weights, ..attribute("weights", AttributeType::Floats) })
    };
    let imported = |node: NodeProto| {
        let inputs = vec![port("x", I64, &["2", "4"])];
        import(&model(graph(inputs, vec![], vec![node], &["y"]), 18)).unwrap().graph
    };
    let x = Tensor::from_elements([2, 4], &[3i64, -1, 4999, 3, 9000, 0, 0, 2]).unwrap();
    let reversed: Vec<i64> = (0..5000).rev().collect();
    let large = imported(counting(&reversed, "TFIDF"));
    assert!(large.nodes().iter().any(|(_, node)| node.operation.downcast::<NGrams>().is_some()));
    let result = evaluate(&large, std::slice::from_ref(&x)).unwrap()[0].to_f64();
    assert_eq!((result[4996], result[0], result[5000 + 4997]), (6.0, 4999.0, 2.0));
    // Two sequences that count at one place.
    let shared = imported(counting(&[0, 0, 1, 0], "TF"));
    let result = evaluate(&shared, std::slice::from_ref(&x)).unwrap()[0].to_f64();
    assert_eq!(result, [2.0, 0.0, 2.0, 1.0]);
    let small = imported(counting(&[0, 1, 2, 3], "IDF"));
    assert!(small.nodes().iter().all(|(_, node)| node.operation.downcast::<NGrams>().is_none()));
    assert_eq!(evaluate(&small, &[x]).unwrap()[0].to_f64(), [0., 0., 0., 3., 0., 0., 2., 0.]);
}

#[test]
fn a_node_that_says_too_little_or_too_much_is_refused() {
    let plain = || tokenizer().int("mincharnum", 1);
    let with_least = |least: i64| tokenizer().int("mincharnum", least).string("tokenexp", ".");
    for (node, reason) in [
        (plain(), "neither separators nor a tokenexp"),
        (plain().string("tokenexp", "(a"), "unclosed group"),
        (plain().string("tokenexp", r"(?u)\w+"), "flag 'u'"),
        (strings(plain(), "separators", &[]), "'separators' is empty"),
        (strings(plain(), "separators", &[" ", "x*"]), "separator \"x*\" matches where there is"),
        (tokenizer().string("tokenexp", "a"), "attribute 'mincharnum' is missing"),
        (with_least(0), "mincharnum is not above 0"),
        (with_least(2), "tokens are single characters"),
        (plain().string("tokenexp", "a").int("other", 1), "attribute 'other' is unknown"),
    ] {
        let said = refused(vec![node]);
        assert!(said.contains(reason), "{said}");
    }
    let said = refused(vec![words(), counted("t", &["cat", "cat", "cat", "dog"])]);
    assert!(said.contains("in the pool twice"), "{said}");
    let said = refused(vec![words(), counted("t", &POOL[..3])]);
    assert!(said.contains("ngram_counts do not fit"), "{said}");
}

/// The functions of strings in a graph, and what they make of `ÀIé`.
fn normalized(locale: &str) -> (Vec<TextFunction>, String) {
    let node = node("StringNormalizer", &["x"], &["y"]).string("case_change_action", "LOWER");
    let model = texts(vec![node.string("locale", locale)], &["1"], &["y"]);
    let graph = import(&model).unwrap().graph;
    let functions = graph.nodes().iter().filter_map(|(_, node)| node.operation.downcast::<Text>());
    let functions = functions.map(|text| text.function.clone()).collect();
    let result = evaluate(&graph, &[given(&["ÀIé"])]).unwrap();
    (functions, said(&result[0])[0].clone())
}

#[test]
fn letters_change_as_the_locale_says() {
    let (functions, text) = normalized("en_US.UTF-8");
    assert!(matches!(functions[..], [TextFunction::Case { .. }]), "{functions:?}");
    assert_eq!(text, "àié");
    assert_eq!(normalized("C").1, "Àié");
    assert_eq!(normalized("tr_TR.UTF-8").1, "àıé");
    assert_eq!(normalized("C.UTF-8").1, "àié");
}
