//! Elements in order, from kernels and from the runtime, on lines with equal elements, zeros of both signs, infinities
//! and what is not a number.
#![allow(clippy::unwrap_used)]

use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph, evaluate};
use hone_ops::{Op, TopK};
use hone_runtime::Model;
use hone_types::{DataType, Random};

/// How often an element is not an ordinary number, of a hundred.
const STRANGE: [usize; 3] = [0, 5, 95];

fn element(random: &mut Random, dtype: DataType, strange: usize, most: f64) -> f64 {
    if dtype.is_float() && random.below(100) < strange {
        return *random.pick(&[f64::NAN, f64::NAN, f64::NEG_INFINITY, most, -0.0]).unwrap();
    }
    random.below(61) as f64 - 30.0
}

/// Lines and how many of their elements are wanted: found one after another, by counting ranks, and in blocks.
const BY_KERNELS: [(usize, usize); 3] = [(20, 3), (24, 9), (391, 2)];
/// Lines that the runtime collects from, and sorts.
const BY_RUNTIME: [(usize, usize); 4] = [(391, 9), (700, 40), (129, 129), (700, 300)];

#[test]
fn kernels_and_the_runtime_order_as_the_reference_does() {
    let mut random = Random::new(7);
    for dtype in [DataType::F32, DataType::F64, DataType::F16, DataType::BF16, DataType::I32] {
        let (mut graph, mut inputs) = (Graph::new(), Vec::new());
        let by_kernels = BY_KERNELS.iter().filter(|_| dtype == DataType::F32);
        let lines = by_kernels.chain(&BY_RUNTIME).flat_map(|line| [(line, true), (line, false)]);
        for (case, (&(extent, k), largest)) in lines.enumerate() {
            let (axis, strange) = (random.below(2), STRANGE[case % STRANGE.len()]);
            let shape = if axis == 0 { [extent, 3] } else { [3, extent] };
            // Blocks of a long line do not tell infinity from what is not a number.
            let most = if k < 3 { -1.0 } else { f64::INFINITY };
            let values: Vec<f64> =
                (0..3 * extent).map(|_| element(&mut random, dtype, strange, most)).collect();
            let x = graph.add_input(format!("x{case}"), TensorType::new(dtype, shape));
            inputs.push(Tensor::from_f64(dtype, shape, &values).unwrap());
            let top_k = TopK::new(k, axis, largest);
            assert_eq!(top_k.on_processors(extent).by_runtime, k > 9 || extent == 391 && k == 9);
            let found = graph.add_node("top_k", Op::new(top_k), &[Some(x)]).unwrap();
            graph.add_output(format!("values{case}"), found[0]);
            graph.add_output(format!("indices{case}"), found[1]);
        }
        let expected = evaluate(&graph, &inputs).unwrap();
        let options = Options::new(Target::host().unwrap());
        let artifact = compile_graph(graph.clone(), b"ordered", &options).unwrap().artifact;
        let mut model = Model::load_memory(artifact, &Default::default()).unwrap();
        let sizes = model.outputs().iter().map(|output| output.bytes as usize);
        let mut outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        model.run(&given, &mut slots).unwrap();
        for (index, (expected, bytes)) in expected.iter().zip(outputs).enumerate() {
            let found = Tensor::from_bytes(expected.tensor_type().clone(), bytes).unwrap();
            let (expected, found) = (expected.to_f64(), found.to_f64());
            let same = |(old, new): (&f64, &f64)| old == new || (old.is_nan() && new.is_nan());
            let of = inputs[index / 2].tensor_type();
            assert!(
                expected.iter().zip(&found).all(same),
                "output {index} of {of}: {found:?} for {expected:?}"
            );
        }
    }
}
