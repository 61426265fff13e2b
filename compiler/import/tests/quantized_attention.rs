//! Attention and embeddings of integers, as onnxruntime's quantizer writes them, beside the same of dequantized numbers.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, NodeProto, TensorProto, ValueInfoProto};
use hone_types::Tensor;

fn fused(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    of_microsoft(node(operator, inputs, outputs))
}

fn network(
    inputs: Vec<ValueInfoProto>,
    tensors: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
) -> ModelProto {
    with_microsoft(model(graph(inputs, tensors, nodes, &["y"]), 17))
}

fn dequantized(name: &str, scale: &str, zero: &str) -> NodeProto {
    node("DequantizeLinear", &[name, scale, zero], &[&format!("{name}_real")])
}

/// Whether two first outputs are the same numbers but for rounding, and not all alike.
fn is_alike(one: &ModelProto, other: &ModelProto, inputs: &[Tensor]) -> bool {
    let (one, other) = (first(one, inputs), first(other, inputs));
    let largest = other.0.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let near = one.0.iter().zip(&other.0).all(|(a, b)| (a - b).abs() <= 1e-5 * largest);
    one.1 == other.1 && near && largest > 0.1 && other.0.windows(2).any(|pair| pair[0] != pair[1])
}

/// Attention of `x`, `u8[2, 3, 4]`, with two heads, a mask of keys and a past of one token.
fn attention(is_quantized: bool, column_scales: bool) -> ModelProto {
    let scales: Vec<f32> = (0..12).map(|column| 0.01 + 0.001 * column as f32).collect();
    let dims: &[i64] = if column_scales { &[12] } else { &[] };
    let scales = floats("t", dims, &scales[..if column_scales { 12 } else { 1 }]);
    let bias: Vec<f32> = (0..12).map(|place| 0.1 * place as f32 - 0.5).collect();
    let past: Vec<f32> = (0..16).map(|place| (place * 5 % 7) as f32 * 0.2 - 0.6).collect();
    let zeros = match column_scales {
        true => {
            TensorProto { dims: vec![12], raw_data: Some(vec![120; 12].into()), ..byte("v", 0) }
        }
        false => byte("v", 120),
    };
    let tensors = vec![
        bytes("w", &[4, 12]),
        floats("s", &[], &[0.02]),
        scales,
        byte("z", 100),
        zeros,
        floats("b", &[12], &bias),
        TensorProto {
            name: Some("mask".into()),
            dims: vec![2, 4],
            data_type: Some(I32),
            int32_data: vec![1, 1, 1, 0, 1, 1, 1, 1],
            ..TensorProto::default()
        },
        floats("past", &[2, 2, 2, 1, 2], &past),
    ];
    let nodes = match is_quantized {
        true => {
            let inputs = ["x", "w", "b", "s", "t", "mask", "z", "v", "past"];
            vec![fused("QAttention", &inputs, &["y", "present"]).int("num_heads", 2)]
        }
        false => {
            let weights = dequantized("w", "t", "v").int("axis", 1);
            let inputs = ["x_real", "w_real", "b", "mask", "past"];
            let attention = fused("Attention", &inputs, &["y", "present"]).int("num_heads", 2);
            vec![dequantized("x", "s", "z"), weights, attention]
        }
    };
    network(vec![port("x", U8, &["2", "3", "4"])], tensors, nodes)
}

#[test]
fn attention_of_integers_is_that_of_their_numbers() {
    let values: Vec<u8> = (0..24).map(|place| (place * 53 % 256) as u8).collect();
    let x = [Tensor::from_elements([2, 3, 4], &values).unwrap()];
    for column_scales in [false, true] {
        assert!(is_alike(&attention(true, column_scales), &attention(false, column_scales), &x));
    }
}

/// The sum of three normalized embeddings of `words`, `i32[2, 3]`.
fn embedding(is_quantized: bool) -> ModelProto {
    let names = ["words", "places", "segments", "gamma", "beta"];
    let rows: [&[i64]; 5] = [&[9, 4], &[5, 4], &[2, 4], &[4], &[4]];
    let mut tensors: Vec<TensorProto> =
        names.iter().zip(rows).map(|(name, dims)| bytes(name, dims)).collect();
    for (place, name) in names.iter().enumerate() {
        tensors.push(floats(&format!("{name}_s"), &[], &[0.01 + 0.01 * place as f32]));
        tensors.push(byte(&format!("{name}_z"), 60 + 20 * place as u8));
    }
    let of = |suffix: &str| -> Vec<String> {
        names.iter().map(|name| format!("{name}{suffix}")).collect()
    };
    let nodes = match is_quantized {
        true => {
            let parts = [
                vec!["ids".to_owned(), "kinds".to_owned()],
                of(""),
                vec![String::new()],
                of("_s"),
                of("_z"),
            ]
            .concat();
            let inputs: Vec<&str> = parts.iter().map(String::as_str).collect();
            vec![fused("QEmbedLayerNormalization", &inputs, &["y", "shown"])]
        }
        false => {
            let mut nodes: Vec<NodeProto> = names
                .iter()
                .map(|name| dequantized(name, &format!("{name}_s"), &format!("{name}_z")))
                .collect();
            let parts = [vec!["ids".to_owned(), "kinds".to_owned()], of("_real")].concat();
            let inputs: Vec<&str> = parts.iter().map(String::as_str).collect();
            nodes.push(fused("EmbedLayerNormalization", &inputs, &["y", "shown"]));
            nodes
        }
    };
    let inputs = vec![port("ids", I32, &["2", "3"]), port("kinds", I32, &["2", "3"])];
    network(inputs, tensors, nodes)
}

#[test]
fn embeddings_of_integers_are_those_of_their_numbers() {
    let ids = Tensor::from_elements([2, 3], &[0, 8, 3, 2, 2, 7_i32]).unwrap();
    let kinds = Tensor::from_elements([2, 3], &[0, 0, 1, 1, 0, 1_i32]).unwrap();
    assert!(is_alike(&embedding(true), &embedding(false), &[ids, kinds]));
}
