//! Builds ONNX models on the spot, with seeded weights, for the demo and for tests.
//!
//! The same arguments give the same bytes on every machine: nothing is read, dated or rounded by the
//! machine's own mathematics library. A new architecture is one file and one line in [`build`].

mod audio;
mod bert;
mod convolutions;
mod decoder;
mod few_bits;
mod graph;
mod half_weights;
mod masked_attention;
mod mobilenet;
mod quantized;
mod resnet;
mod tagger;

pub use audio::{denoiser, speech};
pub use bert::{BertSizes, bert, bert_of_any_length};
pub use convolutions::convolutions;
pub use decoder::decoder;
pub use few_bits::few_bits;
pub use graph::{Builder, Value, integer, integers};
pub use half_weights::half_weights;
pub use hone_types::Random;
pub use masked_attention::masked_attention;
pub use mobilenet::mobilenet_v2;
pub use quantized::{integer_sums, quantized, quantized_dense, quantized_signed};
pub use resnet::{ResNetDepth, resnet, resnet_of_any_batch};
pub use tagger::{TaggerSizes, tagger};

use hone_import::onnx::proto::ModelProto;

/// The names that [`build`] knows.
pub const NAMES: [&str; 6] =
    ["resnet18", "resnet50", "resnet101", "mobilenet_v2", "bert-base", "masked-attention"];

/// The model called `name`, its weights drawn from `seed`; `None` if there is none of that name.
pub fn build(name: &str, seed: u64) -> Option<ModelProto> {
    Some(match name {
        "resnet18" => resnet(ResNetDepth::D18, 224, 1000, seed),
        "resnet50" => resnet(ResNetDepth::D50, 224, 1000, seed),
        "resnet101" => resnet(ResNetDepth::D101, 224, 1000, seed),
        "mobilenet_v2" => mobilenet_v2(224, 1000, seed),
        "bert-base" => bert(&BertSizes::default(), seed),
        "masked-attention" => masked_attention(seed),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use hone_import::onnx::proto::ModelProto;
    use prost::Message;

    use super::{
        BertSizes, ResNetDepth, TaggerSizes, bert, convolutions, few_bits, half_weights,
        masked_attention, mobilenet_v2, quantized, quantized_dense, resnet, tagger,
    };

    fn small() -> Vec<ModelProto> {
        let sizes = BertSizes { tokens: 8, words: 50, width: 32, heads: 4, inner: 64, layers: 2 };
        vec![
            resnet(ResNetDepth::D18, 32, 10, 3),
            resnet(ResNetDepth::D50, 32, 10, 3),
            mobilenet_v2(32, 10, 3),
            bert(&sizes, 3),
            masked_attention(3),
            quantized(16, 3),
            quantized_dense(16, 3),
            few_bits(2, 3),
            half_weights(2, 3),
            convolutions(16, 3),
            tagger(TaggerSizes { steps: 3, features: 5, hidden: 4, tags: 2 }, 3),
        ]
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        for (one, other) in small().iter().zip(small()) {
            assert!(one.encode_to_vec() == other.encode_to_vec());
        }
        let other = resnet(ResNetDepth::D18, 32, 10, 4);
        assert!(small()[0].encode_to_vec() != other.encode_to_vec());
    }

    #[test]
    fn every_value_is_defined_once_and_before_it_is_read() {
        for model in small() {
            let graph = model.graph.unwrap();
            let mut known = BTreeSet::new();
            let named = graph.input.iter().map(|input| input.name());
            for name in named.chain(graph.initializer.iter().map(|weight| weight.name())) {
                assert!(known.insert(name), "{name} is defined twice");
            }
            for node in &graph.node {
                for input in &node.input {
                    assert!(known.contains(input.as_str()), "{input} is read before it is made");
                }
                for output in &node.output {
                    assert!(known.insert(output), "{output} is defined twice");
                }
            }
            for output in &graph.output {
                assert!(known.contains(output.name()), "nothing makes {}", output.name());
            }
        }
    }

    #[test]
    fn networks_have_the_published_number_of_weights() {
        let count = |model: ModelProto| -> i64 {
            let weights = model.graph.unwrap().initializer;
            // Running means and variances are not counted as parameters.
            let counted = weights.iter().filter(|weight| {
                weight.data_type == Some(1)
                    && !weight.name().ends_with(".mean")
                    && !weight.name().ends_with(".variance")
                    && !weight.dims.is_empty()
            });
            counted.map(|weight| weight.dims.iter().product::<i64>()).sum()
        };
        assert_eq!(count(resnet(ResNetDepth::D18, 224, 1000, 1)), 11_689_512);
        assert_eq!(count(resnet(ResNetDepth::D50, 224, 1000, 1)), 25_557_032);
        assert_eq!(count(mobilenet_v2(224, 1000, 1)), 3_504_872);
    }
}
