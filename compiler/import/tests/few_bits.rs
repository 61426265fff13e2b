//! Weights of four bits in blocks, as `DequantizeLinear` takes them.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, TensorProto, tensor_proto::DataType};
use hone_types::Tensor;

/// `x`, `f32[1, 3]`, times `[3, 2]` weights of four bits, of which `block` in a column share a scale.
fn product(block: i64) -> ModelProto {
    let weights = TensorProto {
        name: Some("weights".into()),
        dims: vec![3, 2],
        data_type: Some(DataType::Int4 as i32),
        // 1, -2; 3, -4; 5, -6.
        raw_data: Some(vec![0xe1, 0xc3, 0xa5].into()),
        ..TensorProto::default()
    };
    let blocks = (3 + block.min(3) - 1) / block.min(3);
    let scales: Vec<f32> = (1..=2 * blocks).map(|number| number as f32).collect();
    let stored = vec![weights, floats("scales", &[blocks, 2], &scales)];
    let dequantize = node("DequantizeLinear", &["weights", "scales"], &["numbers"]);
    let dequantize = dequantize.int("axis", 0).int("block_size", block);
    let nodes = vec![dequantize, node("MatMul", &["x", "numbers"], &["y"])];
    model(graph(vec![port("x", F32, &["1", "3"])], stored, nodes, &["y"]), 21)
}

fn of_ones(block: i64) -> Vec<f64> {
    first(&product(block), &[Tensor::from_elements([1, 3], &[1.0f32; 3]).unwrap()]).0
}

#[test]
fn the_last_block_may_be_cut_off() {
    assert_eq!(of_ones(2), [4.0 + 3.0 * 5.0, 2.0 * -6.0 + 4.0 * -6.0]);
}

#[test]
fn a_block_may_be_longer_than_its_column() {
    for block in [3, 4, 5, 1 << 20, 1 << 62, i64::MAX] {
        assert_eq!(of_ones(block), [9.0, 2.0 * -12.0], "{block}");
    }
}
