//! BERT's encoder (Devlin et al., 2018), as exporters write it.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer, integers, number, open_axis};

/// The sizes of a BERT encoder; the default is BERT-base on 128 tokens.
#[derive(Clone, Debug)]
pub struct BertSizes {
    /// Tokens in the sequence.
    pub tokens: usize,
    /// Words in the vocabulary.
    pub words: usize,
    /// Numbers that stand for one token; a multiple of `heads`.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the inner layer of each feed-forward part.
    pub inner: usize,
    /// Encoder layers.
    pub layers: usize,
}

impl Default for BertSizes {
    fn default() -> Self {
        Self { tokens: 128, words: 30_522, width: 768, heads: 12, inner: 3072, layers: 12 }
    }
}

/// `input_ids`, `token_type_ids` and `attention_mask` i64[1, tokens] to `y` f32[1, tokens, width].
///
/// `input_ids` are below `words`, `token_type_ids` below 2; where `attention_mask` is 0 a token is
/// padding, elsewhere it is 1.
pub fn bert(sizes: &BertSizes, seed: u64) -> ModelProto {
    encoder(sizes, Length::Fixed, seed)
}

/// The same for sequences of any length up to `tokens`: i64[1, sequence] to f32[1, sequence, width].
pub fn bert_of_any_length(sizes: &BertSizes, seed: u64) -> ModelProto {
    let mut model = encoder(sizes, Length::Open, seed);
    open_axis(&mut model, 1, "sequence");
    model
}

/// Whether the number of tokens is written into the model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Fixed,
    Open,
}

fn encoder(sizes: &BertSizes, length: Length, seed: u64) -> ModelProto {
    let mut b = Builder::new("bert", seed);
    let shape = [1, sizes.tokens];
    let ids = b.integer_input("input_ids", &shape);
    let types = b.integer_input("token_type_ids", &shape);
    let mask = b.integer_input("attention_mask", &shape);
    let mut x = embedding(&mut b, sizes, length, &ids, &types);
    let shared = Shared::new(&mut b, sizes, length, &mask);
    for layer in 0..sizes.layers {
        let name = format!("layer{layer}");
        let y = attention(&mut b, sizes, &shared, &name, &x);
        let sum = b.node("Add", &[&y, &x], Vec::new());
        x = normalisation(&mut b, &format!("{name}.attention"), &sum, sizes.width);
        let y = linear(&mut b, &format!("{name}.grow"), &x, [sizes.width, sizes.inner]);
        let y = gelu(&mut b, &shared, &y);
        let y = linear(&mut b, &format!("{name}.shrink"), &y, [sizes.inner, sizes.width]);
        let sum = b.node("Add", &[&y, &x], Vec::new());
        x = normalisation(&mut b, &format!("{name}.output"), &sum, sizes.width);
    }
    b.output("y", &x, &[1, sizes.tokens, sizes.width]);
    b.finish()
}

/// Constants and the additive mask that all layers read.
struct Shared {
    mask: Value,
    split: Value,
    join: Value,
    scale: Value,
    root_two: Value,
    one: Value,
    half: Value,
}

impl Shared {
    fn new(b: &mut Builder, sizes: &BertSizes, length: Length, mask: &Value) -> Self {
        let per_head = sizes.width / sizes.heads;
        let mut dims = [sizes.tokens, sizes.heads, per_head, sizes.width].map(|size| size as i64);
        if length == Length::Open {
            dims[0] = -1;
        }
        let axes = b.integers("mask.axes", &[1, 2]);
        let one = b.scalar("one", 1.0);
        let lowest = b.scalar("mask.lowest", -1e9);
        // 0 where a token counts, very low where it is padding; f32[1, 1, 1, tokens].
        let mask = b.node("Unsqueeze", &[mask, &axes], Vec::new());
        let mask = b.node("Cast", &[&mask], vec![integer("to", 1)]);
        let mask = b.node("Sub", &[&one, &mask], Vec::new());
        let mask = b.node("Mul", &[&mask, &lowest], Vec::new());
        Self {
            mask,
            split: b.integers("heads.split", &[1, dims[0], dims[1], dims[2]]),
            join: b.integers("heads.join", &[1, dims[0], dims[3]]),
            scale: b.scalar("attention.scale", (per_head as f32).sqrt()),
            root_two: b.scalar("gelu.root_two", std::f32::consts::SQRT_2),
            one,
            half: b.scalar("gelu.half", 0.5),
        }
    }
}

fn embedding(
    b: &mut Builder,
    sizes: &BertSizes,
    length: Length,
    ids: &Value,
    types: &Value,
) -> Value {
    let words = b.weight("embedding.words", &[sizes.words, sizes.width], 0.0, 0.02);
    let kinds = b.weight("embedding.types", &[2, sizes.width], 0.0, 0.02);
    let positions = b.weight("embedding.positions", &[1, sizes.tokens, sizes.width], 0.0, 0.02);
    let positions = match length {
        Length::Fixed => positions,
        Length::Open => first_positions(b, &positions, ids),
    };
    let words = b.node("Gather", &[&words, ids], Vec::new());
    let kinds = b.node("Gather", &[&kinds, types], Vec::new());
    let sum = b.node("Add", &[&words, &kinds], Vec::new());
    let sum = b.node("Add", &[&sum, &positions], Vec::new());
    normalisation(b, "embedding", &sum, sizes.width)
}

/// As many positions as there are tokens.
fn first_positions(b: &mut Builder, positions: &Value, ids: &Value) -> Value {
    let [zero, one] = [0, 1].map(|number| b.integers(&format!("positions.{number}"), &[number]));
    let shape = b.node("Shape", &[ids], Vec::new());
    let tokens = b.node("Gather", &[&shape, &one], Vec::new());
    b.node("Slice", &[positions, &zero, &tokens, &one], Vec::new())
}

fn attention(b: &mut Builder, sizes: &BertSizes, shared: &Shared, name: &str, x: &Value) -> Value {
    let heads = |b: &mut Builder, part: &str, order: [i64; 4]| {
        let y = linear(b, &format!("{name}.{part}"), x, [sizes.width, sizes.width]);
        let y = b.node("Reshape", &[&y, &shared.split], Vec::new());
        b.node("Transpose", &[&y], vec![integers("perm", &order)])
    };
    let query = heads(b, "query", [0, 2, 1, 3]);
    let key = heads(b, "key", [0, 2, 3, 1]);
    let value = heads(b, "value", [0, 2, 1, 3]);
    let scores = b.node("MatMul", &[&query, &key], Vec::new());
    let scores = b.node("Div", &[&scores, &shared.scale], Vec::new());
    let scores = b.node("Add", &[&scores, &shared.mask], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    let y = b.node("MatMul", &[&weights, &value], Vec::new());
    let y = b.node("Transpose", &[&y], vec![integers("perm", &[0, 2, 1, 3])]);
    let y = b.node("Reshape", &[&y, &shared.join], Vec::new());
    linear(b, &format!("{name}.project"), &y, [sizes.width, sizes.width])
}

/// `x` times a weight [before, after], plus a bias.
fn linear(b: &mut Builder, name: &str, x: &Value, [before, after]: [usize; 2]) -> Value {
    let deviation = 1.0 / (before as f32).sqrt();
    let weight = b.weight(&format!("{name}.weight"), &[before, after], 0.0, deviation);
    let bias = b.weight(&format!("{name}.bias"), &[after], 0.0, 0.02);
    let y = b.node("MatMul", &[x, &weight], Vec::new());
    b.node("Add", &[&bias, &y], Vec::new())
}

fn normalisation(b: &mut Builder, name: &str, x: &Value, width: usize) -> Value {
    let scale = b.weight(&format!("{name}.norm.scale"), &[width], 1.0, 0.02);
    let shift = b.weight(&format!("{name}.norm.shift"), &[width], 0.0, 0.02);
    let attributes = vec![integer("axis", -1), number("epsilon", 1e-12)];
    b.node("LayerNormalization", &[x, &scale, &shift], attributes)
}

/// x × (1 + erf(x / √2)) / 2, spelled out as exporters do.
fn gelu(b: &mut Builder, shared: &Shared, x: &Value) -> Value {
    let y = b.node("Div", &[x, &shared.root_two], Vec::new());
    let y = b.node("Erf", &[&y], Vec::new());
    let y = b.node("Add", &[&y, &shared.one], Vec::new());
    let y = b.node("Mul", &[x, &y], Vec::new());
    b.node("Mul", &[&y, &shared.half], Vec::new())
}
