//! Sequences, optional values and strings: what they become in a graph that has tensors of numbers alone.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_graph::MemberForm;
use hone_import::onnx::proto::{ModelProto, TypeProto, ValueInfoProto, type_proto};
use hone_import::{ImportOptions, InputBinding, InputForm};
use hone_types::{Tensor, intern_text, text_of};

const TEXT: i32 = 8;

fn sequence(name: &str, kind: i32, dims: &[&str]) -> ValueInfoProto {
    let item = port("", kind, dims).r#type.map(Box::new);
    let value = type_proto::Value::SequenceType(Box::new(type_proto::Sequence { elem_type: item }));
    ValueInfoProto {
        r#type: Some(TypeProto { value: Some(value), denotation: None }),
        ..port(name, kind, dims)
    }
}

fn optional(name: &str, kind: i32, dims: &[&str]) -> ValueInfoProto {
    let item = port("", kind, dims).r#type.map(Box::new);
    let value = type_proto::Value::OptionalType(Box::new(type_proto::Optional { elem_type: item }));
    ValueInfoProto {
        r#type: Some(TypeProto { value: Some(value), denotation: None }),
        ..port(name, kind, dims)
    }
}

fn with(
    model: &ModelProto,
    shapes: &[(&str, &[usize])],
    forms: &[(&str, InputForm)],
) -> Result<hone_import::Imported, hone_import::ImportError> {
    let bind = |entry: &(&str, &[usize])| InputBinding {
        name: entry.0.into(),
        shape: entry.1.to_vec(),
        dtype: None,
    };
    let options = ImportOptions {
        bindings: shapes.iter().map(bind).collect(),
        forms: forms.iter().map(|(name, form)| ((*name).to_owned(), *form)).collect(),
        ..ImportOptions::default()
    };
    hone_import::onnx::import(&encoded(model), &options)
}

fn encoded(model: &ModelProto) -> Vec<u8> {
    prost::Message::encode_to_vec(model)
}

/// `y` is `x` with `t` behind it, `n` how many there are.
fn appended() -> ModelProto {
    let nodes =
        vec![node("SequenceInsert", &["x", "t"], &["y"]), node("SequenceLength", &["y"], &["n"])];
    model(
        graph(vec![sequence("x", F32, &["a"]), port("t", F32, &["2"])], vec![], nodes, &["y", "n"]),
        17,
    )
}

#[test]
fn a_sequence_is_a_tensor_for_each_item() {
    let imported = with(&appended(), &[("x[0]", &[3]), ("x[1]", &[4])], &[]).unwrap();
    let names: Vec<&str> =
        imported.graph.inputs().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["x[0]", "x[1]", "t"]);
    let names: Vec<&str> =
        imported.graph.outputs().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["y[0]", "y[1]", "y[2]", "n"]);
    let interface = imported.graph.interface();
    assert_eq!(interface.inputs[0].form, MemberForm::Sequence(2));
    assert_eq!(interface.outputs[0].form, MemberForm::Sequence(3));
    let tensors = [3, 4, 2].map(|count| {
        Tensor::from_f64(hone_types::DataType::F32, [count], &vec![1.0; count]).unwrap()
    });
    let outputs = hone_ops::evaluate(&imported.graph, &tensors).unwrap();
    assert_eq!(outputs[3].to_i64(), [3]);
    assert_eq!(outputs[2].shape(), [2]);
    // The text form keeps it.
    let text = imported.graph.to_text(hone_graph::Constants::Exact);
    let parsed: hone_ops::Graph = hone_graph::parse(&text).unwrap();
    assert_eq!(parsed.interface(), interface);
    let empty = with(&appended(), &[], &[("x", InputForm::Sequence(0))]).unwrap();
    assert_eq!(empty.graph.inputs().len(), 1);
}

#[test]
fn how_a_sequence_is_given_wrongly_is_said() {
    let refused = |shapes: &[(&str, &[usize])], forms: &[(&str, InputForm)]| {
        chain(&with(&appended(), shapes, forms).unwrap_err())
    };
    assert!(refused(&[], &[]).contains("'x[0]' and so on"));
    assert!(refused(&[], &[("x", InputForm::Absent)]).contains("may not be left out"));
    let said = refused(&[], &[("x", InputForm::Sequence(0)), ("t", InputForm::Sequence(1))]);
    assert!(said.contains("it is f32[2]"), "{said}");
    assert!(refused(&[], &[("z", InputForm::Absent)]).contains("no such input"));
    assert!(refused(&[], &[("x", InputForm::Sequence(usize::MAX))]).contains("at most"));
    assert!(refused(&[], &[("x", InputForm::Sequence(1))]).contains("'x[0]'"));
}

#[test]
fn an_optional_input_is_there_or_not() {
    let nodes =
        vec![node("OptionalHasElement", &["x"], &["has"]), node("Identity", &["x"], &["y"])];
    let model = model(graph(vec![optional("x", F32, &["2"])], vec![], nodes, &["has", "y"]), 18);
    let there = with(&model, &[], &[]).unwrap().graph;
    assert_eq!((there.inputs().len(), there.outputs().len()), (1, 2));
    let absent = with(&model, &[], &[("x", InputForm::Absent)]).unwrap().graph;
    assert_eq!((absent.inputs().len(), absent.outputs().len()), (0, 1));
    assert_eq!(absent.interface().outputs[1].form, MemberForm::Absent);
    let has = absent.constant(absent.outputs()[0].value).unwrap();
    assert_eq!(has.bytes(), [0]);
}

#[test]
fn branches_that_differ_in_length_ask_for_the_condition() {
    let branch = |nodes, output: &str| graph(vec![], vec![], nodes, &[output]);
    let one = branch(vec![node("SequenceConstruct", &["x"], &["p"])], "p");
    let two = branch(vec![node("SequenceConstruct", &["x", "x"], &["q"])], "q");
    let choice = |then, otherwise| {
        let nodes = vec![
            node("If", &["c"], &["y"]).graph("then_branch", then).graph("else_branch", otherwise),
        ];
        model(graph(vec![port("c", BOOL, &[]), port("x", F32, &["2"])], vec![], nodes, &["y"]), 17)
    };
    let error = import(&choice(one.clone(), two)).unwrap_err();
    assert_eq!(error.decided_by(), Some(&["c".to_owned()][..]));
    let same = import(&choice(one.clone(), one)).unwrap().graph;
    assert_eq!(same.interface().outputs[0].form, MemberForm::Sequence(1));
}

#[test]
fn strings_are_handles_and_compared_as_numbers() {
    let nodes =
        vec![node("Equal", &["x", "word"], &["e"]), node("StringConcat", &["x", "word"], &["y"])];
    let mut word = integers("word", &[]);
    word.data_type = Some(TEXT);
    word.dims = vec![1];
    word.string_data = vec!["né".as_bytes().to_vec()];
    let declared = model(
        graph(vec![port("x", TEXT, &["2"])], vec![word.clone()], nodes.clone(), &["e", "y"]),
        20,
    );
    let graph_ = import(&declared).unwrap().graph;
    assert_eq!(graph_.interface().texts, ["né"]);
    assert!(graph_.interface().inputs[0].text && graph_.interface().outputs[1].text);
    let handles = ["né", "a"].map(|entry| intern_text(entry).unwrap());
    let x = Tensor::from_elements([2], &handles).unwrap();
    let outputs = hone_ops::evaluate(&graph_, &[x]).unwrap();
    assert_eq!(outputs[0].to_i64(), [1, 0]);
    let joined = outputs[1].elements::<u64>().unwrap();
    assert_eq!(text_of(joined[1]).as_deref(), Some("ané"));
    word.string_data = vec![vec![0xff]];
    let broken = model(graph(vec![port("x", TEXT, &["2"])], vec![word], nodes, &["e", "y"]), 20);
    assert!(chain(&import(&broken).unwrap_err()).contains("not UTF-8"));
    let add = vec![node("Add", &["x", "x"], &["y"])];
    let add = model(graph(vec![port("x", TEXT, &["2"])], vec![], add, &["y"]), 20);
    assert!(chain(&import(&add).unwrap_err()).contains("Add of string"));
}
