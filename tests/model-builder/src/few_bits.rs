//! Products by weights of four bits with a scale for each block, as ONNX Runtime's quantizers of language models write
//! them.

use hone_import::onnx::proto::{ModelProto, tensor_proto::DataType};

use crate::graph::{Builder, Value, integer};

/// Elements of a block.
const BLOCK: usize = 32;

/// `x` f32[rows, 64] to `y` f32[rows, 40]: two products, the first of bytes that the rows are rounded to, whose weights
/// have zero points, the second of floats.
pub fn few_bits(rows: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("few bits", seed);
    let x = b.input("x", &[rows, 64]);
    let x = product(&mut b, "first", &x, [64, 96], true);
    let x = b.node("Tanh", &[&x], Vec::new());
    let y = product(&mut b, "second", &x, [96, 40], false);
    b.output("y", &y, &[rows, 40]);
    b.finish()
}

fn product(
    b: &mut Builder,
    name: &str,
    x: &Value,
    [depth, columns]: [usize; 2],
    of_bytes: bool,
) -> Value {
    let blocks = depth / BLOCK;
    let bytes = b.random_bytes(columns * blocks * BLOCK / 2);
    let shape = [columns, blocks, BLOCK / 2];
    let weight = b.initializer(&format!("{name}.weight"), DataType::Uint8, &shape, bytes);
    // Sums of so many products of numbers spread evenly have a deviation near that of one input.
    let scales: Vec<f32> = (0..columns * blocks)
        .map(|block| (1.0 + 0.1 * (block % 5) as f32) / (4.6 * (depth as f32).sqrt()))
        .collect();
    let scales = b.floats(&format!("{name}.scales"), &scales);
    let mut attributes = vec![
        integer("K", depth as i64),
        integer("N", columns as i64),
        integer("bits", 4),
        integer("block_size", BLOCK as i64),
    ];
    let inputs = [x, &weight, &scales];
    if !of_bytes {
        return b.node_of("com.microsoft", "MatMulNBits", &inputs, attributes);
    }
    attributes.push(integer("accuracy_level", 4));
    let row = blocks.div_ceil(2);
    let zeros = b.random_bytes(columns * row);
    let zeros = b.initializer(&format!("{name}.zeros"), DataType::Uint8, &[columns * row], zeros);
    b.node_of("com.microsoft", "MatMulNBits", &[&inputs[..], &[&zeros]].concat(), attributes)
}
