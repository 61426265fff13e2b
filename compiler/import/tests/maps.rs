//! Maps as inputs.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_graph::MemberForm;
use hone_import::onnx::proto::attribute_proto::AttributeType;
use hone_import::onnx::proto::{
    AttributeProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, type_proto,
};
use hone_import::{KeyType, MOST_KEYS, signature};
use hone_ops::evaluate;
use hone_types::{Tensor, intern_text, text_of};

const TEXT: i32 = 8;

fn map(name: &str, key: i32, value: i32) -> ValueInfoProto {
    let value_type = port("", value, &[]).r#type.map(Box::new);
    let own =
        type_proto::Value::MapType(Box::new(type_proto::Map { key_type: Some(key), value_type }));
    let r#type = Some(TypeProto { value: Some(own), denotation: None });
    ValueInfoProto { name: Some(name.into()), r#type, ..ValueInfoProto::default() }
}

fn classical(node: NodeProto) -> NodeProto {
    NodeProto { domain: Some("ai.onnx.ml".into()), ..node }
}

fn of(input: ValueInfoProto, node: NodeProto) -> ModelProto {
    model(graph(vec![input], vec![], vec![classical(node)], &["y"]), 18)
}

fn vectorizer() -> NodeProto {
    node("DictVectorizer", &["m"], &["y"])
}

fn known(words: &[&str]) -> NodeProto {
    let strings = words.iter().map(|text| text.as_bytes().to_vec()).collect();
    let strings =
        AttributeProto { strings, ..attribute("string_vocabulary", AttributeType::Strings) };
    vectorizer().with(strings)
}

/// A list with room for all keys.
fn laid<T: hone_types::Element + Copy>(values: &[T], behind: T) -> Tensor {
    let mut all = values.to_vec();
    all.resize(MOST_KEYS, behind);
    Tensor::from_elements([MOST_KEYS], &all).unwrap()
}

fn handles(words: &[&str]) -> Vec<u64> {
    words.iter().map(|word| intern_text(word).unwrap()).collect()
}

#[test]
fn a_map_is_keys_values_and_a_count() {
    let model = of(map("m", TEXT, F32), known(&["b", "a", "c", "b"]));
    let declared = signature(&prost::Message::encode_to_vec(&model)).unwrap();
    assert_eq!(declared.inputs[0].map, Some(KeyType::Text));
    assert_eq!(declared.inputs[0].to_string(), "map from string to f32");
    let graph = import(&model).unwrap().graph;
    let names: Vec<&str> = graph.inputs().iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["m.keys", "m.values", "m.count"]);
    let member = &graph.interface().inputs[0];
    assert_eq!(member.form, MemberForm::Map { text_values: false });
    assert!(member.has_text(0) && !member.has_text(1));
    let values = laid(&[1.5f32, -2.0, 9.0], 7.0);
    let run = |keys: &[&str], count: i64| {
        evaluate(&graph, &[laid(&handles(keys), 0), values.clone(), Tensor::scalar(count)])
    };
    // Unknown keys are left out, missing ones are zero, and what lies behind the count is not there.
    assert_eq!(run(&["a", "x", "b"], 3).unwrap()[0].to_f64(), [9.0, 1.5, 0.0, 9.0]);
    assert_eq!(run(&["a", "x", "b"], 2).unwrap()[0].to_f64(), [0.0, 1.5, 0.0, 0.0]);
    assert_eq!(run(&[], 0).unwrap()[0].to_f64(), [0.0; 4]);
    assert!(chain(&run(&["a", "a"], 2).unwrap_err()).contains("twice"));
    assert!(chain(&run(&[], 1 << 20).unwrap_err()).contains("room for 65536"));
    // The text form keeps it.
    let text = graph.to_text(hone_graph::Constants::Exact);
    let parsed: hone_ops::Graph = hone_graph::parse(&text).unwrap();
    assert_eq!(parsed.interface(), graph.interface());
}

#[test]
fn numbers_are_keys_and_strings_values() {
    let node = vectorizer().ints("int64_vocabulary", &[7, -1]);
    let graph = import(&of(map("m", I64, TEXT), node)).unwrap().graph;
    assert!(graph.interface().inputs[0].has_text(1));
    let inputs = [laid(&[-1i64, 3], 0), laid(&handles(&["é", "x"]), 0), Tensor::scalar(2i64)];
    let found = evaluate(&graph, &inputs).unwrap()[0].elements::<u64>().unwrap();
    let found: Vec<_> = found.into_iter().map(|own| text_of(own).unwrap().to_string()).collect();
    assert_eq!(found, ["", "é"]);
}

#[test]
fn a_map_becomes_a_row() {
    let cast = |form: &str, to: &str| {
        node("CastMap", &["m"], &["y"]).string("map_form", form).string("cast_to", to)
    };
    let sparse = import(&of(map("m", I64, F32), cast("SPARSE", "TO_INT64").int("max_map", 4)));
    let sparse = sparse.unwrap().graph;
    let run = |graph: &hone_ops::Graph, keys: &[i64], values: &[f32]| {
        let count = Tensor::scalar(keys.len() as i64);
        evaluate(graph, &[laid(keys, 0), laid(values, 0.0), count])
    };
    assert_eq!(run(&sparse, &[3, 9, 0], &[1.9, 5.0, -2.5]).unwrap()[0].to_i64(), [-2, 0, 0, 1]);
    assert!(chain(&run(&sparse, &[-1], &[1.0]).unwrap_err()).contains("negative"));
    let dense = import(&of(map("m", I64, F32), cast("DENSE", "TO_FLOAT"))).unwrap().graph;
    let found = run(&dense, &[3, -9, 0], &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(found[0].to_f64()[..3], [2.0, 3.0, 1.0]);
    assert_eq!(dense.extents().len(), 1);
    let read = of(map("m", I64, TEXT), cast("SPARSE", "TO_FLOAT").int("max_map", 3));
    let read = import(&read).unwrap().graph;
    let inputs = [laid(&[2i64], 0), laid(&handles(&["1.5"]), 0), Tensor::scalar(1i64)];
    assert_eq!(evaluate(&read, &inputs).unwrap()[0].to_f64(), [0.0, 0.0, 1.5]);
}

#[test]
fn what_does_not_fit_a_map_is_refused() {
    let refused = |input: ValueInfoProto, node: NodeProto| {
        chain(&import(&of(input, node)).map(|_| ()).unwrap_err())
    };
    let text = || map("m", TEXT, F32);
    for (input, node, reason) in [
        (text(), vectorizer(), "no vocabulary"),
        (text(), vectorizer().ints("int64_vocabulary", &[1]), "another type than the keys"),
        (map("m", I64, F32), known(&["a"]), "another type than the keys"),
        (text(), known(&["a"]).ints("int64_vocabulary", &[1]), "two vocabularies"),
        (port("m", F32, &["3"]), known(&["a"]), "input number 0 is no map"),
        (text(), node("CastMap", &["m"], &["y"]), "the keys of the map are strings"),
        (map("m", F32, F32), known(&["a"]), "neither strings nor of i64"),
        (text(), node("Scaler", &["m"], &["y"]), "operator Scaler of maps is not supported"),
        (
            map("m", I64, F32),
            node("CastMap", &["m"], &["y"]).string("cast_to", "TO_STRING"),
            "CastMap of numbers to strings",
        ),
    ] {
        let said = refused(input, node);
        assert!(said.contains(reason), "{said}");
    }
    let whole =
        model(graph(vec![text()], vec![], vec![node("Identity", &["m"], &["y"])], &["y"]), 18);
    let said = chain(&import(&whole).unwrap_err());
    assert!(said.contains("it is a map as the model is given it"), "{said}");
}
