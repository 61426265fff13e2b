//! A recurrent tagger: two bidirectional LSTM layers (Hochreiter and Schmidhuber, 1997) over a
//! sequence, and scores of each of its places.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer, integers, text};

/// The sizes of a tagger.
#[derive(Clone, Copy, Debug)]
pub struct TaggerSizes {
    /// Places in the sequence.
    pub steps: usize,
    /// Numbers at each place.
    pub features: usize,
    /// Numbers of each direction's state.
    pub hidden: usize,
    /// Tags.
    pub tags: usize,
}

/// A sequence `x` f32[steps, 1, features] to scores `y` f32[steps, 1, tags].
pub fn tagger(sizes: TaggerSizes, seed: u64) -> ModelProto {
    let TaggerSizes { steps, features, hidden, tags } = sizes;
    let mut b = Builder::new("tagger", seed);
    let x = b.input("x", &[steps, 1, features]);
    let x = layer(&mut b, "first", &x, sizes, features);
    let x = layer(&mut b, "second", &x, sizes, 2 * hidden);
    let deviation = 1.0 / (2.0 * hidden as f32).sqrt();
    let weight = b.weight("head.weight", &[2 * hidden, tags], 0.0, deviation);
    let bias = b.weight("head.bias", &[tags], 0.0, 0.1);
    let scores = b.node("MatMul", &[&x, &weight], Vec::new());
    let y = b.node("Add", &[&scores, &bias], Vec::new());
    b.output("y", &y, &[steps, 1, tags]);
    b.finish()
}

/// [steps, 1, width] to [steps, 1, 2 * hidden]: both directions side by side.
fn layer(b: &mut Builder, name: &str, x: &Value, sizes: TaggerSizes, width: usize) -> Value {
    let TaggerSizes { steps, hidden, .. } = sizes;
    let deviation = 1.0 / (hidden as f32).sqrt();
    let input = b.weight(&format!("{name}.input"), &[2, 4 * hidden, width], 0.0, deviation);
    let state = b.weight(&format!("{name}.state"), &[2, 4 * hidden, hidden], 0.0, deviation);
    let bias = b.weight(&format!("{name}.bias"), &[2, 8 * hidden], 0.0, 0.1);
    let attributes =
        vec![integer("hidden_size", hidden as i64), text("direction", "bidirectional")];
    // [steps, directions, 1, hidden]
    let y = b.node("LSTM", &[x, &input, &state, &bias], attributes);
    let y = b.node("Transpose", &[&y], vec![integers("perm", &[0, 2, 1, 3])]);
    let shape = b.integers(&format!("{name}.shape"), &[steps as i64, 1, 2 * hidden as i64]);
    b.node("Reshape", &[&y, &shape], Vec::new())
}
