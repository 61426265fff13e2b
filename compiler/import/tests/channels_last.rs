//! Quantized images whose channels are the last axis, as onnxruntime's optimizer saves them.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{ModelProto, NodeProto, TensorProto, tensor_proto::DataType};
use hone_types::Tensor;

/// A convolution of `x`, `u8[1, 2, 5, 4]`, and the largest of windows, between the last channels' transpositions or without.
fn network(is_last: bool) -> ModelProto {
    let domain = |node: NodeProto| match is_last {
        true => of_microsoft(node),
        false => node,
    };
    let (image, pooled) = if is_last { ("behind", "pooled") } else { ("x", "y") };
    let inputs = [image, "s", "z", "w", "s", "z", "t", "z", "b"];
    let convolution = node("QLinearConv", &inputs, &["c"]).ints("pads", &[1, 1, 1, 1]);
    let pool = node(if is_last { "NhwcMaxPool" } else { "MaxPool" }, &["c"], &[pooled]);
    let pool = pool.ints("kernel_shape", &[2, 3]).ints("strides", &[2, 1]).int("ceil_mode", 1);
    let mut nodes = vec![domain(convolution), domain(pool)];
    if is_last {
        let channels = |x: &str, y: &str, permutation: &[i64]| {
            node("Transpose", &[x], &[y]).ints("perm", permutation)
        };
        nodes[0] = nodes[0].clone().int("channels_last", 1);
        nodes.insert(0, channels("x", "behind", &[0, 2, 3, 1]));
        nodes.push(channels("pooled", "y", &[0, 3, 1, 2]));
    }
    let bias = TensorProto { int32_data: vec![900, -40, 7], ..integers("b", &[]) };
    let bias = TensorProto { dims: vec![3], data_type: Some(DataType::Int32 as i32), ..bias };
    let tensors = vec![
        floats("s", &[], &[0.1]),
        floats("t", &[], &[8.0]),
        byte("z", 100),
        bytes("w", &[3, 2, 3, 3]),
        bias,
    ];
    with_microsoft(model(
        graph(vec![port("x", U8, &["1", "2", "5", "4"])], tensors, nodes, &["y"]),
        17,
    ))
}

#[test]
fn channels_may_be_the_last_axis() {
    let values: Vec<u8> = (0..40).map(|place| (place * 53 % 256) as u8).collect();
    let x = [Tensor::from_elements([1, 2, 5, 4], &values).unwrap()];
    let expected = first(&network(false), &x);
    assert_eq!(expected.1, [1, 3, 3, 2]);
    assert!(expected.0.windows(2).any(|pair| pair[0] != pair[1]));
    assert_eq!(first(&network(true), &x), expected);
}

#[test]
fn weights_that_are_packed_for_a_processor_are_refused() {
    let product = node("MatMulNBits", &["x", "w", "s"], &["y"]).int("K", 16).int("N", 1);
    let product = product.int("block_size", 16).int("weight_prepacked", 1);
    let product = of_microsoft(product);
    let tensors = vec![bytes("w", &[1, 1, 8]), floats("s", &[1], &[1.0])];
    let x = vec![port("x", F32, &["1", "16"])];
    let proto = with_microsoft(model(graph(x, tensors, vec![product], &["y"]), 17));
    let found = chain(&import(&proto).unwrap_err());
    assert!(found.contains("packed for one kind of processor"), "{found}");
}
