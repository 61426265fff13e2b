//! Attention of 12 heads over 128 tokens (Vaswani et al., 2017) with an additive mask as learned position
//! biases and soft masks make them: most differences in a row of scores lie between 60 and 110, where the
//! exponential is tiny, subnormal or zero. A benchmark of what subnormal numbers cost.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, integer, integers};

const HEADS: usize = 12;
const TOKENS: usize = 128;
const WIDTH: usize = 64;

/// `x` f32[1, heads, tokens, width], the queries, keys and values alike, to `y` of the same shape.
pub fn masked_attention(seed: u64) -> ModelProto {
    let mut b = Builder::new("masked-attention", seed);
    let shape = [1, HEADS, TOKENS, WIDTH];
    let x = b.input("x", &shape);
    let scale = b.scalar("scale", (WIDTH as f32).sqrt());
    // The difference of two such numbers has a deviation of 35; a row's largest lies near 60.
    let mask = b.weight("mask", &[1, 1, TOKENS, TOKENS], 0.0, 25.0);
    let keys = b.node("Transpose", &[&x], vec![integers("perm", &[0, 1, 3, 2])]);
    let scores = b.node("MatMul", &[&x, &keys], Vec::new());
    let scores = b.node("Div", &[&scores, &scale], Vec::new());
    let scores = b.node("Add", &[&scores, &mask], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    let y = b.node("MatMul", &[&weights, &x], Vec::new());
    b.output("y", &y, &shape);
    b.finish()
}
