//! Products by weights of 16 bits, as converters write them that leave a model's inputs and outputs in `f32`.

use hone_import::onnx::proto::{ModelProto, tensor_proto::DataType};

use crate::graph::{Builder, Value, integer};

/// Elements along each axis of the larger matrix: as `f32` it fills no second-level cache of 2 MiB.
const DEPTH: usize = 704;
const COLUMNS: usize = 808;

/// `x` f32[rows, 704] to `y` f32[rows, 40]: a product by weights of `f16` and one of `bf16`.
pub fn half_weights(rows: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("half weights", seed);
    let x = b.input("x", &[rows, DEPTH]);
    // A sign, one of two exponents, and a fraction: magnitudes from 2^-6 to 2^-4.
    let of_f16 = |bits: u16| bits & 0x87ff | 0x2400;
    let of_bf16 = |bits: u16| bits & 0x80ff | 0x3c80;
    let x = product(&mut b, "first", &x, [DEPTH, COLUMNS], (DataType::Float16, &of_f16));
    let x = b.node("Tanh", &[&x], Vec::new());
    let y = product(&mut b, "second", &x, [COLUMNS, 40], (DataType::Bfloat16, &of_bf16));
    b.output("y", &y, &[rows, 40]);
    b.finish()
}

/// A product in a type of 16 bits, whose weights have the bits that a function makes of random ones.
fn product(
    b: &mut Builder,
    name: &str,
    x: &Value,
    shape: [usize; 2],
    (element, bits): (DataType, &dyn Fn(u16) -> u16),
) -> Value {
    let random = b.random_bytes(2 * shape.iter().product::<usize>());
    let raw = random
        .chunks_exact(2)
        .flat_map(|pair| bits(u16::from_le_bytes([pair[0], pair[1]])).to_le_bytes());
    let weight = b.initializer(&format!("{name}.weight"), element, &shape, raw.collect());
    let narrow = b.node("Cast", &[x], vec![integer("to", element as i64)]);
    let product = b.node("MatMul", &[&narrow, &weight], Vec::new());
    b.node("Cast", &[&product], vec![integer("to", DataType::Float as i64)])
}
