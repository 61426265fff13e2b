//! Types of the values of models, of those too that cannot be imported as a whole.

#![allow(clippy::unwrap_used)]

mod build;

use std::collections::HashMap;

use build::*;
use hone_import::ImportOptions;
use hone_import::onnx::proto::tensor_shape_proto::dimension::Value as Extent;
use hone_import::onnx::proto::type_proto::Value as TypeValue;
use hone_import::onnx::proto::{ModelProto, StringStringEntryProto, ValueInfoProto};
use hone_import::onnx::{edit, value_types};
use prost::Message;

/// Element type and extents.
type Kind = (i32, Vec<i64>);

fn kind(value: &ValueInfoProto) -> Kind {
    let Some(TypeValue::TensorType(tensor)) = &value.r#type.as_ref().unwrap().value else {
        panic!("{value:?}")
    };
    let extent = |dim: &hone_import::onnx::proto::tensor_shape_proto::Dimension| match &dim.value {
        Some(Extent::DimValue(extent)) => *extent,
        other => panic!("{other:?}"),
    };
    (tensor.elem_type.unwrap(), tensor.shape.as_ref().unwrap().dim.iter().map(extent).collect())
}

fn found(model: &ModelProto) -> HashMap<String, Kind> {
    let mut found = HashMap::new();
    let told = value_types(model.clone(), &ImportOptions::default(), &mut |value| {
        let before = found.insert(value.name.clone().unwrap(), kind(&value));
        assert_eq!(before, None, "{value:?} is told twice");
    });
    told.unwrap();
    found
}

#[test]
fn every_value_of_a_model_that_imports_has_the_type_of_its_results() {
    let found = found(&convolutional());
    assert_eq!(found["x"], (F32, vec![1, 3, 8, 8]));
    assert_eq!(found["w1"], (F32, vec![4, 3, 3, 3]));
    assert_eq!(found["p1"], (F32, vec![1, 4, 4, 4]));
    assert_eq!(found["t"], (F32, vec![1, 2, 8, 8]));
    assert_eq!(found["y"], (F32, vec![1, 5]));
    // Eleven results, eleven stored tensors of which each is read, and an input.
    assert_eq!(found.len(), 23);
}

#[test]
fn behind_a_node_that_cannot_be_imported_types_are_guessed() {
    let nodes = vec![
        node("Cast", &["x"], &["whole"]).int("to", i64::from(I64)),
        node("Frobnicate", &["whole"], &["a"]),
        node("Shape", &["a"], &["shape"]),
        node("Transmogrify", &["x"], &["b"]),
        node("ReduceMax", &["b"], &["c"]).ints("axes", &[1]).int("keepdims", 0),
        // Its inputs do not fit, and its result is one of them.
        node("Add", &["x", "wrong"], &["d"]),
        node("Neg", &["nothing"], &["e"]),
    ];
    let stored = vec![weights("wrong", &[5, 5])];
    let mut graph = graph(vec![port("x", F32, &["2", "3"])], stored, nodes, &["c"]);
    graph.value_info = vec![port("b", F32, &["4", "7"])];
    let found = found(&model(graph, 17));
    let expected = [
        ("whole", I64, vec![2, 3]),
        ("a", I64, vec![2, 3]),
        ("shape", I64, vec![2]),
        ("b", F32, vec![4, 7]),
        ("c", F32, vec![4]),
        ("d", F32, vec![2, 3]),
        ("wrong", F32, vec![5, 5]),
    ];
    for (name, dtype, shape) in expected {
        assert_eq!(found.get(name), Some(&(dtype, shape)), "{name}");
    }
    assert!(!found.contains_key("e") && !found.contains_key("nothing"));
}

#[test]
fn a_branch_that_cannot_be_imported_hides_nothing_behind_it() {
    let branch = |operator: &str, name: &str| {
        graph(vec![], vec![], vec![node(operator, &["x"], &[name])], &[name])
    };
    let nodes = vec![
        node("If", &["flag"], &["taken"])
            .graph("then_branch", branch("Frobnicate", "then"))
            .graph("else_branch", branch("Neg", "else")),
        node("Concat", &["x", "x"], &["twice"]).int("axis", 0),
    ];
    let inputs = vec![port("flag", BOOL, &[]), port("x", F32, &["2", "3"])];
    let found = found(&model(graph(inputs, vec![], nodes, &["taken"]), 17));
    assert_eq!(found["twice"], (F32, vec![4, 3]));
    // Names inside of the branches are none of the model's own graph.
    assert!(!found.contains_key("then") && !found.contains_key("else"));
}

#[test]
fn stored_data_is_brought_inside_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), (0..64).collect::<Vec<u8>>()).unwrap();
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let mut stored = weights("w", &[2, 3]);
    stored.raw_data = None;
    stored.data_location = Some(1);
    stored.external_data = vec![entry("location", "data"), entry("offset", "8")];
    let nodes = vec![node("Add", &["x", "w"], &["y"])];
    let mut model =
        model(graph(vec![port("x", F32, &["2", "3"])], vec![stored], nodes, &["y"]), 17);
    let nowhere = ImportOptions::default();
    assert!(edit::bring_data_inside(&mut model.clone(), &nowhere).is_err());
    let options = ImportOptions { folder: Some(folder.path().into()), ..nowhere };
    edit::bring_data_inside(&mut model, &options).unwrap();
    let tensor = &model.graph.as_ref().unwrap().initializer[0];
    assert_eq!(tensor.raw_data.as_deref(), Some(&(8..32).collect::<Vec<u8>>()[..]));
    assert!(tensor.external_data.is_empty());
    import(&model).unwrap();
    let bytes = model.encode_to_vec().into();
    assert_eq!(edit::decode(&bytes).unwrap(), model);
    assert!(edit::decode(&bytes.slice(..bytes.len() - 5)).is_err());
}
