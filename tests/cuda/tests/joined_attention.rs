//! Attentions are joined where the kernel is written with all that fuses with them; others stay products on tensor cores.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, compiled, library, options};
use hone_artifact::Reader;
use hone_device_tests::{error, inputs};
use hone_driver::{Accelerator, DataType, prepare};
use hone_import::{ImportOptions, import};
use hone_model_builder::{Builder, integer, integers};
use hone_ops::{Attention, MatMul};
use hone_runtime::Model;
use hone_types::Tensor;
use prost::Message;

const HEADS: usize = 2;
const ROWS: usize = 32;
const LENGTH: usize = 64;

/// What follows the attention.
#[derive(Clone, Copy, Debug)]
enum Behind {
    Nothing,
    /// Heads side by side in each row, to which something is added.
    JoinedHeads,
    /// The largest of each row is subtracted.
    Largest,
}

/// `softmax(q k^T / 8) v` and what follows.
fn network(behind: Behind) -> Vec<u8> {
    let mut b = Builder::new("attention", 1);
    let shape = [1, HEADS, ROWS, LENGTH];
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, &shape));
    let k = b.node("Transpose", &[&k], vec![integers("perm", &[0, 1, 3, 2])]);
    let scores = b.node("MatMul", &[&q, &k], Vec::new());
    let scale = b.scalar("scale", 0.125);
    let scores = b.node("Mul", &[&scores, &scale], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    let rows = b.node("MatMul", &[&weights, &v], Vec::new());
    let rows = match behind {
        Behind::Nothing => rows,
        Behind::JoinedHeads => {
            let rows = b.node("Transpose", &[&rows], vec![integers("perm", &[0, 2, 1, 3])]);
            let width = b.integers("width", &[1, ROWS as i64, (HEADS * LENGTH) as i64]);
            let rows = b.node("Reshape", &[&rows, &width], Vec::new());
            let other = b.weight("other", &[1, ROWS, HEADS * LENGTH], 0.0, 1.0);
            let sum = b.node("Add", &[&rows, &other], Vec::new());
            b.output("y", &sum, &[1, ROWS, HEADS * LENGTH]);
            return b.finish().encode_to_vec();
        }
        Behind::Largest => {
            let most = b.node("ReduceMax", &[&rows], vec![integers("axes", &[3])]);
            b.node("Sub", &[&rows, &most], Vec::new())
        }
    };
    b.output("y", &rows, &shape);
    b.finish().encode_to_vec()
}

/// `softmax(q k^T) v` of so many products of matrices, each of 8 rows of 32 numbers.
fn many(batch: usize) -> Vec<u8> {
    let mut b = Builder::new("many attentions", 1);
    let shape = [batch, 8, 32];
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, &shape));
    let k = b.node("Transpose", &[&k], vec![integers("perm", &[0, 2, 1])]);
    let scores = b.node("MatMul", &[&q, &k], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    let rows = b.node("MatMul", &[&weights, &v], Vec::new());
    b.output("y", &rows, &shape);
    b.finish().encode_to_vec()
}

/// A launch has no more than 65,535 blocks along its last axis, so of one attention more the kernel is not written.
#[test]
fn what_the_emitter_refuses_stays_two_products() {
    for (batch, expected) in [(65_535, 1), (65_536, 0)] {
        let graph = import(&many(batch), &ImportOptions::default()).unwrap().graph;
        let prepared = prepare(&graph, &options(Accelerator::Sm80, DataType::BF16)).unwrap();
        let nodes: Vec<_> = prepared.nodes().iter().map(|(_, node)| &node.operation).collect();
        let attentions = nodes.iter().filter(|node| node.downcast::<Attention>().is_some());
        assert_eq!(attentions.count(), expected, "{batch}");
        let products = nodes.iter().filter(|node| node.downcast::<MatMul>().is_some());
        assert_eq!(products.count(), 2 - 2 * expected, "{batch}");
    }
}

#[test]
fn child() {
    if std::env::var_os(LIBRARY).is_none() {
        return;
    }
    for behind in [Behind::Nothing, Behind::JoinedHeads, Behind::Largest] {
        let model = network(behind);
        let (graph, artifact) = compiled(&model, &options(Accelerator::Sm80, DataType::BF16));
        let reader = Reader::new(&artifact).unwrap();
        let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
        let kernels: Vec<&str> = text.split(".visible .entry").skip(1).collect();
        let on_cores = kernels.iter().filter(|own| own.contains("mma.sync")).count();
        let attentions = kernels.iter().filter(|own| own.contains("shfl.sync")).count();
        println!("{behind:?}: {on_cores} on tensor cores, {attentions} attentions");
        let mut model = Model::load_memory(artifact, &Default::default()).unwrap();
        let inputs = inputs(&graph, 1);
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let mut output = vec![0u8; model.outputs()[0].bytes as usize];
        model.run(&given, &mut [&mut output]).unwrap();
        let error = error(&graph, &inputs, &[output]);
        println!("{behind:?}: error {error:.1e}");
        assert!(error < 3e-2, "{behind:?}: {error}");
        // Nothing of it is left to lanes that compute one element each.
        assert_eq!(on_cores, 2 - attentions, "{behind:?}");
    }
    println!("all are right");
}

#[test]
fn attentions_and_what_follows_are_on_tensor_cores() {
    let said = common::said("child", &[(LIBRARY, &library())], &[]);
    println!("{said}");
    assert!(said.contains("all are right"), "{said}");
}
