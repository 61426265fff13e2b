//! Whole networks, small enough for an emulator, and their answers by the reference interpreter.

use anyhow::{Context, Result, ensure};
use hone_driver::{DataType, Graph, ImportOptions, Tensor, evaluate, import};
use hone_model_builder::{
    BertSizes, Random, ResNetDepth, TaggerSizes, bert, few_bits, half_weights, mobilenet_v2,
    quantized, quantized_dense, resnet, tagger,
};
use hone_onnx_tests::Compiled;
use prost::Message;
use std::path::Path;

/// A network with inputs and the answers to them.
pub struct Model {
    /// What reports call it.
    pub name: &'static str,
    graph: Graph,
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
    tolerance: Tolerance,
}

/// How far a number may be from the expected one, as shares of the largest in its output.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Of every element, but for those below.
    error: f64,
    /// The share of elements that may be further: those that another order of additions rounds to the
    /// next integer inside of a quantized model.
    exceptions: f64,
    /// Of those elements: two steps of what their last layer rounds to.
    exception_error: f64,
}

/// Errors of single precision through tens of layers.
const FLOAT: Tolerance = Tolerance { error: 1e-4, exceptions: 0.0, exception_error: 0.0 };
const QUANTIZED: Tolerance = Tolerance { error: 1e-5, exceptions: 0.005, exception_error: 0.02 };

/// Every network, with its answers.
pub fn all() -> Result<Vec<Model>> {
    let encoder = BertSizes { tokens: 19, words: 90, width: 72, heads: 4, inner: 200, layers: 2 };
    let recurrent = TaggerSizes { steps: 11, features: 21, hidden: 36, tags: 9 };
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    let digits = std::fs::read(&digits).with_context(|| format!("{}", digits.display()))?;
    Ok(vec![
        Model::new("digits, 360 images", &digits, FLOAT)?,
        Model::new(
            "ResNet-18 at 64x64",
            &resnet(ResNetDepth::D18, 64, 10, 1).encode_to_vec(),
            FLOAT,
        )?,
        Model::new("MobileNetV2 at 64x64", &mobilenet_v2(64, 10, 2).encode_to_vec(), FLOAT)?,
        Model::new("transformer encoder", &bert(&encoder, 3).encode_to_vec(), FLOAT)?,
        Model::new("bidirectional LSTM", &tagger(recurrent, 4).encode_to_vec(), FLOAT)?,
        Model::new("weights of 16 bits", &half_weights(3, 8).encode_to_vec(), FLOAT)?,
        Model::new("quantized convolutions", &quantized(30, 5).encode_to_vec(), QUANTIZED)?,
        Model::new("quantized dense", &quantized_dense(30, 7).encode_to_vec(), QUANTIZED)?,
        Model::new("quantized to four bits", &few_bits(3, 6).encode_to_vec(), QUANTIZED)?,
    ])
}

impl Model {
    fn new(name: &'static str, bytes: &[u8], tolerance: Tolerance) -> Result<Self> {
        let graph = import(bytes, &ImportOptions::default())?.graph;
        let mut random = Random::new(77);
        let types = graph.inputs().iter().map(|port| graph.tensor_type(port.value).clone());
        let inputs: Vec<Tensor> = types
            .map(|own| {
                let mut element = || match own.dtype {
                    // Indices of words, kinds and masks: 0 and 1 are valid as each.
                    DataType::I64 => f64::from((random.bits() >> 63) as u8),
                    _ => f64::from(random.normal()),
                };
                let values: Vec<f64> = (0..own.elements()).map(|_| element()).collect();
                Tensor::from_f64(own.dtype, own.shape.clone(), &values)
            })
            .collect::<std::result::Result<_, _>>()?;
        let expected = evaluate(&graph, &inputs)?;
        Ok(Self { name, graph, inputs, expected, tolerance })
    }

    /// Whether one of its schedules has an intrinsic.
    pub fn has_intrinsic(&self, backend: &Compiled, intrinsic: &str) -> Result<bool> {
        let artifact = backend.artifact(&self.graph)?;
        let step = format!("intrinsic={intrinsic})");
        Ok(artifact.windows(step.len()).any(|part| part == step.as_bytes()))
    }

    /// Compiles and runs the network and compares: the largest difference in words, or `None` where
    /// nothing runs the code.
    pub fn check(&self, backend: &Compiled) -> Result<Option<String>> {
        let Some(outputs) = backend.run_graph(&self.graph, &self.inputs)? else { return Ok(None) };
        let mut largest: f64 = 0.0;
        let (mut further, mut elements) = (0, 0);
        for (output, expected) in outputs.iter().zip(&self.expected) {
            let expected = expected.to_f64();
            let magnitude = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            ensure!(magnitude > 0.0, "the expected answers are all 0");
            for (place, (found, expected)) in output.to_f64().iter().zip(&expected).enumerate() {
                let difference = (found - expected).abs() / magnitude;
                ensure!(difference.is_finite(), "element {place} is {found}, not {expected}");
                let is_further = difference > self.tolerance.error;
                ensure!(
                    !is_further || difference <= self.tolerance.exception_error,
                    "element {place} is {found}, not {expected}"
                );
                largest = largest.max(difference);
                further += usize::from(is_further);
                elements += 1;
            }
        }
        let most = (elements as f64 * self.tolerance.exceptions) as usize;
        ensure!(further <= most, "{further} of {elements} elements are off, {most} may be");
        let exceptions = match most {
            0 => String::new(),
            _ => format!(", {further} of {elements} elements rounded to another integer"),
        };
        Ok(Some(format!("largest difference {largest:.1e} of the largest number{exceptions}")))
    }
}
