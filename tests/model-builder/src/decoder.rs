//! A layer of a decoder whose keys and values of the past come in and go out with those of the new tokens, and whose
//! dimensions have the names that exporters give.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer, integers, open};

const HEADS: usize = 2;
const SIZE: usize = 8;
const WIDTH: usize = HEADS * SIZE;

/// `x` f32[batch, sequence, width], a mask of what is added to the scores f32[batch, `total`], and the past's keys and values
/// f32[batch, heads, past, size]; to `y` of the shape of `x` and the keys and values of all.
pub fn decoder(total: &str, seed: u64) -> ModelProto {
    let mut b = Builder::new("decoder", seed);
    let cache = [1, HEADS, 1, SIZE];
    let (x, mask) = (b.input("x", &[1, 1, WIDTH]), b.input("mask", &[1, 2]));
    let (past_key, past_value) = (b.input("past_key", &cache), b.input("past_value", &cache));
    let by_heads = b.integers("by_heads", &[0, 0, HEADS as i64, SIZE as i64]);
    let [query, key, value] = ["query", "key", "value"].map(|name| {
        let weight = b.weight(&format!("{name}_weight"), &[WIDTH, WIDTH], 0.0, 0.3);
        let own = b.node("MatMul", &[&x, &weight], Vec::new());
        let own = b.node("Reshape", &[&own, &by_heads], Vec::new());
        b.node("Transpose", &[&own], vec![integers("perm", &[0, 2, 1, 3])])
    });
    let key = b.node("Concat", &[&past_key, &key], vec![integer("axis", 2)]);
    let value = b.node("Concat", &[&past_value, &value], vec![integer("axis", 2)]);
    let seen = attention(&mut b, [&query, &key, &value], &mask);
    let joined = b.integers("joined", &[0, 0, WIDTH as i64]);
    let seen = b.node("Transpose", &[&seen], vec![integers("perm", &[0, 2, 1, 3])]);
    let seen = b.node("Reshape", &[&seen, &joined], Vec::new());
    let y = b.node("Add", &[&x, &seen], Vec::new());
    b.output("y", &y, &[1, 1, WIDTH]);
    b.output("key", &key, &[1, HEADS, 2, SIZE]);
    b.output("value", &value, &[1, HEADS, 2, SIZE]);
    let mut model = b.finish();
    let graph = model.graph.get_or_insert_default();
    for port in graph.input.iter_mut().chain(&mut graph.output) {
        let names: &[(usize, &str)] = match port.name.as_deref() {
            Some("x" | "y") => &[(0, "batch"), (1, "sequence")],
            Some("mask") => &[(0, "batch"), (1, total)],
            Some("past_key" | "past_value") => &[(0, "batch"), (2, "past")],
            _ => &[(0, "batch"), (2, total)],
        };
        names.iter().for_each(|(axis, name)| open(port, *axis, name));
    }
    model
}

/// Attention with a causal order of the new tokens, which are the last of all.
fn attention(b: &mut Builder, [query, key, value]: [&Value; 3], mask: &Value) -> Value {
    let turned = b.node("Transpose", &[key], vec![integers("perm", &[0, 1, 3, 2])]);
    let scores = b.node("MatMul", &[query, &turned], Vec::new());
    let axes = b.integers("axes", &[1, 2]);
    let mask = b.node("Unsqueeze", &[mask, &axes], Vec::new());
    let scores = b.node("Add", &[&scores, &mask], Vec::new());
    // Ones below the diagonal that begins where the past ends.
    let shape = b.node("Shape", &[&scores], vec![integer("start", 2)]);
    let hidden = b.scalar("hidden", -1e9);
    let hidden = b.node("Expand", &[&hidden, &shape], Vec::new());
    let past = b.node("Shape", &[key], vec![integer("start", 2), integer("end", 3)]);
    let new = b.node("Shape", &[query], vec![integer("start", 2), integer("end", 3)]);
    let first = b.node("Sub", &[&past, &new], Vec::new());
    let one = b.integers("one", &[1]);
    let first = b.node("Add", &[&first, &one], Vec::new());
    let hidden = b.node("Trilu", &[&hidden, &first], vec![integer("upper", 1)]);
    let scores = b.node("Add", &[&scores, &hidden], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    b.node("MatMul", &[&weights, value], Vec::new())
}
