//! Models that fail are reduced to small ones that fail alike.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Ended, Place, onnx};
use hone_driver::onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    ValueInfoProto, attribute_proto::AttributeType,
};
use hone_model_builder::{Builder, Value};
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};

/// Convolutions one after the other with `inside` in their middle, and a dense layer at the end.
fn deep(inside: impl Fn(&mut Builder, &Value) -> Value) -> ModelProto {
    let mut builder = Builder::new("secret-network", 3);
    let mut x = builder.input("secret_image", &[1, 4, 12, 12]);
    for layer in 0..8 {
        let weight = builder.weight(&format!("secret_weight_{layer}"), &[4, 4, 1, 1], 0.0, 0.5);
        x = builder.node("Conv", &[&x, &weight], Vec::new());
        x = builder.node("Relu", &[&x], Vec::new());
        if layer == 4 {
            x = inside(&mut builder, &x);
        }
    }
    let weight = builder.weight("secret_dense", &[12, 500], 0.0, 0.5);
    let y = builder.node("MatMul", &[&x, &weight], Vec::new());
    builder.output("secret_scores", &y, &[1, 4, 12, 500]);
    let mut model = builder.finish();
    model.doc_string = Some("secret documentation".to_owned());
    model
}

/// The reduced model, which fails as the command says that it does.
fn reduced(place: &Place, ended: &Ended, code: i32) -> ModelProto {
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let again = ended.out.lines().find_map(|line| line.strip_prefix("again     hone ")).unwrap();
    let words: Vec<&str> = again.split_whitespace().chain(["--out", "again"]).collect();
    let again = place.hone(&words);
    assert_eq!(again.code, code, "{}{}", ended.out, again.err);
    let message = again.err.lines().find(|line| line.starts_with("error[")).unwrap();
    assert!(ended.out.contains(message), "{}{message}", ended.out);
    read(&place.path("model.reduced.onnx"))
}

fn read(path: &Path) -> ModelProto {
    ModelProto::decode(&*std::fs::read(path).unwrap()).unwrap()
}

fn operators(model: &ModelProto) -> Vec<&str> {
    let nodes = &model.graph.as_ref().unwrap().node;
    nodes.iter().map(|node| node.op_type.as_deref().unwrap()).collect()
}

fn attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Int as i32),
        i: Some(value),
        ..AttributeProto::default()
    }
}

#[test]
fn an_unknown_operator_deep_in_a_model_is_what_is_left() {
    let place = Place::new();
    let model = deep(|builder, x| {
        let y = builder.node_of("house", "Frobnicate", &[x], vec![attribute("level", 3)]);
        builder.node("Sigmoid", &[&y], Vec::new())
    });
    place.write("model.onnx", model.encode_to_vec());
    let ended = place.hone(&["reduce", "model.onnx", "--anonymous"]);
    let left = reduced(&place, &ended, 12);
    assert_eq!(operators(&left), ["Frobnicate"]);
    let node = &left.graph.as_ref().unwrap().node[0];
    assert_eq!(node.attribute, [attribute("level", 3)]);
    let bytes = std::fs::read(place.path("model.reduced.onnx")).unwrap();
    assert!(bytes.len() < 300, "{}", bytes.len());
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
    assert!(ended.out.contains("nodes     1 of 19\n"), "{}", ended.out);
}

#[test]
fn answers_that_are_not_finite_are_followed_to_their_node() {
    let place = Place::new();
    let model = deep(|builder, x| {
        let below = builder.scalar("below", -1.0);
        let y = builder.node("Add", &[x, &below], Vec::new());
        builder.node("Log", &[&y], Vec::new())
    });
    place.write("model.onnx", model.encode_to_vec());
    let ended = place.hone(&["reduce", "model.onnx"]);
    let left = reduced(&place, &ended, 31);
    assert_eq!(operators(&left), ["Log"]);
    assert!(left.doc_string.is_none());
}

#[test]
fn shapes_that_do_not_fit_are_followed_through_open_dimensions_and_data_elsewhere() {
    let place = Place::new();
    let port = |name: &str, shape: &[&str]| onnx::port(name, shape);
    let nodes = [
        onnx::node("first", "Relu", &["x"], &["a"]),
        onnx::node("second", "Mul", &["a", "z"], &["b"]),
        onnx::node("third", "Add", &["b", "w"], &["c"]),
        onnx::node("fourth", "Relu", &["c"], &["y"]),
    ];
    let stored = [onnx::external("z", 8, "z.bin")];
    let inputs = [port("x", &["batch", "8"]), port("w", &["3", "5"])];
    let model = onnx::model(&nodes, &stored, &inputs, &[port("y", &["batch", "8"])]);
    place.write("model.onnx", model);
    place.write("z.bin", [0; 32]);
    let ended = place.hone(&["reduce", "model.onnx", "--shape", "batch=2", "--no-verify"]);
    assert!(ended.out.contains("(Add, opset 17)"), "{}{}", ended.out, ended.err);
    let left = reduced(&place, &ended, 13);
    assert_eq!(operators(&left), ["Add"]);
    assert!(left.graph.unwrap().initializer.is_empty());
}

/// A model with a function of one operator, and branches that read values around them.
fn nested(inside: &str) -> ModelProto {
    let node = |operator: &str, inputs: &[&str], output: &str| NodeProto {
        op_type: Some(operator.to_owned()),
        name: Some(format!("secret_{output}")),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    };
    let value = |name: &str| ValueInfoProto { name: Some(name.to_owned()), ..Default::default() };
    let branch = |operator: &str, name: &str| AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(GraphProto {
            name: Some("secret_branch".to_owned()),
            node: vec![node(operator, &["secret_inner"], "secret_result")],
            output: vec![value("secret_result")],
            ..GraphProto::default()
        }),
        ..AttributeProto::default()
    };
    let mut decides = node("If", &["flag"], "taken");
    decides.attribute = vec![branch("Frobnicate", "then_branch"), branch("Neg", "else_branch")];
    let mut calls = node("secret_function", &["taken"], "called");
    calls.domain = Some("house".to_owned());
    let bytes =
        onnx::model(&[], &[], &[onnx::port("x", &["2", "8"])], &[onnx::port("y", &["2", "8"])]);
    let mut model = ModelProto::decode(&*bytes).unwrap();
    let graph = model.graph.as_mut().unwrap();
    graph.node = vec![
        node("Relu", &["x"], "secret_inner"),
        node("ReduceMax", &["secret_inner"], "most"),
        node("Cast", &["most"], "flag"),
        decides,
        calls,
        node("Relu", &["called"], "y"),
    ];
    graph.node[1].attribute = vec![attribute("keepdims", 0)];
    graph.node[2].attribute = vec![attribute("to", 9)];
    let house = OperatorSetIdProto { domain: Some("house".to_owned()), version: Some(1) };
    model.opset_import.push(house.clone());
    model.functions = vec![FunctionProto {
        name: Some("secret_function".to_owned()),
        domain: Some("house".to_owned()),
        input: vec!["secret_in".to_owned()],
        output: vec!["secret_out".to_owned()],
        node: vec![node(inside, &["secret_in"], "secret_out")],
        opset_import: model.opset_import.clone(),
        ..FunctionProto::default()
    }];
    model
}

#[test]
fn functions_and_branches_stay_whole() {
    // Operators of functions are looked at before those of branches.
    for (inside, calls) in [("Transmogrify", "f0"), ("Neg", "If")] {
        let place = Place::new();
        place.write("model.onnx", nested(inside).encode_to_vec());
        let ended = place.hone(&["reduce", "model.onnx", "--anonymous"]);
        let left = reduced(&place, &ended, 12);
        assert_eq!(operators(&left), [calls], "{}", ended.out);
        assert_eq!(left.functions.len(), usize::from(calls == "f0"));
        let bytes = std::fs::read(place.path("model.reduced.onnx")).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
    }
}

#[test]
fn what_takes_too_long_is_reduced_even_where_nothing_is_known_of_its_values() {
    let place = Place::new();
    place.write("model.onnx", deep(|_, x| x.clone()).encode_to_vec());
    // No program of this size starts in so short a time.
    let ended = place.hone(&["reduce", "model.onnx", "--timeout", "1ms"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("failure   the time limit\n"), "{}", ended.out);
    assert_eq!(read(&place.path("model.reduced.onnx")).graph.unwrap().node.len(), 1);
}

#[test]
fn an_interrupted_reduction_keeps_the_smallest_model_so_far() {
    let place = Place::new();
    let model = deep(|builder, x| builder.node("Log", &[x], Vec::new()));
    place.write("model.onnx", model.encode_to_vec());
    let mut command = place.command();
    command.args(["reduce", "model.onnx", "--out", "kept.onnx"]).process_group(0);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while !place.path("kept.onnx").exists() {
        assert!(begin.elapsed() < Duration::from_secs(300), "nothing was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let ended = place.ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("reduced   kept.onnx"), "{}", ended.out);
    assert!(operators(&read(&place.path("kept.onnx"))).contains(&"Log"));
}

#[test]
fn the_model_itself_is_never_written_over() {
    let place = Place::new();
    let path = place.write("model.onnx", onnx::unary("Sqrt", &["1", "8"]));
    let before = std::fs::read(&path).unwrap();
    let ended = place.hone(&["reduce", "model.onnx", "--out", "./model.onnx"]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The machine's own refusals are passed on.
    let ended = place.hone(&["reduce", "model.onnx", "--target", "plan9/vax"]);
    assert_eq!((ended.code, ended.out.as_str()), (16, ""), "{}", ended.err);
    assert_eq!(place.names(".").iter().filter(|name| name.contains("reduced")).count(), 0);
}
