//! Weights of few bits in blocks, as `DequantizeLinear`, `MatMulNBits` and `MatMulBnb4` take them.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{
    GraphProto, ModelProto, NodeProto, TensorProto, tensor_proto::DataType,
};
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

/// Two rows of `[1, 2]`, or columns where `along` is 0, of numbers that are stored in `bytes`, with zero points `zeros`.
fn blocked(kind: DataType, along: i64, bytes: &'static [u8], zeros: &'static [u8]) -> Vec<f64> {
    let stored = |name: &str, dims: Vec<i64>, bytes: &'static [u8]| TensorProto {
        name: Some(name.into()),
        dims,
        data_type: Some(kind as i32),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    };
    // Four numbers along the axis, in two blocks.
    let (of_numbers, of_blocks) = if along == 0 { ([4, 2], [2, 2]) } else { ([2, 4], [2, 2]) };
    let mut tensors = vec![stored("weights", of_numbers.to_vec(), bytes)];
    tensors.push(floats("scales", &of_blocks, &[1.0, 10.0, 100.0, 1000.0]));
    let mut inputs = vec!["weights", "scales"];
    if !zeros.is_empty() {
        tensors.push(stored("zeros", of_blocks.to_vec(), zeros));
        inputs.push("zeros");
    }
    let dequantize = node("DequantizeLinear", &inputs, &["numbers"]);
    let dequantize = dequantize.int("axis", along).int("block_size", 2);
    let product = node("Gemm", &["x", "numbers"], &["y"]).int("transB", i64::from(along != 0));
    let x = vec![port("x", F32, &["1", "4"])];
    let proto = model(graph(x, tensors, vec![dequantize, product], &["y"]), 25);
    let x = Tensor::from_elements([1, 4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    first(&proto, &[x]).0
}

#[test]
fn blocks_of_every_integer_type_along_both_axes() {
    // 0, 1, 2, 3; 3, 2, 1, 0 along rows, and the same as columns.
    let rows: [&[u8]; 3] = [&[0, 1, 2, 3, 3, 2, 1, 0], &[0x10, 0x32, 0x23, 0x01], &[0xe4, 0x1b]];
    let columns: [&[u8]; 3] = [&[0, 3, 1, 2, 2, 1, 3, 0], &[0x30, 0x21, 0x12, 0x03], &[0x9c, 0x36]];
    let kinds = [DataType::Uint8, DataType::Uint4, DataType::Uint2];
    for (index, kind) in kinds.into_iter().enumerate() {
        assert_eq!(blocked(kind, 1, rows[index], &[]), [2.0 + 180.0, 700.0 + 3000.0], "{kind:?}");
        let expected = [2.0 + 1800.0, 70.0 + 3000.0];
        assert_eq!(blocked(kind, 0, columns[index], &[]), expected, "{kind:?}");
    }
    // Zero points 1, 0; 0, 2.
    let zeros: [&[u8]; 3] = [&[1, 0, 0, 2], &[0x01, 0x20], &[0x81]];
    for (index, kind) in kinds.into_iter().enumerate() {
        let expected = [-3.0 + 2.0 + 180.0, 700.0 + 3000.0 - 14_000.0];
        assert_eq!(blocked(kind, 1, rows[index], zeros[index]), expected, "{kind:?}");
    }
}

#[test]
fn blocks_of_signed_integers() {
    // -2, -1, 0, 1; 1, 0, -1, -2.
    let rows: [&[u8]; 3] =
        [&[0xfe, 0xff, 0, 1, 1, 0, 0xff, 0xfe], &[0xfe, 0x10, 0x01, 0xef], &[0x4e, 0xb1]];
    let kinds = [DataType::Int8, DataType::Int4, DataType::Int2];
    for (index, kind) in kinds.into_iter().enumerate() {
        let expected = [-4.0 + 40.0, 100.0 - 11_000.0];
        assert_eq!(blocked(kind, 1, rows[index], &[]), expected, "{kind:?}");
    }
    // Zero points -1, 0; 1, -2.
    let zeros: [&[u8]; 3] = [&[0xff, 0, 1, 0xfe], &[0x0f, 0xe1], &[0x93]];
    for (index, kind) in kinds.into_iter().enumerate() {
        let expected = [-4.0 + 3.0 + 40.0, 100.0 - 300.0 - 11_000.0 + 14_000.0];
        assert_eq!(blocked(kind, 1, rows[index], zeros[index]), expected, "{kind:?}");
    }
}

/// An operator of onnxruntime's.
fn microsoft(operator: &str, inputs: &[&str]) -> NodeProto {
    of_microsoft(node(operator, inputs, &["y"]))
}

fn microsoft_model(graph: GraphProto) -> ModelProto {
    with_microsoft(model(graph, 21))
}

/// `x`, `f32[1, 16]` of ones but for the last, which is 100, times a column of two bits in two blocks.
fn two_bits(zeros: Option<u8>) -> Vec<f64> {
    let bytes = |name: &str, dims: &[i64], bytes: Vec<u8>| TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(DataType::Uint8 as i32),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    };
    // 0, 1, 2, 3, 0, 0, 0, 1; eight times 3.
    let mut tensors = vec![bytes("weights", &[1, 2, 2], vec![0xe4, 0x40, 0xff, 0xff])];
    tensors.push(floats("scales", &[2], &[1.0, 10.0]));
    let mut inputs = vec!["x", "weights", "scales"];
    if let Some(zeros) = zeros {
        tensors.push(bytes("zeros", &[1], vec![zeros]));
        inputs.push("zeros");
    }
    let product = microsoft("MatMulNBits", &inputs);
    let product = product.int("K", 16).int("N", 1).int("bits", 2).int("block_size", 8);
    let x = vec![port("x", F32, &["1", "16"])];
    let proto = microsoft_model(graph(x, tensors, vec![product], &["y"]));
    let mut ones = [1.0f32; 16];
    ones[15] = 100.0;
    first(&proto, &[Tensor::from_elements([1, 16], &ones).unwrap()]).0
}

#[test]
fn weights_of_two_bits() {
    assert_eq!(two_bits(None), [7.0 - 16.0 + 10.0 * 107.0]);
    // Zero points 1 and 3.
    assert_eq!(two_bits(Some(0b1101)), [7.0 - 8.0]);
}

/// `x`, `f32[1, 3]`, times a matrix of three columns of four bits in blocks of four.
fn bnb4(kind: i64, magnitudes: &[f32]) -> ModelProto {
    let weights = TensorProto {
        name: Some("weights".into()),
        dims: vec![5],
        data_type: Some(DataType::Uint8 as i32),
        raw_data: Some(vec![0x03, 0xb4, 0xf7, 0x25, 0x30].into()),
        ..TensorProto::default()
    };
    let tensors = vec![weights, floats("magnitudes", &[magnitudes.len() as i64], magnitudes)];
    let product = microsoft("MatMulBnb4", &["x", "weights", "magnitudes"]).int("K", 3).int("N", 3);
    let product = product.int("block_size", 4).int("quant_type", kind);
    let x = vec![port("x", F32, &["1", "3"])];
    microsoft_model(graph(x, tensors, vec![product], &["y"]))
}

#[test]
fn floats_of_four_bits() {
    let x = Tensor::from_elements([1, 3], &[1.0f32, 10.0, 100.0]).unwrap();
    // 0, 1, -1, 1/3; -1/4, 1/4, 2/3, 1/2; 1.
    let found = first(&bnb4(0, &[1.0, 12.0, 3.0]), std::slice::from_ref(&x)).0;
    let expected = [10.0 - 100.0, 1.0 / 3.0 - 30.0 + 300.0, 8.0 + 60.0 + 300.0];
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} and not {expected}");
    }
    // -1, -0.3949, 0.3379, -0.2844; 1, 0, -0.5251, -0.1848; -0.3949.
    let found = first(&bnb4(1, &[1.0, 1.0, 1.0]), &[x]).0;
    let expected =
        [-1.0 - 3.949_175 + 33.791_524, -0.284_441 + 10.0, -0.525_073 - 1.847_734 - 39.491_75];
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-3, "{found} and not {expected}");
    }
}

#[test]
fn floats_of_four_bits_of_another_kind_or_number_are_refused() {
    for (kind, magnitudes) in [(2, &[1.0f32; 3][..]), (0, &[1.0; 2])] {
        let proto = bnb4(kind, magnitudes);
        let error = chain(&import(&proto).unwrap_err());
        assert!(error.contains("MatMulBnb4"), "{error}");
    }
}
