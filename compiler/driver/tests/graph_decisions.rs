//! Decisions about graphs that were measured: they go before those of the analytic model, stand in the manifest where they
//! are used, and nowhere else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::run;
use hone_artifact::{Reader, Variant};
use hone_driver::{
    DataType, Graph, Options, Prescription, SchedulePolicy, Target, Tensor, TensorType,
    compile_graph, evaluate, graph_decision, graph_decisions, map_steps,
};
use hone_ops::{Convolution, Window};
use hone_runtime::{Model, Options as RunOptions};
use hone_types::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

const KIND: &str = "convolution-algorithm";

/// Two equal convolutions of 3 × 3 elements one after another.
fn network() -> Graph {
    let (mut graph, mut random) = (Graph::new(), Random::new(5));
    let mut value = graph.add_input("x", TensorType::new(DataType::F32, [1, 32, 14, 14]));
    for name in ["one", "other"] {
        let weights: Vec<f32> = random.normals(32 * 32 * 9, 0.0, 0.06);
        let weights = Tensor::from_elements([32, 32, 3, 3], &weights).unwrap();
        let weights = graph.add_constant("weights", weights);
        let mut window = Window::plain(2);
        (window.pads_begin, window.pads_end) = (vec![1, 1], vec![1, 1]);
        let convolution = Convolution { window, groups: 1 };
        value = graph.add_node(name, convolution.into(), &[Some(value), Some(weights)]).unwrap()[0];
    }
    graph.add_output("y", value);
    graph
}

fn with(records: impl IntoIterator<Item = (String, Prescription)>) -> Options {
    let records: BTreeMap<String, Prescription> = records.into_iter().collect();
    Options { records: Arc::new(records), ..Options::new(Target::host().unwrap()) }
}

fn compiled(graph: &Graph, options: &Options) -> (Vec<u8>, Variant, Option<String>) {
    let artifact = compile_graph(graph.clone(), b"decisions", options).unwrap().artifact;
    let manifest = Reader::new(&artifact).unwrap().manifest().clone();
    let variant = manifest.variants[0].clone();
    (artifact, variant, manifest.records_digest)
}

#[test]
fn every_value_computes_the_same_and_is_told_by_the_manifest() {
    let graph = network();
    let found = graph_decisions(&graph, &with([])).unwrap();
    let [(structure, decision)] = &found.iter().collect::<Vec<_>>()[..] else {
        panic!("equal convolutions are one decision: {found:?}")
    };
    assert_eq!((decision.kind, &decision.nodes[..]), (KIND, &["one".into(), "other".into()][..]));
    assert_eq!(decision.alternatives, [0, 2, 4]);
    let x: Vec<f32> = Random::new(6).normals(32 * 196, 0.0, 1.0);
    let x = [Tensor::from_elements([1, 32, 14, 14], &x).unwrap()];
    let want = evaluate(&graph, &x).unwrap()[0].elements::<f32>().unwrap();
    let mut steps = Vec::new();
    for value in &decision.alternatives {
        let options = with([((*structure).clone(), graph_decision(KIND, *value))]);
        let (artifact, variant, digest) = compiled(&graph, &options);
        let told = &variant.recipe.as_ref().unwrap().decisions;
        assert_eq!(told.iter().map(|own| own.value).collect::<Vec<_>>(), [*value]);
        assert!(digest.is_some());
        // Whoever has the artifact finds its steps in the graph again.
        let stored = Options::of_variant(&variant).unwrap();
        map_steps(&graph, None, &stored, &variant.steps).unwrap();
        let mut model = Model::load_memory(artifact, &RunOptions::default()).unwrap();
        for (got, want) in run(&mut model, &x)[0].iter().zip(&want) {
            assert!((got - want).abs() < 1e-4, "{value}: {got} instead of {want}");
        }
        assert!(!steps.contains(&variant.steps), "{value} computes as another value does");
        steps.push(variant.steps);
    }
}

#[test]
fn what_is_not_used_leaves_no_trace() {
    let graph = network();
    let untuned = compiled(&graph, &with([]));
    let structure = graph_decisions(&graph, &with([])).unwrap().into_keys().next().unwrap();
    let elsewhere = ("convolution of another network".to_owned(), graph_decision(KIND, 4));
    let unknown = (structure, graph_decision(KIND, 3));
    let other = compiled(&graph, &with([elsewhere, unknown]));
    assert!(untuned.0 == other.0 && other.2.is_none());
    // The plain loop order has no decisions.
    let naive = Options { schedules: SchedulePolicy::Naive, ..with([]) };
    assert!(graph_decisions(&graph, &naive).unwrap().is_empty());
}
