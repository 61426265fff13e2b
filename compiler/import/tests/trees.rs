//! Ensembles of decision trees whose nodes are shared, lead in circles, or are many.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, OperatorSetIdProto};
use hone_types::Tensor;

/// A node of a tree: the places of its children, none of a leaf.
type Children = Option<[i64; 2]>;

/// One tree over `x`, `f32[2, 1]`: node `i` tests `x <= i`, leaf `i` holds `i`.
fn tree(nodes: &[Children]) -> ModelProto {
    let ids: Vec<i64> = (0..nodes.len() as i64).collect();
    let leaves: Vec<i64> = ids.iter().copied().filter(|id| nodes[*id as usize].is_none()).collect();
    let side = |at: usize| -> Vec<i64> {
        nodes.iter().map(|own| own.map_or(0, |children| children[at])).collect()
    };
    let modes: Vec<&str> =
        nodes.iter().map(|own| if own.is_some() { "BRANCH_LEQ" } else { "LEAF" }).collect();
    let values: Vec<f32> = ids.iter().map(|id| *id as f32).collect();
    let weights: Vec<f32> = leaves.iter().map(|id| *id as f32).collect();
    let zeros = |count: usize| vec![0; count];
    let mut regressor = node("TreeEnsembleRegressor", &["x"], &["y"]);
    regressor.domain = Some("ai.onnx.ml".into());
    let regressor = regressor
        .int("n_targets", 1)
        .ints("nodes_treeids", &zeros(nodes.len()))
        .ints("nodes_nodeids", &ids)
        .ints("nodes_featureids", &zeros(nodes.len()))
        .ints("nodes_truenodeids", &side(0))
        .ints("nodes_falsenodeids", &side(1))
        .floats("nodes_values", &values)
        .strings("nodes_modes", &modes)
        .ints("target_treeids", &zeros(leaves.len()))
        .ints("target_nodeids", &leaves)
        .ints("target_ids", &zeros(leaves.len()))
        .floats("target_weights", &weights);
    let mut model =
        model(graph(vec![port("x", F32, &["2", "1"])], vec![], vec![regressor], &["y"]), 17);
    let classical = OperatorSetIdProto { domain: Some("ai.onnx.ml".into()), version: Some(3) };
    model.opset_import.push(classical);
    model
}

/// What a tree gives for 0 and for 100.
fn of_extremes(nodes: &[Children]) -> Vec<f64> {
    first(&tree(nodes), &[Tensor::from_elements([2, 1], &[0.0_f32, 100.0]).unwrap()]).0
}

#[test]
fn a_tree_may_be_one_leaf_and_nodes_may_lie_in_any_order() {
    assert_eq!(of_extremes(&[None]), [0.0, 0.0]);
    assert_eq!(of_extremes(&[Some([4, 1]), Some([3, 2]), None, None, None]), [4.0, 2.0]);
}

#[test]
fn of_several_weights_of_a_leaf_for_the_only_target_the_first_counts() {
    let mut several = tree(&[Some([1, 2]), None, None]);
    let node = &mut several.graph.as_mut().unwrap().node[0];
    for attribute in &mut node.attribute {
        match attribute.name() {
            "target_treeids" | "target_ids" => attribute.ints.resize(4, 0),
            "target_nodeids" => attribute.ints = vec![1, 2, 1, 2],
            "target_weights" => attribute.floats = vec![3.0, 5.0, 30.0, 50.0],
            _ => {}
        }
    }
    let x = Tensor::from_elements([2, 1], &[0.0_f32, 100.0]).unwrap();
    assert_eq!(first(&several, &[x]).0, [3.0, 5.0]);
}

#[test]
fn parents_may_share_a_child() {
    assert_eq!(of_extremes(&[Some([1, 2]), Some([3, 4]), Some([3, 4]), None, None]), [3.0, 4.0]);
}

#[test]
fn circles_and_too_many_shared_nodes_are_refused() {
    let circle = [Some([1, 2]), Some([0, 2]), None];
    let itself = [Some([0, 1]), None];
    // Both children of each of forty levels are the next one: 2^40 ways.
    let ladder: Vec<Children> =
        (1..=40).map(|next| Some([next, next])).chain(std::iter::once(None)).collect();
    for nodes in [&circle[..], &itself, &ladder] {
        let refused = import(&tree(nodes)).unwrap_err();
        let told = chain(&refused);
        assert!(told.contains("tree") && told.contains("cycle"), "{told}");
    }
}
